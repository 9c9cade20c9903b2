"""A job that waits in a horse's socket is the horse's or the worker's, whoever reads it first."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Iterator
from math import inf

import pytest

from fusion.execution.frames import FrameReader, unpack
from fusion.executors.session import HorseRun
from fusion.executors.warm_horse import PACKET, WarmHorse
from fusion.forkserver.client import ForkServerClient
from fusion.forkserver.horse import Channel
from fusion.forkserver.messages import ForkServerConfig
from fusion.store.layout.records import Claimed

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs a socket that keeps boundaries")
SERVER = ForkServerClient(ForkServerConfig(executor="pool"))


@pytest.fixture
def ends() -> Iterator[tuple[WarmHorse, socket.socket]]:
    """The worker's end, and the horse's."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    horse = WarmHorse(SERVER, 1, ours, 1 << 20, theirs.dup())
    yield horse, theirs
    horse.close()
    theirs.close()


def run(horse: WarmHorse, name: str, size: int = 10, limit: float = 1.0) -> HorseRun:
    return HorseRun(Claimed("q", "job", name, {b"data": b"x" * size}), limit, 0.0, horse=horse)


def push(horse: WarmHorse, *names: str, size: int = 10) -> list[str]:
    """Push jobs ahead, and send them; return those that found no room."""
    for name in names:
        one = run(horse, name, size)
        assert horse.push(one, ahead=True)
        horse.waiting.append(one)
        horse.owe(one, 1)
    return [left.claimed.execution_id for left in horse.send_ahead()]


def test_unread_jobs_are_taken_back_from_a_horse(ends: tuple[WarmHorse, socket.socket]) -> None:
    horse, theirs = ends
    assert push(horse, *"abc") == []
    assert unpack(theirs.recv(PACKET)[4:])[b"execution_id"] == b"a"
    assert horse.push(run(horse, "d"), ahead=True), "and not sent"
    assert horse.take_back() == {b"b", b"c", b"d"}
    assert horse.take_back() == set()
    assert push(horse, "e") == []
    assert unpack(theirs.recv(PACKET)[4:])[b"execution_id"] == b"e"


def test_each_job_goes_one_way_however_the_readers_meet(ends: tuple[WarmHorse, socket.socket]) -> None:
    horse, theirs = ends
    read: list[bytes] = []

    def serve() -> None:
        while (name := unpack(os.read(theirs.fileno(), PACKET)[4:])[b"execution_id"]) != b"end":
            read.append(name)

    reader = threading.Thread(target=serve)
    reader.start()
    taken: list[bytes] = []
    for batch in range(400):
        pushed = [f"{batch}-{n}" for n in range(8)]
        assert push(horse, *pushed) == []
        taken += horse.take_back()
    horse.push(run(horse, "end"))
    reader.join(20)
    assert sorted(read + taken) == sorted(f"{batch}-{n}".encode() for batch in range(400) for n in range(8))
    order = [tuple(map(int, name.split(b"-"))) for name in read]
    assert order == sorted(order)


def test_a_large_job_goes_in_pieces_and_never_ahead(ends: tuple[WarmHorse, socket.socket]) -> None:
    horse, theirs = ends
    assert not horse.push(run(horse, "large", 2 * PACKET), ahead=True)
    horse.push(run(horse, "large", 1_000_000))
    assert not horse.ahead
    assert horse.take_back() == set(), "its pieces are no jobs"
    reader, frame = FrameReader(1 << 21), None
    while (frame := reader.next()) is None:
        horse.flush()
        reader.feed(theirs.recv(PACKET))
    assert len(frame[b"data"]) == 1_000_000


def test_a_full_socket_takes_nothing_more_ahead(ends: tuple[WarmHorse, socket.socket]) -> None:
    horse, _ = ends
    names = [str(n) for n in range(16)]
    left = push(horse, *names, size=50_000)
    took = names[: -len(left)]
    assert left
    assert left == names[len(took) :]
    assert [run.claimed.execution_id for run in horse.waiting] == took
    assert horse.done_by(0) == len(took)
    assert horse.take_back() == {name.encode() for name in took}


def test_the_last_deadline_of_all_that_is_in_it(ends: tuple[WarmHorse, socket.socket]) -> None:
    horse, _ = ends
    first, second, endless = run(horse, "a", limit=2.0), run(horse, "b", limit=3.0), run(horse, "c", limit=inf)
    horse.owe(first, 1)
    horse.owe(second, 1)
    assert horse.done_by(10) == 15
    horse.owe(endless, 1)
    assert horse.done_by(10) == inf
    horse.owe(endless, -1)
    horse.owe(first, -1)
    assert horse.done_by(10) == 13


@pytest.mark.parametrize("kind", [socket.SOCK_SEQPACKET, socket.SOCK_STREAM])
def test_a_worker_that_died_with_an_outcome_unread_is_the_end_of_the_jobs(kind: int) -> None:
    """The kernel resets such a connection: no error of the horse, that would print a traceback for it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
    channel = Channel(theirs.fileno())
    channel.send({b"kind": b"finished"})
    ours.close()
    assert channel.receive() is None
    theirs.close()
