"""The part of the Broker that writes statistics, which are not part of a job's state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fusion.store.layout.history import MOST_NAMES
from fusion.store.scripting.host import ScriptHost, to_ms

#: For each queue ("queue", name) and function ("function", name): minutes ago, field, count. For ("keyless", function) one row (0, "",
#: count).
Series = Mapping[tuple[str, str], Sequence[tuple[int, str, int]]]


class HistoryBroker(ScriptHost):
    """Counts and times of the jobs that workers ran."""

    def note_history(self, worker: str, number: int, series: Series) -> None:
        """Add a worker's counts for queues and functions. `number`: the number of the call, from 1 on while the worker is registered; a
        resend adds nothing."""
        args = {"number": number, "most": MOST_NAMES, "n_series": len(series)}
        rest: list[object] = []
        for name, rows in series.items():
            rest += (*name, len(rows))
            for row in rows:
                rest += row
        keys = {
            "worker": self.keys.worker(worker),
            "queues": self.keys.history_names("queue"),
            "functions": self.keys.history_names("function"),
            "keyless": self.keys.history("keyless"),
        }
        self._script("note_history")(keys, args, rest)

    def sample(self, interval: float, limit: int = 50) -> bool:
        """Record for up to `limit` queues how many jobs wait, and how long the oldest has waited; True if there are more queues. A pass
        begins when the last one began `interval` seconds ago."""
        keys = {"queues": self.keys.queues, "sample": self.keys.sample, "names": self.keys.history_names("queue")}
        return bool(self._script("sample")(keys, {"interval_ms": to_ms(interval), "limit": limit, "most": MOST_NAMES}))
