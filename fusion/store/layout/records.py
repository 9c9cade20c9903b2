"""Values that go into a Broker's methods and come out of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fusion.store.layout import codec


@dataclass(slots=True)
class NewJob:
    """A job to accept. `ttl` in seconds: older than that at its claim, it expires instead of running.

    `due` in Unix seconds, or `delay` in seconds by the server's clock: it is queued then, and its ttl begins then. `nonce` makes a resend of
    it recognizable. Not to be changed; frozen it would take three times as long to make.
    """

    id: str
    priority: int
    fields: Mapping[str, Any]
    front: bool = False
    ttl: float | None = None
    due: float | None = None
    delay: float | None = None
    nonce: str = ""


@dataclass(frozen=True, slots=True)
class Met:
    """The id of the job that had the unique key of a new one. `skipped`: it was not accepted, and `fields` are the other's. Else it took
    the other's place, and `status` is its own."""

    other: str
    skipped: bool
    status: str = ""
    fields: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Replicas:
    """An enqueue counts as accepted once `count` replicas have acknowledged it, within `timeout` seconds."""

    count: int
    timeout: float


@dataclass(frozen=True, slots=True)
class Room:
    """An enqueue is refused if it would have more than `length` jobs wait in the queue (None: what holds there in any case), the `to_come`
    jobs counted that the call brings after these."""

    length: int | None = None
    to_come: int = 0


@dataclass(frozen=True, slots=True)
class OutboxBatch:
    """Under which number a database's outbox has rows of one queue accepted, and which number was accepted before. `stamp`: hexadecimal digits
    and points, what tells one content of this number from another."""

    outbox: str
    number: int
    before: int
    stamp: str


@dataclass(frozen=True, slots=True)
class Marked:
    """The mark of an outbox's batches of one queue: the number accepted last, and its stamp. `kind`: `ok`, it was accepted now; `done`,
    it or a later one was accepted before; `gap`, the one before it was not, and nothing is accepted now."""

    kind: str
    number: int
    stamp: str


@dataclass(slots=True)
class Commit:
    """The end of one execution: finished, failed, retry, held, later (put off, no attempt spent), release, lost or struck (lost with what
    it had in common with others), displaced (its process was killed for another job in it) or suspect (its process died, and which of its
    jobs did that nobody knows: it runs in one of its own next). One that is held has the field `task`, which is not written down.

    `elapsed` seconds from hand-out to outcome; `age` seconds since the outcome was known; `delay` seconds until a retry or another look.
    `attempt`: what is known of an execution that did not finish, for the job's history (`signal`, `exit_code`, `maxrss` in KiB, `oom`).
    `keyed`: that of the job; it tells Redis what to read first, and changes nothing else.
    Not to be changed, see `NewJob`.
    """

    kind: str
    job_id: str
    execution_id: str
    elapsed: float = 0.0
    age: float = 0.0
    delay: float = 0.0
    reason: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)
    attempt: Mapping[str, Any] = field(default_factory=dict)
    keyed: bool = False


@dataclass(slots=True)
class Claimed:
    """A job that is this worker's until its lease ends, with the fields a run needs. Not to be changed, see `NewJob`."""

    queue: str
    id: str
    execution_id: str
    fields: dict[bytes, bytes]

    @property
    def ahead(self) -> bool:
        """True if it was claimed to wait behind another."""
        return self.execution_id.endswith(codec.AHEAD)

    @property
    def keyed(self) -> bool:
        """True if its only tie is a concurrency key."""
        return self.fields.get(b"ties") == b"k"

    @property
    def predecessor(self) -> str:
        """The execution whose slot of a concurrency key this one uses: it runs after that one, in the same process. Empty if none."""
        if not (follows := self.fields.get(b"follows")):
            return ""
        own, _, before = codec.text(follows).partition(" ")
        return before if own == self.execution_id else ""  # it stays in the record of a job that runs again


