"""Check workers, schedulers and other programs that use the same keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fusion.doctor.finding import Finding, Level, Remedy, counted, some, span, words

if TYPE_CHECKING:
    from fusion.doctor.look import Look

#: Seconds overdue from which a scheduled job, and a tick of cron, counts as not handled by any process.
_OVERDUE, _LATE = 30.0, 90.0
_DAY = 86400.0
#: At most this many workers get a finding of their own.
_NAMED = 20


def workers(look: Look) -> Iterator[Finding]:
    """Report dead workers that are still registered, and live workers that take no jobs."""
    call = look.program
    dead = [worker for worker in look.everyone if not worker.alive]
    if dead:
        jobs = sum(len(worker.jobs) for worker in dead)
        told = f", with {counted(jobs, 'job')} of theirs" if jobs else ""
        silent = span(max(worker.silent for worker in dead))
        if look.workers or look.schedulers:
            what = f"{some(worker.name for worker in dead)} died up to {silent} ago{told}; a live worker gives their jobs back and removes them"
            yield Finding("FUS-430", "note", "workers", dead[0].name, what, f"{call} info -W")
        else:
            what = (
                f"{some(worker.name for worker in dead)} died up to {silent} ago{told}, and no live worker gives their jobs back"
            )
            served = [name for name in dead[0].queues if name] or ["default"]
            yield Finding("FUS-431", "fail", "workers", dead[0].name, what, f"{call} worker {words(*served[:5])}")
    for worker in [worker for worker in look.workers if worker.unloaded][:_NAMED]:
        waits = [queue.name for queue in look.waiting if worker in look.serving(queue.name)]
        told = f"; jobs of {some(waits)} wait for it" if waits else ""
        fix = f"mend that on {worker.hostname}: the worker tries again by itself\n{call} info -W"
        level: Level = "fail" if waits else "warn"
        yield Finding("FUS-432", level, "workers", worker.name, f"{worker.name} can't load tasks: {worker.unloaded}{told}", fix)
    throttled = [worker for worker in look.workers if worker.throttled]
    if throttled:
        names = some(f"{worker.name} on {worker.hostname} ({worker.throttled})" for worker in throttled)
        fix = f"free memory there, or raise FUSION_MEMORY_THROTTLE_THRESHOLD; until then: {call} worker QUEUE on another machine"
        yield Finding("FUS-433", "warn", "workers", throttled[0].name, f"memory is scarce, no job is taken by {names}", fix)
    quiet = [worker.name for worker in look.workers if worker.quiet]
    if quiet:
        fix, remedy = f"{call} unquiet {words(*quiet[:5])}", Remedy("unquiet", tuple(quiet[:5]))
        yield Finding("FUS-434", "note", "workers", quiet[0], f"quiet, and take no job: {some(quiet)}", fix, remedy)
    if look.totals.suspended:
        yield Finding(
            "FUS-435", "warn", "workers", "", "suspended: no worker starts a job", f"{call} resume", Remedy("resume_fleet")
        )


def schedulers(look: Look) -> Iterator[Finding]:
    """Report cron entries without a scheduler, and due jobs that no process moves to their queue."""
    call = look.program
    active = [entry for entry in look.entries if not entry.paused]
    if active and not look.schedulers:
        what = f"no scheduler is alive: {counted(len(active), 'cron entry waits', 'cron entries wait')}"
        yield Finding(
            "FUS-436", "fail", "schedulers", "", what, f"{call} scheduler\nor {call} start, which runs one beside its workers"
        )
    due = look.first_due
    late = 0.0 if due is None else (look.at - due).total_seconds()
    if late > _OVERDUE:
        what = f"a scheduled job has been due for {span(late)}: no worker and no scheduler moves it to its queue"
        yield Finding("FUS-437", "fail", "schedulers", "", what, f"{call} scheduler")


def cron(look: Look) -> Iterator[Finding]:
    """Report entries in error, late entries, and ticks missed within the last day."""
    call, now = look.program, look.at.timestamp()
    for entry in look.entries:
        if entry.error or entry.declared_error:
            what = f"cron entry {entry.id} is in error: {entry.error or entry.declared_error}"
            yield Finding("FUS-438", "warn", "cron", entry.id, what, f"{call} cron list")
        if look.schedulers and entry.next and not entry.paused and now - entry.next > _LATE:
            what = f"cron entry {entry.id} is late: its tick has been due for {span(now - entry.next)}, though a scheduler lives"
            yield Finding("FUS-439", "warn", "cron", entry.id, what, f"{call} cron history {words(entry.id)}")
    for entry in [entry for entry in look.entries if entry.missed][:50]:
        at = look.last_missed(entry.id)
        if at is not None and (look.at - at).total_seconds() < _DAY:
            ago = span((look.at - at).total_seconds())
            what = f"cron entry {entry.id} missed ticks, as no scheduler ran; that was found {ago} ago ({entry.missed:,} in all)"
            fix = f"{call} cron run {words(entry.id)}\n{call} cron history {words(entry.id)}"
            yield Finding("FUS-440", "warn", "cron", entry.id, what, fix, Remedy("run_entry", (entry.id,)))


def foreign(look: Look) -> Iterator[Finding]:
    """Report workers and jobs of stock RQ under the same prefix."""
    call = look.program
    if look.rq_workers:
        other = "fusion:" if look.settings.prefix != "fusion:" else "fusion2:"
        what = f"workers of stock RQ use this prefix, too: {some(look.rq_workers)}; what they find in queues of the same name they don't know"
        yield Finding(
            "FUS-441",
            "warn",
            "foreign",
            look.rq_workers[0],
            what,
            f"{call} info --prefix {other}\n(FUSION_PREFIX, for all of this fleet)",
        )
    for queue in look.queues:
        if queue.rq:
            what = f"{counted(queue.rq, 'job')} of stock RQ wait in {queue.name}, which no worker of ours takes"
            yield Finding(
                "FUS-442",
                "note",
                "foreign",
                queue.name,
                what,
                f"{call} worker {words(queue.name)} --adopt-rq {words(queue.name)}",
            )
