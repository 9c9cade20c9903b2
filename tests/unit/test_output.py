"""What a job prints, on its way to the worker: `fusion.context.Output` and `JobStream`."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fusion import context
from fusion.context import CurrentJob, JobStream, Output, set_current_job
from tests.kit.waiting import eventually


class Worker:
    """Takes frames, unless it is stopped. `full`: as if the socket had no room."""

    def __init__(self) -> None:
        self.frames: list[dict[bytes, bytes]] = []
        self.full = False

    def offer(self, frame: dict[bytes, bytes]) -> bool:
        if not self.full:
            self.frames.append(frame)
        return not self.full

    @property
    def lines(self) -> list[str]:
        found = [line for frame in self.frames for line in frame[b"lines"].split(b"\n") if b"lines" in frame]
        return [line.partition(b" ")[2].decode() for line in found]

    @property
    def left_out(self) -> int:
        return sum(int(frame[b"left_out"]) for frame in self.frames)


@pytest.fixture
def worker() -> Worker:
    return Worker()


@pytest.fixture
def output(worker: Worker) -> Iterator[Output]:
    output = Output(worker.offer)
    yield output
    if left := output.end():
        worker.frames.append(left)


def _end(worker: Worker, output: Output) -> list[str]:
    if left := output.end():
        worker.frames.append(left)
    return worker.lines


def test_a_line_is_sent_when_it_ends(worker: Worker, output: Output) -> None:
    output.write(1, "one\n")
    assert worker.lines == ["one"]
    output.write(1, "tw")
    output.write(2, "of the other stream\n")
    assert worker.lines == ["one", "of the other stream"]
    output.write(1, "o\nthree\n\nfour")
    assert worker.lines == ["one", "of the other stream", "two", "three", ""]
    assert _end(worker, output)[-1] == "four"
    at = int(worker.frames[0][b"lines"].split(b" ")[0])
    assert abs(at / 1000 - time.time()) < 60


@pytest.mark.parametrize(
    ("pieces", "line"),
    [
        (["\r1 %", "\r2 %", "\n"], "2 %"),
        (["1 %\r2 %\r3 %\n"], "3 %"),
        (["1 %\r", "2 %\r", "\n"], ""),
        (["windows\r\n"], "windows"),
        (["y" * 3000, "z\n"], "y" * 2049),
        (["y" * 3000 + "\n"], "y" * 2049),
        (["a", "b" * 5000, "c\n"], "a" + "b" * 2048),
        (["half \ud800\n"], "half ?"),
    ],
)
def test_what_is_left_of_a_long_or_overwritten_line(worker: Worker, output: Output, pieces: list[str], line: str) -> None:
    for piece in pieces:
        output.write(1, piece)
    assert worker.lines == [line]


def test_of_very_much_only_the_end_is_kept(worker: Worker, output: Output) -> None:
    output.write(1, "begun ")
    output.write(1, "".join(f"line {n}\n" for n in range(500_000)) + "rest")
    assert worker.lines == [f"line {n}" for n in range(499_900, 500_000)]
    assert worker.left_out == 499_900
    output.write(1, "x" * 50_000_000)
    assert len(_end(worker, output)[-1]) == 2049


def test_a_run_that_writes_too_much_sends_together_and_its_last_line_comes_soon(worker: Worker, output: Output) -> None:
    before = _threads()
    for n in range(20_000):
        output.write(1, f"line {n}\n")
    eventually(lambda: worker.lines[-1:] == ["line 19999"], 2, why="the last line came, though nothing more is written")
    assert len(worker.frames) < 5_000
    lines = worker.lines
    assert lines == sorted(lines, key=lambda line: int(line.split()[1])), "in their order"
    assert len(lines) + worker.left_out == 20_000, "each is sent or counted"
    eventually(lambda: _threads() == before, 5, why="its thread ends when nothing waits")


def _threads() -> int:
    return len(os.listdir("/proc/self/task")) if sys.platform == "linux" else threading.active_count()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_at_the_end_of_a_run_no_thread_is_left(worker: Worker) -> None:
    before = _threads()
    for _ in range(20):
        output = Output(worker.offer)
        for n in range(200):
            output.write(1, f"line {n}\n")
        assert _end(worker, output)[-1] == "line 199"
        assert _threads() == before


def test_a_worker_that_takes_nothing_holds_nobody_up(worker: Worker, output: Output) -> None:
    worker.full = True
    began = time.monotonic()
    for n in range(3000):
        output.write(1, f"line {n}\n")
    assert time.monotonic() - began < 5
    worker.full = False
    assert _end(worker, output) == [f"line {n}" for n in range(2900, 3000)]
    assert worker.left_out == 2900


def test_a_signal_handler_may_print_in_the_middle(worker: Worker, output: Output) -> None:
    def handler(*_: Any) -> None:
        output.write(1, "of the handler\n")

    before = signal.signal(signal.SIGALRM, handler)
    try:
        for n in range(3000):
            if n % 50 == 0:
                signal.setitimer(signal.ITIMER_REAL, 0.0002)
            output.write(1, f"line {n}\n")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert _end(worker, output)[-1] in ("line 2999", "of the handler")


def test_many_threads_print_whole_lines(worker: Worker, output: Output) -> None:
    def say(name: str) -> None:
        for _ in range(100):
            output.write(1, f"{name * 20}\n")

    threads = [threading.Thread(target=say, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = _end(worker, output)
    assert len(lines) + worker.left_out == 400
    assert set(lines) <= {name * 20 for name in "abcd"}


def test_a_forked_process_has_no_lines(worker: Worker, output: Output) -> None:
    output.write(1, "of the parent\n")
    pid = os.fork()
    if pid == 0:
        try:
            output.write(1, "of the child\n")
            os._exit(0 if worker.lines == ["of the parent"] and output.end() == {} else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_stream_writes_where_it_wrote_and_keeps_for_the_current_job(worker: Worker, tmp_path: Path) -> None:
    with JobStream(open(tmp_path / "out", "wb"), encoding="utf-8", newline="\n") as stream:
        print("of nobody", file=stream)
        job = CurrentJob({b"id": b"a"}, offer=worker.offer)
        set_current_job(job)
        try:
            print("of", "the job", file=stream)
            stream.writelines(["one\n", "two\n"])
            with pytest.raises(TypeError):
                stream.write(b"bytes")  # type: ignore[arg-type]
            job.end()
        finally:
            set_current_job(None)
        print("after it", file=stream)
    assert (tmp_path / "out").read_text() == "of nobody\nof the job\none\ntwo\nafter it\n"
    assert worker.lines == ["of the job", "one", "two"]


def test_nothing_that_goes_wrong_on_the_way_reaches_the_task(tmp_path: Path) -> None:
    def offer(frame: object) -> bool:
        raise OSError("the task closed Fusion's socket")

    job = CurrentJob({b"id": b"a"}, offer=offer)
    job.wrote(1, "one\n")
    assert isinstance(job.output, context.Output)
    job.wrote(1, "two\n")
