from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator

import pytest

from fusion.exceptions import JobTimeoutException
from fusion.kernel.timeouts import deferred, held, run_with_timeout, strike


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    # pytest-timeout uses the same timer.
    theirs, handler = signal.setitimer(signal.ITIMER_REAL, 0), signal.signal(signal.SIGALRM, signal.SIG_DFL)
    yield
    left, restored = signal.setitimer(signal.ITIMER_REAL, 0), signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, *theirs)
    assert left == (0.0, 0.0)
    assert restored == signal.SIG_DFL


def spin() -> None:
    while True:
        pass


def test_raises_inside_the_function() -> None:
    started = time.monotonic()
    with pytest.raises(JobTimeoutException, match=r"^Task exceeded maximum timeout value \(0.05 seconds\) \[FUS-157\]$"):
        run_with_timeout(0.05, "Task", spin)
    assert time.monotonic() - started < 1


def test_passes_arguments_result_and_errors() -> None:
    assert run_with_timeout(5, "Task", divmod, 7, 2) == (3, 1)
    assert run_with_timeout(5, "Task", dict, a=1) == {"a": 1}
    with pytest.raises(ZeroDivisionError):
        run_with_timeout(5, "Task", divmod, 7, 0)


@pytest.mark.parametrize("seconds", [None, 0, -1])
def test_no_limit(seconds: float | None) -> None:
    assert run_with_timeout(seconds, "Task", lambda: signal.getitimer(signal.ITIMER_REAL)) == (0.0, 0.0)


@pytest.mark.parametrize("seconds", [30 * 86400.0, 1e9, 1e12, 1e300])
def test_a_limit_further_away_than_a_timer_reaches(seconds: float) -> None:
    left, _ = run_with_timeout(seconds, "Task", signal.getitimer, signal.ITIMER_REAL)
    assert left == pytest.approx(min(seconds, 1e9), abs=60)


def test_except_exception_does_not_swallow_it() -> None:
    def swallows() -> None:
        while True:
            try:
                spin()
            except Exception:
                pass

    with pytest.raises(JobTimeoutException):
        run_with_timeout(0.05, "Task", swallows)


def test_strikes_again_after_it_was_swallowed() -> None:
    caught = []

    def swallows_once() -> None:
        try:
            spin()
        except BaseException as error:
            caught.append(error)
        spin()

    with pytest.raises(JobTimeoutException):
        run_with_timeout(0.05, "Task", swallows_once)
    assert len(caught) == 1


def test_a_caller_is_never_hit() -> None:
    """Functions that end at the very moment of the alarm: either the function was interrupted, or nothing was."""
    outcomes = set()
    for step in range(200):
        seconds = 0.002 + step * 1e-6

        def until(end: float) -> str:
            while time.perf_counter() < end:
                pass
            return "done"

        try:
            outcomes.add(run_with_timeout(seconds, "Task", until, time.perf_counter() + seconds))
        except JobTimeoutException as error:
            frames = []
            tb = error.__traceback__
            while tb is not None:
                frames.append(tb.tb_frame.f_code.co_name)
                tb = tb.tb_next
            assert "_guarded" in frames
            outcomes.add("timeout")
    assert outcomes <= {"done", "timeout"}


def test_held_puts_it_off() -> None:
    finished = []

    def writes() -> None:
        with held():
            end = time.perf_counter() + 0.15
            while time.perf_counter() < end:
                pass
            finished.append(True)
        spin()

    with pytest.raises(JobTimeoutException):
        run_with_timeout(0.05, "Task", writes)
    assert finished == [True]


def test_nested_calls_keep_the_outer_handler() -> None:
    hits: list[int] = []
    previous = signal.signal(signal.SIGALRM, lambda *_: hits.append(1))
    try:
        run_with_timeout(5, "Task", lambda: None)
        signal.raise_signal(signal.SIGALRM)
        assert hits == [1]
    finally:
        signal.signal(signal.SIGALRM, previous)


def test_what_is_deferred_is_struck_at_its_end() -> None:
    """Whole, and at once after it: not at the next tick."""
    finished = []

    def calls() -> None:
        with deferred():
            with deferred():
                end = time.perf_counter() + 0.15
                while time.perf_counter() < end:
                    pass
            finished.append(time.perf_counter())
        finished.append(-1.0)

    with pytest.raises(JobTimeoutException):
        run_with_timeout(0.05, "Task", calls)
    assert time.perf_counter() - finished[0] < 0.5
    assert len(finished) == 1


def test_a_section_that_takes_long_is_struck_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fusion.kernel.timeouts.REPEAT", 0.05)
    monkeypatch.setattr("fusion.kernel.timeouts.PATIENCE", 0.2)
    caught = []

    def hangs() -> None:
        try:
            with deferred(), deferred():
                spin()
        except JobTimeoutException:
            caught.append(time.perf_counter())
        with deferred():  # the next one is a section of its own
            end = time.perf_counter() + 0.15
            while time.perf_counter() < end:
                pass
            caught.append(time.perf_counter())
        spin()

    started = time.perf_counter()
    with pytest.raises(JobTimeoutException):
        run_with_timeout(0.05, "Task", hangs)
    assert 0.2 < caught[0] - started < 2
    assert len(caught) == 2


def test_the_section_of_another_thread_defers_nothing() -> None:
    inside, done = threading.Event(), threading.Event()

    def section() -> None:
        with deferred():
            inside.set()
            done.wait(10)

    other = threading.Thread(target=section)
    other.start()
    inside.wait(10)
    started = time.monotonic()
    with pytest.raises(JobTimeoutException):
        run_with_timeout(0.05, "Task", spin)
    assert time.monotonic() - started < 0.9
    done.set()
    other.join()


def test_a_section_amid_which_the_function_ends_leaves_none_behind() -> None:
    def leaves() -> None:
        deferred().__enter__()

    run_with_timeout(5, "Task", leaves)
    test_raises_inside_the_function()


def test_anything_that_a_handler_raises_goes_the_same_way() -> None:
    class Stopped(BaseException):
        pass

    signal.signal(signal.SIGUSR1, lambda *_: strike(Stopped()))
    seen = []

    def stopped() -> None:
        with deferred():
            signal.raise_signal(signal.SIGUSR1)
            seen.append("whole")

    try:
        with pytest.raises(Stopped):
            run_with_timeout(5, "Task", stopped)
        with pytest.raises(Stopped):
            signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    assert seen == ["whole"]
