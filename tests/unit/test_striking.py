"""What is raised in a thread from outside: where it is meant to, and nowhere else."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from fusion.exceptions import JobStopped, JobTimeoutException
from fusion.kernel.striking import ThreadGuard, Watcher
from fusion.kernel.timeouts import deferred, held, holds


class Run:
    """A thread that runs a task under a guard."""

    def __init__(self, watcher: Watcher, task: Callable[..., Any], seconds: float | None = None, stopped: bool = False) -> None:
        self.taints: list[str] = []
        self.guard = ThreadGuard(watcher, self.taints.append)
        self.error: BaseException | None = None
        self.value: Any = None
        if stopped:
            self.guard.stop()
        self.began = time.monotonic()
        self.thread = threading.Thread(target=self._run, args=(task, seconds))
        self.thread.start()

    def _run(self, task: Callable[..., Any], seconds: float | None) -> None:
        try:
            self.value = self.guard.run_task(seconds, lambda: task(self) if task.__code__.co_argcount else task())
        except BaseException as error:
            self.error = error
        assert not holds.keys() & {threading.get_ident()}

    def end(self) -> BaseException | None:
        self.thread.join(10)
        assert not self.thread.is_alive()
        self.took = time.monotonic() - self.began
        return self.error


@pytest.fixture(scope="module")
def watcher() -> Watcher:
    return Watcher()


def spin(seconds: float = 10) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


def test_a_limit_is_raised_in_the_task_as_in_a_process(watcher: Watcher) -> None:
    run = Run(watcher, spin_on, 0.05)
    error = run.end()
    assert type(error) is JobTimeoutException
    assert error.text() == "Task exceeded maximum timeout value (0.05 seconds)" and error.args == (error.text(),)
    names, tb = [], error.__traceback__
    while tb is not None:
        names.append(tb.tb_frame.f_code.co_name)
        tb = tb.tb_next
    assert "spin" in names
    assert 0.05 <= run.took < 1
    assert run.taints == [str(error)]


def spin_on() -> None:
    spin()


@pytest.mark.parametrize("seconds", [None, 0, 10])
def test_what_ends_in_time_is_not_struck(watcher: Watcher, seconds: float | None) -> None:
    runs = [Run(watcher, lambda: "done", seconds) for _ in range(20)]
    assert [run.end() for run in runs] == [None] * 20
    assert {run.value for run in runs} == {"done"} and not any(run.taints for run in runs)


def test_a_stop_is_raised_and_not_again_in_who_handles_it(watcher: Watcher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fusion.kernel.striking.REPEAT", 0.1)
    began, cleaned = threading.Event(), []

    def task() -> None:
        began.set()
        try:
            spin()
        finally:
            spin(0.3)
            cleaned.append(True)

    run = Run(watcher, task, 30)
    began.wait(5)
    run.guard.stop()
    error = run.end()
    assert type(error) is JobStopped and run.guard.ended_by_stop(error)
    assert cleaned == [True] and run.took < 3
    early = Run(watcher, task, 30, stopped=True)
    assert type(early.end()) is JobStopped and early.took < 1 and not early.taints, "before it began"
    over = Run(watcher, lambda: 1)
    over.end()
    over.guard.stop()
    assert not over.guard.ended_by_stop(ValueError())


def test_one_that_swallows_it_is_struck_again(watcher: Watcher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fusion.kernel.striking.REPEAT", 0.2)

    def task() -> str:
        for _ in range(2):
            try:
                spin()
            except JobTimeoutException:
                continue
        return "done"

    run = Run(watcher, task, 0.05)
    assert run.end() is None and run.value == "done"
    assert 0.25 <= run.took < 3


def test_the_limit_of_one_is_not_that_of_its_neighbour(watcher: Watcher) -> None:
    long = Run(watcher, lambda: spin(0.5), 5)
    short = Run(watcher, spin_on, 0.05)
    assert type(short.end()) is JobTimeoutException and long.end() is None and not long.taints


def test_a_task_that_checks_is_interrupted_only_there(watcher: Watcher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fusion.kernel.striking.REPEAT", 0.5)

    def task(run: Run) -> None:
        while True:
            run.guard.check()  # before anything else: until its first check it counts as one that never checks
            spin(0.1)

    run = Run(watcher, task, 0.15)
    assert type(run.end()) is JobTimeoutException and not run.taints
    assert 0.15 <= run.took < 1

    def stops_checking(run: Run) -> None:
        run.guard.check()
        spin()

    run = Run(watcher, stops_checking, 0.1)
    assert type(run.end()) is JobTimeoutException and run.taints
    assert 0.4 < run.took < 3


@pytest.mark.parametrize("section", [deferred, held])
def test_a_section_is_struck_at_its_end(watcher: Watcher, section: type[deferred]) -> None:
    whole = []

    def task() -> None:
        with section(), section():
            spin(0.3)
            whole.append(True)
        whole.append(False)

    run = Run(watcher, task, 0.05)
    assert type(run.end()) is JobTimeoutException
    assert whole == [True] and not run.taints, "there it harms nothing"


def test_only_held_waits_longer_than_patience(watcher: Watcher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fusion.kernel.striking.PATIENCE", 0.2)

    def task(section: type[deferred]) -> Callable[[], None]:
        def inside() -> None:
            with section():
                spin(0.6)

        return inside

    hard, soft = Run(watcher, task(held), 0.05), Run(watcher, task(deferred), 0.05)
    assert type(soft.end()) is JobTimeoutException and 0.2 < soft.took < 0.6 and soft.taints
    assert type(hard.end()) is JobTimeoutException and hard.took >= 0.6 and not hard.taints


@pytest.mark.parametrize("seconds", [0.05, 0.6], ids=["struck", "not struck"])
def test_the_interpreter_looks_for_nothing_once_a_run_is_over(seconds: float) -> None:
    """Who traces calls then, as a debugger does, would hang on Python 3.11: in a process of its own."""
    program = (
        "import sys, time; from fusion.kernel.striking import ThreadGuard, Watcher; from fusion.exceptions import JobTimeoutException\n"
        "def spin(until):\n"
        "    while time.monotonic() < until: pass\n"
        "for _ in range(3):\n"
        f"    try: ThreadGuard(Watcher(), lambda why: None).run_task({seconds}, lambda: spin(time.monotonic() + 0.3))\n"
        "    except JobTimeoutException: print('struck')\n"
        "seen = []\n"
        "sys.settrace(lambda frame, event, arg: seen.append(event))\n"
        "spin(0)\n"
        "sys.settrace(None)\n"
        "print(seen)\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=True)
    assert ran.stdout.splitlines() == ["struck"] * (3 if seconds < 0.3 else 0) + ["['call']"], ran.stderr


def test_a_coroutine_is_left_by_its_loop(watcher: Watcher) -> None:
    """It is not struck amid the loop's own steps, and its `finally` runs; one that never lets the loop come round is struck all the same."""
    cleaned = []

    async def waits() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            await asyncio.sleep(0.01)
            cleaned.append(True)

    async def computes() -> None:
        spin()

    run = Run(watcher, lambda run: run.guard.run_coroutine(waits()), 0.1)
    error = run.end()
    assert type(error) is JobTimeoutException and "0.1 seconds" in str(error) and run.took < 1
    assert cleaned == [True] and not run.taints
    run = Run(watcher, lambda run: run.guard.run_coroutine(computes()), 0.1)
    assert type(run.end()) is JobTimeoutException and run.taints


