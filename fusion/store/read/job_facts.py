"""All that Redis stores about one job, as values; nothing here reads Redis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from fusion.store.layout.codec import number, text
from fusion.store.layout.gates import Gate
from fusion.store.layout.limits import Limit
from fusion.store.layout.pauses import QueuePause
from fusion.store.read.base import moment
from fusion.store.read.callback_inspector import DeliveryInfo
from fusion.store.read.worker_inspector import WorkerInfo
from fusion.store.write.event_broker import StreamEntry


@dataclass(frozen=True, slots=True)
class Kin:
    """A job that this one is related to. `status` is empty if it has no record; `home`: the queue that it came from. For a parent: the `sign`
    of its policy, and whether this job still waits for it."""

    id: str
    status: str = ""
    queue: str = ""
    home: str = ""
    function: str = ""
    sign: str = ""
    unmet: bool = False


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """The job's queue. `ahead`: jobs that are claimed before it, None if it does not wait there; `pause`: None if it is not paused.
    `suspended`: all queues are. `workers`: live workers that serve it, from the first thousand workers."""

    ahead: int | None = None
    length: int = 0
    running: int = 0
    pause: QueuePause | None = None
    suspended: bool = False
    gate: Gate = field(default_factory=Gate)
    workers: tuple[WorkerInfo, ...] = ()


@dataclass(frozen=True, slots=True)
class KeyFacts:
    """The job's concurrency key. `has_slot`: the job has a slot; `ahead`: jobs of the key that get one before it, None if it does not wait
    for one; `holders`: some of the jobs that have one."""

    limit: Limit
    held: int
    waiting: int
    has_slot: bool
    ahead: int | None
    holders: tuple[Kin, ...]


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The job's run. `worker`: None if it is not registered; `lease_until`: when its claim ends unless renewed. `ahead`: it was claimed in
    advance, to wait behind another in a process."""

    worker: WorkerInfo | None
    lease_until: datetime | None
    ahead: bool


@dataclass(frozen=True, slots=True)
class StoredLog:
    """The last lines that a run printed and logged, masked, each with its time. `left_out`: lines before them; `attempt`: the number of that run's
    attempt."""

    lines: tuple[tuple[datetime, str], ...]
    left_out: int
    attempt: int


@dataclass(frozen=True, slots=True)
class JobFacts:
    """A job and what it is related to. `row`: its full fields, except those in `too_large`; `sizes`: stored bytes of each. `blocked_why`: why
    the workers that tried could not run it, masked. `events`: its newest events, in order of time; `all_events`: True if none of its events
    is missing there. `kept_until`: when its record expires, None if that is unknown or never. `unique_holder`: the job that has its unique
    key."""

    id: str
    at: datetime
    row: Mapping[str, bytes]
    sizes: Mapping[str, int]
    too_large: tuple[str, ...]
    queue: QueueFacts
    key: KeyFacts | None
    run: RunFacts | None
    due: datetime | None
    kept_until: datetime | None
    blocked_why: str
    unique_holder: str
    unique_left_ms: int
    batch: Mapping[str, str]
    parents: tuple[Kin, ...]
    parents_count: int
    more_parents: bool
    children: tuple[Kin, ...]
    children_count: int
    others: Mapping[str, Kin]
    deliveries: tuple[DeliveryInfo, ...]
    log: StoredLog | None
    events: tuple[StreamEntry, ...]
    all_events: bool

    def text(self, name: str) -> str:
        """Return a field as text; empty if it is absent."""
        return text(self.row.get(name))

    @property
    def status(self) -> str:
        return self.text("status")

    def moment(self, name: str) -> datetime | None:
        """Return a field of ms since 1970 as a time; None if it is absent or invalid."""
        ms = number(self.row.get(name))
        return moment(ms / 1000) if ms > 0 else None
