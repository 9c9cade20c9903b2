"""The whole fleet over HTTP: its health, findings, running and scheduled jobs, and event sinks."""

from __future__ import annotations

import threading
import time
from math import ceil
from typing import Literal

from redis import Redis

from fusion.doctor.finding import ordered
from fusion.doctor.look import Look
from fusion.doctor.verdict import CHECKS, Word, examine, of, verdict
from fusion.jobs.moment import failed_jobs, longest_running
from fusion.jobs.scheduled import waiting_jobs
from fusion.settings import get_settings
from fusion.store.access import (
    broker_of,
    callback_inspector_of,
    cron_inspector_of,
    event_inspector_of,
    glance_of,
    inspector_of,
    limit_inspector_of,
    server_inspector_of,
)
from fusion.store.read.tolerant import forgiving, in_words
from fusion.views.events import EventsSnapshot, SinksView
from fusion.views.finding import DoctorView, VerdictView
from fusion.views.fleet import (
    BlockedView,
    CallbackCountsView,
    CallbackErrorsView,
    CronCountsView,
    FleetResumedView,
    InfoView,
    SuspendedView,
)
from fusion.views.job import LastFailedView, RunningJobView, RunningView, ScheduledJobView, ScheduledView
from fusion.views.limit import KeyView
from fusion.views.queue import KeylessView
from fusion.views.scheduler import SchedulerView
from fusion.views.server import RedisServerView
from fusion.web.calls import read_pause
from fusion.web.exchange import Request, Response, whole
from fusion.web.openapi.shapes import fields, maybe
from fusion.web.routing import Body, Param, Route, change, paging

_PAGE, _LARGEST_PAGE = 100, 1000
_PAGING = paging("Jobs", _PAGE, _LARGEST_PAGE)
#: At most: workers whose jobs are shown, running jobs, and failed jobs.
_WORKERS, _RUNNING, _FAILED = 1000, 1000, 50
_SHOWN = (Param("limit", "Running jobs that are shown.", "integer", _RUNNING, _RUNNING),)

_SUSPEND = Body(
    "Suspend",
    fields(duration=maybe({"description": "Seconds, or 90s, 5m, 2h, 1d; none: until they are resumed."})),
    needed=False,
)


