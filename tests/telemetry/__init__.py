"""Traces and error reports of real workers, at collectors of the tests."""
