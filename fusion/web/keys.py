"""Concurrency keys over HTTP: `/api/v1/keys`. Keys belong to the whole fleet, so a token for some queues can't see them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from redis import Redis

from fusion.enqueue.kinds import key as check_key
from fusion.exceptions import OptionError
from fusion.kernel.rates import Rate
from fusion.store.access import limit_broker_of, limit_inspector_of
from fusion.store.layout.names import check_job_id
from fusion.store.read.limit_inspector import LimitInfo
from fusion.store.read.tolerant import forgiving
from fusion.views.limit import KeyStatsView, KeysView, KeyView
from fusion.web.calls import PAUSE, read_pause
from fusion.web.exchange import HttpError, Request, Response, whole
from fusion.web.openapi.shapes import TEXT, WHOLE, fields, maybe, none_or
from fusion.web.routing import Body, Param, Route, change, paging
from fusion.web.within import check_sound

_PAGE, _LARGEST_PAGE, _MOST = 100, 1000, 1_000_000
_PARAMS = (Param("stuck", "`1`: only those that are stuck.", choices=("0", "1")), *paging("Keys", _PAGE, _LARGEST_PAGE))
#: Keys that are read at a time.
_CHUNK = 100

_LIMIT = Body("KeyLimit", fields(max_concurrent=maybe(none_or(WHOLE)), rate=maybe(none_or(TEXT))))
_JOB_ID = Body("JobId", fields(job_id=TEXT))


class ConcurrencyKeys:
    """The routes of concurrency keys."""

    def __init__(self, connection: Redis) -> None:
        self._connection = connection

    def routes(self) -> list[Route]:
        """Return the routes. The verb stands last, because a key may contain a `/`."""
        path = "/api/v1/keys/{key}"
        return [
            Route("GET", "/api/v1/keys", self.listed, "read", "keys", _PARAMS, answer=KeysView, rows="keys"),
            Route("GET", f"{path}/stats", self.key_stats, "read", "key_stats", answer=KeyStatsView),
            Route("GET", "/api/v1/actions/{key}/queue-stats", self.key_stats, "read", "function_stats", answer=KeyStatsView),
            change(f"{path}/limit", self.limit, "limit_set", body=_LIMIT, answer=KeyView),
            change(f"{path}/pause", self.pause, "limit_pause", body=PAUSE, answer=KeyView),
            change(f"{path}/resume", self.resume, "limit_resume", answer=KeyView),
            change(f"{path}/release", self.release, "limit_release", body=_JOB_ID, answer=KeyView),
        ]

    def listed(self, request: Request) -> Response:
        """Show a page of the keys, the most recently used first."""
        args, (looking, _) = request.args(), forgiving(self._connection)
        offset, limit = whole(args, "offset", 0, 10**9), whole(args, "limit", _PAGE, _LARGEST_PAGE)
        inspector = limit_inspector_of(looking)
        found: list[LimitInfo]
        if args.get("stuck") == "1":
            found = inspector.stuck_limits()[offset : offset + limit]
        else:
            keys = inspector.limit_keys(offset, limit) if limit else []
            parts = [keys[start : start + _CHUNK] for start in range(0, len(keys), _CHUNK)]
            found = [info for part in parts for info in inspector.limits(part) if info is not None]
        return Response.view(KeysView(keys=[KeyView.of(info) for info in found], offset=offset))

    def key_stats(self, request: Request) -> Response:
        """Show one concurrency key: its limit, its slots, how many wait and the outcomes of its jobs. The key of a function is its name."""
        looking, broken = forgiving(self._connection)
        found = limit_inspector_of(looking).stats(request.params["key"])
        if found is None:
            check_sound(request, broken)
            raise _missing()
        return Response.view(KeyStatsView.of_stats(found))

    def limit(self, request: Request) -> Response:
        """Set how many jobs of a key may run at once, or start in a time, whatever the jobs declare; null removes the setting."""
        key, body = self._key(request), request.json()
        _known(body, "max_concurrent", "rate")
        if not body:
            raise HttpError(
                422,
                "invalid_value",
                "send max_concurrent, rate or both; with null the jobs' own values apply",
                field="max_concurrent",
            )
        most, given = body.get("max_concurrent"), body.get("rate")
        if most is not None and not (type(most) is int and 1 <= most <= _MOST):
            raise HttpError(
                422, "invalid_value", f"max_concurrent: use a whole number from 1 to {_MOST}, or null", field="max_concurrent"
            )
        try:
            rate = None if given is None else Rate.parse(given)
        except (OptionError, TypeError, AttributeError):
            raise HttpError(422, "invalid_value", "rate: use a text like 100/60s, 10/s or 5/2m, or null", field="rate") from None
        broker = limit_broker_of(self._connection)
        if "max_concurrent" in body:
            broker.pin_limit(key, most)
        if "rate" in body:
            broker.pin_rate(key, rate)
        return self._shown(key)

    def pause(self, request: Request) -> Response:
        """Pause a key: none of its jobs is started, for a time or until `resume`."""
        key, wish = self._key(request), read_pause(request.json())
        limit_broker_of(self._connection).pause_limit(key, wish.duration, by=request.who(), reason=wish.reason)
        return self._shown(key)

    def resume(self, request: Request) -> Response:
        """Resume a key that is paused, or that a task holds back."""
        key = self._key(request)
        if limit_inspector_of(self._connection).limits([key])[0] is None:
            raise _missing()
        limit_broker_of(self._connection).resume_limit(key)
        return self._shown(key)

    def release(self, request: Request) -> Response:
        """Release the slot of a running job: others of the key may start, and the job runs on."""
        key, body = self._key(request), request.json()
        _known(body, "job_id")
        try:
            job_id = check_job_id(body.get("job_id"))
        except ValueError as error:
            raise HttpError(422, "invalid_value", str(error), field="job_id") from None
        if not limit_broker_of(self._connection).release_slot(key, job_id, by=request.who()):
            raise HttpError(409, "wrong_state", "this job runs with no slot of this key; GET .../stats lists those that do")
        return self._shown(key)

    def _key(self, request: Request) -> str:
        request.target = request.params["key"]
        try:
            return check_key("key", request.target)
        except OptionError as error:
            raise HttpError(422, "invalid_value", str(error), field="key") from None

    def _shown(self, key: str) -> Response:
        (info,) = limit_inspector_of(self._connection).limits([key])
        if info is None:
            raise _missing()
        return Response.view(KeyView.of(info))


def _known(body: Mapping[str, Any], *fields: str) -> None:
    if unknown := sorted(body.keys() - set(fields)):
        name = unknown[0][:80]
        raise HttpError(422, "invalid_value", f"there is no field {name} here; there is {' and '.join(fields)}", field=name)


def _missing() -> HttpError:
    return HttpError(404, "no_such_key", "no job had this concurrency key within a day, and nothing is set for it")
