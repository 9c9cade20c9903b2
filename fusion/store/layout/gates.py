"""Limits and other values of single queues, as the hash `rq:gates` holds it by queue: `name=value` texts with a space between, times in ms. The other
half is `lua/include/lib/gate.lua`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from fusion.kernel.rates import Rate
from fusion.store.layout import codec


@dataclass(frozen=True, slots=True)
class Gate:
    """The bounds of a queue as a whole.

    - `max_wait`: seconds; `held_back`: until when a task holds the queue back; `closed`: jobs wait now for its rate or for that time;
    - `max_length`: the most jobs that may wait, blocked ones included; `timeout`: seconds after which a job without a ttl expires. If one of these
      two is None, the setting of the producer applies.
    """

    limit: int | None = None
    rate: Rate | None = None
    max_wait: float | None = None
    held_back: datetime | None = None
    closed: bool = False
    max_length: int | None = None
    timeout: float | None = None

    @property
    def bounded(self) -> bool:
        """True if an operator has set something."""
        return (self.limit, self.rate, self.max_wait, self.max_length, self.timeout) != (None,) * 5

    @classmethod
    def of(cls, values: Mapping[str, str], *, closed: bool = False) -> Gate:
        """Take it from what is set for a queue; what is no value of ours is none."""
        wait, until, timeout = number(values, "max_wait"), number(values, "until"), number(values, "timeout")
        held_back = datetime.fromtimestamp(until / 1000, timezone.utc) if until and until < 1e14 else None
        rate = Rate.of_stored(values.get("rate", ""))
        return cls(
            number(values, "limit"),
            rate,
            None if wait is None else wait / 1000,
            held_back,
            closed,
            number(values, "max_length"),
            None if timeout is None else timeout / 1000,
        )


def read_gate(stored: bytes | str | None) -> dict[str, str]:
    """The values of a queue by name; of nothing, and of what is no such text, none."""
    values = {}
    for word in codec.text(stored or b"").split():
        name, _, value = word.partition("=")
        if name and value:
            values[name] = value
    return values


def number(gate: Mapping[str, str], name: str) -> int | None:
    """A whole number over 0 of such values; None where there is none."""
    value = gate.get(name, "")
    return int(value) if value.isascii() and value.isdecimal() and 0 < len(value) < 16 and int(value) else None


def gate_words(queue: str, values: Mapping[str, str | int | None], of_setting: bool = False) -> tuple[dict[str, Any], list[str]]:
    """The arguments of `set_gate`, and what follows them."""
    pairs = [word for name, value in values.items() for word in (name, "" if value is None else str(value))]
    return {"queue": queue, "n_pairs": len(pairs), "of_setting": int(of_setting)}, pairs
