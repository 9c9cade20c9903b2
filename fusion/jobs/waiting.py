"""Why a job waits, in words: what must happen before it runs, in the order in which it has to happen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from fusion.jobs.visible import seen
from fusion.kernel.redaction import cut, printable
from fusion.kernel.scope import EVERYTHING, Scope
from fusion.kernel.timeutil import EPOCH, to_iso
from fusion.status import TERMINAL, JobStatus
from fusion.store.layout.codec import number
from fusion.store.layout.names import CALLBACKS
from fusion.store.read.job_facts import JobFacts, KeyFacts, Kin

#: Seconds after which a due job should be in its queue. Promotion takes at most one second.
_LATE = 5.0
#: Most characters of a sentence.
_LONGEST = 1000
#: Most jobs that a sentence names.
_NAMED = 3


@dataclass(frozen=True, slots=True)
class Wait:
    """One reason why a job waits. `code` is for programs, `text` for people. `ahead`: jobs of its queue, or of its key, that come before it;
    None if it has no place in one. `until`: when the wait is over; None if unknown."""

    code: str
    text: str
    ahead: int | None = None
    until: datetime | None = None


def waits(facts: JobFacts, scope: Scope = EVERYTHING) -> list[Wait]:
    """Return all reasons why the job waits; empty if it runs or has ended. Things of queues outside of `scope` are not named or counted."""
    status = facts.status
    if status in TERMINAL or status == JobStatus.STARTED:
        return []
    if status not in list(JobStatus):
        return [Wait("unknown_state", f"it is {status}, a state that only a newer version of Fusion knows")]
    found = {
        JobStatus.QUEUED: _queued,
        JobStatus.BLOCKED: _blocked,
        JobStatus.SCHEDULED: _scheduled,
        JobStatus.DEFERRED: _deferred,
    }[JobStatus(status)](facts, scope)
    return [replace(one, text=cut(printable(one.text), _LONGEST)) for one in found]


def is_seen(one: Kin, scope: Scope) -> bool:
    """Return True if a viewer of this scope may see another job."""
    return seen(scope, {"origin": one.queue.encode(), "original_queue": one.home.encode()})


def span(seconds: float) -> str:
    """Return a duration in words: `0.4 s`, `12 s`, `3 min`, `2 h`, `5 d`."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{max(seconds, 0.0):.1f} s"


def _queued(facts: JobFacts, scope: Scope) -> Iterator[Wait]:
    queue, name = facts.queue, facts.text("origin")
    if queue.ahead is None:
        yield Wait(
            "lost_place",
            f"its record says queued, but it stands in no place of {name or 'any queue'}: was it just taken? Look again; `requeue` or `delete` it "
            "if that stays so",
        )
        return
    yield from _closed(facts, scope)
    place = "it is the next of its queue" if not queue.ahead else f"{_come(queue.ahead)} before it"
    yield Wait("turn", f"its turn: {place}, of {queue.length:,} that wait", queue.ahead)


def _closed(facts: JobFacts, scope: Scope) -> Iterator[Wait]:
    """Yield what keeps a whole queue from being served."""
    queue, name = facts.queue, facts.text("origin")
    if queue.suspended:
        yield Wait("suspended", "everything is suspended; `resume` ends that")
    if queue.pause is not None:
        by = f" by {queue.pause.by}" if queue.pause.by else ""
        since = f" since {to_iso(queue.pause.since)}" if queue.pause.since else ""
        why = f": {queue.pause.reason}" if queue.pause.reason else ""
        ends = f"; it ends in {span(queue.pause.left)}" if queue.pause.left is not None else f"; `unpause {name}` ends that"
        yield Wait("paused", f"its queue {name} is paused{since}{by}{why}{ends}")
    yield from _unserved(facts, scope)
    gate = queue.gate
    if gate.limit is not None and queue.running >= gate.limit:
        yield Wait("queue_limit", f"its queue runs {queue.running} jobs and may run {gate.limit} at once")
    if gate.held_back is not None and gate.held_back > facts.at:
        yield Wait("held_back", f"a task holds its queue back until {to_iso(gate.held_back)}", until=gate.held_back)
    elif gate.closed:
        yield Wait("rate", f"its queue has used up its rate{f' of {gate.rate}' if gate.rate else ''}")


def _unserved(facts: JobFacts, scope: Scope) -> Iterator[Wait]:
    workers, name = facts.queue.workers, facts.text("origin")
    if not workers:
        who = "relay" if name == CALLBACKS else f"worker {name}"
        yield Wait("no_worker", f"no live worker serves its queue {name}; start one: `{who}`")
        return
    if not all(worker.refuses for worker in workers):
        return
    unloaded = [f"{worker.name} ({worker.unloaded})" for worker in workers if worker.unloaded]
    if unloaded:
        which = f": {_some(unloaded)}" if scope.all else ""
        yield Wait("unloaded", f"the workers of its queue can't load their tasks{which}")
        return
    throttled = [f"{worker.name} ({worker.throttled})" for worker in workers if worker.throttled]
    if throttled:
        which = f": {_some(throttled)}" if scope.all else ""
        yield Wait("throttled", f"memory is scarce where its workers run, they take no jobs{which}")
    elif any(worker.quiet for worker in workers):
        names = [worker.name for worker in workers if worker.quiet]
        which = f": {_some(names)}" if scope.all else ""
        yield Wait("quiet", f"all workers of its queue are quiet{which}; `unquiet` ends that")


