"""The list of relays in Redis, with the sinks that each serves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fusion.kernel import defaults
from fusion.runtime.membership import Held, own_fields
from fusion.settings import Settings
from fusion.store.write.event_broker import EventBroker


class RelayListing:
    """The entry of one relay. It also shows which sinks have not answered for a while."""

    def __init__(self, settings: Settings, broker: EventBroker, sinks: Sequence[str]) -> None:
        self._settings, self._broker, self._sinks = settings, broker, sinks
        self._fields = {**own_fields(), "sinks": ",".join(sinks)}
        #: Seconds without a heartbeat after which other relays deliver the events that a relay holds.
        self.lease = min(settings.lease, defaults.RELAY_LEASE)
        #: Text that names the sinks that do not answer; sent with the next heartbeat.
        self.busy = ""

    def register(self, name: str, incarnation: str, notes: Mapping[str, str]) -> bool:
        """See `Listing`."""
        ttl, backlog = self._settings.worker_ttl, self._settings.events_backlog if self._sinks else 0
        fields = {**self._fields, "busy": self.busy}
        return self._broker.relay_beat(name, incarnation, self.lease, ttl, self._sinks, backlog, fields)

    def beat(self, name: str, incarnation: str, held: Sequence[Held]) -> tuple[bool, list[str]]:
        """Renew the entry."""
        return self.register(name, incarnation, {}), []

    def leave(self, name: str, incarnation: str) -> int:
        """Remove the entry: other relays get this relay's events at once. It holds no jobs."""
        self._broker.relay_leave(name, incarnation)
        return 0
