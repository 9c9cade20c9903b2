"""Runs many jobs at once in one process: workers are threads that share its loaded data. Needs no Redis; see docs/inprocess.md."""

from __future__ import annotations

from fusion.inprocess.current import ActiveJob, get_current_job
from fusion.inprocess.events import Event
from fusion.inprocess.job import JobState, ReadyJob
from fusion.inprocess.job_queue import JobQueue
from fusion.inprocess.manager import JobQueueManager
from fusion.inprocess.memory_plan import MemoryPlan
from fusion.inprocess.plan import ExecutionPlan
from fusion.inprocess.settings import ManagerSettings
from fusion.inprocess.stats import Stats
from fusion.inprocess.table_plan import Row, TablePlan, TableSettings

__all__ = [
    "ActiveJob",
    "Event",
    "ExecutionPlan",
    "JobQueue",
    "JobQueueManager",
    "JobState",
    "ManagerSettings",
    "MemoryPlan",
    "ReadyJob",
    "Row",
    "Stats",
    "TablePlan",
    "TableSettings",
    "get_current_job",
]
