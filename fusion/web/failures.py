"""Failed jobs grouped by error, over HTTP: `/api/v1/failures`."""

from __future__ import annotations

from datetime import datetime, timedelta

from redis import Redis

from fusion.jobs.failure_groups import scanned
from fusion.kernel.timeutil import parse_moment, parse_seconds
from fusion.store.access import failure_inspector_of, inspector_of
from fusion.views.failure import FailureGroupView, FailuresView, FailureView
from fusion.web.exchange import HttpError, Request, Response, whole
from fusion.web.routing import Param, Route, paging

#: Groups of one page, and jobs of a group: the default and the most.
_PAGE, _LARGEST_PAGE = 50, 1000
_GROUPS, _JOBS = (paging(rows, _PAGE, _LARGEST_PAGE) for rows in ("Groups", "Jobs"))
_SINCE = Param("since", "Only groups with a failure since then: a time, or an age like 1h.")


class Failures:
    """The routes of failure groups. For a token that is restricted to some queues, the groups are counted from the newest failed jobs of these
    queues, and not taken from the fleet's own counts."""

    def __init__(self, connection: Redis) -> None:
        self._connection = connection

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route(
                "GET",
                "/api/v1/failures",
                self.listed,
                "read",
                "failures",
                (*_GROUPS, _SINCE),
                answer=FailuresView,
                by_queue=True,
                rows="groups",
            ),
            Route(
                "GET", "/api/v1/failures/{id}", self.one, "read", "failure", _JOBS, answer=FailureView, by_queue=True, rows="jobs"
            ),
        ]

    def listed(self, request: Request) -> Response:
        """Show a page of failure groups, the one with the latest failure first."""
        (offset, limit), inspector = _page(request), failure_inspector_of(self._connection)
        now = inspector.now()
        since = _since(request, now)
        if request.scope.all and inspector.grouped():
            found, total, complete = inspector.groups(offset, limit, since), inspector.count(since), True
        else:
            all_of_them = scanned(inspector_of(self._connection), request.scope)
            fit = [one for one in all_of_them.groups if since is None or (one.last_seen is not None and one.last_seen >= since)]
            found, total, complete = fit[offset : offset + limit], len(fit), all_of_them.complete
        groups = [FailureGroupView.of(one, now) for one in found]
        return Response.view(FailuresView(groups=groups, total=total, offset=offset, complete=complete))

    def one(self, request: Request) -> Response:
        """Show one group: how many failed in each minute of the last 24 hours, and a page of its jobs, the newest first."""
        (offset, limit), inspector = _page(request), failure_inspector_of(self._connection)
        name = request.target = request.params["id"]
        now = inspector.now()
        if request.scope.all and inspector.grouped():
            group, complete = inspector.group(name), True
            jobs = inspector.jobs(name, offset, limit)
        else:
            all_of_them = scanned(inspector_of(self._connection), request.scope)
            group = next((one for one in all_of_them.groups if one.id == name), None)
            jobs, complete = list(all_of_them.jobs.get(name, ()))[offset : offset + limit], all_of_them.complete
        if group is None:
            raise HttpError(404, "no_such_group", "there is no failure group of this id; GET /api/v1/failures lists them")
        return Response.view(FailureView.whole(group, now, jobs, offset, complete=complete))


def _page(request: Request) -> tuple[int, int]:
    args = request.args()
    return whole(args, "offset", 0, 10**9), whole(args, "limit", _PAGE, _LARGEST_PAGE)


def _since(request: Request, now: datetime) -> datetime | None:
    raw = request.args().get("since")
    if raw is None:
        return None
    try:
        return now - timedelta(seconds=parse_seconds(raw))
    except (ValueError, OverflowError):
        pass
    try:
        return parse_moment(raw)
    except ValueError:
        raise HttpError(
            422,
            "invalid_value",
            "since: use a time with a zone, like 2030-01-31T09:00Z, or an age like 90s, 5m, 2h, 1d",
            field="since",
        ) from None
