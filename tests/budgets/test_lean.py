"""Bounds for the modules and the memory of producers, workers, fork servers, horses and `fusion info`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from tests.budgets import figures
from tests.forkserver.driver import Driver
from tests.kit.process import ROOT
from tests.kit.workers import process_per_job

_TELL = "import json, sys; from tests.jobs.costs import loaded; print(json.dumps(loaded()), file=sys.stderr)"
_BARE = "import os, sys; print(int(open('/proc/self/statm').read().split()[1]) * os.sysconf('SC_PAGE_SIZE'))"
#: redis-py imports a part of OpenTelemetry where that is installed, 4 MB: what Fusion loads is counted without it.
_WITHOUT = "import sys; sys.modules['opentelemetry'] = None"
_COMMAND = """import sys; sys.argv = ["run_worker.py", {words}]
from fusion.cli.main import main
try: main()
finally: exec({tell!r})"""


def told_by(code: str, url: str = "") -> dict[str, int]:
    """What a process of its own has loaded in the end. Its modules are compiled by then: the compiler takes a megabyte."""
    env = {**os.environ, "FUSION_REDIS_URL": url}
    for _ in range(2):
        ended = subprocess.run(
            [sys.executable, "-c", f"{_WITHOUT}\n{code}"],
            cwd=ROOT,
            env=env,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    found: dict[str, int] = json.loads(ended.stderr.splitlines()[-1])
    return found


def command(url: str, *words: str) -> Callable[[], dict[str, int]]:
    named = ", ".join(map(repr, words))
    return lambda: told_by(_COMMAND.format(words=named, tell=_TELL), url)


def horse() -> dict[str, int]:
    with Driver(modules=("tests.jobs.costs",)) as driver:
        found: dict[str, int] = driver.run("tests.jobs.costs.loaded").result
    return found


def test_who_logs_nothing_loads_nothing_for_it() -> None:
    """The standard streams are replaced, by code that is there anyway."""
    found = []
    for on in (False, True):
        with Driver(modules=("tests.jobs.costs",), job_logs=on) as driver:
            found.append(driver.run("tests.jobs.costs.loaded").result["modules"])
    assert found[0] == found[1]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@process_per_job("its horses are those of the other executors, too")
@pytest.mark.parametrize("name", figures.LOADED)
def test_a_lean_process_stays_lean(
    name: str, redis_url: str, conn: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path))
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    enqueue = f"import redis; from fusion import Queue; Queue('q', redis.Redis.from_url({redis_url!r})).enqueue('tests.jobs.basic.noop')"
    found = {
        "producer": lambda: told_by(f"{enqueue}; {_TELL}"),
        "worker": command(redis_url, "worker", "q", "--burst", "--tasks", "tests.jobs.basic"),
        "fork server": lambda: told_by(f"import fusion.forkserver.server; {_TELL}"),
        "horse": horse,
        "fusion info": command(redis_url, "info"),
    }[name]()
    bare = int(subprocess.run([sys.executable, "-c", _BARE], capture_output=True, text=True, check=True).stdout)
    modules, most = figures.LOADED[name]
    more = (found["resident"] - bare) / figures.MB
    print(f"{name}: {found['modules']} modules, {more:.1f} MB over a bare interpreter")
    assert found["modules"] <= modules
    assert more <= most
