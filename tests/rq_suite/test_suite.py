"""How RQ's tests are rewritten, and that they reach no Redis but the run's own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit import flaky
from tests.rq_suite.__main__ import argued, floor, kinds
from tests.rq_suite.reruns import Name, forgiven
from tests.rq_suite.rewriting import rewritten

SITE = Path(__file__).parent / "site"
ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("import rq\nrq.Queue", "import fusion.rq as rq\nrq.Queue"),
        ("def f():\n    from rq import Queue", "def f():\n    from fusion.rq import Queue"),
        ("patch('rq.worker.Worker')", "patch('fusion.rq.worker.Worker')"),
        ("key = 'rq:queue:default'", "key = 'rq:queue:default'"),
        ("'other.rq.worker'", "'other.rq.worker'"),
        ("path = '/tmp/rq.job'", "path = '/tmp/rq.job'"),
        ("run([sys.executable, '-c', 'import rq'])", "run([sys.executable, '-c', 'import fusion.rq'])"),
        ("run(['rqworker', '-b'])", "run([sys.executable, '-m', 'fusion.rq', 'worker', '-b'])"),
    ],
)
def test_names_of_rq_become_those_of_fusion(before: str, after: str) -> None:
    assert rewritten(before) == after


def _python(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{SITE}{os.pathsep}{ROOT}", **env}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)


def test_a_missing_name_fails_only_the_test_that_uses_it() -> None:
    code = rewritten(
        "from rq.version import VERSION\nfrom rq.scripts import Gone, gone\nclass Own(Gone): pass\n"
        "print(VERSION[0].isdigit())\nOwn.count\n"
    )
    done = _python(code)
    assert done.stdout == "True\n" and "ImportError: fusion.rq has no " in done.stderr
    assert "ImportError: fusion.rq has no rq.scripts.gone" in _python(rewritten("from rq.scripts import gone\ngone(1)\n")).stderr


def test_a_name_that_was_not_rewritten_does_not_reach_rq() -> None:
    assert "was not rewritten" in _python("import rq").stderr


def test_a_client_of_port_6379_reaches_the_server_of_the_run_or_nothing() -> None:
    code = "import redis; print(redis.Redis().config_get('port'))"
    assert "ConnectionRefusedError" in _python(code).stderr or "ConnectionError" in _python(code).stderr
    heard = (
        "import socket, threading\nlistening = socket.create_server(('127.0.0.1', 0))\n"
        "import sitecustomize; sitecustomize._port = listening.getsockname()[1]\n"
        "for host in ('127.0.0.1', 'localhost'): socket.create_connection((host, 6379), 5).close(); listening.accept()[0].close()\n"
        "print('reached')"
    )
    assert _python(heard).stdout == "reached\n"


def test_the_lists_fit_each_other() -> None:
    known = kinds()
    assert len(known) == 803 and sum(kind == "public" for kind in known.values()) == 365
    assert floor().keys() <= known.keys() and argued().keys() <= known.keys()
    assert not floor().keys() & argued().keys()
    assert len(argued()) <= 18


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return flaky.log_path()


def test_a_test_that_fails_once_and_passes_five_times_alone_is_flaky(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs, name = list[Name](), ("test_job.py", "TestJob", "test_it")
    assert forgiven({name: "AssertionError: 1"}, lambda one: runs.append(one) is None) == {name}
    assert runs == [name] * flaky.RERUNS
    assert "FLAKY tests/rq_suite:test_job.py::TestJob::test_it: it failed" in capsys.readouterr().out
    assert "AssertionError: 1" in log.read_text()


def test_a_test_that_fails_again_in_any_of_five_runs_has_fallen(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name, passes = ("test_job.py", "", "test_it"), iter((True, True, True, True, False))
    assert forgiven({name: "AssertionError: 1"}, lambda one: next(passes)) == set()
    assert "failed again alone (run 5 of 5)" in capsys.readouterr().out
    assert not log.exists()


def test_more_than_five_failures_are_not_run_again(capsys: pytest.CaptureFixture[str]) -> None:
    failed = {("test_job.py", "", f"test_{n}"): "why" for n in range(flaky.MAX_FAILURES + 1)}
    assert forgiven(failed, lambda one: pytest.fail("it is run again")) == set()
    assert "6 tests of the floor failed: 5 at most" in capsys.readouterr().out
