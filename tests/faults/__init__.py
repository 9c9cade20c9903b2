"""The crash suite: faults made on purpose, and what must hold under them (docs/guarantees.md)."""
