"""The port between a worker and whatever runs its jobs.

An executor has room for a number of jobs, not of processes: a job may have its own process, share one, or be a thread of one. The worker
starts and kills runs; the executor reports the end of each run to its listener.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import NamedTuple, Protocol

from fusion.executors import readings
from fusion.store.layout.records import Claimed


class KillCause(Enum):
    """Reasons for which the worker or its executor ends a run. The value is the word shown to users.

    - TIMEOUT: its time was up; MEMORY: it held more than `--max-job-memory`; COMMAND: an operator asked for it;
    - LOST: its lease went to another worker; COLD: its worker ends at once. Neither gives an outcome;
    - STOPPED: it was to stop, and had not begun;
    - NO_PROCESS: it never ran, as no process could be forked for it;
    - DISPLACED: its process was killed for another run in it;
    - STOLEN: its process read it, but then answered for another job; BROKEN: its process sent bytes that are no frames.
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


class Capacity(NamedTuple):
    """The jobs that an executor has room for.

    - `free`: jobs that can be started now;
    - `taken`: slots in use, without isolated runs beside processes for many, and without runs in a process that is about to be killed;
    - `only_high`: no jobs below HIGH may come, as too many jobs wait for a process of their own.
    """

    free: int
    taken: int
    only_high: bool = False


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """The state of the fork server: the process that loads the task modules, and forks the processes of jobs.

    - `pid`: its pid; None while there is none, or it still loads;
    - `generation`: a number that grows each time the task modules are loaded again;
    - `unloaded`: why the last try to load them failed; empty if they are loaded, or are being loaded for the first time;
    - `hopeless`: why no job may ever run here; empty if one may;
    - `draining`: True while jobs still run in code from before a reload.
    """

    pid: int | None = None
    generation: int = 0
    unloaded: str = ""
    hopeless: str = ""
    draining: bool = False


@dataclass(slots=True, eq=False)
class Run:
    """One execution of a job in an executor. Two runs are never equal.

    - `limit`: seconds from `began`, a monotonic time, until the executor kills the run; inf for never;
    - `stopping`: its task was asked to stop: it ends stopped, unless it finishes or fails nevertheless;
    - `killed`: why it was ended from outside, None if it was not; `detail`: more words for its failure;
    - `told`: True once Redis knows that it began, where a claim alone does not mean that;
    - `said`, `unsaid`: numbers of its log lines that wait to be written, and that were dropped and not reported yet;
    - `log`: what it has printed and logged, None if that is nothing;
    - `reported_at`, `progress_told_at`: monotonic times at which its report was written, and its progress was sent as an event;
    - `peak_before`: the peak memory that its process had when it began, as that reports it, empty if it is the first one there; None if others
      run beside it: then no peak is its own;
    - `stands`: its outcome, once the task is over and its hooks or its callback run; `last`: which of these ran last.
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
    log: object | None = None
    reported_at: float = -inf
    progress_told_at: float = -inf
    peak_before: bytes | None = b""
    stands: Mapping[bytes, bytes] | None = None
    last: str = ""

    @property
    def priority(self) -> int:
        """The job's class, 0 (the lowest) if its field holds no number."""
        return readings.priority(self.claimed.fields)


@dataclass(frozen=True, slots=True)
class Death:
    """The end of a run's process before the run had an outcome.

    `status`: the raw wait status; None if it is unknown, as the executor itself died. `maxrss`: KiB. `killed`: the executor sent the
    signal.
    `timed_out`: the run's time was up, or the time in which it had to stop. `suspect`: others ran in the process, so it is unknown which is
    to blame. `crowd`: the number of runs in it, including this one.
    """

    status: int | None = None
    maxrss: int = 0
    killed: bool = False
    timed_out: bool = False
    suspect: bool = False
    crowd: int = 0


class ExecutorListener(Protocol):
    """Receives an executor's events. Each started run ends with exactly one of: an outcome `frame`, `ended`, `returned`."""

    def frame(self, run: Run, frame: dict[bytes, bytes]) -> None:
        """Handle a log line, meta, a report or the outcome from the run's process. With the outcome the run is over."""

    def ended(self, run: Run, death: Death) -> None:
        """Handle the end of a run without an outcome. `run.killed`: why it was killed, if it was."""

    def returned(self, run: Run, why: str) -> None:
        """Handle a run that has not begun and will not: the executor no longer has the job."""

    def begun(self, run: Run) -> None:
        """Handle a prefetched job that has run for longer than a moment."""

    def capacity_changed(self) -> None:
        """Handle new room for a job, where there was none."""


class Executor(Protocol):
    """Runs claimed jobs for one worker. No method waits, except `close`."""

    #: The state of its fork server. Each change makes a new object.
    server: ServerStatus

    def room(self) -> Capacity:
        """Return what there is room for now."""

    @property
    def running(self) -> Collection[Run]:
        """The runs that have begun, or are first in a process and begin at once."""

    @property
    def queued(self) -> Collection[Run]:
        """Runs that have not begun: prefetched ones, and those that wait for a process of their own."""

    @property
    def busy(self) -> bool:
        """True while anything runs."""

    @property
    def next_at(self) -> float:
        """Monotonic time of the next `tick` with work; inf for never. Runs and received frames may change it."""

    def listen(self, listener: ExecutorListener) -> None:
        """Report to this listener from now on. Call it once, before any run is started."""

    def expect(self) -> None:
        """Wake the process that gets the next job, while the job is being claimed."""

    def start(self, claimed: Claimed, limit: float, *, behind: int = 0) -> Run | None:
        """Run a job for at most `limit` seconds. Call it only while there is `room`. None if there is no room nevertheless.

        `behind`: if not 0, queue the job behind a running one, in one of at most that many processes; the next `flush` sends it.
        """

    def prefetch_room(self, lanes: int, free: int) -> int:
        """Return how many jobs may be claimed to wait behind others.

        `lanes`: processes that may queue jobs. `free`: idle ones among them, which get a first job anyway.
        """

    def exchanged(self, seconds: float, jobs: int) -> None:
        """Record one exchange with Redis: how long it took, delivery to processes included, and how many jobs it committed or claimed."""

    def recall(self, why: str) -> None:
        """Return the queued runs that have not begun."""

    def kill(self, run: Run, cause: KillCause) -> None:
        """Kill a run that is not over, whatever it does."""

    def tell(self, run: Run, frame: Mapping[bytes, bytes]) -> None:
        """Send a frame to the process of a run that waits for it."""

    def stop(self, run: Run) -> None:
        """Ask the task of a run to stop, and kill it if it still runs after a grace.

        A run that has not begun ends as STOPPED; a run whose task has ended continues to its outcome.
        """

    def pid(self, run: Run) -> int | None:
        """Return the pid of the process that runs only this now; None if there is none, or it is not known yet. For measuring only."""

    def tick(self, now: float) -> None:
        """Do the due work: kill overdue runs, replace dead processes, make room. Call it when `next_at` has come; more often does no
        harm."""

    def flush(self) -> None:
        """Send prefetched jobs, and data that could not be sent at once. Call it before any other exchange with Redis or processes."""

    def reload(self) -> None:
        """Load new code for the next jobs; running jobs finish in the old code."""

    def drain(self) -> None:
        """Take no more jobs: return queued runs, and let running ones finish. Some of these give way when they notice."""

    def close(self) -> None:
        """End everything now. Each run without an outcome gets `ended` or `returned`. Wait until none can still run."""
