"""The soft stop inside one process."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import ModuleType
from typing import Any

import pytest

from fusion.exceptions import JobStopped, JobTimeoutException
from fusion.kernel import stopping
from fusion.kernel.stopping import check, ended_by_stop, run_task
from fusion.kernel.timeouts import held, run_with_timeout, was_struck


@pytest.fixture(autouse=True)
def _listening() -> Iterator[None]:
    before = signal.getsignal(signal.SIGURG)
    stopping.listen()
    yield
    signal.signal(signal.SIGURG, before)
    was_struck()


def stop() -> None:
    os.kill(os.getpid(), signal.SIGURG)
    time.sleep(0)  # the handler runs by now


def error_of(task: Callable[[], Any], seconds: float | None = 5) -> BaseException:
    with pytest.raises(BaseException) as caught:  # noqa: PT011
        run_task(seconds, task)
    return caught.value


@pytest.mark.parametrize("seconds", [None, 0, 5])
def test_it_is_raised_in_the_task_with_a_time_limit_or_without(seconds: float | None) -> None:
    error = error_of(stop, seconds)
    assert isinstance(error, JobStopped)
    assert ended_by_stop(error)
    assert was_struck(), "a warm process does not go on with what that may have left"


def test_outside_of_a_task_nothing_is_raised() -> None:
    stop()
    run_task(5, int)
    stop()
    run_with_timeout(5, "Callback", stop)


def test_a_task_that_is_just_importing_asyncio_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a module is known already, and still empty."""
    monkeypatch.setitem(sys.modules, "asyncio.events", ModuleType("asyncio.events"))
    error = error_of(stop)
    assert isinstance(error, JobStopped)
    assert error.__context__ is None


def test_a_swallowed_stop_is_raised_again() -> None:
    count = 0

    def swallows() -> None:
        nonlocal count
        for _ in range(3):
            try:
                stop()
            except JobStopped:
                count += 1
        stop()

    error_of(swallows)
    assert count == 3


def test_no_stop_is_raised_during_clean_up() -> None:
    steps = []

    def cleans_up() -> None:
        try:
            stop()
        finally:
            stop()
            try:
                stop()
                raise ValueError
            except ValueError:
                stop()
            steps.append("cleaned")

    assert isinstance(error_of(cleans_up), JobStopped)
    assert steps == ["cleaned"]


def raises_on_its_way_out() -> None:
    try:
        stop()
    finally:
        raise ValueError


def raises_from_it() -> None:
    try:
        stop()
    except JobStopped as error:
        raise SystemExit from error


def raises_a_group() -> None:
    try:
        stop()
    except JobStopped as error:
        stopped = error
    raise BaseExceptionGroup("several", [ValueError(), BaseExceptionGroup("more", [stopped])])


@pytest.mark.parametrize("task", [raises_on_its_way_out, raises_from_it, raises_a_group])
def test_what_is_raised_on_the_way_out_is_the_stops_doing(task: Callable[[], None]) -> None:
    assert ended_by_stop(error_of(task))


def raises_later() -> None:
    try:
        stop()
    except JobStopped:
        pass
    raise ValueError


def stops_itself() -> None:
    raise JobStopped


@pytest.mark.parametrize("task", [raises_later, stops_itself])
def test_what_it_raises_of_itself_is_its_own_doing(task: Callable[[], None]) -> None:
    assert not ended_by_stop(error_of(task))


def test_a_stop_is_of_its_own_task_alone() -> None:
    error_of(stop)
    assert not ended_by_stop(error_of(stops_itself))


class _Struck(str):
    """The name of a module, which the message of an ImportError has to show: a signal's handler runs at that moment."""

    __slots__ = ("strike",)
    strike: Callable[[], None]

    def __repr__(self) -> str:
        self.strike()
        return "'half'"


