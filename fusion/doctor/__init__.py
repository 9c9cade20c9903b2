"""Is it healthy, and if not, why, and what mends it. Looks only; every look is bounded."""
