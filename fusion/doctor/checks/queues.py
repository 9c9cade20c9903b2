"""Check queues in which jobs wait: how bad it is, and why the jobs wait."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from fusion.doctor.finding import Finding, Level, Remedy, counted, some, span, words

if TYPE_CHECKING:
    from fusion.doctor.look import Look
    from fusion.store.read.inspector import QueueInfo, WorkerInfo

#: Bounds for `warn` and `fail`: the length in percent of `max_queue_length`; the seconds that the oldest job has waited.
DEPTH, OLDEST = (10.0, 50.0), (300.0, 1800.0)
#: Seconds in which no job ended, while jobs wait, that count as no progress.
NO_PROGRESS = 600.0
#: Seconds that a job must have waited before it is reported that the queue grows, or that its limit has free slots.
PATIENCE = 30.0
#: A queue is read for a shared key if this many jobs wait in it; the longest queues are read, this many at most.
_CROWD, _LONGEST = 20, 10


class Cause(NamedTuple):
    """Why jobs wait, with the code of the finding.

    `structural`: the level of a cause that does not pass by itself; it is reported even if the jobs are still young.
    """

    code: str
    why: str
    fix: str
    structural: Level | None = None
    remedy: Remedy | None = None


def queues(look: Look) -> Iterator[Finding]:
    """Report each queue that is too long, has jobs that wait too long, or makes no progress."""
    for queue in look.waiting:
        signs = list(_signs(look, queue))
        cause = why(look, queue)
        if cause.structural:
            signs.append((cause.structural, f"{counted(queue.length, 'job waits', 'jobs wait')}"))
        if signs:
            level = max((sign for sign, _ in signs), key=("note", "warn", "fail").index)
            told = ", ".join(text for _, text in signs)
            what = f"{queue.name}: {told}{_rate(look, queue)}: {cause.why}"
            yield Finding(cause.code, level, "queues", queue.name, what, cause.fix, cause.remedy)


def crowds(look: Look) -> Iterator[Finding]:
    """Report the key that most of the newest jobs share, of the longest queues."""
    longest = sorted((queue for queue in look.waiting if queue.count >= _CROWD), key=lambda queue: -queue.count)
    for queue in longest[:_LONGEST]:
        if (shared := look.shared_key(queue)) is None:
            continue
        kind, name, count, read = shared
        what = f"{queue.name}: {count} of the last {read} jobs that came have the {kind} {name}"
        bound = (
            f"{look.program} limit set {words(name)} N"
            if kind == "concurrency key"
            else f"{look.program} cancel --fair-key {words(name)} --dry-run"
        )
        yield Finding("FUS-495", "note", "crowds", queue.name, what, bound)


def _signs(look: Look, queue: QueueInfo) -> Iterator[tuple[Level, str]]:
    most = queue.bounds.max_length if queue.bounds.max_length is not None else look.settings.max_queue_length
    if most:
        share = 100 * queue.length / most
        if share > DEPTH[0]:
            yield _level(share, DEPTH), f"{queue.length:,} of {most:,} places are taken ({share:.0f} %)"
    age = _age(look, queue)
    if age > OLDEST[0]:
        yield _level(age, OLDEST), f"the oldest has waited {span(age)}"
    if (flow := queue.flow) and flow.came > flow.went and age > PATIENCE:
        more, ahead = flow.came - flow.went, 60 * queue.length / max(flow.went, 1.0)
        if ahead > OLDEST[0]:
            yield "warn", f"{more:,.0f} a minute more come in than go out, a new job waits {span(ahead)} at this rate"
    ended = look.recent.get(queue.name)
    if age >= NO_PROGRESS and ended is not None and not sum(ended.values()):
        yield "fail", f"no job has ended for {span(NO_PROGRESS)}"
    limit = queue.bounds.limit
    if limit is not None and queue.started < limit and queue.count and age > PATIENCE:
        yield "warn", f"{queue.started} of {limit} run"


def _level(figure: float, bounds: tuple[float, float]) -> Level:
    return "fail" if figure > bounds[1] else "warn"


def _age(look: Look, queue: QueueInfo) -> float:
    return 0.0 if queue.oldest is None else max(0.0, (look.at - queue.oldest).total_seconds())


def _rate(look: Look, queue: QueueInfo) -> str:
    ended = look.recent.get(queue.name)
    return "" if ended is None else f" ({sum(ended.values()) / 10:g} end a minute)"


def why(look: Look, queue: QueueInfo) -> Cause:
    """Return the first reason why no job of the queue starts, or too few."""
    name, call = queue.name, look.program
    serving = look.serving(name)
    if queue.error:
        return Cause("FUS-480", f"it can't be read, {queue.error}", f"{look.redis_cli} TYPE {name}", "fail")
    if look.totals.suspended:
        return Cause("FUS-481", "everything is suspended", f"{call} resume", "warn", Remedy("resume_fleet"))
    if queue.pause is not None:
        by = f" by {queue.pause.by}" if queue.pause.by else ""
        return Cause("FUS-482", f"it is paused{by}", f"{call} unpause {words(name)}", "note", Remedy("resume_queue", (name,)))
    if not serving:
        return Cause("FUS-483", "no live worker serves it", f"{call} worker {words(name)}{look.tasks_flag(queue)}", "fail")
    held = _held_back(look, serving)
    if held is not None:
        return held
    if not queue.count:
        return Cause("FUS-488", "they wait for slots of their concurrency keys, or are held", f"{call} limit list\n{call} info")
    limit = queue.bounds.limit
    if limit == 0 or (limit is not None and queue.started >= limit):
        return Cause(
            "FUS-489",
            f"its limit is reached, {queue.started} of {limit} run",
            f"{call} queue set {words(name)} --limit N",
            "fail" if limit == 0 else None,
        )
    if queue.bounds.closed:
        return Cause(
            "FUS-490",
            "its rate is used up, or a task holds it back",
            f"{call} queue set {words(name)} --rate RATE\n{call} queue show {words(name)}",
        )
    return _capacity(look, queue, serving)


def _held_back(look: Look, serving: list[WorkerInfo]) -> Cause | None:
    """Return why none of the live workers takes a job; None if at least one does."""
    call = look.program
    if not all(worker.refuses for worker in serving):
        return None
    unloaded = [f"{worker.name} ({worker.unloaded})" for worker in serving if worker.unloaded]
    if unloaded:
        hosts = some({worker.hostname for worker in serving if worker.unloaded})
        fix = f"mend that on {hosts}: a worker tries again by itself\n{call} info -W"
        return Cause("FUS-484", f"its tasks can't be loaded by {some(unloaded)}", fix, "fail")
    throttled = [f"{worker.name} ({worker.throttled})" for worker in serving if worker.throttled]
    if throttled:
        fix = f"{call} worker QUEUE on a machine with memory\nfree memory on {some({worker.hostname for worker in serving})}"
        return Cause("FUS-485", f"memory is scarce where its workers run, no job is taken by {some(throttled)}", fix, "fail")
    quiet = [worker.name for worker in serving if worker.quiet]
    if quiet:
        told = tuple(quiet[:5])
        return Cause(
            "FUS-486",
            f"all of its workers are quiet: {some(quiet)}",
            f"{call} unquiet {words(*told)}",
            "warn",
            Remedy("unquiet", told),
        )
    return Cause("FUS-487", "its workers are suspended", f"{call} resume", "warn", Remedy("resume_fleet"))


def _capacity(look: Look, queue: QueueInfo, serving: list[WorkerInfo]) -> Cause:
    name, call = queue.name, look.program
    idle = [worker.name for worker in serving if worker.state == "idle" and not worker.refuses]
    if not idle:
        jobs = look.running(name)
        runs = f", {queue.started} of its jobs run ({some(jobs)})" if jobs else ", with jobs of other queues"
        more = f"{call} start -n N --customq {words(name)}{look.tasks_flag(queue)}"
        ended = look.recent.get(name)
        if jobs and ended is not None and not sum(ended.values()):
            busy = f"its {counted(len(serving), 'worker is', 'workers are')} busy{runs}"
            return Cause("FUS-491", busy, f"{call} stop {words(jobs[0])}\n{more}", remedy=Remedy("stop", (jobs[0],)))
        return Cause("FUS-492", f"its {counted(len(serving), 'worker is', 'workers are')} busy{runs}", more)
    if not queue.started and _age(look, queue) > PATIENCE:
        what = f"{some(idle)} {'lives' if len(idle) == 1 else 'live'} and {'takes' if len(idle) == 1 else 'take'} none of them: the log says why"
        return Cause("FUS-493", what, f"{call} worker {words(name)}{look.tasks_flag(queue)} --burst -v\n{call} info -W", "warn")
    return Cause(
        "FUS-494", f"more comes than its workers start; {some(idle)} had nothing to do just now", f"{call} stats {words(name)}"
    )