@pytest.fixture
def imports(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """A task that is struck as it imports a name that is not there. The interpreter raises a TypeError in place of what the handler did."""

    def make(strike: Callable[[], None]) -> Callable[[], None]:
        module, name = ModuleType("half"), _Struck("half")
        name.strike = strike
        monkeypatch.setitem(sys.modules, "half", module)
        monkeypatch.setattr(module, "__name__", name)
        return lambda: exec("from half import nothing")

    return make


Imports = Callable[[Callable[[], None]], Callable[[], None]]


@pytest.mark.parametrize("seconds", [None, 5])
def test_a_stop_amid_the_error_of_an_import_is_one(imports: Imports, seconds: float | None) -> None:
    error = error_of(imports(stop), seconds)
    assert isinstance(error, JobStopped)
    assert str(error.__cause__) == "expected a message argument", "else this shows nothing"
    assert ended_by_stop(error)
    frames = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    assert "_guarded" in frames
    assert "<lambda>" in frames, "people see where it was"


def test_a_timeout_amid_the_error_of_an_import_is_one(imports: Imports) -> None:
    with pytest.raises(JobTimeoutException, match=r"0\.02 seconds"):
        run_task(0.02, imports(lambda: time.sleep(5)))


def test_what_the_handling_of_such_an_error_raises_is_the_stops_doing(imports: Imports) -> None:
    struck = imports(stop)

    def task() -> None:
        try:
            struck()
        except Exception as error:
            raise ExceptionGroup("several", [ValueError(), error]) from None

    assert ended_by_stop(error_of(task))


def test_such_an_error_of_a_task_that_nobody_struck_is_its_own() -> None:
    def task() -> None:
        raise TypeError("expected a message argument")

    error = error_of(task)
    assert type(error) is TypeError
    assert not ended_by_stop(error)


def test_wherever_an_import_that_fails_is_struck_it_is_stopped() -> None:
    """By a timer, as the fork server strikes at no moment of the task's choosing."""

    def task() -> None:
        while True:
            with suppress(ImportError):
                exec("from sys import nothing")

    before = signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGURG))
    try:
        for turn in range(100):
            signal.setitimer(signal.ITIMER_REAL, 0.0005 + turn * 1e-6, 0.5)
            assert ended_by_stop(error_of(task, None))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_frame_is_written_to_its_end_before() -> None:
    steps = []

    def writes() -> None:
        with held():
            stop()
            steps.append("written")

    assert isinstance(error_of(writes), JobStopped)
    assert steps == ["written"]


# -- event loops


async def _cleans_up(steps: list[str], count: int = 1) -> None:
    try:
        await asyncio.gather(*(asyncio.sleep(30) for _ in range(count)))
    finally:
        await asyncio.sleep(0.01)
        stop()
        await asyncio.sleep(0.01)
        steps.append("cleaned")


@pytest.mark.parametrize("count", [1, 50])
def test_a_loop_lets_its_tasks_clean_up(count: int) -> None:
    steps: list[str] = []

    async def main() -> None:
        asyncio.get_running_loop().call_later(0.01, stop)
        await _cleans_up(steps, count)

    error = error_of(lambda: asyncio.run(main()))
    assert isinstance(error, JobStopped)
    assert steps == ["cleaned"]


@pytest.mark.parametrize("turn", range(0, 200, 8))
def test_wherever_a_busy_loop_is_struck_it_ends(turn: int) -> None:
    """A timer strikes amid the loop's own steps as well as amid those of its tasks."""

    async def computes() -> None:
        while True:
            await asyncio.sleep(0)

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(computes())
            signal.setitimer(signal.ITIMER_REAL, 0.002 + turn * 1e-6)  # once: again is for a loop that does not get to it

    before = signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGURG))
    try:
        assert ended_by_stop(error_of(lambda: asyncio.run(main()), None))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_task_that_never_lets_its_loop_on_is_struck_itself() -> None:
    steps = []

    async def computes() -> None:
        for step in range(3):
            stop()
            steps.append(step)

    assert isinstance(error_of(lambda: asyncio.run(computes())), JobStopped)
    assert steps == [0], "the first one was the loop's to raise"


def test_a_loop_that_is_run_again_is_asked_again() -> None:
    loop = asyncio.new_event_loop()
    try:
        for _ in range(2):

            async def main() -> None:
                stop()
                await asyncio.sleep(30)

            task = loop.create_task(main())
            assert isinstance(error_of(lambda task=task: loop.run_until_complete(task)), JobStopped)  # type: ignore[misc]
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                loop.run_until_complete(task)
    finally:
        loop.close()


def test_check_raises_what_a_task_has_swallowed() -> None:
    def swallows(what: Callable[[], object]) -> None:
        try:
            what()
        except (JobStopped, JobTimeoutException):
            check()

    check()  # of no task: nothing to say
    with pytest.raises(JobTimeoutException, match=r"Task exceeded maximum timeout value \(0.02 seconds\)"):
        run_task(0.02, swallows, lambda: time.sleep(5))
    with pytest.raises(JobStopped, match="the job was stopped") as caught:
        run_task(5, swallows, stop)
    assert ended_by_stop(caught.value)
    run_task(5, check)
    run_task(None, check)
