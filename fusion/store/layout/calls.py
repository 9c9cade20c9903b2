"""The function that a stored job calls, told without loading anything of it."""

from __future__ import annotations

from collections.abc import Mapping

from fusion.exceptions import FusionError
from fusion.kernel.importing import LONGEST_NAME
from fusion.kernel.serializers import JSONSerializer, PickleSerializer, split_call
from fusion.store.layout.codec import text


def function_of(row: Mapping[str, bytes | None]) -> str:
    """The name of the function that a job calls, from `func` or its call (`data`, `serializer`); empty if it can't be read. Of a name that is
    longer than a task's may be, which no worker runs, the beginning."""
    name = _whole(row)
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 3] + "..."


def about_of(row: Mapping[str, bytes | None]) -> str:
    """The description of a job; empty if it is only the name of its function."""
    about = text(row.get("description"))
    return "" if not about or about in (text(row.get("func")), function_of(row)) else about


def _whole(row: Mapping[str, bytes | None]) -> str:
    if row.get("func"):
        return text(row["func"])
    data = row.get("data")
    if data is None:
        return ""
    try:
        if text(row.get("serializer"), "json") == "pickle":
            # Never loaded, whatever is allowed: a job may be here because its signature was refused.
            return PickleSerializer().first_text(data)
        return split_call(JSONSerializer(), data)[0]
    except FusionError:
        return ""
