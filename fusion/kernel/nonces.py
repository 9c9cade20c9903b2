"""Nonces: random names of calls. Redis recognizes by them a call that redis-py sends again after a lost answer."""

from __future__ import annotations

import secrets


def new_nonce() -> str:
    """48 random bits as hex, new for each call."""
    return secrets.token_hex(6)
