"""The part of the Broker that deals with what is set for single queues."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

from fusion.store.layout.gates import read_gate
from fusion.store.scripting.host import ScriptHost


class GateBroker(ScriptHost):
    """What holds for one queue over the whole fleet, from the next claim or enqueue on."""

    def set_gate(self, queue: str, values: Mapping[str, str | int | None]) -> dict[str, str]:
        """Set these values of a queue, each by its name; None takes one back, others stay. Returns all that are set now."""
        pairs = [*chain.from_iterable((name, "" if value is None else str(value)) for name, value in values.items())]
        return read_gate(self._script("set_gate")({}, {"queue": queue, "n_pairs": len(pairs)}, pairs))
