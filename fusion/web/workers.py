"""Workers over HTTP: `/api/v1/workers`."""

from __future__ import annotations

import json

from redis import Redis

from fusion.kernel.scope import Scope
from fusion.runtime.commands import QUIET, SHUTDOWN, UNQUIET
from fusion.store.access import broker_of, glance_of, inspector_of
from fusion.store.read.inspector import WorkerInfo
from fusion.store.read.tolerant import forgiving
from fusion.views.worker import WorkersView, WorkerToldView, WorkerView
from fusion.web.exchange import HttpError, Request, Response, whole
from fusion.web.routing import Route, change, paging

_PAGE, _LARGEST_PAGE = 100, 1000
_PAGING = paging("Workers", _PAGE, _LARGEST_PAGE)
#: Workers that are read at most for a token that is restricted to some queues.
_LOOKED_AT = 10_000


class Workers:
    """The routes of workers. A caller sees a worker if it may see every queue that the worker serves."""

    def __init__(self, connection: Redis) -> None:
        self._connection = connection

    def routes(self) -> list[Route]:
        """Return the routes."""
        path = "/api/v1/workers/{name}"
        return [
            Route(
                "GET",
                "/api/v1/workers",
                self.listed,
                "read",
                "workers",
                _PAGING,
                answer=WorkersView,
                by_queue=True,
                rows="workers",
            ),
            Route("GET", path, self.one, "read", "worker", answer=WorkerView, by_queue=True),
            change(f"{path}/quiet", self.quiet, "quiet", answer=WorkerToldView, by_queue=True),
            change(f"{path}/unquiet", self.unquiet, "unquiet", answer=WorkerToldView, by_queue=True),
            change(f"{path}/stop", self.stop, "worker_stop", answer=WorkerToldView, by_queue=True),
        ]

    def listed(self, request: Request) -> Response:
        """Show a page of the registered workers, by name."""
        args, (looking, _) = request.args(), forgiving(self._connection)
        offset, limit = whole(args, "offset", 0, 10**9), whole(args, "limit", _PAGE, _LARGEST_PAGE)
        inspector = inspector_of(looking)
        names, at = glance_of(looking).workers(), inspector.now()
        if request.scope.all:
            found, total = inspector.workers(names[offset : offset + limit]), len(names)
        else:
            seen = [one for one in inspector.workers(names[:_LOOKED_AT]) if serves_only(one, request.scope)]
            found, total = seen[offset : offset + limit], len(seen)
        workers = [WorkerView.of(one, at) for one in found]
        return Response.view(WorkersView(workers=workers, total=total, offset=offset))

    def one(self, request: Request) -> Response:
        """Show one worker and what it runs."""
        return Response.view(WorkerView.of(self._found(request), inspector_of(self._connection).now()))

    def quiet(self, request: Request) -> Response:
        """Quiet a worker: it takes no more jobs, and its running jobs go on."""
        return self._tell(request, QUIET)

    def unquiet(self, request: Request) -> Response:
        """Unquiet a worker: it takes jobs again."""
        return self._tell(request, UNQUIET)

    def stop(self, request: Request) -> Response:
        """End a worker after its running jobs have ended. Its supervisor, if it has one, starts another."""
        return self._tell(request, SHUTDOWN)

    def _tell(self, request: Request, command: str) -> Response:
        request.target = request.params["name"]
        name = self._found(request).name
        if not broker_of(self._connection).command(name, json.dumps({"command": command})):
            raise HttpError(
                409, "wrong_state", "this worker can't receive commands just now; try again, or check whether it is alive"
            )
        return Response.view(WorkerToldView(name=name, command=command))

    def _found(self, request: Request) -> WorkerInfo:
        looking, _ = forgiving(self._connection)
        for one in inspector_of(looking).workers([request.params["name"]]):
            if serves_only(one, request.scope):
                return one
        raise HttpError(404, "no_such_worker", "there is no worker of this name; GET /api/v1/workers lists them")


def serves_only(one: WorkerInfo, scope: Scope) -> bool:
    """Return True if the worker serves only queues of this scope."""
    return scope.all or (bool(one.queues) and all(scope.covers(name) for name in one.queues))
