"""Concurrency keys as the model has them: who holds a slot of a key, and who waits for one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf

from tests.faults.model.state import TERMINAL, Job, State

_FORGET_MS = _LONGEST_MS = 86_400_000
#: For this long a job keeps its slot for a worker that has its task.
_KEPT_MS = 30_000


@dataclass
class Key:
    """`most`: as the last enqueue said; `rate`: ms from one start to the next, and how many after a rest; `opens`: ms until which it is paused;
    `held_back`: ms until which a task of it was told to stay away; `tat`: us until which its starts used its rate up; `idle`: they have a slot
    and wait, for their turn or for a worker that has their task. `totals`: by what is counted, and priority."""

    used: int
    most: int | None = None
    pinned: int | None = None
    rate: tuple[int, int] | None = None
    opens: float | None = None
    held_back: int | None = None
    tat: int | None = None
    running: set[str] = field(default_factory=set)
    idle: set[str] = field(default_factory=set)
    totals: Counter[tuple[str, int]] = field(default_factory=Counter)

    def has(self, job: Job) -> bool:
        return job.id in self.running or job.id in self.idle

    @property
    def held(self) -> int:
        return len(self.running) + len(self.idle)

    def closed_until(self, now: int) -> float | None:
        """The longer of a pause and of what a task was told; no task is believed that says more than a day."""
        ends = [self.opens, None if self.held_back is None or self.held_back > now + _LONGEST_MS else self.held_back]
        return max((end for end in ends if end is not None and end > now), default=None)


class Keyed(State):
    """As many of a key's jobs hold a slot as its limit says: the best, but for those that run. `due`: ms at which a key is to be looked at, or
    a job that keeps its slot for its task; `settling`: keys that are to be settled at the end of this claim; `unrung`: queues of which others
    hear at the end of this turn."""

    def __init__(self, now: int) -> None:
        super().__init__(now)
        self.keys: dict[str, Key] = {}
        self.due: dict[str, float] = {}
        self.settling: set[str] | None = None
        self.unrung: set[str] | None = None
        self.settled = False

    def begin(self) -> None:
        super().begin()
        self.settled = False

    def key_of(self, name: str) -> Key:
        return self.keys.setdefault(name, Key(self.now))

    def queue_up(self, name: str) -> list[Job]:
        """Those that wait for a slot, best first."""
        return self._in_line(job for job in self.of("blocked") if job.waits_in == f"limit:{name}")

    def idle_of(self, name: str) -> list[Job]:
        """Those that have one and have not started, best first."""
        return self._in_line(self.jobs[job_id] for job_id in self.keys[name].idle)

    @staticmethod
    def _in_line(jobs: Iterable[Job]) -> list[Job]:
        return sorted(sorted(jobs, key=lambda job: job.id, reverse=True), key=lambda job: job.line)

    def _stand_in(self, job: Job, *, arrives: bool = False) -> None:
        """Its place in its key is that of arrival. Turns are a queue's own: where there are such, it has a number for its key besides, from
        its first arrival on; a new one for a new turn."""
        job.line = job.rank
        if job.queue not in self.fair or job.seq is None or job.seq < 0:
            return
        if job.came is None and (job.deliveries or not arrives):
            return
        if job.came is None or job.came[0] != job.seq:
            job.came = job.seq, self.next_seq()
        job.line = -job.level, job.came[1]

    # -- what a job does

    def arrive(self, job: Job, *, named: bool = False) -> None:
        """It stands in its queue, whatever brought it there. `named`: an enqueue did."""
        if job.key is None:
            return
        changed = self._name(job, named)
        key = self.keys[job.key]
        if not job.boxed:
            self._stand_in(job, arrives=True)
        if job.boxed:
            changed = changed and self.settle_key(job.key)
        elif not named and key.has(job):
            key.running.discard(job.id)
            key.idle.add(job.id)
            changed = True
        elif self._is_free(job.key):
            key.idle.add(job.id)
        elif not job.discard:
            self._put_in_line(job)
            changed = True
        if changed:
            self.settle_key(job.key)
        if job.status == "queued" and not job.boxed and job.discard:
            job.discard = False
            if not key.has(job):
                self._discard(job)
        if job.status == "queued":
            self.wake(job.queue, job.level)

    def came_back(self, job: Job) -> None:
        """An execution of it is over, and it waits in its queue again."""
        if job.key is None:
            return
        self.wake(job.queue, job.level)
        key = self.keys.get(job.key)
        if key is None or not key.has(job):
            self.arrive(job)
        else:
            self._stand_in(job)
            key.running.discard(job.id)
            key.idle.add(job.id)
            self.settle_key(job.key)

    def _keeps_for_task(self, job: Job) -> bool:
        """It waits for its task, and a worker that has it found no slot for it before: this one it keeps, for a time."""
        key = self.keys.get(job.key or "")
        if not job.wanted or key is None or not key.has(job):
            return False
        self._stand_in(job)
        key.running.discard(job.id)
        key.idle.add(job.id)
        self.due[f"{job.key} {job.id} held"] = self.now + _KEPT_MS
        job.wanted = False
        self.settle_key(job.key or "")
        return True

    def hold_key_back(self, job: Job, until: int) -> None:
        """A task of the key was told to stay away until then (ms)."""
        key = self.key_of(job.key or "")
        if not (key.held_back and self.now < key.held_back <= self.now + _LONGEST_MS and until <= key.held_back):
            key.held_back, key.used = until, self.now

    def leave(self, job: Job, waited: bool = False) -> None:
        """It ended, or waits for something other than its turn."""
        key = self.keys.get(job.key or "")
        if key and (key.has(job) or waited):
            key.running.discard(job.id)
            key.idle.discard(job.id)
            self.settle_key(job.key or "")

    def take_slot(self, job: Job) -> bool:
        """A worker is to have it: it starts, or waits in line."""
        if job.key is None:
            return True
        was_aside = job.status == "blocked"
        if job.key not in self.keys or not self.keys[job.key].has(job):
            self.key_of(job.key).used = self.now
            may = self._is_free(job.key)
        else:
            may = True
        key = self.keys[job.key]
        if may and self._may_start(job.key):
            key.idle.discard(job.id)
            key.running.add(job.id)
            if was_aside and self._name(job, False):
                self.settle_key(job.key)
            return True
        job.wanted = job.wanted or (job.waits_in or "").startswith("held:")
        self._stand_in(job)
        self._put_in_line(job)
        key.idle.discard(job.id)
        if was_aside:
            self._name(job, False)
        self.settle_key(job.key)
        return False

    def _name(self, job: Job, named: bool) -> bool:
        key = self.key_of(job.key or "")
        key.used = self.now
        before = key.most, key.rate
        if job.most is not None and (named or key.most is None):
            key.most = job.most
        if job.rate is not None and (named or key.rate is None):
            key.rate = job.rate
        return before != (key.most, key.rate)

    def _discard(self, job: Job) -> None:
        self.end(job, "canceled", 86400)
        job.reason = True
        self.events.append(("canceled", job.id, job.queue))
        self.count("discarded", job)

    def _put_in_line(self, job: Job) -> None:
        job.status, job.waits_in, job.wait_until = "blocked", f"limit:{job.key}", inf
        self.settled = True
        self.emit("blocked", job)

    # -- what a key lets through

    def _is_free(self, name: str) -> bool:
        return self.keys[name].held < self._slots(name)[0] and not self.queue_up(name)

    def _bounds(self, key: Key) -> float:
        """How many may have a slot, tokens aside."""
        if key.closed_until(self.now) is not None:
            return 0
        named = key.most if key.pinned is None else key.pinned
        return named if named is not None else inf if key.rate else 1

    def _used_up(self, key: Key) -> int:
        interval, burst = key.rate or (0, 0)
        return min(max((key.tat or 0) - self.now * 1000, 0), burst * interval * 1000)

    def _tokens(self, key: Key) -> int:
        interval, burst = key.rate or (0, 0)
        return burst + (-self._used_up(key) // (interval * 1000))

    def _slots(self, name: str) -> tuple[float, float | None]:
        """How many may have a slot, and the instant at which there may be another."""
        key = self.keys[name]
        bound, closed = self._bounds(key), key.closed_until(self.now)
        if closed is not None:
            return 0, None if closed == inf else closed
        if key.rate is None or len(key.running) + self._tokens(key) >= bound:
            return bound, None
        tokens, (interval, burst) = self._tokens(key), key.rate
        next_one = self.now * 1000 + self._used_up(key) - (burst - tokens - 1) * interval * 1000
        return len(key.running) + tokens, next_one // 1000 + 1 if tokens < burst else None

    def _may_start(self, name: str) -> bool:
        key = self.keys[name]
        if len(key.running) >= self._bounds(key) or (key.rate and self._tokens(key) < 1):
            return False
        if key.rate:
            key.tat = self.now * 1000 + self._used_up(key) + key.rate[0] * 1000
            self.settle_key(name)
        return True

    def settle_key(self, name: str) -> bool:
        """The best have the slots."""
        self.settled = True
        if self.settling is not None:
            self.settling.add(name)
            return False
        key, (slots, opens) = self.keys[name], self._slots(name)
        if opens is not None and self.queue_up(name):
            self.due[name] = min(opens, self.due.get(name, opens))
        while True:
            waiting, idle = self.queue_up(name), self.idle_of(name)
            if key.held < slots:
                if not waiting:
                    return False
                self._admit(name, waiting[0])
            elif idle and (key.held > slots or (waiting and waiting[0].line < idle[-1].line)):
                key.idle.discard(idle[-1].id)
                if opens is not None:
                    self.due[name] = min(opens, self.due.get(name, opens))
                if not (idle[-1].waits_in or "").startswith("held:"):  # else it waits for its task, as before
                    self._put_in_line(idle[-1])
            else:
                return False

    def _admit(self, name: str, job: Job) -> None:
        self.unblock(job)
        job.status = "queued"
        self.keys[name].idle.add(job.id)
        self.emit("queued", job)
        if self.unrung is None:
            self.wake(job.queue, job.level)
        else:
            self.unrung.add(job.queue)

    # -- what the rest of the store does

    def end(self, job: Job, status: str, ttl: int) -> None:
        waited = job.waits_in == f"limit:{job.key}"
        super().end(job, status, ttl)
        self.leave(job, waited)

    def forget(self, job: Job) -> None:
        self.unblock(job)
        if job.status not in TERMINAL:
            self.leave(job)
        del self.jobs[job.id]
        self.emit("deleted", job)

    def block(self, job: Job, kind: str, until: float = inf) -> None:
        super().block(job, kind, until)
        if kind == "held" and not self._keeps_for_task(job):
            self.leave(job)

    def settle(self, job: Job, *, lost: bool, shared: bool = False, kind: str = "") -> None:
        super().settle(job, lost=lost, shared=shared, kind=kind)
        if job.status == "queued":
            self.came_back(job)

    def count(self, what: str, job: Job) -> None:
        super().count(what, job)
        if job.key is not None:
            self.key_of(job.key).totals[what, job.priority] += 1

    def look_due(self, limit: int) -> None:
        """Keys of which something is due."""
        for _, name in sorted((at, name) for name, at in self.due.items() if at <= self.now)[:limit]:
            self.due.pop(name, None)
            key, _, job_id = name.removesuffix(" held").partition(" ")
            job = self.jobs.get(job_id)
            if not job_id:
                self.settle_key(name)
            elif job and job.status == "blocked" and (job.waits_in or "").startswith("held:"):
                self._take_back(key, job)

    def audit(self) -> None:
        """Each key as it should be, and those that nobody has used for a day are gone."""
        for name, key in list(self.keys.items()):
            self.settle_key(name)
            if self.now - key.used < _FORGET_MS:
                continue
            ahead = (key.tat or 0) > self.now * 1000 or key.closed_until(self.now) is not None
            if key.pinned is not None or ahead or key.held or self.queue_up(name):
                key.used = self.now
            else:
                del self.keys[name]

    # -- people

    def pin(self, name: str, most: int | None) -> None:
        self.key_of(name).pinned = most
        self.settle_key(name)

    def halt(self, name: str, ms: int | None) -> None:
        self.key_of(name).opens = inf if ms is None else self.now + ms
        self.settle_key(name)

    def go_on(self, name: str) -> None:
        key = self.key_of(name)
        key.opens = key.held_back = None
        self.settle_key(name)

    def release_slot(self, name: str, job_id: str) -> bool:
        key = self.keys.get(name)
        if key is None or job_id not in key.running:
            return False
        self._take_back(name, self.jobs[job_id])
        return True

    def _take_back(self, name: str, job: Job) -> None:
        """Others may have its slot."""
        key = self.keys.get(name)
        if key and key.has(job):
            key.running.discard(job.id)
            key.idle.discard(job.id)
            self.events.append(("slot_released", job.id, job.queue))
            self.settle_key(name)
