"""Check for jobs that fail, are lost, run too long, are held, or wait forever for a slot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fusion.doctor.finding import Finding, Remedy, counted, some, span, words
from fusion.doctor.look import RECENT
from fusion.jobs.failures import group
from fusion.kernel.redaction import masked_text
from fusion.store.query.grammar import Query
from fusion.store.query.lexer import Term
from fusion.store.query.patterns import escaped

if TYPE_CHECKING:
    from fusion.doctor.look import Look
    from fusion.store.read.limit_inspector import LimitInfo

#: Failures in ten minutes below which there is no finding; failed percent of ended jobs for a warning, and for a bad deploy.
_FEW, _SHARE = 5, (10.0, 50.0)
_LOST = "JobLost"
#: How many times the p99 of its function a job may run; seconds that a job without a timeout may; findings of either at most.
_TIMES, _UNLIMITED, _NAMED = 10.0, 3600.0, 5
#: Jobs of a queue that must have failed in a day, if none has finished.
_ALL = 3
#: Queues that are looked at for that; a day in seconds.
_QUEUES, _DAY = 20, 86400.0


def failing(look: Look) -> Iterator[Finding]:
    """Report queues with many failures in the last ten minutes, each with its most frequent error."""
    call, by_queue = look.program, dict[str, list[str]]()
    recent = look.failed_recently()
    for one in recent:
        by_queue.setdefault(one.queue, []).append(one.id)
    ended = look.ended([*by_queue])
    for queue, ids in by_queue.items():
        share = 100 * len(ids) / (len(ids) + ended.get(queue, 0))
        if len(ids) < _FEW or share < _SHARE[0]:
            continue
        worst = group(one for one in recent if one.queue == queue)[0]
        name = worst.error_class.rpartition(".")[2]
        at = f" at {worst.error_frame}" if worst.error_frame else ""
        since = span((look.at - worst.first_seen).total_seconds()) if worst.first_seen else "a while"
        what = (
            f"{queue}: {counted(len(ids), 'job')} failed in the last {RECENT} min, {share:.0f} % of what ended; {worst.count} of them with"
            f" {name}{at}; the first {since} ago"
        )
        again = f"{call} requeue --all --queue {words(queue)} --error {words(name)} --newer-than {RECENT}m"
        fix = f"{call} failures --queue {words(queue)}\nmend it or roll back, then: {again}"
        meant = {"state": "failed", "queue": escaped(queue), "error": escaped(name), "newer": f"{RECENT}m"}
        query = Query(tuple(Term(field, (value,)) for field, value in meant.items())).text
        yield Finding(
            "FUS-450", "fail" if share > _SHARE[1] else "warn", "failing", queue, what, fix, Remedy("requeue", (query,))
        )


def all_fail(look: Look) -> Iterator[Finding]:
    """Report queues of which jobs failed in the last day, and none finished. What `failing` reports is left out."""
    failed = Counter(one.queue for one in look.failed_within(_DAY) if not one.quarantined)
    told = {one.about for one in failing(look)}
    suspects = [queue for queue, count in failed.most_common() if count >= _ALL and queue not in told][:_QUEUES]
    finished = look.finished_within_a_day(suspects)
    for queue in suspects:
        if finished[queue]:
            continue
        (worst, *_) = group(one for one in look.failed_within(_DAY) if one.queue == queue)
        what = f"{queue}: none of its jobs finished in the last day, and {counted(failed[queue], 'job')} failed, "
        what += f"{worst.count} of them with {worst.error_class.rpartition('.')[2]}"
        fix = f"{look.program} failures --queue {words(queue)}"
        yield Finding("FUS-459", "warn", "all_fail", queue, what, fix)


def long_runs(look: Look) -> Iterator[Finding]:
    """Report jobs that run much longer than others of their function, and those that have run for an hour and have no timeout."""
    usual, named = look.usual_runs, 0
    for job in look.long_running:
        ran = (look.at - job.started_at).total_seconds() if job.started_at else 0.0
        most = usual.get(job.function)
        if most and ran > _TIMES * most:
            code, why = (
                "FUS-471",
                f"{ran / most:,.0f} times as long as 99 % of the runs of {job.function}, which take {span(most)} at most",
            )
        elif ran > _UNLIMITED and (job.timeout is None or job.timeout < 0):
            code, why = "FUS-472", f"and has no timeout ({job.function})"
        else:
            continue
        what = f"{job.id} of {job.queue} has run for {span(ran)}, {why}"
        fix = f"{look.program} job show {words(job.id)}\n{look.program} stop {words(job.id)}"
        yield Finding(code, "warn", "long_runs", job.id, what, fix, Remedy("stop", (job.id,)))
        named += 1
        if named == _NAMED:
            return


def circles(look: Look) -> Iterator[Finding]:
    """Report jobs that wait for each other in a circle."""
    if line := look.circle:
        shown = " -> ".join([*line[:5], *(["..."] if len(line) > 5 else []), line[0]])
        what = f"{counted(len(line), 'job')} wait for each other and never run: {shown}"
        fix = f"{look.program} cancel {words(line[0])}\nworkers fail such jobs within some minutes; requeue those that are to run"
        yield Finding("FUS-451", "warn", "circles", line[0], what, fix, Remedy("cancel", (line[0],)))


def poison(look: Look) -> Iterator[Finding]:
    """Report jobs that kill their process at each run: those that failed for it, and those that now run alone."""
    call = look.program
    found = [one for one in look.failures if one.error_class.endswith(_LOST) and not one.quarantined]
    if found:
        last = found[-1]
        what = f"{counted(len(found), 'job')} took {'its process' if len(found) == 1 else 'their processes'} down each time and failed: "
        what += f"{some(one.id for one in reversed(found))}; {last.queue}: {masked_text(last.reason, 160)}"
        fix = f"{call} quarantine {words(last.id)} --reason 'takes its process down'\nmend its task, then: {call} requeue {words(last.id)}"
        yield Finding("FUS-452", "warn", "poison", last.id, what, fix, Remedy("quarantine", (last.id,)))
    for one in look.blocked:
        if one.kind == "probation":
            what = f"{counted(one.count, 'job')} of {one.queue} run alone, one after another, as they were lost again and again: "
            what += one.why
            yield Finding("FUS-453", "warn", "poison", one.queue, what, f"{call} info\n{call} failures --error {_LOST}")


def held(look: Look) -> Iterator[Finding]:
    """Report jobs whose task no worker can import."""
    for one in look.blocked:
        if one.kind != "held":
            continue
        since = f" for {span((look.at - one.since).total_seconds())}" if one.since else ""
        why = one.why.split(": ", 1)[-1]
        what = f"{counted(one.count, 'job')} of {one.queue} {'waits' if one.count == 1 else 'wait'}{since} for a worker that has {one.task}: {why}"
        if look.settings.hold_timeout:
            what += f"; jobs that wait so for {span(look.settings.hold_timeout)} fail"
        module = one.task.rpartition(".")[0] or "MODULE"
        fix = f"{look.program} worker {words(one.queue)} --tasks {words(module)}"
        if "has no function" in why or "can't be imported" in why:  # a second worker with the module would not help
            query = words(f"is:held func:{one.task}")
            fix = f"deploy the code; or, if the name is wrong: {look.program} delete --query {query} --dry-run\n{look.program} jobs {query}"
        yield Finding("FUS-454", "fail", "held", one.queue, what, fix)


def stuck(look: Look) -> Iterator[Finding]:
    """Report concurrency keys whose jobs wait while none starts."""
    for key in look.stuck_keys[:20]:
        name = key.limit.key
        shown = some(f"{one.job_id} ({one.status} in {one.queue})" for one in key.holders)
        what = f"the concurrency key {name} is stuck: {counted(key.blocked, 'job waits', 'jobs wait')}, and none has started for ten minutes. "
        yield Finding("FUS-455", "fail", "stuck", name, f"{what}Its slots are held by {shown}", *_release(look, key))


def _release(look: Look, key: LimitInfo) -> tuple[str, Remedy | None]:
    """Return the fix for a stuck key, as text and as data: release the slots of running jobs; start or cancel a job that waits with one."""
    call, name = look.program, key.limit.key
    started = [one.job_id for one in key.holders if one.started]
    if started:
        fix = f"{call} limit release {words(name, *started[:3])}\n{call} limit show {words(name)}"
        return fix, Remedy("release", (name, *started[:3]))
    waiting = next(iter(key.holders), None)
    if waiting is None:
        return f"{call} limit show {words(name)}", None
    if not look.serving(waiting.queue):
        return f"{call} worker {words(waiting.queue)}\n{call} limit show {words(name)}", None
    fix = f"{call} cancel {words(waiting.job_id)}\n{call} limit show {words(name)}"
    return fix, Remedy("cancel", (waiting.job_id,))


def callbacks_in_python(look: Look) -> Iterator[Finding]:
    """Report `on_success` and `on_failure` callbacks that raised."""
    errors = look.totals.callback_errors
    if errors is None:
        return
    ago = None if errors.at is None else (look.at - errors.at).total_seconds()
    when = "" if ago is None else f", the last one {span(ago)} ago"
    what = f"{counted(errors.count, 'callback')} (on_success, on_failure) raised an error{when}, of the job {errors.job_id}"
    fix = "python -c " + words(f"from fusion.job import Job; print(Job.fetch({errors.job_id!r}).callback_error)")
    yield Finding("FUS-456", "note" if ago is None or ago > 3600 else "warn", "callbacks_in_python", errors.job_id, what, fix)


def keyless(look: Look) -> Iterator[Finding]:
    """Report functions that declare a concurrency key, but whose jobs ran without one."""
    for one in look.totals.keyless[:5]:
        what = f"{counted(one.count, 'job')} of {one.function} ran without the concurrency key that its @job declares"
        fix = f"{look.program} enqueue {words(one.function)} --concurrency-key KEY; give concurrency_key= wherever it is enqueued by name"
        yield Finding("FUS-457", "warn", "keyless", one.function, what, fix)


def dropped(look: Look) -> Iterator[Finding]:
    """Report ended jobs that were removed before their TTL was over."""
    if look.totals.dropped:
        counts = ", ".join(f"{count:,} {state}" for state, count in look.totals.dropped.items())
        what = f"ended jobs, or their logs, were forgotten before their time, as there were too many: {counts}"
        yield Finding(
            "FUS-458",
            "note",
            "dropped",
            "",
            what,
            "export FUSION_FAILED_MAX=N, FUSION_FINISHED_MAX, FUSION_CANCELED_MAX: how many are kept",
        )
