"""What people change about sinks: parked events that were delivered after all, and sinks that are no more."""

from __future__ import annotations

from collections.abc import Sequence

from redis import Redis

from fusion.kernel import defaults
from fusion.store.layout.keys import Keys
from fusion.store.read.event_inspector import EventInspector


class EventAdmin:
    def __init__(self, connection: Redis, *, prefix: str = defaults.KEY_PREFIX) -> None:
        self.connection = connection
        self.keys = Keys(prefix)

    def unpark(self, sink: str, entries: Sequence[str]) -> int:
        """Parked events are done with: how many there were."""
        return int(self.connection.xdel(self.keys.parked(sink), *entries)) if entries else 0

    def forget(self, sink: str) -> bool:
        """Keep nothing for this sink any more, what is parked included; False if it was not known. After the last one the stream is
        kept short again."""
        pipe = self.connection.pipeline(transaction=False)
        pipe.xgroup_destroy(self.keys.events, sink)
        pipe.delete(self.keys.sink(sink), self.keys.parked(sink))
        destroyed, deleted = pipe.execute(raise_on_error=False)
        if not EventInspector(self.connection, prefix=self.keys.prefix).sink_names():
            self.connection.hdel(self.keys.events_meta, "cap", "cap_until")
        return destroyed == 1 or (isinstance(deleted, int) and deleted > 0)
