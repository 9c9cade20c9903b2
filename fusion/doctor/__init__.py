"""Check the health of a fleet: what is wrong, why, and how to fix it. Read-only; each check reads a bounded amount."""
