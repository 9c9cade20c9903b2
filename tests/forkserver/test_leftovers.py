"""The check of a warm horse names each kind of thing that a job leaves, and nothing if the job cleans up. Each case has its own process."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fusion.forkserver.contamination import Leftovers
from tests.jobs.warm import _LEAVE

SPARE = 600


def found_after(job: Callable[[], Any], before: Callable[[], Any] = lambda: None) -> list[str]:
    """Run a job in a clean process, and return the names of what it left. The two checks after the job must agree."""
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setpgid(0, 0)
            before()
            leftovers = Leftovers(SPARE)
            seen = [leftovers.found()]
            job()
            seen += [leftovers.found() for _ in range(2)]
            os.write(into, b";".join(seen))
        except BaseException:
            os.write(into, traceback.format_exc().encode())
        finally:
            os._exit(0)
    os.close(into)
    with open(out, "rb") as answer:
        first, *later = answer.read().decode().split(";")
    os.waitpid(pid, 0)
    assert first == ""
    assert len(set(later)) == 1, later
    return later[0].split(", ") if later[0] else []


@pytest.mark.parametrize("kind", [kind for kind in _LEAVE if kind != "process group"])
def test_each_kind_by_its_name(kind: str) -> None:
    assert found_after(_LEAVE[kind]) == [kind]


def test_a_process_group() -> None:
    assert found_after(lambda: os.setpgid(0, os.getpgid(os.getppid()))) == ["process group"]


def _open_until(last: Callable[[int], bool]) -> None:
    while not last(os.open("/dev/null", os.O_RDONLY)):
        pass


def test_descriptors_up_to_the_last_that_they_may_be() -> None:
    """A leak of 256 descriptors is too many, one of 255 is not."""

    def open_some(count: int) -> None:
        first = os.open("/dev/null", os.O_RDONLY)
        _open_until(lambda fd: fd == first + count - 1)

    assert found_after(lambda: open_some(256)) == ["descriptors"]
    assert found_after(lambda: open_some(255)) == []


def test_descriptors_that_are_all_of_a_low_limit() -> None:
    def limit() -> None:
        most = max(map(int, os.listdir("/proc/self/fd"))) + 30  # after many other tests, this process has more than 60
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    def open_all() -> None:
        try:
            _open_until(lambda fd: False)
        except OSError:
            return

    assert found_after(open_all, limit) == ["descriptors"]


def test_one_descriptor_with_a_high_number_is_not_too_many() -> None:
    def open_high() -> None:
        fd = os.open("/dev/null", os.O_RDONLY)
        for number in range(fd + 1, 590):
            os.dup2(fd, number)
        for number in range(fd + 1, 590):
            if number % 50:
                os.close(number)

    assert found_after(open_high) == []


def test_a_descriptor_that_was_there_before_hides_no_leak() -> None:
    """One descriptor has the number that a leak reaches last."""

    def fill() -> None:
        fd = os.open("/dev/null", os.O_RDONLY)
        for number in range(fd + 200, fd + 300):
            os.dup2(fd, number)

    assert found_after(lambda: _open_until(lambda fd: fd >= 560), fill) == ["descriptors"]


def _child() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-S", "-c", ""])


def _zombie() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def _of_a_thread() -> None:
    """The child was started by a thread that has ended."""
    thread = threading.Thread(target=lambda: subprocess.Popen(["sleep", "30"]))
    thread.start()
    thread.join()
    while len(os.listdir("/proc/self/task")) > 1:
        time.sleep(0.001)


def _adopted() -> None:
    """The parent of a process, a child of the job, has ended. A horse is a subreaper: the process becomes its child."""
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
    subprocess.run(["sh", "-c", "sleep 30 &"], check=True)


@pytest.mark.parametrize("leave", [_child, _zombie, _of_a_thread, _adopted])
def test_a_child_however_it_came(leave: Callable[[], Any]) -> None:
    assert found_after(leave) == ["child processes"]


def test_a_child_from_before_the_first_job() -> None:
    """The process is not clean before its first job, so no second job follows."""
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        child = subprocess.Popen(["sleep", "30"])
        os.write(into, Leftovers(SPARE).found())
        child.kill()
        os._exit(0)
    os.close(into)
    with open(out, "rb") as answer:
        assert answer.read() == b"child processes"
    os.waitpid(pid, 0)


def test_a_child_that_was_waited_for_is_none() -> None:
    assert found_after(lambda: _child().wait()) == []


def test_children_that_nobody_waits_for_are_none() -> None:
    """The system reaps the children."""

    def job() -> None:
        subprocess.Popen(["sleep", "0"])
        while Path("/proc/thread-self/children").read_text():
            time.sleep(0.001)

    assert found_after(job, lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN)) == []


@pytest.mark.parametrize("fd", [0, 1, 2])
def test_a_closed_stream(fd: int) -> None:
    def open_two() -> None:
        os.dup2(os.open("/dev/null", os.O_RDWR), 0)

    assert "standard streams" in found_after(lambda: os.close(fd), open_two)


def test_a_stream_that_was_closed_before() -> None:
    def close_one() -> None:
        os.dup2(os.open("/dev/null", os.O_WRONLY), 2)
        os.close(0)

    assert found_after(lambda: None, close_one) == []
    assert found_after(lambda: os.dup2(os.open("/", os.O_RDONLY), 2), close_one) == ["standard streams"]


@pytest.mark.parametrize("timer", [signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF])
def test_each_timer(timer: int) -> None:
    assert found_after(lambda: signal.setitimer(timer, 1000)) == ["timers"]


def test_another_environment() -> None:
    def replace() -> None:
        class Other(type(os.environ)):  # type: ignore[misc]
            pass

        os.environ.__class__ = Other

    assert found_after(replace) == ["environment"]


def test_several_at_once() -> None:
    def leave() -> None:
        os.environ["LEFT"] = "behind"
        os.umask(0o011)
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()

    assert found_after(leave) == ["umask", "environment", "threads"]


def test_a_directory_that_is_gone() -> None:
    def leave() -> None:
        path = f"/tmp/gone-{os.getpid()}"
        os.mkdir(path)
        os.chdir(path)
        os.rmdir(path)

    assert found_after(leave) == ["FileNotFoundError"]


def test_without_the_list_of_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some kernels have no list of children."""
    from fusion.forkserver import contamination

    ordinary = contamination._open
    monkeypatch.setattr(contamination, "_open", lambda path, fd: -1 if "children" in path else ordinary(path, fd))
    assert found_after(_child) == ["child processes"]
    assert found_after(lambda: _child().wait()) == []


def test_beside_a_thread_from_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """With several threads, the list of one thread's children is not complete."""

    def begin() -> None:
        go = threading.Event()
        globals()["go"] = go

        def work() -> None:
            go.wait()
            globals()["child"] = subprocess.Popen(["sleep", "30"])
            time.sleep(600)

        threading.Thread(target=work, daemon=True).start()

    def job() -> None:
        globals()["go"].set()
        while "child" not in globals():
            time.sleep(0.001)

    assert found_after(job, begin) == ["child processes"]