@pytest.mark.long
def test_the_callback_has_a_limit_of_its_own_and_hears_of_no_stop(watcher: Watcher) -> None:
    guard = ThreadGuard(watcher, lambda why: None)
    guard.run_task(None, lambda: None)
    guard.stop()
    guard.run_with_timeout(5, "Callback", lambda: spin(0.1))
    with pytest.raises(JobTimeoutException, match="Callback exceeded"):
        guard.run_with_timeout(0.05, "Callback", spin_on)


def _attack(watcher: Watcher, strikes: int, threads: int) -> None:
    """Threads that do one run after another, each struck at a random instant, amid sections or at a run's end: each section is whole, and nothing
    is raised outside of its own run."""
    left, lock, wrong = [strikes], threading.Lock(), list[str]()
    raised = [0]

    def runs() -> None:
        state = [0, 0, 0]

        def task() -> None:
            for _ in range(random.randrange(2000)):
                with deferred():
                    state[0] += 1
                    str(state)
                    with held():
                        state[1] += 1
                        str(state)
                    state[2] += 1
                with held():
                    pass

        try:
            while left[0] > 0 or raised[0] <= strikes / 4:  # a busy machine strikes late: more runs end before
                taints: list[str] = []
                guard = ThreadGuard(watcher, taints.append)
                try:
                    guard.run_task(random.uniform(0.0001, 0.004), task)
                except JobTimeoutException:
                    with lock:
                        raised[0] += 1
                if state[0] != state[1] or state[1] != state[2]:
                    wrong.append(f"a section was cut: {state}")
                    return
                hold = guard._hold
                if (hold.depth, hold.firm) != (1, 0):
                    wrong.append(f"a depth of {hold.depth}, {hold.firm} was left")
                left[0] -= 1
                for _ in range(100):
                    str(state)
        except BaseException as error:
            wrong.append(f"raised outside of a run: {error!r}")

    workers = [threading.Thread(target=runs) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert not wrong, wrong
    assert raised[0] > strikes / 4, "it is not attacked at all"


@pytest.fixture
def _hurried(monkeypatch: pytest.MonkeyPatch) -> Any:
    # On a loaded machine a thread may be in a section for two seconds, as others have the interpreter.
    monkeypatch.setattr("fusion.kernel.striking.PATIENCE", 60.0)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("_hurried")
def test_strikes_at_random_instants_hit_no_section_and_no_other_run(watcher: Watcher) -> None:
    _attack(watcher, 400, 4)


@pytest.mark.long
@pytest.mark.usefixtures("_hurried")
def test_many_strikes_at_random_instants(watcher: Watcher) -> None:
    _attack(watcher, 4000, 8)


def test_one_that_returns_amid_the_raise_ends_by_it(watcher: Watcher) -> None:
    """What waits in C returns without a call after it: it is still raised in the run, not in what comes after that."""
    queue: SimpleQueue[str] = SimpleQueue()

    def task() -> str:
        for item in iter(queue.get, None):
            return item
        return ""

    run = Run(watcher, task, 0.05)
    while not run.taints:
        time.sleep(0.01)
    time.sleep(0.05)
    queue.put("an answer")
    assert type(run.end()) is JobTimeoutException
    assert run.thread.ident not in holds


def test_a_stop_amid_the_first_import_of_asyncio_leaves_it_to_the_neighbours() -> None:
    """A package of which a part is there already can't be imported anew: NameError in `asyncio/__init__.py`."""
    program = """
import sys, threading, time
from fusion.kernel.striking import ThreadGuard, Watcher
class Slow:
    def find_spec(self, name, path, target=None):
        if name == "asyncio.runners":
            there.set()
            until = time.monotonic() + 0.3
            while time.monotonic() < until:
                pass
there, said, guard = threading.Event(), [], ThreadGuard(Watcher(), lambda why: None)
async def task():
    return "ran"
def run():
    coroutine = task()
    try:
        guard.run_task(None, lambda: guard.run_coroutine(coroutine))
    except BaseException as error:
        said.append(type(error).__name__)
    coroutine.close()
assert "asyncio" not in sys.modules
sys.meta_path.insert(0, Slow())
thread = threading.Thread(target=run)
thread.start()
there.wait()
guard.stop()
thread.join()
import asyncio
print(*said, asyncio.run(task()))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    assert (done.stdout, done.stderr) == ("JobStopped ran\n", "")


def test_an_import_ends_before_and_its_package_is_whole(
    watcher: Watcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package broken off amid its import is without its submodules for ever: `NameError: name 'part' is not defined`."""
    package = tmp_path / "slow_package"
    package.mkdir()
    (package / "__init__.py").write_text(
        "from .part import *\nimport time\nend = time.monotonic() + 0.4\nwhile time.monotonic() < end: pass\nall = part\n"
    )
    (package / "part.py").write_text("value = 5\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    def imports() -> None:
        import slow_package  # type: ignore[import-not-found]  # noqa: F401

        spin()

    run = Run(watcher, imports, 0.1)
    assert isinstance(run.end(), JobTimeoutException)
    assert 0.35 < run.took < 1.5
    assert sys.modules["slow_package"].all.value == 5


def test_an_import_that_does_not_end_is_struck_all_the_same(
    watcher: Watcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "endless_module.py").write_text("while True: pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    def imports() -> None:
        import endless_module  # type: ignore[import-not-found]  # noqa: F401

    run = Run(watcher, imports, 0.1)
    assert isinstance(run.end(), JobTimeoutException)
    assert 2.0 < run.took < 4
