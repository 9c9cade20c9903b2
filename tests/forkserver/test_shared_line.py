"""The socket of a horse that runs many jobs at once: which run reads what, and that the writing of one does not stop the reading."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from fusion.execution.frames import FrameReader, pack
from fusion.forkserver.shared_line import RunLine, SharedChannel

Frame = dict[bytes, bytes]


class Horse:
    """Reads in a thread of its own, and notes what it is to do."""

    def __init__(self, fd: int) -> None:
        self.channel = SharedChannel(fd)
        self.lines: dict[bytes, RunLine] = {}
        self.stops: list[bytes] = []
        self.started = threading.Semaphore(0)
        self.thread = threading.Thread(target=self.channel.serve, args=(self,))
        self.thread.start()

    def start(self, fields: Frame, line: RunLine) -> None:
        self.lines[fields[b"execution_id"]] = line
        self.started.release()

    def stop(self, execution_id: bytes) -> None:
        self.stops.append(execution_id)


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, Horse]]:
    ours, theirs = socket.socketpair()
    horse = Horse(theirs.detach())
    with ours:
        yield ours, horse
        ours.close()
        horse.thread.join(5)


def _hear(ours: socket.socket, count: int) -> list[Frame]:
    reader, frames = FrameReader(1 << 20), list[Frame]()
    while len(frames) < count:
        reader.feed(ours.recv(65536))
        while (frame := reader.next()) is not None:
            frames.append(frame)
    return frames


def test_each_run_receives_only_its_own_frames(ends: tuple[socket.socket, Horse]) -> None:
    ours, horse = ends
    jobs = [pack({b"id": b"j", b"execution_id": name}) for name in (b"a", b"b")]
    ours.sendall(b"".join([*jobs, pack({b"kind": b"stop", b"execution_id": b"b"}), pack({b"kind": b"ping"})]))
    assert _hear(ours, 1) == [{b"kind": b"pong"}], "it reads, whatever its jobs do"
    assert horse.stops == [b"b"]
    heard: dict[bytes, bool] = {}
    waiting = [
        threading.Thread(target=lambda n=name: heard.update({n: horse.lines[n].wait_for(b"stored", b"1")}))
        for name in horse.lines
    ]
    for thread in waiting:
        thread.start()
    ours.sendall(pack({b"stored": b"1", b"execution_id": b"b"}))
    waiting[1].join(5)
    assert heard == {b"b": True}
    assert not horse.lines[b"a"].asked_to_end()
    ours.shutdown(socket.SHUT_WR)
    waiting[0].join(5)
    assert heard == {b"b": True, b"a": False} and horse.lines[b"a"].asked_to_end()


def test_frames_of_many_threads_stay_whole_and_say_of_which_run_they_are(ends: tuple[socket.socket, Horse]) -> None:
    ours, horse = ends
    names = [b"%d" % number for number in range(8)]
    ours.sendall(b"".join(pack({b"id": b"j", b"execution_id": name}) for name in names))
    for _ in names:
        assert horse.started.acquire(timeout=5)
    sent = dict.fromkeys(names, 0)

    def write(name: bytes) -> None:
        line = horse.lines[name]
        for number in range(200):
            if number % 2:
                sent[name] += line.offer({b"kind": b"log", b"message": b"x" * 500})
            else:
                line.send({b"kind": b"log", b"message": b"y" * 5000})
                sent[name] += 1

    threads = [threading.Thread(target=write, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for number in range(50):  # it reads all the while
        ours.sendall(pack({b"kind": b"stop", b"execution_id": b"%d" % number}))
    frames: list[Frame] = []
    ours.settimeout(0.2)
    reader = FrameReader(1 << 20)
    while any(thread.is_alive() for thread in threads) or reader.pending or len(frames) < sum(sent.values()):
        try:
            reader.feed(ours.recv(65536))
        except TimeoutError:
            for line in horse.lines.values():  # what an offer has left half sent goes with the next frame
                line.send({b"kind": b"last"})
            continue
        while (frame := reader.next()) is not None:
            frames.append(frame)
    found = dict.fromkeys(names, 0)
    for frame in frames:
        found[frame[b"execution_id"]] += frame[b"kind"] == b"log"
    assert found == sent
    assert horse.stops == [b"%d" % number for number in range(50)]


LARGE: Frame = {b"kind": b"meta", b"meta": b"x" * 1_000_000}


def _small(first: int, last: int) -> list[Frame]:
    return [{b"execution_id": b"b", b"kind": b"log", b"message": b"%d" % number} for number in range(first, last)]


def _fill_up(ours: socket.socket, horse: Horse) -> threading.Thread:
    """Two runs, of which `a` writes more than the socket takes: in a thread, which waits for a worker that does not read."""
    ours.settimeout(5)
    ours.sendall(b"".join(pack({b"id": b"j", b"execution_id": name}) for name in (b"a", b"b")))
    for _ in range(2):
        assert horse.started.acquire(timeout=5)
    writing = threading.Thread(target=horse.lines[b"a"].send, args=(LARGE,), daemon=True)
    writing.start()
    while not horse.channel._duty.locked():
        time.sleep(0.001)
    return writing


def test_a_send_during_another_write_does_not_block_and_is_flushed_later(ends: tuple[socket.socket, Horse]) -> None:
    ours, horse = ends
    writing = _fill_up(ours, horse)
    for frame in _small(0, 300):
        horse.lines[b"b"].send(frame)
    assert writing.is_alive()
    assert _hear(ours, 301) == [{b"execution_id": b"a", **LARGE}, *_small(0, 300)]
    writing.join(5)
    assert not writing.is_alive()


def test_frames_for_a_worker_that_does_not_read_do_not_fill_the_memory(ends: tuple[socket.socket, Horse]) -> None:
    ours, horse = ends
    writing = _fill_up(ours, horse)

    def send() -> None:
        for frame in _small(0, 1000):
            horse.lines[b"b"].send(frame)

    sending = threading.Thread(target=send, daemon=True)
    sending.start()
    sending.join(0.1)
    assert sending.is_alive() and len(horse.channel._outgoing) < 600
    assert _hear(ours, 1001) == [{b"execution_id": b"a", **LARGE}, *_small(0, 1000)]
    for thread in (writing, sending):
        thread.join(5)
        assert not thread.is_alive()


@pytest.mark.parametrize("by_cookie", [True, False])
def test_nothing_is_written_to_what_has_taken_the_number_of_the_socket(by_cookie: bool) -> None:
    ours, theirs = socket.socketpair()
    channel = SharedChannel(theirs.detach())
    if not by_cookie:  # as on a system without
        channel._cookie = b""
    other, taken = socket.socketpair()
    with ours, other, taken:
        channel.send({b"kind": b"pong"})
        os.dup2(taken.fileno(), channel.fd)
        for send in (channel.send, channel.offer):
            with pytest.raises(OSError, match="closed Fusion's socket"):
                send({b"kind": b"pong"})
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            other.recv(1)
        os.close(channel.fd)
        with pytest.raises(OSError, match=r"closed Fusion's socket|Bad file"):
            channel.send({b"kind": b"pong"})
        channel._socket.detach()


class Reader:
    """Hands out in the thread that made it, as an event loop does."""

    def __init__(self, fd: int) -> None:
        self.channel, self.lines = SharedChannel(fd), list[RunLine]()
        self.channel.attach(self)

    def start(self, fields: Frame, line: RunLine) -> None:
        self.lines.append(line)

    def stop(self, execution_id: bytes) -> None:
        pass


def test_a_wait_in_the_reading_thread_delivers_frames_of_others() -> None:
    """And whoever was woken for what it has heard finds nothing, and waits for nothing."""
    ours, theirs = socket.socketpair()
    reader = Reader(theirs.detach())
    with ours:
        ours.sendall(pack({b"id": b"j", b"execution_id": b"a"}))
        assert reader.channel.hear()
        ours.sendall(pack({b"id": b"k", b"execution_id": b"b"}) + pack({b"stored": b"1", b"execution_id": b"a"}))
        assert reader.lines[0].wait_for(b"stored", b"1")
        assert [line.execution_id for line in reader.lines] == [b"a", b"b"]
        assert reader.channel.hear(wait=False)
    assert not reader.channel.hear(wait=False)
    assert not reader.lines[1].wait_for(b"stored", b"1")