def _blocked(facts: JobFacts, scope: Scope) -> Iterator[Wait]:
    kind, _, rest = facts.text("waits_in").partition(":")
    if kind == "limit":
        yield from _for_key(facts, scope)
    elif kind == "held":
        task = rest.partition(":")[2]
        why = facts.blocked_why.split(": ", 1)[-1]
        yield Wait("held", f"a worker that has its task {task}" + (f": {why}" if why else ""))
        if since := number(facts.row.get("held_since")):
            waited = span(facts.at.timestamp() - since / 1000)
            yield Wait("held_since", f"no worker has had it for {waited}; if none gets it, the job fails")
        yield from _unserved(facts, scope)
    elif kind == "probation":
        lost = number(facts.row.get("lost"))
        yield Wait(
            "probation", f"it was lost {lost} times, and runs alone, when a worker can do that: one at a time on each host"
        )
        yield from _unserved(facts, scope)
    else:
        yield Wait("blocked", "something that its record does not name: look again")


def _for_key(facts: JobFacts, scope: Scope) -> Iterator[Wait]:
    key = facts.key
    if key is None:
        yield Wait("key_slot", "a slot of a concurrency key that its record does not name: look again")
        return
    limit = key.limit
    if limit.paused_until > facts.at.timestamp():
        by = f" by {limit.paused_by}" if limit.paused_by else ""
        why = f": {limit.paused_why}" if limit.paused_why else ""
        yield Wait("key_paused", f"its concurrency key {limit.key} is paused{by}{why}; `limit resume` ends that")
    if facts.at.timestamp() < limit.held_back_until:
        until = EPOCH.fromtimestamp(limit.held_back_until, facts.at.tzinfo)
        yield Wait("key_held_back", f"a task holds its concurrency key {limit.key} back until {to_iso(until)}", until=until)
    full = limit.max_concurrent is not None and key.held >= limit.max_concurrent
    if full:
        shown = [_named(one) for one in key.holders if is_seen(one, scope)]
        who = f": {_some(shown)}" if shown else ""
        slots = "the slot" if limit.max_concurrent == 1 else f"one of the {limit.max_concurrent} slots"
        taken = f"; taken{who}" if scope.all else who
        yield Wait("key_slot", f"{slots} of its concurrency key {limit.key}{taken}{_place(key, scope)}", _ahead(key, scope))
    else:
        code, rate = ("key_rate", f", which may start {limit.rate}") if limit.rate else ("key_turn", "")
        yield Wait(code, f"its turn in its concurrency key {limit.key}{rate}{_place(key, scope)}", _ahead(key, scope))


def _ahead(key: KeyFacts, scope: Scope) -> int | None:
    """Return the number of jobs before it in its key; None for a restricted viewer, since a key may span several queues."""
    return key.ahead if scope.all else None


def _place(key: KeyFacts, scope: Scope) -> str:
    if (ahead := _ahead(key, scope)) is None:
        return ""
    return f"; {_come(ahead)} before it, of {key.waiting:,} that wait"


def _come(ahead: int) -> str:
    return "none comes" if not ahead else "1 comes" if ahead == 1 else f"{ahead:,} come"


def _named(one: Kin) -> str:
    return f"{one.id} ({one.status or 'gone'})"


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _scheduled(facts: JobFacts, scope: Scope) -> Iterator[Wait]:
    if facts.due is None:
        yield Wait("lost_place", "its record says scheduled, but it is not in the schedule: was it just taken? Look again")
        return
    left = (facts.due - facts.at).total_seconds()
    attempts, lost = number(facts.row.get("attempts")), number(facts.row.get("lost"))
    what = "its next try" if attempts else "its next run, as it was lost" if lost else "its time"
    if left > 0:
        yield Wait("retry" if attempts or lost else "time", f"{what}, in {span(left)}", until=facts.due)
    else:
        yield Wait("due", f"{what}: it has been due for {span(-left)}", until=facts.due)
        if left < -_LATE:
            yield Wait(
                "no_promoter",
                "due jobs do not reach their queues: no worker, scheduler or courier is alive, or Redis is overloaded",
            )
    yield from _closed_later(facts, scope)


def _closed_later(facts: JobFacts, scope: Scope) -> Iterator[Wait]:
    """Yield what will keep it waiting after its time has come."""
    for one in _closed(facts, scope):
        if one.code in ("suspended", "paused", "no_worker"):
            yield one


def _deferred(facts: JobFacts, scope: Scope) -> Iterator[Wait]:
    unmet = [one for one in facts.parents if one.unmet]
    shown = [_named(one) for one in unmet if is_seen(one, scope)]
    if unmet:
        more = " and others" if scope.all and (facts.more_parents or facts.parents_count > len(facts.parents)) else ""
        yield Wait("parents", f"jobs that it depends on: {_some(shown)}{more}" if shown else "a job that it depends on")
    elif facts.text("graph"):
        yield Wait(
            "graph", "the rest of the jobs that it is enqueued with: their last call has not come; after a minute it is given up"
        )
    elif facts.more_parents or facts.parents_count > len(facts.parents):
        yield Wait("parents", f"jobs that it depends on: none of the first {len(facts.parents)} any more, so some of the others")
    elif facts.text("ties").find("h") >= 0:
        yield Wait("maker", "the program that made it, which has to release it")
    else:
        yield Wait("release", "nothing any more: it is about to be released, or another program made its record")
    yield from _closed_later(facts, scope)
