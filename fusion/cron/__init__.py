"""Recurring jobs: the arithmetic of their ticks, the stored form of an entry, and the two ways to make one."""
