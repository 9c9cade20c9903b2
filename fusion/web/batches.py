"""Batches over HTTP: `/api/v1/batches`."""

from __future__ import annotations

from redis import Redis

from fusion.batch import Batch
from fusion.exceptions import NoSuchBatchError, OptionError
from fusion.jobs.batch_graph import batch_graph
from fusion.store.access import batch_inspector_of, inspector_of
from fusion.views.batch import BatchCanceledView, BatchesView, BatchGraphView, BatchView, BatchWithMembersView, MemberView
from fusion.web.exchange import HttpError, Request, Response, whole
from fusion.web.routing import Route, change, paging

#: Batches of one page, and members of a batch: the default and the most.
_PAGE, _LARGEST_PAGE = 100, 1000


_PAGING, _MEMBERS = (paging(rows, _PAGE, _LARGEST_PAGE) for rows in ("Batches", "Members"))


class Batches:
    """The routes of batches."""

    def __init__(self, connection: Redis) -> None:
        self._connection = connection

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("GET", "/api/v1/batches", self.listed, "read", "batches", _PAGING, answer=BatchesView, rows="batches"),
            Route(
                "GET", "/api/v1/batches/{id}", self.one, "read", "batch", _MEMBERS, answer=BatchWithMembersView, rows="members"
            ),
            Route("GET", "/api/v1/batches/{id}/graph", self.graph, "read", "batch_graph", answer=BatchGraphView, rows="nodes"),
            change("/api/v1/batches/{id}/cancel", self.cancel, "batch_cancel", answer=BatchCanceledView),
        ]

    def listed(self, request: Request) -> Response:
        """Show a page of batches, the newest first."""
        inspector, (offset, limit) = batch_inspector_of(self._connection), _page(request)
        found = [BatchView.of(info) for info in inspector.listed(offset, limit)]
        return Response.view(BatchesView(batches=found, total=inspector.count(), offset=offset))

    def one(self, request: Request) -> Response:
        """Show one batch, and a page of its members."""
        inspector, (offset, limit) = batch_inspector_of(self._connection), _page(request)
        info = inspector.info(request.params["id"])
        if info is None:
            raise _missing()
        members = [MemberView(id=member, status=status) for member, status in inspector.page(info.id, offset, limit)]
        return Response.view(BatchWithMembersView.of(info, members=members, offset=offset))

    def graph(self, request: Request) -> Response:
        """Show the graph of a batch: its members and the jobs that follow; over 300 members by function and state."""
        inspector = batch_inspector_of(self._connection)
        info = inspector.info(request.params["id"])
        if info is None:
            raise _missing()
        return Response.view(BatchGraphView.of(batch_graph(inspector, inspector_of(self._connection), info)))

    def cancel(self, request: Request) -> Response:
        """Close a batch for new jobs, and cancel the jobs in it."""
        name = request.target = request.params["id"]
        try:
            canceled, running = Batch(id=name, connection=self._connection).cancel()
        except (NoSuchBatchError, OptionError):
            raise _missing() from None
        return Response.view(BatchCanceledView(id=name, canceled=canceled, running=running))


def _page(request: Request) -> tuple[int, int]:
    args = request.args()
    return whole(args, "offset", 0, 10**9), whole(args, "limit", _PAGE, _LARGEST_PAGE)


def _missing() -> HttpError:
    return HttpError(404, "no_such_batch", "there is no batch of this id; GET /api/v1/batches lists them")
