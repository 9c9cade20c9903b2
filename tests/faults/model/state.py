"""What a store of jobs is, in plain Python: jobs, places, leases, workers and a clock. `model` says what each call does to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from hashlib import sha1
from math import inf

START = 1_750_000_000_000
LEASE_MS = 30_000
MAX_LOST = 4
#: Times that an execution which had begun goes back uncharged, one after another.
SPARED = 5
PROBATION = 2
HOLD_MS = 600_000
RESULT_TTL, FAILURE_TTL, CANCELED_TTL, MIN_TTL = 500, 30 * 86400, 86400, 60
INBOX = "scheduler"
QUEUES = ("a", "b", INBOX)
#: Of all jobs.
TASK = "tasks.sms.sendSMS"
IDS = tuple(f"j{i}" for i in range(12))
TERMINAL = ("finished", "failed", "canceled", "stopped")

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class Order:
    """A job as a producer asks for it. `at`: Unix ms; `delay`: seconds; one of them at most. `key`: of concurrency; `most` and `rate`: what the
    job says of it, as `Key` has it."""

    id: str
    priority: int = 1
    front: bool = False
    ttl: int | None = None
    at: int | None = None
    delay: int | None = None
    on_lost: str | None = None
    result_ttl: int = 500
    fair: str | None = None
    key: str | None = None
    most: int | None = None
    rate: tuple[int, int] | None = None
    discard: bool = False


@dataclass(frozen=True)
class Told:
    """An outcome of an execution; `limited` is for jobs with a key only. `back`: a retry that lines up anew; `keep`: one that keeps its slot
    meanwhile."""

    kind: str
    id: str
    execution: str
    delay: int = 0
    back: bool = False
    keep: bool = False


@dataclass(frozen=True)
class Wish:
    """What a worker serves of blocked jobs: those held, those on probation. `lacks`: the task of all jobs."""

    kinds: tuple[str, ...] = ()
    lacks: bool = False
    alone: bool = False
    only: bool = False


@dataclass
class Job:
    """`seq`: its arrival number, None before it has a place; `arrival`: what it has meanwhile; `boxed`: it waits in an inbox, not yet at
    that place; `due` and `expiry`: Unix seconds as the sets hold them; `lease`, `expires`: ms. `came`: the turn it has in its queue, and what
    number it came as in its key; `line`: its place among those of its key; `wanted`: a worker that has its task had no slot for it."""

    id: str
    queue: str
    status: str
    seq: int | None
    priority: int = 1
    nonce: str | None = None
    created: int = 0
    result_ttl: int | None = None
    ttl: int | None = None
    on_lost: str | None = None
    execution: str | None = None
    worker: str | None = None
    lease: int = 0
    attempts: int = 0
    lost: int = 0
    deliveries: int = 0
    requeued: int = 0
    requeue_nonce: str | None = None
    cancel: str = ""
    due: float = 0.0
    expires: int | None = None
    expiry: float = inf
    held_since: int | None = None
    suspect: bool = False
    spared: int = 0
    waits_in: str | None = None
    wait_until: float = inf
    reason: bool = False
    front: bool = False
    quarantined: bool = False
    corrupt: bool = False
    boxed: bool = False
    arrival: int = 0
    fair: str | None = None
    key: str | None = None
    most: int | None = None
    rate: tuple[int, int] | None = None
    discard: bool = False
    came: tuple[int, int] | None = None
    line: tuple[int, int] = (0, 0)
    wanted: bool = False

    @property
    def rank(self) -> tuple[int, int]:
        """Sorts the first to run first."""
        assert self.seq is not None
        return -self.level, self.seq

    @property
    def level(self) -> int:
        return 1 if self.queue == INBOX else self.priority


@dataclass
class Turns:
    """Of a class of a queue that has had jobs with fair keys: the clock, and the last turn of each key ("": of jobs without)."""

    clock: int
    last: dict[str, int]


@dataclass
class Worker:
    """`answers` and `given`: what it was told and handed under its last token."""

    incarnation: str
    beat: int
    token: int = 0
    answers: list[str] = field(default_factory=list)
    given: list[tuple[str, str, str]] = field(default_factory=list)
    finished: int = 0
    failed: int = 0


class State:
    """The store. `totals`: lifetime counters, by queue, what is counted, and priority. `events` and `woken` (queue, class): of the call under way."""

    def __init__(self, now: int) -> None:
        self.now = now
        self.jobs: dict[str, Job] = {}
        self.inbox: list[str] = []
        self.struck: dict[str, int] = {}
        self.known_queues: set[str] = set()
        #: By queue: since when nothing is in it; when its name was forgotten.
        self.empty_since: dict[str, int] = {}
        self.forgotten: dict[str, int] = {}
        #: Each with since when.
        self.paused: dict[str, str] = {}
        #: By queue: jobs at once; ms from one start to the next, and how many after a rest; how far ahead its starts used that up (us).
        self.limits: dict[str, int] = {}
        self.rates: dict[str, tuple[int, int]] = {}
        self.tats: dict[str, int] = {}
        self.suspended = False
        self.workers: dict[str, Worker] = {}
        self.listed: set[str] = set()
        self.index: dict[str, dict[str, str]] = {}
        self.last_reap: int | None = None
        self.known_waits: dict[str, int] = {}
        self.hold = 0
        #: By queue and class.
        self.fair: dict[str, dict[int, Turns]] = {}
        self.events: list[tuple[str, str, str]] = []
        self.totals: Counter[tuple[str, str, int]] = Counter()
        self.woken: set[tuple[str, int]] = set()
        self._seq = self._front = self._ended = 0

    def begin(self) -> None:
        """A call begins."""
        self.events, self.woken, self._ended = [], set(), 0

    @property
    def iso(self) -> str:
        return (_EPOCH + timedelta(milliseconds=self.now)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    # -- where jobs stand

    def waiting(self, queue: str) -> list[Job]:
        """Those with a place, best first. Ids in the inbox have none yet."""
        found = [job for job in self.jobs.values() if job.status == "queued" and job.queue == queue and not job.boxed]
        return self.in_order(found)

    @staticmethod
    def in_order(jobs: Iterable[Job]) -> list[Job]:
        """Best first; of one turn the one whose id comes last."""
        return sorted(sorted(jobs, key=lambda job: job.id, reverse=True), key=lambda job: job.rank)

    def of(self, status: str, queue: str | None = None) -> Iterator[Job]:
        return (job for job in self.jobs.values() if job.status == status and queue in (None, job.queue))

    def room(self, queue: str) -> float:
        """How many jobs of the queue may start now."""
        places = self.limits.get(queue, inf) - sum(1 for _ in self.of("started", queue))
        if queue not in self.rates:
            return places
        interval, burst = self.rates[queue]
        return min(places, burst + (-self._used(queue) // (interval * 1000)))  # a part of one is not free

    def spend(self, queue: str) -> None:
        """A job of it starts."""
        if queue in self.rates:
            self.tats[queue] = self.now * 1000 + self._used(queue) + self.rates[queue][0] * 1000

    def _used(self, queue: str) -> int:
        interval, burst = self.rates[queue]
        return min(max(self.tats.get(queue, 0) - self.now * 1000, 0), burst * interval * 1000)

    def expiring(self) -> Iterator[Job]:
        """Those that wait and have a ttl."""
        return (job for job in self.jobs.values() if job.status in ("queued", "scheduled", "blocked") and job.expires is not None)

    def next_seq(self) -> int:
        self._seq += 1
        return self._seq

    def next_front(self) -> int:
        self._front += 1
        return -self._front

    def turn_of(self, job: Job, seq: int) -> int:
        """The number of a job's place: that of its arrival, or where fair keys are used that of its key's next turn."""
        key, used = job.fair or "", self.fair.get(job.queue)
        if job.queue == INBOX or (not key and (used is None or job.level not in used)):
            return seq
        waiting = [other.seq for other in self.waiting(job.queue) if other.level == job.level and other.seq is not None]
        turns = self.fair.setdefault(job.queue, {}).get(job.level)
        if turns is None:
            numbers = [number for number in waiting if number >= 0]
            turns = Turns(min(numbers, default=seq), {"": max(numbers)} if numbers else {})
            self.fair[job.queue][job.level] = turns
        else:
            turns.clock = min((number for number in waiting if number >= turns.clock), default=seq)
        turns.last[key] = max(turns.clock, turns.last.get(key, -1) + 1)
        return turns.last[key]

    def line_up(self, job: Job, seq: int | None = None) -> None:
        """A new arrival. `seq`: its number, if it has one."""
        seq = self.turn_of(job, self.next_seq() if seq is None else seq)
        job.status, job.seq, job.boxed = "queued", seq, job.queue == INBOX
        if job.boxed:
            self.inbox.append(job.id)
        self._tell(job)

    def to_front(self, job: Job) -> None:
        job.status, job.seq, job.boxed = "queued", self.next_front(), False
        self._tell(job)

    def to_place(self, job: Job) -> None:
        """Back to the place it had."""
        job.status, job.boxed = "queued", False
        if job.seq is None:
            job.seq = self.next_seq()
        self._tell(job)

    def _tell(self, job: Job) -> None:
        if job.key is None:  # else it may have to wait
            self.wake(job.queue, job.level)

    def wake(self, queue: str, level: int) -> None:
        """Somebody must hear that a job of this class waits there."""
        if not self.suspended and queue not in self.paused:
            self.woken.add((queue, 0 if queue == INBOX else level))

    def wake_for(self, queue: str) -> None:
        waiting = self.waiting(queue)
        if waiting or (queue == INBOX and self.inbox):
            self.wake(queue, waiting[0].level if waiting else 1)

    def block(self, job: Job, kind: str, until: float = inf) -> None:
        """It waits for something other than a time or its turn."""
        job.status, job.waits_in, job.wait_until = (
            "blocked",
            f"{kind}:{job.queue}" + (f":{TASK}" if kind == "held" else ""),
            until,
        )
        self.known_waits.setdefault(job.waits_in, self.now)

    def unblock(self, job: Job) -> None:
        job.waits_in, job.wait_until = None, inf

    def blocked_of(self, kind: str, queue: str) -> list[Job]:
        """Best first."""
        return self.in_order(job for job in self.of("blocked", queue) if (job.waits_in or "").startswith(kind))

    def schedule(self, job: Job, due: float) -> None:
        job.status, job.due = "scheduled", due

    # -- ends

    def end(self, job: Job, status: str, ttl: int) -> None:
        if job.status == "scheduled" and status != "failed":
            self.known_queues.add(job.queue)
        self.unblock(job)
        job.status, job.expiry = status, inf
        if ttl >= 0:
            job.expiry = self.now / 1000 + self._ended / 1e6 + max(ttl, MIN_TTL)
            self._ended += 1

    def call_off(self, job: Job, status: str) -> None:
        self.end(job, status, CANCELED_TTL)
        job.reason = True
        self.emit(status, job)

    def fail(self, job: Job) -> None:
        self.end(job, "failed", FAILURE_TTL)
        job.reason = True
        self.emit("failed", job)

    def settle(self, job: Job, *, lost: bool, shared: bool = False, kind: str = "") -> None:
        """An execution is over without an outcome. `shared`: others may have been the cause; if `kind` is displaced or suspect, nothing is
        counted."""
        if kind in ("displaced", "suspect"):
            job.spared += 1
            kind = kind if job.spared <= SPARED else "lost"
        counted = lost and kind not in ("displaced", "suspect")
        if counted:
            job.lost = max(job.lost, min(job.lost + 1, PROBATION)) if shared else job.lost + 1
        if job.cancel:
            self.call_off(job, job.cancel)
        elif lost and (job.on_lost == "fail" or (job.lost >= MAX_LOST and counted and not shared and job.on_lost != "again")):
            job.suspect = False
            self.fail(job)
        else:
            job.suspect = job.suspect or kind == "suspect"
            spread = 0.5 + int(sha1(f"{job.id}{job.lost}".encode()).hexdigest()[:4], 16) / 65536
            pause = int(1000 * 2 ** min(job.lost - 2, 6) * spread) if counted and job.lost > 1 else 0
            job.reason = job.reason or lost
            if pause:
                self.schedule(job, (self.now + pause) / 1000)
            else:
                self.to_place(job)
            self.emit("displaced" if kind == "displaced" else "abandoned" if lost else "released", job)

    def recover(self, job: Job) -> None:
        """Others found that it is lost: what its execution says counts no more."""
        self.settle(job, lost=True, shared=not (job.execution or "").endswith("s"))
        job.execution = None

    def emit(self, event: str, job: Job) -> None:
        self.events.append((event, job.id, job.queue))
        if event in ("completed", "failed", "canceled", "stopped", "expired") or (
            event == "deleted" and job.status not in TERMINAL
        ):
            self.count(event, job)

    def count(self, what: str, job: Job) -> None:
        self.totals[job.queue, what, job.priority] += 1
