"""Batched calls (`@job(batch=)`): jobs of one task wait in the worker for each other, run in one call, and each has its own outcome."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf

from fusion.execution.callbacks import CALLBACKS, callback_limits
from fusion.execution.completion import Decision
from fusion.execution.frames import FrameError, pack, unpack
from fusion.executors import readings
from fusion.executors.base import Death, Executor, KillCause, Run
from fusion.kernel import sentences
from fusion.kernel.failpoints import failpoint
from fusion.kernel.gather import parse
from fusion.runtime.free_slots import HIGH
from fusion.runtime.membership import Membership
from fusion.runtime.redis_link import CallRefused, RedisAway, RedisLink, refusable
from fusion.settings import Settings
from fusion.store.layout.records import Claimed
from fusion.store.write.broker import Broker
from fusion.worker.admission import Slots
from fusion.worker.outcomes import Outcomes

#: Jobs that one call to Redis may claim, so that the script stays short.
_AT_ONCE = 50
#: Bytes of arguments that all jobs of a call may have together.
_LARGEST = 8 * 1024 * 1024
#: Seconds between two requests for more jobs, at least and at most. Between these bounds: `_LOOKS` requests while the first job waits.
_SHORTEST, _LONGEST, _LOOKS = 0.02, 0.5, 10


@dataclass(slots=True, eq=False)
class _Waiting:
    """A call that has not begun, and still takes jobs.

    `until`: when it begins at the latest. `ask_at`: when to ask Redis for more jobs. `open`: the next job in line may belong to this call.
    `asked_at`: when Redis last had no more jobs for it. All are monotonic times.
    """

    key: tuple[object, ...]
    most: int
    until: float
    pause: float
    runs: list[Run] = field(default_factory=list)
    ask_at: float = 0.0
    asked_at: float = -inf
    open: bool = True
    size: int = 0
    token: int = 0

    @property
    def room(self) -> int:
        """Jobs that it may still have."""
        return self.most - len(self.runs) if self.open and self.size < _LARGEST else 0

    def is_due(self, now: float, away: bool) -> bool:
        """Return True if the call should begin. While Redis is `away`, it does not wait for an answer whether there are more jobs."""
        return not self.room or (now >= self.until and (away or self.asked_at >= self.until))


class BatchedCalls:
    """Keeps the jobs of batched calls until their call begins, and reports the outcome of each job.

    - a waiting call has a slot. This worker holds the leases of its jobs, and gives the jobs back when it ends;
    - a call runs as one job, in a process of its own: `carrier` below is that run. The executor does not know the members as runs;
    - a member without an answer runs again, alone in a process.
    """

    def __init__(
        self, executor: Executor, slots: Slots, broker: Broker, link: RedisLink, membership: Membership, settings: Settings
    ) -> None:
        self._executor, self._slots, self._broker, self._link = executor, slots, broker, link
        self._membership, self._settings = membership, settings
        #: Calls that have not begun.
        self.waits: list[_Waiting] = []
        #: When to ask for more jobs, or to begin a call.
        self.next_at = inf
        #: Calls under way: their members without an outcome, by execution.
        self.calls: dict[Run, dict[bytes, Run]] = {}
        #: A request to Redis without a reply. It is repeated before any other, as it may have claimed jobs.
        self._unheard: Callable[[], tuple[list[Claimed], bool]] | None = None
        self._outcomes: Outcomes
        self._start: Callable[[Claimed], None]

    def attach(self, outcomes: Outcomes, start: Callable[[Claimed], None]) -> None:
        """Connect the other parts; call this once, before anything else. `start`: called with each claimed job."""
        self._outcomes, self._start = outcomes, start

    # -- what this worker has

    def runs(self) -> Iterator[Run]:
        """Yield each run of a job that this worker holds, except those that are being killed."""
        for run in (*self._executor.running, *self._executor.queued):
            if run in self.calls:
                yield from self.calls[run].values()
            elif not run.killed:
                yield run
        for call in self.waits:
            yield from call.runs

    # -- coming together

    def fits(self, claimed: Claimed) -> bool:
        """Return True if a waiting call takes this job. A job of another kind closes the waiting calls of its queue."""
        if not self.waits:
            return False
        key = _key(claimed)
        for call in self.waits:
            if call.key[0] == claimed.queue and call.key != key:
                call.open = False
        self.next_at = self._soonest()
        return any(call.key == key and call.room for call in self.waits)

    def take(self, claimed: Claimed, limit: float) -> bool:
        """Take a job that has a slot, or `fits`. Return False if the job is not for a batched call."""
        fields = claimed.fields
        figures = parse(fields.get(b"gather", b""))
        if figures is None or b"func" not in fields or readings.suspects(fields):
            return False
        now, key = time.monotonic(), _key(claimed)
        call = next((call for call in self.waits if call.key == key and call.room), None)
        if call is None:
            most, wait = figures
            wait = 0.0 if readings.priority(fields) >= HIGH else wait
            call = _Waiting(key, most, now + wait, max(_SHORTEST, min(wait / _LOOKS, _LONGEST)), ask_at=now)
            self.waits.append(call)
            self._slots.reserved += 1
        call.runs.append(Run(claimed, limit, now))
        call.size += len(fields.get(b"data", b"")) + len(fields.get(b"meta", b""))
        self.next_at = self._soonest()
        return True

    def _soonest(self) -> float:
        away = self._link.away_since is not None
        soonest = self._link.retry_at if self._unheard else inf
        for call in self.waits:
            asks = max(call.ask_at, self._link.retry_at)
            soonest = min(soonest, 0.0 if not call.room else min(asks, call.until) if away else asks)
        return soonest

    def tick(self, now: float) -> None:
        """Ask Redis for more jobs, and begin the calls that are due."""
        if self._link.open(now):
            try:
                self._look(now)
            except RedisAway:
                pass  # the request is kept, and due calls begin without its reply
        for call in [call for call in self.waits if call.is_due(now, self._link.away_since is not None)]:
            self._begin(call)
        while self.waits and self._slots.reserved > self._executor.room().free:  # a job that does not wait took its process
            self._give_back_waiting(self.waits[-1], "its slot went to a job that does not wait")
        self.next_at = self._soonest()

    def _look(self, now: float) -> None:
        if self._unheard:
            self._ask()
        for call in list(self.waits):
            while call.room and now >= call.ask_at:
                wanted = self._slots.following(min(call.room, _AT_ONCE))
                if not wanted:
                    call.open = False
                    break
                call.token += 1
                leader, membership = call.runs[0].claimed, self._membership
                lease = self._settings.lease
                about = (membership.name, membership.incarnation, call.token, lease, leader, wanted)
                self._unheard = partial(self._broker.follow, *about)
                before = len(call.runs)
                more = self._ask()
                call.open = call.open and more
                if len(call.runs) - before < wanted:
                    call.asked_at = now
                    call.ask_at = min(now + call.pause, call.until) if now < call.until else inf

    def _ask(self) -> bool:
        """Send the request and start the jobs of its reply. Return True if there may be more. RedisAway: the request is kept."""
        assert self._unheard is not None
        try:
            jobs, more = self._link.attempt(refusable(self._unheard))
        except CallRefused:
            jobs, more = [], False  # a broken queue: the next turn reports it
        self._unheard = None
        for claimed in jobs:
            self._start(claimed)
        return more

    # -- the call

    def _begin(self, call: _Waiting) -> None:
        self._drop(call)
        runs = call.runs
        if not runs:
            return
        if not self._executor.room().free:
            self._give_back(runs, "no process for it")
            return
        if len(runs) == 1:
            runs[0].claimed.fields[b"isolate"] = b"1"
        carrier = self._executor.start(*(_together(runs) if len(runs) > 1 else (runs[0].claimed, runs[0].limit)))
        if carrier is None:
            self._give_back(runs, "no process for it")
        elif len(runs) > 1:
            self.calls[carrier] = {run.claimed.execution_id.encode(): run for run in runs}
            for run in runs:
                run.began = carrier.began

    def _drop(self, call: _Waiting) -> None:
        self.waits.remove(call)
        self._slots.reserved -= 1

    def _give_back(self, runs: list[Run], why: str) -> None:
        self._slots.release_slot(len(runs))
        for run in runs:
            self._outcomes.give_back(run.claimed, why)

    def give_back_waiting(self, why: str) -> None:
        """Give back what waits: it has not begun, nothing is counted."""
        for call in list(self.waits):
            self._give_back_waiting(call, why)

    def _give_back_waiting(self, call: _Waiting, why: str) -> None:
        self._drop(call)
        self._give_back(call.runs, why)

    # -- stopping members

    def stop(self, run: Run) -> None:
        """Stop a job. If it shares a call, the call ends and its other jobs run again."""
        failpoint("stop.ask")
        if call := self._waiting_with(run):
            call.runs.remove(run)
            self._outcomes.stopped(run.claimed)
            if not call.runs:
                self._drop(call)
        elif carrier := self._carrier_of(run):
            run.stopping = True
            self._executor.stop(carrier)
        else:
            self._executor.stop(run)
        failpoint("stop.asked")

    def lost(self, run: Run) -> None:
        """Forget a job that another worker has: its outcome here does not count. A call that has no other job left is killed."""
        if call := self._waiting_with(run):
            call.runs.remove(run)
            if not call.runs:
                self._drop(call)
        elif carrier := self._carrier_of(run):
            del self.calls[carrier][run.claimed.execution_id.encode()]
            if not self.calls[carrier]:
                self._executor.kill(carrier, KillCause.LOST)
        else:
            self._executor.kill(run, KillCause.LOST)

    def _waiting_with(self, run: Run) -> _Waiting | None:
        return next((call for call in self.waits if run in call.runs), None)

    def _carrier_of(self, run: Run) -> Run | None:
        execution = run.claimed.execution_id.encode()
        return next((carrier for carrier, members in self.calls.items() if members.get(execution) is run), None)

    # -- outcomes of members

    def opened(self, run: Run, frame: Mapping[bytes, bytes]) -> tuple[Run, dict[bytes, bytes]] | None:
        """Unpack a member's frame. Return the member and the frame; None if it is not for a member that still lacks an outcome."""
        member = self.calls.get(run, {}).get(frame.get(b"of", b""))
        try:
            inner = unpack(frame.get(b"frame", b"")[4:])
        except FrameError:
            return None
        kind = inner.get(b"kind")
        if member is None or kind in (b"callback", b"member"):
            return None
        if kind not in (b"log", b"output", b"meta", b"report", b"stands", b"telemetry"):
            del self.calls[run][member.claimed.execution_id.encode()]
        return member, inner

    def over(self, run: Run, frame: Mapping[bytes, bytes]) -> bool:
        """Handle a call that ended by itself. A member without an answer runs again alone. False if the run is not a batched call."""
        members = self.calls.pop(run, None)
        if members is None:
            return False
        stopped = any(member.stopping for member in members.values())
        line = frame.get(b"exc_line", b"").decode("utf-8", "replace")
        shown = line.partition(":")[0] or "it did not yield it"
        for member in members.values():
            if member.stands is not None:
                self._outcomes.received(member, member.stands)
                continue
            if member.stopping:
                decision = Decision("stopped", line or "the call that it shared was stopped", shown="JobStopped")
            elif stopped:
                decision = Decision("displaced", "the call that it shared was stopped for another job in it")
            else:
                why = "the call that it shared gave no answer for it: it runs again alone"
                decision = Decision("suspect", f"{why}; {line or shown}", shown=f"{why}; {shown}")
            self._outcomes.decided(member, decision)
        return True

    def ended(self, run: Run, death: Death) -> bool:
        """Decide the members' outcomes after the call's process died. False if the run is not a batched call."""
        members = self.calls.pop(run, None)
        if members is None:
            return False
        stopped = any(member.stopping for member in members.values())
        for member in members.values():
            member.killed = run.killed
            if stopped and not member.stopping:
                member.killed = KillCause.DISPLACED
            if member.stands is not None:
                self._outcomes.died(member, death, {})
            elif death.timed_out and not stopped:
                why = f"{sentences.SHARED_CALL.format(s=f'{run.limit:g}')} and was killed: it runs again alone"
                self._outcomes.decided(member, Decision("suspect", why))
            else:
                self._outcomes.died(member, replace(death, timed_out=False, suspect=True), {})
        return True

    def returned(self, run: Run, why: str) -> bool:
        """Give back the members of a call that will not begin. False if the run is not a batched call."""
        members = self.calls.pop(run, None)
        if members is None:
            return False
        self._give_back(list(members.values()), why)
        return True


def _key(claimed: Claimed) -> tuple[object, ...]:
    """Return the values that all jobs of a call share, the queue first."""
    fields = claimed.fields
    return claimed.queue, readings.priority(fields), *map(fields.get, (b"func", b"gather", b"serializer"))


def _together(runs: list[Run]) -> tuple[Claimed, float]:
    """Return the call as one job, and the seconds after which its process is killed.

    That is the smallest limit of its jobs, plus the time that their callbacks may take.
    """
    first = runs[0].claimed
    frames = [
        pack({b"id": c.id.encode(), b"execution_id": c.execution_id.encode(), **c.fields}) for c in (run.claimed for run in runs)
    ]
    shortest = min(runs, key=lambda run: run.limit)
    fields = {name: value for name, value in first.fields.items() if name in (b"func", b"data", b"priority", b"origin")}
    fields |= {b"isolate": b"1", b"gathered": b"".join(frames), b"timeout": shortest.claimed.fields[b"timeout"]}
    callbacks = [run.claimed.fields for run in runs if not CALLBACKS.isdisjoint(run.claimed.fields)]
    limit = shortest.limit + sum(max(callback_limits(found), default=0.0) for found in callbacks)
    return Claimed(first.queue, first.id, first.execution_id, fields), limit
