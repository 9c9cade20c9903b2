"""The start of a page of a search, as clients send it back, and how far the search got, in words."""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from fusion.exceptions import InvalidQuery
from fusion.kernel.states import ENDED
from fusion.store.query.sources import BATCH

#: A score and a member, as Redis orders them.
Place = tuple[float, bytes]
_LONGEST = 20_000
#: State -> what comes first in a page of it, in words.
_FIRST = {"started": "longest running"} | dict.fromkeys(ENDED, "newest")


@dataclass(frozen=True, slots=True)
class Searched:
    """The progress of the search of a state. `total`: jobs in it. `cut`: jobs behind the limit are not examined. `goes_on`: the page ran out of
    time, and the next one continues."""

    state: str
    looked: int
    total: int
    cut: bool
    goes_on: bool = False


@dataclass(slots=True)
class Cursor:
    """The beginning of a page: the stage, the place in it, how many were examined there, what was cut before, and ids that were shown out of
    turn."""

    stage: str = ""
    place: Place | None = None
    looked: int = 0
    cut: list[Searched] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)

    def text(self) -> str:
        """Return the cursor as text, as a client sends it back."""
        place = self.place and [repr(self.place[0]), self.place[1].decode("latin-1")]
        cut = [[one.state, one.looked, one.total] for one in self.cut]
        raw = json.dumps([1, self.stage, place, self.looked, cut, self.shown], separators=(",", ":")).encode()
        return base64.urlsafe_b64encode(raw).decode().rstrip("=")

    @classmethod
    def read(cls, text: str) -> Cursor:
        """Parse what `text` made; InvalidQuery for anything else."""
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
    """Return the error for an `after` that no page of this query returned."""
    return InvalidQuery(
        "this is not a cursor of this query: pass it as the page before returned it, or leave it out", field="after"
    )


def in_words(searched: Sequence[Searched]) -> str:
    """Describe, in a sentence without its end, what was not examined, and what the next page examines; empty if neither."""
    cut = [_how_far(one) for one in searched if one.cut]
    parts = ["searched " + " and ".join(cut)] if cut else []
    for one in searched:
        if one.goes_on and one.looked:
            parts.append(f"looked at {_how_far(one)}; the next page goes on")
        elif one.goes_on:
            parts.append(f"the next page goes on with {_named(one)}")
    return "; ".join(parts)


def _how_far(one: Searched) -> str:
    first = f"the {_FIRST.get(one.state, 'first')}"
    return f"{first} {one.looked:,} of {one.total:,} {_named(one)}" if one.looked < one.total else f"only {first} {_named(one)}"


def _named(one: Searched) -> str:
    return "members of the batch" if one.state == BATCH else f"{one.state} jobs"
