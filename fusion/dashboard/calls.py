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
from fusion.web.export import exported
from fusion.web.routing import FORMATS, Router

#: Seconds for which an answer is cached, so that many viewers, or fast reloads, cost one read of Redis.
KEPT = 1.0
#: A slow answer is cached for this multiple of its duration, up to this number of seconds: it takes at most a 20th of Redis's time.
_TIMES, LONGEST = 20, 5.0
#: Answers that are cached at most.
_MOST = 500


class Calls:
    """Calls routes of the API. Answers to GET are cached for a moment, or until a change is made through this object."""

    def __init__(self, router: Router, clock: Callable[[], float] = time.monotonic) -> None:
        self._router, self._clock = router, clock
        self._kept: dict[tuple[object, ...], _Answer] = {}
        self._lock = threading.Lock()

    def get(self, asked: Request, path: str, args: Mapping[str, object], kept: float = KEPT) -> Any:
        """Return the document of a GET. Simultaneous calls for the same document share one answer. Raises the API's HttpError."""
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
        """Make a call that changes something; return its document. `key`: the `Idempotency-Key`, with which some routes take effect once."""
        try:
            return self._call(asked, method, path, "", body, key)
        finally:
            with self._lock:
                self._kept.clear()

    def export(self, asked: Request) -> Response:
        """Return a list of the API as a file. The path names the format and the list; the query is passed to the list."""
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
        path = unquote(path)  # as a server would pass it
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
    """The answer to a GET. The first caller computes it, under its lock."""

    __slots__ = ("document", "lock", "until")

    def __init__(self) -> None:
        self.document: Any = None
        self.lock = threading.Lock()
        self.until = float("-inf")
