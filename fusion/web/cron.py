"""Cron entries over HTTP: `/api/v1/cron`."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from redis import Redis

from fusion.cron.scheduler import Scheduler
from fusion.cron.state import EntryState, LastJob, last_jobs, ticks
from fusion.exceptions import InvalidJobOperation, NoSuchEntryError
from fusion.store.access import cron_inspector_of, inspector_of
from fusion.store.read.cron_inspector import EntryInfo
from fusion.store.read.tolerant import forgiving
from fusion.views.cron import (
    CronEntriesView,
    CronEntryView,
    CronPausedView,
    CronRemovedView,
    CronRunView,
    DecisionView,
    TickView,
)
from fusion.web.exchange import HttpError, Request, Response, flag, whole
from fusion.web.openapi.shapes import fields, maybe
from fusion.web.routing import Body, Param, Route, change
from fusion.web.within import seen_jobs

#: Decisions, and future ticks, of one entry: the default and the most.
_DECISIONS, _MOST, _COMING = 20, 50, 5
_COUNT = (Param("limit", "Its last decisions.", "integer", _DECISIONS, _MOST),)

_FORCE = Body(
    "Force", fields(force=maybe({"type": "boolean", "description": "Even if a job of it has not ended."})), needed=False
)


class CronEntries:
    """The routes of cron entries. An entry belongs to the queue of its jobs; an unreadable entry belongs to none."""

    def __init__(self, connection: Redis) -> None:
        self._connection = connection

    def routes(self) -> list[Route]:
        """Return the routes."""
        path = "/api/v1/cron/{id}"
        return [
            Route("GET", "/api/v1/cron", self.listed, "read", "cron", answer=CronEntriesView, by_queue=True, rows="entries"),
            Route("GET", path, self.one, "read", "cron_entry", _COUNT, answer=CronEntryView, by_queue=True, rows="decisions"),
            change(f"{path}/run", self.run, "cron_run", body=_FORCE, answer=CronRunView, by_queue=True),
            change(f"{path}/pause", self.pause, "cron_pause", answer=CronPausedView, by_queue=True),
            change(f"{path}/resume", self.resume, "cron_resume", answer=CronPausedView, by_queue=True),
            change(f"{path}/remove", self.remove, "cron_remove", answer=CronRemovedView, by_queue=True),
        ]

    def listed(self, request: Request) -> Response:
        """Show all cron entries, and the schedulers that are alive."""
        looking, _ = forgiving(self._connection)
        inspector, at = cron_inspector_of(looking), inspector_of(looking).now().timestamp()
        views = [view for info in inspector.entries() if self._seen(request, view := EntryState.of(info, at))]
        jobs = self._jobs(request, [job for view in views for job in (view.info.last_job, view.info.manual_job) if job])
        alive = [one.name for one in inspector.schedulers() if one.alive] if request.scope.all else []
        return Response.view(CronEntriesView.of(alive, views, jobs))

    def one(self, request: Request) -> Response:
        """Show one entry, the outcomes of its last ticks, and its next ticks."""
        view = self._found(request)
        info, limit = view.info, whole(request.args(), "limit", _DECISIONS, _MOST)
        decided = cron_inspector_of(forgiving(self._connection)[0]).history(info.id, limit)
        named = [one.what for one in decided if one.outcome != "missed"]
        jobs = self._jobs(request, [*named, *(job for job in (info.last_job, info.manual_job) if job)])
        plan = view.entry.plan if view.entry else None
        coming = [TickView.of(plan, tick) for tick in ticks(plan, view.now, _COMING)] if plan else []
        decisions = [DecisionView.of(one, jobs) for one in decided]
        return Response.view(CronEntryView.of(view, jobs, coming=coming, decisions=decisions))

    def run(self, request: Request) -> Response:
        """Enqueue a job of an entry now, paused or not; its ticks go on as planned. With `force` even if one of its jobs has not ended."""
        force = flag(request.told("force").get("force", False), "force")
        entry = self._found(request, change=True).info.id
        try:
            job_id = Scheduler(self._connection).run(entry, force=force).id
            return Response.view(CronRunView(id=entry, job_id=job_id))
        except NoSuchEntryError:
            raise _missing() from None
        except InvalidJobOperation as error:
            said = (
                error.text().removesuffix("; use force")
                if request.scope.all
                else "a job of it has not ended, or holds its unique key"
            )
            raise HttpError(409, "wrong_state", said) from None
        except ValueError as error:
            raise HttpError(409, "wrong_state", f"cron entry {entry!r}: {error}") from None

    def pause(self, request: Request) -> Response:
        """Pause an entry: none of its ticks runs until `resume`."""
        entry = self._found(request, change=True).info.id
        self._do(lambda scheduler: scheduler.pause(entry))
        return Response.view(CronPausedView(id=entry, paused=True))

    def resume(self, request: Request) -> Response:
        """Resume a paused entry: its ticks run again from now on."""
        entry = self._found(request, change=True).info.id
        self._do(lambda scheduler: scheduler.resume(entry))
        return Response.view(CronPausedView(id=entry, paused=False))

    def remove(self, request: Request) -> Response:
        """Remove an entry; its jobs stay. An entry that an app still declares comes back when the app's scheduler starts."""
        info = self._found(request, change=True).info
        self._do(lambda scheduler: scheduler.remove(info.id))
        return Response.view(CronRemovedView(id=info.id, removed=True, declared_by=info.app or None))

    def _do(self, change: Callable[[Scheduler], object]) -> None:
        try:
            change(Scheduler(self._connection))
        except NoSuchEntryError:
            raise _missing() from None

    def _found(self, request: Request, *, change: bool = False) -> EntryState:
        name = request.params["id"]
        if change:
            request.target = name
        looking, _ = forgiving(self._connection)
        info: EntryInfo | None = cron_inspector_of(looking).entry(name)
        view = None if info is None else EntryState.of(info, inspector_of(looking).now().timestamp())
        if view is None or not self._seen(request, view):
            raise _missing()
        return view

    def _seen(self, request: Request, view: EntryState) -> bool:
        return request.scope.all or (view.entry is not None and request.scope.allows(view.entry.queue))

    def _jobs(self, request: Request, ids: Iterable[str]) -> dict[str, LastJob]:
        """Return the states of these jobs. A job that prevented a tick by its key may be of another queue."""
        seen = seen_jobs(self._connection, request.scope, [*dict.fromkeys(ids)])
        return last_jobs(inspector_of(forgiving(self._connection)[0]), seen)


def _missing() -> HttpError:
    return HttpError(404, "no_such_entry", "there is no cron entry of this id; GET /api/v1/cron lists them")
