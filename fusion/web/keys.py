"""Concurrency keys over HTTP: `/api/v1/keys`."""

from __future__ import annotations

from redis import Redis

from fusion.kernel.timeutil import to_iso
from fusion.store.access import inspector_of, limit_inspector_of
from fusion.store.read.tolerant import forgiving
from fusion.web.exchange import HttpError, Request, Response
from fusion.web.routing import Route
from fusion.web.within import check_sound


class Keys:
    """The calls about concurrency keys."""

    def __init__(self, connection: Redis) -> None:
        self._connection = connection

    def routes(self) -> list[Route]:
        """What is answered where."""
        return [Route("GET", "/api/v1/keys/{key}/stats", self.key_stats, "read", "key_stats", answer="KeyStats")]

    def key_stats(self, request: Request) -> Response:
        """Show one concurrency key: its limit, its slots and what became of its jobs."""
        key = request.params["key"]
        looking, broken = forgiving(self._connection)
        (info,) = limit_inspector_of(looking).limits([key])
        if info is None:
            check_sound(request, broken)
            raise HttpError(404, "no_such_key", "no job had this concurrency key within a day, and nothing is set for it")
        inspector = inspector_of(looking)
        counters, _, _ = inspector.key_counters(key)
        return Response.json({**info.document(), **counters.document(), "last_updated": to_iso(inspector.now())})
