"""RQ's commands to a running worker."""

from __future__ import annotations

import json
from typing import Any

from redis import Redis

from fusion.rq.connections import given
from fusion.rq.exceptions import InvalidJobOperation
from fusion.rq.hints import missing
from fusion.rq.job import Job
from fusion.rq.status import JobStatus
from fusion.store.access import broker_of

_COMMANDS = ("shutdown", "kill-horse", "stop-job", "quiet", "unquiet")


def send_command(connection: Redis, worker_name: str, command: str, **kwargs: Any) -> None:
    """Send a command to a worker. ValueError for one that Fusion's workers do not know."""
    if command not in _COMMANDS:
        raise ValueError(f"command {command!r}: use one of {', '.join(_COMMANDS)}")
    broker_of(given(connection)).command(worker_name, json.dumps({"command": command, **kwargs}))


def send_shutdown_command(connection: Redis, worker_name: str) -> None:
    """Have a worker end when its running jobs are done."""
    send_command(connection, worker_name, "shutdown")


def send_kill_horse_command(connection: Redis, worker_name: str) -> None:
    """Kill the job that a worker runs: it fails."""
    send_command(connection, worker_name, "kill-horse")


def send_stop_job_command(connection: Redis, job_id: str, serializer: Any = None) -> None:
    """Stop a running job. InvalidJobOperation if it does not run; NoSuchJobError."""
    job = Job.fetch(job_id, connection)
    if job.get_status(refresh=False) is not JobStatus.STARTED:
        raise InvalidJobOperation("Job is not currently executing")
    job.stop()


def __getattr__(name: str) -> Any:
    raise missing(__name__, name)
