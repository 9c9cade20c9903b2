"""Titles of jobs, which say what they do, by their ids: for lists that have the ids alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fusion.dashboard.page import PageRequest
from fusion.exceptions import InvalidName
from fusion.store.layout.names import check_job_id
from fusion.store.query.lexer import Term
from fusion.web.exchange import HttpError

#: Most jobs whose titles one page reads, and of these in one call: a query has at most 10,000 characters.
MOST, _TOGETHER = 150, 50
#: The order of the states of related jobs: what needs a person stands first.
_FIRST = ("failed", "started", "blocked", "queued", "scheduled", "deferred", "stopped", "canceled", "finished")


def named(view: PageRequest, ids: Iterable[str | None]) -> dict[str, Mapping[str, Any]]:
    """Return these jobs by their ids, as a search shows them: function, description, state, age. Jobs that are gone, or that the viewer may not
    see, are missing, and so are those beyond `MOST`."""
    wanted = [one for one in dict.fromkeys(ids) if one and _is_id(one)][:MOST]
    found = dict[str, Mapping[str, Any]]()
    for start in range(0, len(wanted), _TOGETHER):
        part = wanted[start : start + _TOGETHER]
        try:
            rows = view.get("/jobs", query=Term("id", tuple(part)).text, limit=_TOGETHER)["jobs"]
        except HttpError as error:
            if error.status != 422:
                raise
            rows = []
        found.update((one["id"], one) for one in rows)
    return found


def failed_first(rows: Iterable[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return rows with a `status` in this order: failed ones, those that run, those that wait, and those that ended otherwise."""
    return sorted(rows, key=lambda one: _FIRST.index(one["status"]) if one["status"] in _FIRST else len(_FIRST))


def _is_id(name: str) -> bool:
    try:
        check_job_id(name)
    except InvalidName:
        return False
    return True
