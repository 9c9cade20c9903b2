"""A worker's parts around an executor in memory: jobs are claimed by hand, outcomes are read from the outbox."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from fusion.executors.base import Run
from fusion.runtime.context import ProcessContext
from fusion.runtime.free_slots import NO_SLOTS
from fusion.runtime.history import History
from fusion.runtime.job_log import JobLog
from fusion.runtime.loop import Loop
from fusion.runtime.outbox import Outbox
from fusion.runtime.redis_link import RedisLink
from fusion.runtime.served_queues import ServedQueues
from fusion.settings import Settings
from fusion.store.layout.records import Claimed, Commit, Turn, TurnRequest
from fusion.worker.admission import Admission, Blocked, Slots
from fusion.worker.batched_calls import BatchedCalls
from fusion.worker.blocked import BlockedWork
from fusion.worker.dispatch import Dispatcher
from fusion.worker.envelope import EnvelopeCheck
from fusion.worker.kept_logs import KeptLogs
from fusion.worker.outcomes import MissingKeyWarnings, Outcomes
from fusion.worker.probation import Probation
from fusion.worker.recycling import Recycling
from fusion.worker.reports import Reports
from fusion.worker.stop_requests import StopRequests
from fusion.worker.task_logs import TaskLogs
from tests.kit.fake_executor import FakeExecutor
from tests.kit.scripted_broker import ScriptedLine

LOG = logging.getLogger("fusion.worker")
_numbers = itertools.count()


def claimed(*, ahead: bool = False, priority: int = 1, queue: str = "q", **fields: bytes) -> Claimed:
    """A job as a turn brings it."""
    number = next(_numbers)
    found = {b"timeout": b"10", b"priority": str(priority).encode(), **{name.encode(): value for name, value in fields.items()}}
    return Claimed(queue, f"job-{number}", f"e{number}{'a' if ahead else ''}", found)


class _Broker:
    """Takes what it gets."""

    def __init__(self) -> None:
        self.commits: list[Commit] = []
        self.begun: list[tuple[str, str]] = []
        self.metas: list[tuple[str, bytes]] = []

    def turn_line(self) -> ScriptedLine:
        return ScriptedLine()

    def turn_call(self, request: TurnRequest) -> Callable[[], Turn]:
        return partial(self._turn, request)

    def _turn(self, request: TurnRequest) -> Turn:
        self.commits += request.commits
        self.begun += request.begun
        return Turn("ok", ["ok"] * len(request.commits), [], [], False, None, None)

    def save_meta(self, job: str, meta: bytes, execution: str) -> None:
        self.metas.append((job, meta))


class _Membership:
    """Answers a heartbeat: `lost` names the executions that are no longer this worker's, `to_stop` those that are to stop."""

    name = "w"

    def __init__(self) -> None:
        self.lost: set[str] = set()
        self.to_stop: set[str] = set()
        self.held: list[tuple[str, str]] = []

    def beat(self, now: float, held: list[tuple[str, str]]) -> list[str]:
        self.held = held
        return ["lost" if execution in self.lost else "stopped" if execution in self.to_stop else "ok" for _, execution in held]


class Rig:
    """`settings`: as of `Settings`; `executor`: one of `slots` without a queue by default."""

    def __init__(self, executor: FakeExecutor | None = None, **settings: Any) -> None:
        self.executor = executor or FakeExecutor(settings.get("slots", 2))
        horses = self.executor.slots if self.executor.depth else None
        self.settings = Settings(**{"slots": self.executor.slots, "horses": horses, **settings})
        self.broker: Any = _Broker()
        self.membership: Any = _Membership()
        link = RedisLink(LOG)
        self.recycling = Recycling(self.settings, self.executor)
        self.admission = Admission(self.settings.slots, self.settings.reserve_high, None, LOG)
        self.slots = Slots(self.settings, self.executor, self.admission, self.recycling)
        self.outbox = Outbox(self.broker, link, self.settings)
        probation = Probation(ProcessContext(self.settings, self.broker, link, Loop(), LOG), (), False)
        self.blocked_work = BlockedWork(ServedQueues(["q"]), probation)
        keyless = MissingKeyWarnings(History(self.broker, link, self.membership, 10.0, LOG), LOG)
        self.outcomes = Outcomes(self.outbox, self.blocked_work, self.slots, keyless, self.settings.timeout_grace)
        self.task_logs = TaskLogs(self.broker, link, self.membership, LOG)
        self.kept_logs = KeptLogs(self.broker, link, LOG)
        self.reports = Reports(self.broker, link, self.membership, self.executor.tell)
        calls = BatchedCalls(self.executor, self.slots, self.broker, link, self.membership, self.settings)
        self.stops = StopRequests(calls, self.broker, link, LOG)
        self.dispatcher = Dispatcher(
            self.executor,
            slots=self.slots,
            envelopes=EnvelopeCheck(self.settings, LOG),
            stop_requests=self.stops,
            batched_calls=calls,
            outcomes=self.outcomes,
            reports=self.reports,
            task_logs=self.task_logs,
            kept_logs=self.kept_logs,
            job_log=JobLog(LOG, True, messages=True),
        )

    def start(self, **fields: Any) -> Claimed:
        """Claim a job and start it."""
        job = claimed(**fields)
        self.dispatcher.start(job)
        return job

    def run_of(self, job: Claimed) -> Run:
        """The run of a job that is in the executor."""
        return next(run for run in (*self.executor.running, *self.executor.queued) if run.claimed is job)

    def stop(self) -> None:
        """The worker ends when its jobs are done."""
        self.admission.block(Blocked.RECYCLING)

    def be_quiet(self) -> None:
        """An operator wants the worker to take nothing."""
        self.admission.block(Blocked.QUIET)

    def told(self) -> list[Commit]:
        """The outcomes that Redis has by now."""
        told = -1
        while len(self.broker.commits) > told:  # a turn commits this many
            told = len(self.broker.commits)
            self.outbox.begin(["q"], NO_SLOTS)
            if self.outbox.turn_open:
                self.outbox.exchange("w", "i")
        return self.broker.commits

    def kinds(self) -> list[str]:
        """Their kinds."""
        return [commit.kind for commit in self.told()]