class Fleet:
    """The routes of the whole fleet."""

    def __init__(self, connection: Redis) -> None:
        self._connection = connection

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("GET", "/api/v1/info", self.info, "read", "info", answer=InfoView),
            Route("GET", "/api/v1/doctor", self.doctor, "read", "doctor", answer=DoctorView, rows="findings"),
            Route(
                "GET",
                "/api/v1/running",
                self.running,
                "read",
                "running",
                _SHOWN,
                answer=RunningView,
                by_queue=True,
                rows="running",
            ),
            Route("GET", "/api/v1/scheduled", self.scheduled, "read", "scheduled", _PAGING, answer=ScheduledView, rows="jobs"),
            change("/api/v1/fleet/suspend", self.suspend, "suspend", body=_SUSPEND, answer=SuspendedView),
            change("/api/v1/fleet/resume", self.resume, "resume", answer=FleetResumedView),
            Route("GET", "/api/v1/sinks", self.sinks, "read", "sinks", answer=SinksView, rows="sinks"),
        ]

    def info(self, request: Request) -> Response:
        """Show the verdict, and the part of `info` about the whole fleet: counts, schedulers, cron, stuck keys."""
        looking, broken = forgiving(self._connection)
        inspector, cron = inspector_of(looking), cron_inspector_of(looking)
        totals, at, blocked, entries = inspector.totals(), inspector.now(), inspector.blocked(), cron.entries()
        stuck = (
            limit_inspector_of(looking).stuck_limits()
            if blocked or any(one.blocked for one in inspector.queues(inspector.queue_names()))
            else []
        )
        callbacks, verdict_ = callback_inspector_of(looking).counts(), verdict(Look(self._connection, get_settings()))
        return Response.view(
            InfoView(
                at=at,
                verdict=VerdictView.of(verdict_),
                queue_count=len(inspector.queue_names()),
                worker_count=len(glance_of(looking).workers()),
                suspended=totals.suspended,
                failed=totals.failed,
                scheduled=totals.scheduled,
                dropped=totals.dropped,
                held=sum(one.count for one in blocked if one.kind == "held"),
                blocked=[BlockedView.of(one) for one in blocked],
                stuck=[KeyView.of(one) for one in stuck],
                keyless=[KeylessView.of(one) for one in totals.keyless],
                callback_errors=CallbackErrorsView.of(totals.callback_errors),
                callbacks=CallbackCountsView.of(callbacks),
                schedulers=[SchedulerView.of(one, at) for one in cron.schedulers()],
                cron=CronCountsView(
                    entries=len(entries),
                    paused=sum(one.paused is not None for one in entries),
                    errors=sum(bool(one.error or one.declared_error) for one in entries),
                ),
                broken=in_words(broken),
            )
        )

    def doctor(self, request: Request) -> Response:
        """Show what is wrong and how to fix it, like the command `doctor`."""
        look = Look(self._connection, get_settings())
        found = of(look, examine(look))
        checks = [check.name for check in CHECKS]
        return Response.view(DoctorView.of_all(found, checks))

    def running(self, request: Request) -> Response:
        """Show running jobs, the longest-running first, and the jobs that failed last."""
        looking, _ = forgiving(self._connection)
        inspector, glance = inspector_of(looking), glance_of(looking)
        at, names = inspector.now(), glance.workers()
        workers, scope = inspector.workers(names[:_WORKERS]), request.scope
        limit = whole(request.args(), "limit", _RUNNING, _RUNNING)
        jobs, total = longest_running(inspector, workers, scope, _RUNNING, limit)
        failed = [job for job in failed_jobs(inspector, glance.failed(_FAILED)) if scope.allows(job.queue)]
        running = [RunningJobView.of(job, at) for job in jobs]
        shown = RunningView(at=at, total=total, running=running, last_failed=[LastFailedView.of(job) for job in failed])
        return Response.view(shown, scopes=request.scopes)

    def scheduled(self, request: Request) -> Response:
        """Show the jobs that wait for a time, the soonest first, and why; the reason in words needs the scope operate."""
        args, (looking, _) = request.args(), forgiving(self._connection)
        offset, limit = whole(args, "offset", 0, 10**9), whole(args, "limit", _PAGE, _LARGEST_PAGE)
        inspector = inspector_of(looking)
        found, at = inspector.scheduled(offset, limit), inspector.now()
        jobs = [ScheduledJobView.of(job, at) for job in waiting_jobs(inspector, found)]
        shown = ScheduledView(at=at, total=inspector.scheduled_count(), offset=offset, jobs=jobs)
        return Response.view(shown, scopes=request.scopes)

    def suspend(self, request: Request) -> Response:
        """Suspend the fleet: no worker starts another job, for a time or until `resume`. Running jobs are completed."""
        given = read_pause(request.told("duration")).duration
        duration = None if given is None else max(1, ceil(given))
        broker_of(self._connection).suspend(duration)
        return Response.view(SuspendedView(suspended=True, duration=duration))

    def resume(self, request: Request) -> Response:
        """Resume the fleet, and tell whether it was suspended."""
        request.told()
        return Response.view(FleetResumedView(suspended=False, was=broker_of(self._connection).resume()))

    def sinks(self, request: Request) -> Response:
        """Show the event stream, its relays, and how far each sink is."""
        looking, settings = event_inspector_of(forgiving(self._connection)[0]), get_settings()
        snapshot = EventsSnapshot(
            looking.stream(), tuple(looking.sinks()), tuple(looking.relays()), settings.sinks, settings.events_cap
        )
        return Response.view(SinksView.of(snapshot))


# -- Redis itself: `/api/v1/redis`


#: The checks of `doctor` about the server.
_CHECKS = ("server", "eviction", "memory", "clocks", "clients", "persistence", "latency", "rights", "listpack")
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


# -- the verdict for a public probe: one word, computed at most every few seconds, however often it is asked for


#: Seconds for which a verdict is cached.
KEPT = 5.0


class KeptVerdict:
    """The cached verdict: `healthy`, `strained` or `unhealthy`. It has no names in it, because the caller has no token."""

    def __init__(self, connection: Redis) -> None:
        self._connection, self._lock = connection, threading.Lock()
        self._word: Word | Literal["unknown"] = "unknown"
        self._until = 0.0

    def word(self) -> Word | Literal["unknown"]:
        """Return a verdict that is a few seconds old at most; an older one while another thread computes the next. Raises errors of Redis."""
        if time.monotonic() < self._until or not self._lock.acquire(blocking=False):
            return self._word
        try:
            self._word = verdict(Look(self._connection, get_settings())).word
            self._until = time.monotonic() + KEPT
        finally:
            self._lock.release()
        return self._word
