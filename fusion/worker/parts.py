"""The parts of a worker, and the one function that builds them from its settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fusion.executors.generations import ExecutorGenerations
from fusion.kernel.memory import MemoryThrottle
from fusion.runtime.consumer import Consumer, TurnOwner
from fusion.runtime.context import ProcessContext
from fusion.runtime.failover_watch import FailoverWatch
from fusion.runtime.job_log import JobLog
from fusion.runtime.served_queues import ServedQueues
from fusion.runtime.supervised import SupervisorLine
from fusion.worker.admission import Admission, Slots
from fusion.worker.batched_calls import BatchedCalls
from fusion.worker.blocked import BlockedWork
from fusion.worker.control import Burst, Health
from fusion.worker.dispatch import Dispatcher
from fusion.worker.envelope import EnvelopeCheck
from fusion.worker.job_memory import JobMemory
from fusion.worker.kept_logs import KeptLogs
from fusion.worker.outcomes import MissingKeyWarnings, Outcomes
from fusion.worker.probation import Probation
from fusion.worker.recycling import Recycling
from fusion.worker.relay_child import RelayChild
from fusion.worker.reports import Reports
from fusion.worker.stop_requests import StopRequests
from fusion.worker.task_logs import TaskLogs

if TYPE_CHECKING:
    from fusion.worker.telemetry import Telemetry


@dataclass(frozen=True)
class SideProcesses:
    """Command lines of processes beside a worker: a relay, and a worker for jobs on probation. `only_probation`: this worker runs no others."""

    relay: Sequence[str] = ()
    probation: Sequence[str] = ()
    only_probation: bool = False


@dataclass(frozen=True)
class WorkerPlan:
    """The arguments of a worker besides its settings: its queues (names or wildcards), and options of its command line."""

    queues: Sequence[str]
    burst: bool = False
    job_lines: bool = True
    throttle: MemoryThrottle | None = None
    side_processes: SideProcesses = SideProcesses()


@dataclass(frozen=True)
class WorkerParts:
    """The parts of one worker, in the order in which a job meets them."""

    #: Claims jobs and commits outcomes.
    served_queues: ServedQueues
    consumer: Consumer
    #: Says which jobs may be claimed now.
    admission: Admission
    recycling: Recycling
    slots: Slots
    blocked_work: BlockedWork
    probation: Probation
    #: Runs them.
    envelopes: EnvelopeCheck
    dispatcher: Dispatcher
    executors: ExecutorGenerations
    batched_calls: BatchedCalls
    stop_requests: StopRequests
    job_memory: JobMemory
    #: Sends what they report.
    reports: Reports
    task_logs: TaskLogs
    kept_logs: KeptLogs
    telemetry: Telemetry | None
    #: Looks after the worker itself.
    burst: Burst
    failover: FailoverWatch
    health: Health
    relay_child: RelayChild


def build(process: ProcessContext, plan: WorkerPlan, line: SupervisorLine, owner: TurnOwner) -> WorkerParts:
    """Build the parts of a worker. ConfigurationError if a setting can't be used."""
    settings, broker, link, log = process.settings, process.broker, process.link, process.log
    throttle = MemoryThrottle.of(settings) if plan.throttle is None and settings.memory_throttle else plan.throttle
    served_queues = ServedQueues(plan.queues, settings.order, settings.weights)
    job_log = JobLog(log, plan.job_lines, messages=settings.log_errors == "full")
    consumer = Consumer(process, served_queues, job_log, line, owner)
    membership = consumer.membership
    executors = ExecutorGenerations(settings, process.loop, log)
    admission = Admission(settings.slots, settings.reserve_high, throttle, log)
    recycling = Recycling(settings, executors)
    slots = Slots(settings, executors, admission, recycling)
    side = plan.side_processes
    probation = Probation(process, side.probation, side.only_probation)
    blocked_work = BlockedWork(served_queues, probation)
    envelopes = EnvelopeCheck(settings, log)
    reports = Reports(broker, link, membership, executors.tell)
    task_logs = TaskLogs(broker, link, membership, log)
    kept_logs = KeptLogs(broker, link, log)
    telemetry = None
    if settings.middleware:
        from fusion.worker.telemetry import Telemetry

        telemetry = Telemetry.of(settings, log)
        consumer.answered = telemetry.answered if telemetry is not None else None
    missing_keys = MissingKeyWarnings(consumer.history, log)
    outcomes = Outcomes(consumer.outbox, blocked_work, slots, missing_keys, settings.timeout_grace)
    batched_calls = BatchedCalls(executors, slots, broker, link, membership, settings)
    stop_requests = StopRequests(batched_calls, broker, link, log)
    failover = FailoverWatch(broker.connection, link, line, log)
    dispatcher = Dispatcher(
        executors,
        slots=slots,
        envelopes=envelopes,
        stop_requests=stop_requests,
        batched_calls=batched_calls,
        outcomes=outcomes,
        reports=reports,
        task_logs=task_logs,
        kept_logs=kept_logs,
        job_log=job_log,
        telemetry=telemetry,
    )
    return WorkerParts(
        served_queues=served_queues,
        consumer=consumer,
        admission=admission,
        recycling=recycling,
        slots=slots,
        blocked_work=blocked_work,
        probation=probation,
        envelopes=envelopes,
        dispatcher=dispatcher,
        executors=executors,
        batched_calls=batched_calls,
        stop_requests=stop_requests,
        job_memory=JobMemory(settings.max_job_memory, executors),
        reports=reports,
        task_logs=task_logs,
        kept_logs=kept_logs,
        telemetry=telemetry,
        burst=Burst(plan.burst, broker, link, served_queues, executors, log),
        failover=failover,
        health=Health(settings, membership, link, executors, admission, failover),
        relay_child=RelayChild(process, side.relay),
    )
