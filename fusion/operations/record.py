"""An operation as people see it."""

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
    """One operation. `total`: jobs that matched when it began; `done`, `skipped`, `refused`: those that it came to since; `why`: how many of
    the last two by word, `examples`: one of each. `kept`: of those that were
    deleted, how many the trash keeps. `carrier`: who carries it on now, empty if nobody says so. Times as Redis's clock says."""

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
    #: The queues to which whoever began it is restricted; None for nobody's.
    within: tuple[str, ...] | None = None
    #: What its request was, if it came with a key that makes it one; empty for others.
    nonce: str = ""

    @classmethod
    def of(cls, operation: str, row: Mapping[str, str], now_ms: float) -> Operation:
        """Read a record."""
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
        """Jobs that it came to so far."""
        return self.done + self.skipped + self.refused

    @property
    def word(self) -> str:
        """What its jobs are once it was done to them."""
        return ACTIONS[self.action].done if self.action in ACTIONS else "done"

    def visible(self, scope: Scope) -> bool:
        """True if somebody of this scope may see it: it was begun by somebody restricted to some of the same queues."""
        return scope.queues is None or (self.within is not None and set(self.within) <= set(scope.queues))


def _json(text: str | None) -> Any:
    try:
        return json.loads(text or "null")
    except (ValueError, RecursionError):
        return None
