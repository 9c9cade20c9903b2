"""Recurring tasks: when they are due, what is stored of them, and how they are declared."""
