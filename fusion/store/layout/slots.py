"""Slots of a Redis Cluster. All keys with one hash tag, the text in the first braces, are in one slot."""

from __future__ import annotations

import re

#: The name of a key that never exists, behind the prefix: the guard of each script call, see `fusion.store.scripting.scripts`. The rights of
#: a producer include it.
GUARD = "graph:_moving"
#: A tag is that of the whole key only if it is not empty.
_TAG = re.compile(r"[^{]*\{([^}]+)\}")


def tag_of(prefix: str) -> str:
    """Return the hash tag of a prefix; empty if it has none."""
    match = _TAG.match(prefix)
    return match[1] if match else ""


def slot_of(prefix: str) -> int:
    """Return the slot of all keys under a prefix with a hash tag."""
    from redis.crc import key_slot

    return key_slot(prefix.encode())
