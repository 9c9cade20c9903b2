"""The rows of a list that somebody chose, and doing one thing to each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fusion.dashboard.page import Said, View
from fusion.web.exchange import HttpError

#: Rows of one form.
MOST = 200
#: Reasons that are told.
TOLD = 3


def chosen(view: View) -> list[str]:
    """The fields `id` of the form: checked rows, or the one whose button was pressed. `shown` in their place if that is what `all` asks for."""
    return list(dict.fromkeys(view.form.get("shown" if view.field("all") else "id", [])))[:MOST]


def refusals(ids: Sequence[str], act: Callable[[str], object]) -> dict[str, str]:
    """Do it to each, and return why not to those that refused. HttpError for what is wrong with all of them."""
    refused: dict[str, str] = {}
    for one in ids:
        try:
            act(one)
        except HttpError as error:
            if error.status not in (404, 409, 422, 429):
                raise
            refused[one] = str(error)
    return refused


def each(ids: Sequence[str], done: str, act: Callable[[str], object]) -> Said:
    """Do it to each, and tell how many it was `done` to and why not to others."""
    if not ids:
        return Said("Nothing was chosen; tick the rows first.", wrong=True)
    refused = refusals(ids, act)
    if len(ids) == 1:
        return Said(refused.get(ids[0]) or f"Job {ids[0]} is {done}.", wrong=bool(refused))
    told = [f"{len(ids) - len(refused):,} of {len(ids):,} jobs are {done}."]
    told += [f"{one}: {why}." for one, why in list(refused.items())[:TOLD]]
    if len(refused) > TOLD:
        told.append(f"And {len(refused) - TOLD:,} more were not.")
    return Said(" ".join(told), wrong=bool(refused))
