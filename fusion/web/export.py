"""Export lists as files with `?format=csv` or `jsonl`. The rows come page by page from the route itself, with its masks and restrictions."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from typing import Any
from unicodedata import normalize
from urllib.parse import quote

from fusion.web.exchange import HttpError, Request, Response, whole
from fusion.web.routing import FORMATS, MOST, ROWS, Route

#: Rows that are read at a time.
_PAGE = 500
_KINDS = {"csv": "text/csv; charset=utf-8", "jsonl": "application/x-ndjson"}
#: Characters that a spreadsheet takes for the beginning of a formula.
_FORMULA = frozenset("=+-@")


def exported(route: Route, request: Request) -> Response:
    """Return the answer of a route, as a file if `format` asks for one. HttpError 422 for an unknown format, or if the answer is no list."""
    wanted = request.args().get("format", "json") if request.query else "json"
    if wanted == "json":
        return route.handler(request)
    if wanted not in FORMATS or route.rows is None:
        known = ", ".join(FORMATS) if route.rows else "json, as this is not a list"
        raise HttpError(422, "invalid_value", f"format: use {known}", field="format")
    left = whole(request.args(), "limit", ROWS, MOST)
    first, more = _page(route, request, 1 if request.method == "HEAD" else left, {})
    pages = _rest(route, request, first, more, left)
    parts = _as_csv(pages) if wanted == "csv" else _as_lines(pages)
    headers = {"Content-Type": _KINDS[wanted], "Content-Disposition": f'attachment; filename="{route.action}.{wanted}"'}
    return Response(200, b"", headers, parts=parts)


def _rest(
    route: Route, request: Request, rows: list[dict[str, Any]], more: dict[str, str], left: int
) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows page by page. A page may be empty and not the last."""
    while True:
        if rows:
            yield rows[:left]
        left -= len(rows)
        if left <= 0 or not more:
            return
        rows, more = _page(route, request, left, more)


def _page(route: Route, request: Request, limit: int, more: dict[str, str]) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return some rows, and the parameters for the next page; empty if there is none."""
    assert route.rows is not None
    names = {param.name: param.most for param in route.params}
    most = names.get("limit") or _PAGE
    if {"after", "offset"} & names.keys():  # else all is in one page
        most = min(most, _PAGE)
    limit = max(1, min(limit, most))
    args = {**request.args(), **more} | ({"limit": str(limit)} if "limit" in names else {})
    request.query = "&".join(
        f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in args.items() if name != "format"
    )
    document = route.handler(request).document
    rows = [row if isinstance(row, dict) else {"id": row} for row in document[route.rows]]
    if "after" in names:
        after = document.get("after")
        return rows, {"after": str(after)} if after else {}
    if "offset" in names and len(rows) == limit:
        return rows, {"offset": str(whole(args, "offset", 0, 10**9) + len(rows))}
    return rows, {}


def _as_lines(pages: Iterable[list[dict[str, Any]]]) -> Iterator[bytes]:
    for rows in pages:
        yield "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows).encode()


def _as_csv(pages: Iterable[list[dict[str, Any]]]) -> Iterator[bytes]:
    """Yield the rows as CSV. The columns are those of the first page; a value that is no text or number is written as JSON."""
    columns: list[str] = []
    for rows in pages:
        if not columns:
            columns = list(dict.fromkeys(name for row in rows for name in row))
            yield _lines([columns])
        yield _lines([row.get(name) for name in columns] for row in rows)


def _lines(rows: Iterable[list[Any]]) -> bytes:
    written = io.StringIO()
    csv.writer(written, lineterminator="\r\n").writerows(map(cell, row) for row in rows)
    return written.getvalue().encode()


def cell(value: Any) -> str:
    """Return a value that is safe in a spreadsheet: on one line, without invisible characters, and not a formula."""
    if value is None:
        return ""
    if isinstance(value, (bool, int, float)):
        return json.dumps(value)
    raw = value if isinstance(value, str) else json.dumps(value, allow_nan=False)
    text = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in raw)
    begins = normalize("NFKC", text[:1])[:1] or raw[:1]
    return f"'{text}" if begins in _FORMULA or raw.startswith(("\t", "\r", "\n")) else text
