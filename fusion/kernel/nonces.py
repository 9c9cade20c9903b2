"""Nonces: what makes a call to Redis recognizable when the client sends it again (redis-py resends after a lost answer)."""

from __future__ import annotations

import secrets


def new_nonce() -> str:
    """48 random bits as hex, new for each call."""
    return secrets.token_hex(6)
