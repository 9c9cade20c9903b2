"""What is of the whole fleet, over HTTP: how it is, what is wrong, what runs, what waits for a time, how far the sinks are."""

from __future__ import annotations

from dataclasses import asdict
from math import ceil
from typing import Any

from redis import Redis

from fusion.doctor.look import Look
from fusion.doctor.verdict import CHECKS, examine, of, verdict
from fusion.documents import events, moment, scheduled, times
from fusion.jobs.moment import failed_jobs, running_jobs
from fusion.settings import get_settings
from fusion.store.access import (
    broker_of,
    callback_inspector_of,
    cron_inspector_of,
    event_inspector_of,
    glance_of,
    inspector_of,
    limit_inspector_of,
)
from fusion.store.read.tolerant import forgiving, in_words
from fusion.views.base import to_json
from fusion.views.limit import KeyView
from fusion.views.queue import KeylessView
from fusion.views.scheduler import SchedulerView
from fusion.web.calls import read_pause
from fusion.web.exchange import Request, Response, whole
from fusion.web.mending import finding_view, verdict_view
from fusion.web.routing import Route, paging

_PAGE, _LARGEST_PAGE = 100, 1000
_PAGING = paging("Jobs", _PAGE, _LARGEST_PAGE)
#: Workers whose jobs are shown, such jobs, and failed ones.
_WORKERS, _RUNNING, _FAILED = 1000, 1000, 50


class Fleet:
    """The calls about all queues together."""

    def __init__(self, connection: Redis) -> None:
        self._connection = connection

    def routes(self) -> list[Route]:
        """What is answered where."""
        return [
            Route("GET", "/api/v1/info", self.info, "read", "info", answer="Info"),
            Route("GET", "/api/v1/doctor", self.doctor, "read", "doctor", answer="Doctor", rows="findings"),
            Route("GET", "/api/v1/running", self.running, "read", "running", answer="Running", by_queue=True, rows="running"),
            Route("GET", "/api/v1/scheduled", self.scheduled, "read", "scheduled", _PAGING, answer="Scheduled", rows="jobs"),
            Route("POST", "/api/v1/fleet/suspend", self.suspend, "admin", "fleet_suspend", body="Suspend", answer="Suspended"),
            Route("POST", "/api/v1/fleet/resume", self.resume, "admin", "fleet_resume", answer="FleetResumed"),
            Route("GET", "/api/v1/sinks", self.sinks, "read", "sinks", answer="Sinks", rows="sinks"),
        ]

    def info(self, request: Request) -> Response:
        """Show the verdict, and what `info` tells that is not of one queue or worker: counts, schedulers, cron, keys that are stuck."""
        looking, broken = forgiving(self._connection)
        inspector, cron = inspector_of(looking), cron_inspector_of(looking)
        totals, at, blocked, entries = inspector.totals(), inspector.now(), inspector.blocked(), cron.entries()
        stuck = (
            limit_inspector_of(looking).stuck_limits()
            if blocked or any(one.blocked for one in inspector.queues(inspector.queue_names()))
            else []
        )
        errors = totals.callback_errors
        document: dict[str, Any] = {
            "at": times.iso(at),
            "verdict": verdict_view(verdict(Look(self._connection, get_settings()))),
            "queues": len(inspector.queue_names()),
            "workers": len(glance_of(looking).workers()),
            "suspended": totals.suspended,
            "failed": totals.failed,
            "scheduled": totals.scheduled,
            "dropped": totals.dropped,
            "held": sum(one.count for one in blocked if one.kind == "held"),
            "blocked": [{**asdict(one), "since": times.iso(one.since)} for one in blocked],
            "stuck": [to_json(KeyView.of(one)) for one in stuck],
            "keyless": [to_json(KeylessView.of(one)) for one in totals.keyless],
            "callback_errors": errors and {"count": errors.count, "job_id": errors.job_id, "at": times.iso(errors.at)},
            "callbacks": asdict(callback_inspector_of(looking).counts()),
            "schedulers": [to_json(SchedulerView.of(one, at)) for one in cron.schedulers()],
            "cron": {
                "entries": len(entries),
                "paused": sum(one.paused is not None for one in entries),
                "errors": sum(bool(one.error or one.declared_error) for one in entries),
            },
        }
        return Response.json({**document, "broken": in_words(broken)})

    def doctor(self, request: Request) -> Response:
        """Say what is wrong and what mends it, as the command `doctor` does."""
        look = Look(self._connection, get_settings())
        found = of(look, examine(look))
        checks = [check.name for check in CHECKS]
        return Response.json({**verdict_view(found), "checks": checks, "findings": [finding_view(one) for one in found.findings]})

    def running(self, request: Request) -> Response:
        """Show what workers run, the job first that began first, and what failed last."""
        looking, _ = forgiving(self._connection)
        inspector, glance = inspector_of(looking), glance_of(looking)
        at, names = inspector.now(), glance.workers()
        workers, scope = inspector.workers(names[:_WORKERS]), request.scope
        jobs = [job for job in running_jobs(inspector, workers, _RUNNING) if scope.allows(job.queue)]
        failed = [job for job in failed_jobs(inspector, glance.failed(_FAILED)) if scope.allows(job.queue)]
        shown = {"running": [moment.running(job, at) for job in jobs], "last_failed": [moment.failed(job) for job in failed]}
        return Response.json({"at": times.iso(at), **shown})

    def scheduled(self, request: Request) -> Response:
        """Show the jobs that wait for a time, the soonest first, and why; the reason in words only to who may operate."""
        args, (looking, _) = request.args(), forgiving(self._connection)
        offset, limit = whole(args, "offset", 0, 10**9), whole(args, "limit", _PAGE, _LARGEST_PAGE)
        inspector, words = inspector_of(looking), bool(request.actor and "operate" in request.actor.scopes)
        found, at = inspector.scheduled(offset, limit), inspector.now()
        rows = scheduled.rows(inspector, [job_id for job_id, _ in found])
        jobs = [
            {
                "id": job_id,
                "due_at": times.iso(due),
                "due_in": (due - at).total_seconds(),
                "queue": row["origin"] or None,
                "function": row["func"] or row["description"].partition("(")[0] or None,
                "why": f"{kind}: {reason}" if reason and words else kind,
            }
            for (job_id, due), row in zip(found, rows, strict=True)
            for kind, _, reason in (scheduled.why(row).partition(": "),)
        ]
        return Response.json({"at": times.iso(at), "total": inspector.scheduled_count(), "offset": offset, "jobs": jobs})

    def suspend(self, request: Request) -> Response:
        """Let no worker start another job, for a time or until `resume`; jobs that run are completed."""
        given = read_pause(request.told("duration")).duration
        duration = None if given is None else max(1, ceil(given))
        broker_of(self._connection).suspend(duration)
        return Response.json({"suspended": True, "duration": duration})

    def resume(self, request: Request) -> Response:
        """Let suspended workers start jobs again; tells whether they were suspended."""
        request.told()
        return Response.json({"suspended": False, "was": broker_of(self._connection).resume()})

    def sinks(self, request: Request) -> Response:
        """Show how far the sinks of events are, the stream and the relays."""
        looking, settings = event_inspector_of(forgiving(self._connection)[0]), get_settings()
        snapshot = events.EventsSnapshot(
            looking.stream(), tuple(looking.sinks()), tuple(looking.relays()), settings.sinks, settings.events_cap
        )
        document = events.document(snapshot)
        return Response.json({name: value for name, value in document.items() if name not in ("schema", "configured")})
