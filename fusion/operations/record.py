"""An operation as it is read and shown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fusion.kernel.scope import Scope
from fusion.operations.actions import ACTIONS
from fusion.store.layout.codec import number


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation. `total`: jobs that matched when it began; `done`, `skipped`, `refused`: jobs handled since. `why`: the number of skipped
    and refused jobs by reason; `examples`: one job for each reason. `kept`: how many of the deleted jobs the trash keeps. `carrier`: the
    process that runs it now, empty if none does. Times are by Redis's clock."""

    id: str
    action: str
    query: str
    status: str
    by: str = ""
    began_at: str = ""
    ended_at: str = ""
    canceled_by: str = ""
    total: int = 0
    done: int = 0
    skipped: int = 0
    refused: int = 0
    kept: int = 0
    carrier: str = ""
    why: Mapping[str, int] = field(default_factory=dict)
    examples: Mapping[str, str] = field(default_factory=dict)
    args: Mapping[str, str] = field(default_factory=dict)
    #: The queues to which its author is restricted; None if the author is not restricted.
    within: tuple[str, ...] | None = None
    #: Identifies its request, if that came with an idempotency key; otherwise empty.
    nonce: str = ""

    @classmethod
    def of(cls, operation: str, row: Mapping[str, str], now_ms: float) -> Operation:
        """Return the operation of a stored record."""
        args, within = (_json(row.get(name)) for name in ("args", "within"))
        alive = number(row.get("carried_until")) > now_ms
        return cls(
            operation,
            row.get("action", ""),
            row.get("query", ""),
            row.get("status", ""),
            by=row.get("by", ""),
            began_at=row.get("cutoff", ""),
            ended_at=row.get("ended_at", ""),
            canceled_by=row.get("canceled_by", ""),
            total=number(row.get("total")),
            done=number(row.get("done")),
            skipped=number(row.get("skipped")),
            refused=number(row.get("refused")),
            kept=number(row.get("kept")),
            carrier=row.get("carrier", "") if alive else "",
            why={name[4:]: number(value) for name, value in sorted(row.items()) if name.startswith("why:")},
            examples={name[8:]: value for name, value in sorted(row.items()) if name.startswith("example:")},
            args={name: str(value) for name, value in args.items()} if isinstance(args, dict) else {},
            within=tuple(map(str, within)) if isinstance(within, list) else None,
            nonce=row.get("nonce", ""),
        )

    @property
    def came(self) -> int:
        """Jobs handled so far."""
        return self.done + self.skipped + self.refused

    @property
    def word(self) -> str:
        """The word for a job that it has changed."""
        return ACTIONS[self.action].done if self.action in ACTIONS else "done"

    def visible(self, scope: Scope) -> bool:
        """Return True if a viewer of this scope may see it: unrestricted viewers may, others only if its author's queues are among theirs."""
        return scope.queues is None or (self.within is not None and set(self.within) <= set(scope.queues))


def _json(text: str | None) -> Any:
    try:
        return json.loads(text or "null")
    except (ValueError, RecursionError):
        return None
