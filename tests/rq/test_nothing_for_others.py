"""Who does not use `fusion.rq` pays nothing for it, and a job's process of who does imports no redis until it needs one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest
import redis

import fusion
from fusion.settings import use_settings
from tests.kit.waiting import unhurried
from tests.kit.workers import Workers
from tests.rq import plain_tasks


def _loaded(program: str) -> set[str]:
    code = f"import sys\n{program}\nprint(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_fusion_imports_nothing_of_it() -> None:
    program = "import fusion\nfor name in fusion.__all__: getattr(fusion, name)\nimport fusion.worker.worker, fusion.cli.main"
    assert not [name for name in _loaded(program) if name.startswith("fusion.rq")]


def test_no_process_of_a_plain_fleet_imports_any_of_it(workers: Workers, conn: redis.Redis) -> None:
    """Producer, worker, fork server and job, each with its list of imports."""
    environment = {**os.environ, "PYTHONPROFILEIMPORTTIME": "1"}
    program = "from fusion import Job, Queue\nprint(Job.fetch(Queue('q').enqueue('tests.jobs.basic.noop').id).get_status().value)"
    producer = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert producer.stdout == "queued\n"
    imported = producer.stderr + workers.burst("q", env={"PYTHONPROFILEIMPORTTIME": "1"}, timeout=unhurried(30.0)).output
    # Modules that are imported by name alone are not listed, but what they import is.
    for name in ("fusion.store.layout.keys", "fusion.worker.parts", "fusion.forkserver.server", "fusion.execution.perform"):
        assert f" {name}\n" in imported, f"it lists what each imports: {name}"
    assert not [line for line in imported.splitlines() if "fusion.rq" in line]


@pytest.mark.parametrize("name", ["get_current_job", "Retry"])
def test_what_tasks_import_is_lean(name: str) -> None:
    loaded = _loaded(f"from fusion.rq import {name}\nimport fusion.rq.running")
    assert not {"redis", "asyncio", "fusion.store", "fusion.queue"} & loaded


def test_a_plain_jobs_process_has_none_of_it(
    client: redis.Redis, burst: Callable[..., bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUSION_TASKS", "tests.rq.plain_tasks")
    use_settings(None)
    job = fusion.Queue("work", client).enqueue(plain_tasks.modules_of_rq)
    burst()
    assert job.result == []
