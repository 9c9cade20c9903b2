"""Where a page of a search begins, as a client hands it back."""

from __future__ import annotations

import base64
import binascii
import json
import math
from dataclasses import dataclass, field

from fusion.exceptions import InvalidQuery

#: A score and a member, as Redis orders them.
Place = tuple[float, bytes]
_LONGEST = 20_000


@dataclass(frozen=True, slots=True)
class Searched:
    """How far a state was looked through. `total`: jobs in it; `cut`: those behind were not looked at."""

    state: str
    looked: int
    total: int
    cut: bool


@dataclass(slots=True)
class Cursor:
    """Where a page begins: the stage, the place in it, how many were looked at there, what was cut before, and ids that were shown out of turn."""

    stage: str = ""
    place: Place | None = None
    looked: int = 0
    cut: list[Searched] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)

    def text(self) -> str:
        """As a client hands it back."""
        place = self.place and [repr(self.place[0]), self.place[1].decode("latin-1")]
        cut = [[one.state, one.looked, one.total] for one in self.cut]
        raw = json.dumps([1, self.stage, place, self.looked, cut, self.shown], separators=(",", ":")).encode()
        return base64.urlsafe_b64encode(raw).decode().rstrip("=")

    @classmethod
    def read(cls, text: str) -> Cursor:
        """What `text` made; InvalidQuery for anything else."""
        try:
            if not text:
                return cls()
            if len(text) <= _LONGEST and (found := cls._sound(text)) is not None:
                return found
        except (ValueError, TypeError, AttributeError, IndexError, KeyError, RecursionError, OverflowError, binascii.Error):
            pass
        raise unknown()

    @classmethod
    def _sound(cls, text: str) -> Cursor | None:
        version, stage, place, looked, cut, shown = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        found = None if place is None else (float(place[0]), place[1].encode("latin-1"))
        cuts = [Searched(str(state), int(seen), int(total), True) for state, seen, total in cut]
        sound = version == 1 and isinstance(stage, str) and type(looked) is int and not (found and math.isnan(found[0]))
        return cls(stage, found, max(0, looked), cuts, shown) if sound and all(isinstance(one, str) for one in shown) else None


def unknown() -> InvalidQuery:
    """The error for an `after` that no page gave, or that of another query."""
    return InvalidQuery(
        "this is no end of a page of this query: take it as the page before gave it, or leave it out", field="after"
    )
