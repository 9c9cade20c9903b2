"""A task module whose import takes memory from the C library, and gives most of it back to that."""

from __future__ import annotations

# Over 512 bytes each: Python has no pool for those. What is kept at the end holds all before it in the heap.
_pieces = [bytes(1000) for _ in range(20_000)]
kept = bytes(1000)
del _pieces
