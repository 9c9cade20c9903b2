"""Findings of `doctor`: the sentence, the commands that fix it, to be copied, and a button if the API can fix it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from fusion.dashboard.filters import plural
from fusion.dashboard.page import PageAction, PageRequest, Said
from fusion.web.exchange import HttpError

#: The beginning and the end of a command within a longer line.
_COMMAND = re.compile(r"(?:run_worker\.py|\bfusion|redis-cli|export|timedatectl|chronyc) .*")
_LIGHTS = {"fail": "bad", "warn": "warn", "note": "good"}
#: Seconds for which a verdict is cached.
KEPT = 2.0


def shown(findings: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return findings as their template needs them: `light`, and `lines`, pairs of a text and the command in it."""
    return [{**one, "light": _LIGHTS[one["level"]], "lines": [(line, command(line)) for line in one["fix"]]} for one in findings]


def command(line: str) -> str:
    """Return the command in a line, without the words around it; empty if there is none."""
    found = _COMMAND.search(line)
    return re.sub(r", [^'\"]*$", "", found[0]) if found else ""


def mend(view: PageRequest) -> str | Said:
    """Make the API calls that fix a finding, if it still exists."""
    check, about, label = (view.field(name) for name in ("check", "about", "label"))
    where = view.get("/info", kept=KEPT)["verdict"]["causes"]
    found = next(
        (
            one["mend"]
            for one in where
            if (one["check"], one["about"]) == (check, about) and one["mend"] and one["mend"]["label"] == label
        ),
        None,
    )
    if found is None:
        return Said("This finding no longer exists, and nothing was done.", wrong=True)
    done, refused = list[Any](), list[str]()
    for call in found["calls"]:
        try:
            done.append(view.post(call["path"].removeprefix("/api/v1"), call["body"]))
        except HttpError as error:
            if error.status not in (404, 409, 422, 429):
                raise
            refused.append(str(error))
    if refused:
        return Said(f"{label}: {len(done)} done, {len(refused)} refused: {refused[0]}", wrong=not done)
    if found["calls"][0]["path"].endswith("/operations"):
        return Said(
            f"{label}: begun, {plural(done[0]['matched'], 'job matches', 'jobs match')}.", to=f"/operations/{done[0]['id']}"
        )
    return f"{label}: done. The verdict follows within some seconds."


ACTIONS = (PageAction("/mend", mend),)
