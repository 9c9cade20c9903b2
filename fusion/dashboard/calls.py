"""Calls the HTTP API in this process with the viewer's rights: a page has exactly the API's permissions."""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote, urlencode

from fusion.web.app import check_allowed
from fusion.web.exchange import HttpError, Request, Response
from fusion.web.export import FORMATS, exported
from fusion.web.routing import Router

#: Seconds for which an answer is shown again: who looks every second, or looks with many others, asks Redis once.
KEPT = 1.0
#: One that took long is shown again for so many times as long, and no longer than so many seconds: it costs Redis no more than a 20th of its time.
_TIMES, LONGEST = 20, 5.0
#: Answers kept at a time.
_MOST = 500


class Calls:
    """Calls routes of the API. What it read is kept for a moment, until something is changed through it."""

    def __init__(self, router: Router, clock: Callable[[], float] = time.monotonic) -> None:
        self._router, self._clock = router, clock
        self._kept: dict[tuple[object, ...], _Answer] = {}
        self._lock = threading.Lock()

    def get(self, asked: Request, path: str, args: Mapping[str, object], kept: float = KEPT) -> Any:
        """The document of a GET. Several who ask for the same at once wait for one answer. Raises HttpError as the API tells it."""
        query = urlencode({name: value for name, value in args.items() if value is not None})
        actor = asked.actor
        key = (path, query, actor and actor.scopes, actor and actor.scope)
        with self._lock:
            answer = self._kept.get(key)
            if answer is None or answer.until < self._clock():
                if len(self._kept) >= _MOST:
                    self._kept.clear()
                answer = self._kept[key] = _Answer()
        with answer.lock:
            if answer.until < self._clock():
                begun = time.perf_counter()
                answer.document = self._call(asked, "GET", path, query, None)
                took = time.perf_counter() - begun
                answer.until = self._clock() + max(kept, min(_TIMES * took, LONGEST))
            return answer.document

    def change(self, asked: Request, method: str, path: str, body: object = None, *, key: str = "") -> Any:
        """The document of a call that changes something. `key`: the same again is done once, where the API can tell (`Idempotency-Key`)."""
        try:
            return self._call(asked, method, path, "", body, key)
        finally:
            with self._lock:
                self._kept.clear()

    def export(self, asked: Request) -> Response:
        """A list of the API as a file. The path names its format and the list, the query is the list's."""
        kind = asked.params["format"]
        if kind not in FORMATS or kind == "json":
            raise HttpError(404, "not_found", "lists are exported as csv or jsonl")
        path, query = f"/api/v1/{asked.params['key']}", "&".join(filter(None, (asked.query, f"format={kind}")))
        request = Request(asked.method, path, {}, query=query, client=asked.client, actor=asked.actor)
        methods, request.params = self._router.find(path)
        route = self._router.choose(methods, "GET")
        check_allowed(route, request)
        return exported(route, request)

    def _call(self, asked: Request, method: str, path: str, query: str, body: object, key: str = "") -> Any:
        raw = json.dumps({} if body is None else body).encode()
        headers = {"content-type": "application/json", **({"idempotency-key": key} if key else {})}
        path = unquote(path)  # as a server hands it on
        request = Request(
            method, path, headers, query=query, client=asked.client, length=len(raw), read=io.BytesIO(raw).read, actor=asked.actor
        )
        methods, request.params = self._router.find(path)
        route = self._router.choose(methods, method)
        check_allowed(route, request)
        response = route.handler(request)
        if response.status >= 400:
            told = (response.document or {}).get("error", {})
            raise HttpError(response.status, str(told.get("code", "")), str(told.get("message", "the API refused")))
        return response.document


class _Answer:
    """The answer to a GET: the first caller makes it, under its lock."""

    __slots__ = ("document", "lock", "until")

    def __init__(self) -> None:
        self.document: Any = None
        self.lock = threading.Lock()
        self.until = float("-inf")
