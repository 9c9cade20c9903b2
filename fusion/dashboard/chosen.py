"""The selected rows of a list, and an action on each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fusion.dashboard.page import PageRequest, Said
from fusion.web.exchange import HttpError

#: Most rows of one form.
MOST = 200
#: Most reasons that are shown.
TOLD = 3


def chosen(view: PageRequest) -> list[str]:
    """Return the fields `id` of the form: the checked rows, or the one whose button was pressed. With the field `all`, return the fields `shown`."""
    return list(dict.fromkeys(view.form.get("shown" if view.field("all") else "id", [])))[:MOST]


def refusals(ids: Sequence[str], act: Callable[[str], object]) -> dict[str, str]:
    """Call `act` for each id; return the reasons of those that were refused. HttpError if the call fails for a reason that concerns all."""
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
    """Call `act` for each id; return the message with the number of those `done`, and the reasons of the others."""
    if not ids:
        return Said("No row is selected; tick the rows first.", wrong=True)
    refused = refusals(ids, act)
    if len(ids) == 1:
        return Said(refused.get(ids[0]) or f"Job {ids[0]} is {done}.", wrong=bool(refused))
    told = [f"{len(ids) - len(refused):,} of {len(ids):,} jobs are {done}."]
    told += [f"{one}: {why}." for one, why in list(refused.items())[:TOLD]]
    if len(refused) > TOLD:
        told.append(f"And {len(refused) - TOLD:,} more were not.")
    return Said(" ".join(told), wrong=bool(refused))
