"""Who does not use `fusion.rq` pays nothing for it, and a job's process of who does imports no redis until it needs one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
import redis

import fusion
from fusion.settings import use_settings
from tests.rq import plain_tasks


def _loaded(program: str) -> set[str]:
    code = f"import sys\n{program}\nprint(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_fusion_imports_nothing_of_it() -> None:
    program = "import fusion\nfor name in fusion.__all__: getattr(fusion, name)\nimport fusion.worker.worker, fusion.cli.main"
    assert not [name for name in _loaded(program) if name.startswith("fusion.rq")]


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
