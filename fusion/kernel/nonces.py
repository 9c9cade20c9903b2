"""Nonces: random names of calls. By them Redis recognizes a call that redis-py sends again after a lost reply."""

from __future__ import annotations

import secrets


def new_nonce() -> str:
    """Return 48 random bits as hex, new for each call."""
    return secrets.token_hex(6)
