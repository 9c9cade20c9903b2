"""All that Redis knows of one job, as it was read: values, and nothing that asks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from fusion.store.layout.codec import number, text
from fusion.store.layout.gates import Gate
from fusion.store.layout.limits import Limit
from fusion.store.layout.pauses import Pause
from fusion.store.read.base import moment
from fusion.store.read.callback_inspector import DeliveryInfo
from fusion.store.read.worker_inspector import WorkerInfo
from fusion.store.write.event_broker import StreamEntry


@dataclass(frozen=True, slots=True)
class Kin:
    """Another job that this one is bound to. `status` is empty if there is no record of it; `home`: the queue that it came from. Of a parent:
    the `sign` of its policy, and whether it is waited for still."""

    id: str
    status: str = ""
    queue: str = ""
    home: str = ""
    function: str = ""
    sign: str = ""
    unmet: bool = False


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """The job's queue. `ahead`: jobs that are claimed before it, None if it does not wait there; `pause`: None if it is not paused. `suspended`:
    everything is. `workers`: those that live and serve it, of whom at most a thousand are looked at."""

    ahead: int | None = None
    length: int = 0
    running: int = 0
    pause: Pause | None = None
    suspended: bool = False
    gate: Gate = field(default_factory=Gate)
    workers: tuple[WorkerInfo, ...] = ()


@dataclass(frozen=True, slots=True)
class KeyFacts:
    """The job's concurrency key. `has_slot`: the job has one; `ahead`: jobs of the key that get one before it, None if it does not wait for one;
    `holders`: some of those that have one."""

    limit: Limit
    held: int
    waiting: int
    has_slot: bool
    ahead: int | None
    holders: tuple[Kin, ...]


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Its run. `worker`: None if it is not registered; `lease_until`: when its claim is over, unless renewed. `ahead`: claimed to wait behind
    another in a process."""

    worker: WorkerInfo | None
    lease_until: datetime | None
    ahead: bool


@dataclass(frozen=True, slots=True)
class JobFacts:
    """A job and what it is bound to. `row`: its full fields, but those in `too_large`; `sizes`: bytes of each as stored. `blocked_why`: why no
    worker that looked could run it, masked. `events`: the newest of the stream, the oldest of them first; `all_events`: nothing of it is missing
    there. `kept_until`: when it is forgotten, None if that is not known or never. `unique_holder`: who has its unique key."""

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
    events: tuple[StreamEntry, ...]
    all_events: bool

    def text(self, name: str) -> str:
        """A field as text; empty if it is absent."""
        return text(self.row.get(name))

    @property
    def status(self) -> str:
        return self.text("status")

    def moment(self, name: str) -> datetime | None:
        """A field of ms since 1970 as a time; None if it is absent or no such."""
        ms = number(self.row.get(name))
        return moment(ms / 1000) if ms > 0 else None
