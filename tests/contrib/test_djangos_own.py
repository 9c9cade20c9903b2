"""Django's own tests of tasks (tests/tasks of its source distribution), with our backends in place of its own.

They run where FUSION_DJANGO_TESTS names the directory `tests` of such a distribution, of the version that is installed: `make test-django`.
"""

from __future__ import annotations

import os
import sys
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.workers import Workers

SOURCES = os.environ.get("FUSION_DJANGO_TESTS", "")
pytestmark = [
    pytest.mark.skipif(not SOURCES, reason="asks for Django's source distribution: make test-django"),
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore"),
]

_DUMMY, _IMMEDIATE = ("django.tasks.backends.dummy.DummyBackend", "django.tasks.backends.immediate.ImmediateBackend")
#: What stands in place of which backend.
FOR_TESTS = {_DUMMY: "fusion.contrib.django.testing.DummyBackend", _IMMEDIATE: "fusion.contrib.django.testing.ImmediateBackend"}
REAL = {_DUMMY: "tests.contrib.answering.Kept", _IMMEDIATE: "fusion.contrib.django.tasks.FusionBackend"}
SERVED = {_IMMEDIATE: "tests.contrib.answering.Prompt"}

INVALID = ("TaskTestCase.test_enqueue_with_invalid_argument", "TaskTestCase.test_aenqueue_with_invalid_argument")
_LOGS = "it reads the log of a run, which is that of the job's process"
_CLASS = "it asks for Django's class by its name"
_COMMIT = "unlike Django's, what is enqueued in a transaction waits for its commit"
_KEPT = "it changes what DummyBackend keeps"
_CANT = "it asks that ImmediateBackend can't do it"
UNANSWERED_FOR_TESTS = {
    **dict.fromkeys(INVALID, "a datetime is a valid argument"),
    **({} if sys.version_info >= (3, 12) else {"CustomBackendTestCase.test_no_enqueue": "Python 3.11 words the error otherwise"}),
}
UNANSWERED_UNSERVED = {
    **UNANSWERED_FOR_TESTS,
    "DummyBackendTestCase.test_using_correct_backend": _CLASS,
    "TaskTestCase.test_using_correct_backend": _CLASS,
    "TaskTestCase.test_get_backend": _CLASS,
    "DummyBackendTestCase.test_refresh_result": _KEPT,
    "DummyBackendTestCase.test_refresh_result_async": _KEPT,
    "TaskTestCase.test_task_error_invalid_exception": _LOGS,
    "TaskTestCase.test_task_error_unknown_module": _LOGS,
    "DummyBackendTransactionTestCase.test_doesnt_wait_until_transaction_commit_by_default": _COMMIT,
}
UNANSWERED_SERVED = {
    "ImmediateBackendTestCase.test_using_correct_backend": _CLASS,
    "ImmediateBackendTestCase.test_cannot_get_result": _CANT,
    "ImmediateBackendTestCase.test_cannot_pass_run_after": _CANT,
    "ImmediateBackendTestCase.test_cannot_refresh_result": _CANT,
    "ImmediateBackendTestCase.test_catches_exception": _LOGS,
    "ImmediateBackendTestCase.test_complex_exception": _LOGS,
    "ImmediateBackendTestCase.test_complex_return_value": _LOGS,
    "ImmediateBackendTestCase.test_enqueue_logs": _LOGS,
    "ImmediateBackendTestCase.test_failed_logs": _LOGS,
    "ImmediateBackendTestCase.test_throws_keyboard_interrupt": "what a task raises is raised in the job's process",
    "ImmediateBackendTransactionTestCase.test_doesnt_wait_until_transaction_commit_by_default": _COMMIT,
}


@pytest.fixture
def own_tests(shop: Path, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Loads them, with other backends: as the package `tasks`, which is what they call themselves."""
    home = tmp_path / "djangos"
    (home / "tasks").mkdir(parents=True)
    for source in (Path(SOURCES) / "tasks").glob("*.py"):
        text = source.read_text()
        for name, ours in request.param.items():
            text = text.replace(f'"{name}"', f'"{ours}"')
        (home / "tasks" / source.name).write_text(text)
    # a worker finds the repository's own package of that name first
    (home / "djangos_set_up.py").write_text(f"import sys\n\nsys.path.insert(0, {str(home)!r})\nimport django\n\ndjango.setup()\n")
    before = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "tasks"}
    for name in before:
        del sys.modules[name]
    monkeypatch.syspath_prepend(str(home))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(home), os.getcwd(), os.environ.get("PYTHONPATH", "")]))
    every = [path.stem for path in (home / "tasks").glob("test_*.py")]
    yield lambda *names: unittest.TestLoader().loadTestsFromNames([f"tasks.{name}" for name in names or every])
    for name in [name for name in sys.modules if name.partition(".")[0] == "tasks"]:
        del sys.modules[name]
    sys.modules.update(before)


def failed(suite: unittest.TestSuite) -> tuple[int, dict[str, str]]:
    """How many ran, and what the others say."""
    result = unittest.TestResult()
    suite.run(result)
    found: dict[str, str] = {}
    for test, trace in [*result.errors, *result.failures]:
        found[".".join(getattr(test, "test_case", test).id().split(".")[-2:])] = trace
    return result.testsRun, found


def check(suite: unittest.TestSuite, least: int, unanswered: dict[str, str]) -> None:
    """All are answered but these, for the reasons that are given."""
    ran, found = failed(suite)
    print(f"{ran} of Django's tests, {len(found)} not answered")
    assert ran >= least and not found.keys() - unanswered.keys(), "\n".join(
        f"{name}: {found[name]}" for name in found.keys() - unanswered.keys()
    )


@pytest.mark.parametrize("own_tests", [FOR_TESTS], indirect=True)
def test_backends_for_tests_are_as_djangos(own_tests: Any) -> None:
    check(own_tests(), 70, UNANSWERED_FOR_TESTS)


@pytest.mark.parametrize("own_tests", [REAL], indirect=True)
def test_enqueueing_passes_djangos_own_tests(own_tests: Any, conn: Any) -> None:
    check(own_tests("test_dummy_backend", "test_tasks", "test_custom_backend"), 50, UNANSWERED_UNSERVED)


@pytest.mark.parametrize("own_tests", [SERVED], indirect=True)
def test_running_passes_djangos_own_tests(own_tests: Any, workers: Workers, conn: Any) -> None:
    workers.start("default", "--tasks", "djangos_set_up,tasks.tasks", ready=False).wait_ready(60)
    check(own_tests("test_immediate_backend"), 18, UNANSWERED_SERVED)
