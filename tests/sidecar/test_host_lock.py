"""One of several processes of a host has the lock, and the kernel frees it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fusion.exceptions import ConfigurationError
from fusion.sidecar.host_lock import HostLock, WorkerSeats, runtime_directory

OTHER = """
import sys
from fusion.sidecar.host_lock import HostLock
lock = HostLock("a")
print(lock.acquire(), lock.holder, flush=True)
sys.stdin.read()
"""


def test_one_has_it_until_it_gives_it_back() -> None:
    one, other, third = HostLock("a"), HostLock("a"), HostLock("b")
    assert one.acquire()
    assert not other.acquire()
    assert other.holder == os.getpid()
    assert third.acquire()
    one.release()
    assert (one.held, other.acquire()) == (False, True)
    for lock in (other, third):
        lock.release()


def test_a_process_that_dies_leaves_it() -> None:
    other = subprocess.Popen([sys.executable, "-c", OTHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    assert other.stdout.readline() == f"True {other.pid}\n"
    lock = HostLock("a")
    assert not lock.acquire()
    assert lock.holder == other.pid
    other.send_signal(signal.SIGKILL)
    other.communicate()
    assert lock.acquire()
    lock.release()


def test_a_process_started_by_the_lock_holder_requests_the_lock() -> None:
    lock, other = HostLock("a"), HostLock("b")
    assert lock.acquire()
    assert other.acquire()
    assert lock.heir() == 0
    heir = subprocess.Popen([sys.executable, "-c", OTHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert heir.stdout is not None
    assert heir.stdout.readline() == f"False {os.getpid()}\n"
    assert (lock.heir(), other.heir()) == (heir.pid, 0)
    heir.communicate()
    assert lock.heir() == 0, "it has ended"
    for each in (lock, other):
        each.release()
    assert lock.heir() == 0


def test_a_release_holds_for_forked_processes_that_have_its_descriptor() -> None:
    lock = HostLock("a")
    assert lock.acquire()
    reading, writing = os.pipe()
    if not (pid := os.fork()):
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    lock.release()
    assert HostLock("a").acquire()
    os.close(writing)
    os.close(reading)
    os.waitpid(pid, 0)


def test_a_forked_process_can_leave_it_to_its_parent() -> None:
    lock = HostLock("a")
    assert lock.acquire()
    if not (pid := os.fork()):
        lock.forget()
        os._exit(int(lock.held or HostLock("a").acquire()))
    assert os.waitpid(pid, 0)[1] == 0
    lock.release()


def test_a_file_that_was_removed_is_no_lock(temporary: Path) -> None:
    lock = HostLock("a")
    assert lock.acquire()
    lock.release()
    (path,) = runtime_directory().iterdir()
    fd = os.open(path, os.O_RDONLY)
    path.unlink()
    assert lock.acquire()
    assert os.fstat(fd).st_nlink == 0
    assert not HostLock("a").acquire()
    os.close(fd)
    lock.release()


def test_garbage_in_the_file_names_nobody() -> None:
    lock = HostLock("a")
    assert lock.acquire()
    (path,) = runtime_directory().iterdir()
    path.write_bytes(b"9" * 15 + b"\n" + b"9" * 15 + b"\n")
    assert lock.heir() == 0
    path.write_bytes(b"\xff\0-1 x")
    assert lock.heir() == 0
    other = HostLock("a")
    assert not other.acquire()
    assert other.holder == 0
    lock.release()


def test_the_directory_is_this_users_alone(temporary: Path) -> None:
    path = runtime_directory()
    assert path == temporary / f"fusion-{os.geteuid()}"
    assert path.stat().st_mode & 0o777 == 0o700
    path.chmod(0o770)
    with pytest.raises(
        ConfigurationError,
        match=r"not a directory that only this user may change \(mode 770, user \d+\): remove it, or set TMPDIR",
    ):
        HostLock("a")
    path.rmdir()
    (temporary / "elsewhere").mkdir(mode=0o700)
    path.symlink_to(temporary / "elsewhere")
    with pytest.raises(ConfigurationError, match="remove it"):
        HostLock("a")
    path.unlink()
    path.write_text("")
    with pytest.raises(ConfigurationError, match="File exists; set TMPDIR"):
        HostLock("a")


def test_a_link_in_place_of_the_file_is_not_followed(temporary: Path) -> None:
    lock = HostLock("a")
    assert lock.acquire()
    lock.release()
    (path,) = runtime_directory().iterdir()
    path.unlink()
    path.symlink_to(temporary / "target")
    with pytest.raises(OSError, match="symbolic links"):
        lock.acquire()
    assert not (temporary / "target").exists()


def test_two_workers_have_a_seat_each_until_they_end_whoever_started_them() -> None:
    seats, workers = WorkerSeats("a"), []
    for _ in range(WorkerSeats.COUNT):
        seat = seats.take()
        assert seat is not None
        workers.append(subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, pass_fds=(seat,)))
        os.close(seat)  # as a keeper does, and as the kernel does for one that is killed
    assert seats.take() is None and WorkerSeats("a").take() is None
    other = WorkerSeats("b").take()
    assert other is not None
    os.close(other)
    workers[0].kill()
    workers[0].wait()
    seat = seats.take()
    assert seat is not None
    os.close(seat)
    for worker in workers:
        worker.kill()
        worker.communicate()
