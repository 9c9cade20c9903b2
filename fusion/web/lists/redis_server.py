"""Redis itself over HTTP: `/api/v1/redis`."""

from __future__ import annotations

from redis import Redis

from fusion.doctor.finding import ordered
from fusion.doctor.look import Look
from fusion.doctor.verdict import CHECKS, examine
from fusion.settings import get_settings
from fusion.store.access import inspector_of, server_inspector_of
from fusion.views.server import RedisServerView
from fusion.web.exchange import Request, Response
from fusion.web.routing import Route

#: The checks of `doctor` about the server.
_CHECKS = ("server", "eviction", "clocks", "clients", "persistence", "latency", "rights", "listpack")
#: Commands that are shown: those with the most time in total, and single slow calls.
_COMMANDS, _SLOW = 12, 16


class RedisServer:
    """The route of the server."""

    def __init__(self, connection: Redis) -> None:
        self._connection = connection

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [Route("GET", "/api/v1/redis", self.redis, "read", "redis", answer=RedisServerView)]

    def redis(self, request: Request) -> Response:
        """Show the state of Redis: memory, persistence, clients, latency, and what `doctor` finds about it."""
        look, inspector = Look(self._connection, get_settings()), server_inspector_of(self._connection)
        findings = ordered(examine(look, [check for check in CHECKS if check.name in _CHECKS]))
        info, pings, slow = look.server_whole.info, sorted(look.server_whole.pings), inspector.slow(_SLOW)
        at = inspector_of(self._connection).now()
        commands = inspector.commands(_COMMANDS)
        return Response.view(RedisServerView.of(info, at, pings, commands, slow, findings))
