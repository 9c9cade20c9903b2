"""Notices of ended horses: those that tell of no harm wait for each other, for a moment."""

from __future__ import annotations

import _socket
import os
import time
from collections.abc import Iterator
from math import inf

import pytest

from fusion.forkserver import server as server_module
from fusion.forkserver.horse_process import HorseProcess
from fusion.forkserver.server import EXITS_TOGETHER, ForkServer
from fusion.kernel.linux import Children
from tests.forkserver.driver import Driver, job_fields


class Reaping(ForkServer):
    """A fork server whose horses the test forks and ends."""

    def __init__(self) -> None:
        self.worker, own = _socket.socketpair()
        self.worker.setblocking(False)
        super().__init__(own)
        self._children = Children()
        self._stuck.update(self._children.pids())

    def end(self, serial: int, code: int) -> None:
        """A horse comes and goes; no other child of this process is touched."""
        pid = os.posix_spawn("/bin/sh", ["sh", "-c", f"exit {code}"], {})
        self._horses[serial] = self._by_pid[pid] = HorseProcess(serial, pid)
        self._bury(pid)
        self._sweep()

    def said(self) -> list[str]:
        """The lines that the worker has got since."""
        try:
            return self.worker.recv(65536).decode().splitlines()
        except BlockingIOError:
            return []


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Reaping]:
    monkeypatch.setattr(server_module, "EXITS_WITHIN", 3600.0)
    yield (made := Reaping())
    made.worker.close()


def test_successful_exits_are_reported_together(server: Reaping) -> None:
    for serial in range(1, EXITS_TOGETHER):
        server.end(serial, 0)
        assert server.said() == []
    server.end(EXITS_TOGETHER, 0)
    assert [line.split()[:3] for line in server.said()] == [["EXIT", str(n), "0"] for n in range(1, EXITS_TOGETHER + 1)]


def test_a_failed_exit_is_reported_at_once_with_the_others(server: Reaping) -> None:
    server.end(1, 0)
    server.end(2, 1)
    assert [line.split()[1] for line in server.said()] == ["1", "2"]
    assert server._patience() is None or server._tell_at == inf


def test_the_wait_is_a_moment() -> None:
    with Driver() as driver:
        driver.run("nothing")
        horse = driver.hand_out(job_fields("tests.jobs.plain.nothing"))
        while not horse.at_eof:  # nothing is sent to the fork server that could wake it
            horse.receive()
            time.sleep(0.001)
        driver.wait_until(lambda: horse.serial in driver.exits, "its EXIT")
        horse.close()


def test_a_job_and_its_successor_are_asked_for_in_one_message() -> None:
    with Driver() as driver:
        first = driver.server.fork()
        second = driver.server.fork_with_next()
        before = driver.finish(driver.hand_out(job_fields("tests.jobs.plain.nothing", timeout=""), first))
        after = driver.finish(driver.hand_out(job_fields("tests.jobs.plain.nothing"), second))
        assert before.kind == after.kind == "finished"
        horses = [driver.server.fork_with_next() for _ in range(40)]  # more than the kernel passes on in one message
        assert {driver.finish(driver.hand_out(job_fields("tests.jobs.plain.nothing"), horse)).kind for horse in horses} == {
            "finished"
        }