@dataclass(frozen=True, slots=True)
class Turn:
    """The answer to a turn. `answers`: of each outcome, `ok`, `failed` (the job has failed, where the outcome alone does not say so), `stale`
    (another execution has the job), `gone` or `error: TEXT`. `next_in`: seconds to the next due job, None if none is scheduled. `opens_in`:
    seconds until a closed queue opens of which this worker is to take care; None if there is none."""

    status: str
    answers: list[str]
    jobs: list[Claimed]
    bad: list[tuple[str, str]]
    again: bool
    next_in: float | None
    #: The list of sets of blocked jobs and its version, if the worker has another one.
    waits: tuple[str, list[str]] | None = None
    opens_in: float | None = None
    #: `Broker.release` has something to do.
    releases: bool = False


@dataclass(frozen=True, slots=True)
class ClaimFilter:
    """Blocked jobs that a worker can serve, and tasks that it can't run at all.

    `known`: the version of the list of their sets that it has; `sets`: those it serves. `lacking`: tasks that it was found to lack, and why.
    `alone`: it runs one job at a time, and nothing ever beside it; `only`: and takes none but blocked ones.
    """

    known: str = ""
    sets: tuple[str, ...] = ()
    lacking: Mapping[str, str] = field(default_factory=dict)
    alone: bool = False
    only: bool = False


@dataclass(slots=True)
class TurnRequest:
    """The content of a turn that a worker sends: the outcomes to commit, and the slots to claim jobs for. Not to be changed, see `NewJob`.

    - `token`: its number. The same one again asks for the same reply.
    - `queues`: among those with jobs of one class the first comes first; within the turn they take turns, unless the order is `listed`.
    - `slots`: the lowest priority that each may take. The last `ahead` of them are for jobs that will wait behind others. If the worker
      dies, such a job loses no attempt, unless it is among `begun`, as a (job id, execution id) pair.
    - `lease`, `worker_ttl`: in seconds.
    """

    name: str
    incarnation: str
    token: int
    commits: Sequence[Commit]
    queues: Sequence[str]
    slots: Sequence[int]
    lease: float
    worker_ttl: float
    ahead: int = 0
    begun: Sequence[tuple[str, str]] = ()
    claim_filter: ClaimFilter = ClaimFilter()
    listed: bool = False


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of a task or another program: the event `log`, or a status. `age`: seconds since then; `dropped`: lines lost before it."""

    event: str
    message: str
    job_id: str = ""
    queue: str = ""
    log_tag: str = ""
    worker: str = ""
    age: float = 0.0
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class RunLog:
    """The end of a run's log. `lines`: each with its ms since 1970 before it; empty: its job's log goes. `left_out`: earlier lines."""

    job_id: str
    execution_id: str
    attempt: int = 1
    left_out: int = 0
    lines: str = ""


@dataclass(slots=True)
class Report:
    """The news of a running job; empty: nothing new. `progress`, `cursor`: JSON; `said`: the progress as its event tells it, without
    which there is no event. Not to be changed, see `NewJob`."""

    job_id: str
    execution_id: str
    progress: bytes = b""
    cursor: bytes = b""
    said: str = ""


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """A cron entry as a scheduler reads it. `mark`: its last decided tick as stored, empty if that is lost; `rev` names this plan and spec."""

    id: str
    mark: str
    plan: str
    spec: str
    rev: str


@dataclass(frozen=True, slots=True)
class CronLook:
    """The cron entries that are due. `now` in Unix seconds by the server's clock; `next_in`: seconds to the next look, None if nothing is planned."""

    now: float
    next_in: float | None
    entries: list[StoredEntry]


@dataclass(frozen=True, slots=True)
class Tick:
    """The ticks of one entry to decide together: `upto` the last of them, in Unix seconds, and `runs` those to enqueue, each with the
    seconds by which it is put off. `next`: the first one after them. `missed`: how many are not made up."""

    upto: int
    runs: tuple[tuple[int, float], ...]
    next: int | None
    missed: int = 0
