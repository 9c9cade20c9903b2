"""Names of the keys of outboxes in databases; a part of `Keys`."""

from __future__ import annotations

from dataclasses import dataclass

from fusion.store.layout.kin_keys import KinKeys


@dataclass(frozen=True)
class OutboxKeys(KinKeys):
    """The part of `Keys` that outboxes need."""

    def outbox(self, outbox_id: str) -> str:
        """The number of the last batch that a database's outbox had accepted, by queue."""
        return f"{self.prefix}outbox:{outbox_id}"
