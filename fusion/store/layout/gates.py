"""What is set for single queues, as the hash `rq:gates` holds it by queue: `name=value` texts with a space between, times in ms. The other
half is `lua/include/lib/gate.lua`."""

from __future__ import annotations

from collections.abc import Mapping

from fusion.store.layout import codec


def read_gate(stored: bytes | str | None) -> dict[str, str]:
    """The values of a queue by name; of nothing, and of what is no such text, none."""
    words = (word.partition("=") for word in codec.text(stored or b"").split())
    return {name: value for name, _, value in words if name and value}


def number(gate: Mapping[str, str], name: str) -> int | None:
    """A whole number over 0 of such values; None where there is none."""
    value = gate.get(name, "")
    return int(value) if value.isascii() and value.isdecimal() and 0 < len(value) < 16 and int(value) else None
