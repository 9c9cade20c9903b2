"""The port between a worker and whatever runs its jobs.

An executor has room for jobs, not processes: one job may have a process to itself, share one with others, or be a thread of one. The worker
starts runs and kills them; the executor reports to its listener what becomes of each.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import Protocol

from fusion.executors import readings
from fusion.store.layout.records import Claimed


class KillCause(Enum):
    """Reasons for which the worker or its executor ends a run. The value is the word that people read.

    - TIMEOUT: its time was up; MEMORY: it held more than `--max-job-memory`; COMMAND: an operator said so;
    - LOST: its lease went to another worker; COLD: its worker ends at once. Neither has an outcome;
    - STOPPED: it was to stop, and had not begun;
    - NO_PROCESS: it never ran, as no process could be made for it;
    - DISPLACED: its process was killed for another run in it;
    - STOLEN: its process read it and then answered for another job; BROKEN: its process sent bytes that are no frames.
    """

    TIMEOUT = "timeout"
    MEMORY = "memory"
    COMMAND = "command"
    LOST = "lost"
    COLD = "cold"
    STOPPED = "stop"
    NO_PROCESS = "fork failed"
    DISPLACED = "displaced"
    STOLEN = "stolen"
    BROKEN = "broken"


@dataclass(slots=True, eq=False)
class Run:
    """One execution of a job in an executor. Two runs are never equal.

    - `limit`: seconds from `began`, a monotonic time, until the executor kills the run; inf for never;
    - `stopping`: its task was asked to stop: it ends stopped, unless it finishes or fails all the same;
    - `killed`: why it was ended from outside, None if it was not; `detail`: words for its failure that go with it;
    - `told`: Redis knows that it began, where a claim alone does not say so;
    - `said`, `unsaid`: its log lines that wait to be written, and those that were dropped and not yet counted to anybody;
    - `reported_at`, `progress_told_at`: monotonic times at which its word was written down, and its progress told as an event;
    - `stands`: its outcome, once the task is over and its hooks or its callback run; `last`: the name of what ran last of those.
    """

    claimed: Claimed
    limit: float
    began: float
    stopping: bool = False
    killed: KillCause | None = None
    detail: str = ""
    told: bool = False
    said: int = 0
    unsaid: int = 0
    reported_at: float = -inf
    progress_told_at: float = -inf
    stands: Mapping[bytes, bytes] | None = None
    last: str = ""

    @property
    def priority(self) -> int:
        """The job's class, 0 (the lowest) if its field holds no number."""
        return readings.priority(self.claimed.fields)


@dataclass(frozen=True, slots=True)
class Death:
    """The end of a run's process before the run had an outcome.

    `status`: the raw wait status, None if nobody saw it: the executor itself died. `maxrss`: KiB. `killed`: the executor sent the signal;
    `timed_out`: it did so, or would have by now, as the run's time was up, or that which it had to stop. `suspect`: others ran in it, and
    which of them is to blame nobody knows; `crowd`: how many did, itself included.
    """

    status: int | None = None
    maxrss: int = 0
    killed: bool = False
    timed_out: bool = False
    suspect: bool = False
    crowd: int = 0


class ExecutorListener(Protocol):
    """Hears from an executor. Each started run ends with exactly one of: an outcome `frame`, `ended`, `returned`."""

    def frame(self, run: Run, frame: dict[bytes, bytes]) -> None:
        """The run's process sent a log line, its meta, a report, or its outcome, with which the run is over."""

    def ended(self, run: Run, death: Death) -> None:
        """The run is over without an outcome; `run.killed` says why if it was killed."""

    def returned(self, run: Run, why: str) -> None:
        """The run has not begun and will not: the executor no longer has the job."""

    def begun(self, run: Run) -> None:
        """A prefetched job has run for longer than a moment."""

    def capacity_changed(self) -> None:
        """There is room for a job where there was none."""


class Executor(Protocol):
    """Runs claimed jobs for one worker. Nothing here waits, but for `close`."""

    @property
    def capacity(self) -> int:
        """Jobs that can be started now."""

    @property
    def running(self) -> Collection[Run]:
        """The runs that have begun, or are first in line of a process and begin at once."""

    @property
    def taken(self) -> int:
        """Slots that runs have: not those that run in a process of their own beside processes for many, or in one that is about to be killed."""

    @property
    def only_high(self) -> bool:
        """True while lower jobs must not come: too many of them wait for a process of their own."""

    @property
    def queued(self) -> Collection[Run]:
        """Runs that have not begun: prefetched ones, and such as wait for a process of their own."""

    @property
    def busy(self) -> bool:
        """True while anything runs."""

    @property
    def next_at(self) -> float:
        """Monotonic time of the next `tick` that has something to do; inf for never. What runs and what is heard may change it."""

    @property
    def server_pid(self) -> int | None:
        """The process that has loaded the task modules and takes jobs; None while there is none, or it still loads."""

    @property
    def generation(self) -> int:
        """A number that grows when the task modules are loaded anew."""

    @property
    def draining(self) -> bool:
        """True while jobs still run in code from before a reload."""

    @property
    def hopeless(self) -> str:
        """Why no job may ever run here; empty if one may."""

    @property
    def unloaded(self) -> str:
        """Why the task modules can't be loaded, since the last try; empty if they are, or are being loaded for the first time."""

    def listen(self, listener: ExecutorListener) -> None:
        """Report to this listener from now on. Comes once, before anything is started."""

    def expect(self) -> None:
        """Prepare for a job that may come in a moment: whatever would run it need not be woken then."""

    def start(self, claimed: Claimed, limit: float) -> Run | None:
        """Run a job for `limit` seconds at most; only while there is `capacity`. None if there is no room for it after all."""

    def prefetch_room(self, lanes: int, free: int) -> int:
        """Jobs that may be claimed to wait behind others: in so many lanes (processes that may queue jobs), `free` of which are idle and
        get a first job anyway."""

    def prefetch(self, claimed: Claimed, limit: float, lanes: int) -> Run | None:
        """Queue a job behind a running one, in one of so many lanes; it goes there by the next `flush`. None if that can't be."""

    def exchanged(self, seconds: float, jobs: int) -> None:
        """Record one exchange with Redis: how long it took, delivery to processes included, and how many jobs it committed or claimed."""

    def recall(self, why: str) -> None:
        """Return what is queued and has not begun."""

    def kill(self, run: Run, cause: KillCause) -> None:
        """End a run, if it is not over: what it was doing ends with it."""

    def tell(self, run: Run, frame: Mapping[bytes, bytes]) -> None:
        """Send a frame to the process of a run that waits for it."""

    def stop(self, run: Run) -> None:
        """Ask the task of a run to stop, and kill what still runs after a grace. A run that has not begun ends, STOPPED; one whose task has ended
        goes on to its outcome."""

    def pid(self, run: Run) -> int | None:
        """The process that runs this and nothing else now; None if there is none such, or it is not known yet. For measuring only."""

    def tick(self, now: float) -> None:
        """Do what is due: insist on overdue ends, replace what died, make room. Comes whenever `next_at` has come; oftener does no harm."""

    def flush(self) -> None:
        """Send on what was prefetched, and what could not be sent at once. Comes before anything else is asked or heard."""

    def reload(self) -> None:
        """Have new code run the next jobs; those under way finish in the old."""

    def drain(self) -> None:
        """Take no more jobs; return what is queued and finish what runs, of which some give way when they hear of it."""

    def close(self) -> None:
        """End everything now. Each run without an outcome ends, by `ended` or `returned`; waits until none can be running."""
