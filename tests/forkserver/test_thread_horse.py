"""A process that runs its jobs in threads, without a worker and a fork server."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fusion.execution.frames import FrameReader, pack, unpack
from tests.forkserver.driver import ROOT, job_fields

Frame = dict[bytes, bytes]
BASIC, BESIDE, LONG, SAYING, STOPPING = (f"tests.jobs.{name}." for name in ("basic", "beside", "long", "saying", "stopping"))
_BOOT = """
import sys
from fusion.execution.perform import Performer
from fusion.forkserver.horse import HorseSettings
from fusion.forkserver.thread_horse import run_jobs
settings = HorseSettings()
settings.performer = Performer(("tests.jobs",))
sys.exit(run_jobs(int(sys.argv[1]), settings))
"""
_FEW_THREADS = """
import threading
start = threading.Thread.start
def start_some(thread):
    if threading.active_count() > 4:
        raise RuntimeError("can't start new thread")
    start(thread)
threading.Thread.start = start_some
"""


class Horse:
    """Such a process, and the worker's end of its socket."""

    def __init__(self, before: str = "") -> None:
        self._end, theirs = socket.socketpair()
        with theirs:
            fd = theirs.fileno()
            self.process = subprocess.Popen(
                [sys.executable, "-c", before + _BOOT, str(fd)], pass_fds=(fd,), cwd=ROOT, stdout=subprocess.PIPE
            )
        self._reader = FrameReader(1 << 26)
        self._frames: list[Frame] = []
        self._number = 0

    def give(self, func: str, *args: Any, **fields: Any) -> bytes:
        """Start a job. Returns its execution."""
        self._number += 1
        execution = b"%d:0:0" % self._number
        self.say({**job_fields(func, *args, **fields), b"id": b"job-%d" % self._number, b"execution_id": execution})
        return execution

    def say(self, fields: Frame) -> None:
        self._end.sendall(pack(fields))

    def wait_for(self, wanted: Callable[[Frame], bool], seconds: float = 20) -> Frame:
        """The first frame of this kind; others stay for later."""
        until = time.monotonic() + seconds
        while True:
            for frame in self._frames:
                if wanted(frame):
                    self._frames.remove(frame)
                    return frame
            self._end.settimeout(max(0.001, until - time.monotonic()))
            data = self._end.recv(1 << 16)
            assert data, "it ended"
            self._reader.feed(data)
            while (frame_ := self._reader.next()) is not None:
                self._frames.append(frame_)

    def outcome(self, execution: bytes) -> Frame:
        last = self.wait_for(lambda frame: frame.get(b"execution_id") == execution and b"elapsed" in frame)
        stood = next((frame for frame in self.of(execution) if frame[b"kind"] == b"stands"), None)
        if stood is None:
            return last
        self._frames.remove(stood)
        return {**unpack(stood[b"frame"][4:]), **last}

    def of(self, execution: bytes) -> list[Frame]:
        """What it has said of this run, and nobody has heard yet."""
        return [frame for frame in self._frames if frame.get(b"execution_id") == execution]

    def finish(self) -> None:
        self._end.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._end.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@pytest.fixture(scope="module")
def horse() -> Iterator[Horse]:
    made = Horse()
    made.say({b"kind": b"ping"})
    made.wait_for(lambda frame: frame.get(b"kind") == b"pong")  # it has imported all by now: tests look at the time
    yield made
    made.close()
    assert made.process.returncode == 0


def test_jobs_run_at_once_and_each_is_the_current_one_of_its_thread(horse: Horse) -> None:
    begun = time.monotonic()
    runs = [horse.give(BESIDE + "slowly", number, on_success='{"func": "tests.jobs.beside.note"}') for number in range(20)]
    for number, execution in enumerate(runs):
        answer = horse.outcome(execution)
        name = execution.split(b":")[0]
        assert answer[b"result"] == b'["job-%b","job-%b",null]' % (name, name), answer
        assert answer[b"meta"] == b'{"number":%d,"noted":"job-%b"}' % (number, name)
        assert [frame[b"kind"] for frame in horse.of(execution)] == [b"meta", b"callback"]
    assert time.monotonic() - begun < 0.05 * 20, "one after another would take longer"


def test_threads_are_used_again_and_no_context_of_the_last_job_is_left(horse: Horse) -> None:
    names = {horse.outcome(horse.give(BESIDE + "thread"))[b"result"] for _ in range(60)}
    assert len(names) <= 20, "there were no more at once in the test before"
    assert {horse.outcome(horse.give(BESIDE + "precision"))[b"result"] for _ in range(5)} == {b"28"}


def test_lines_of_the_log_progress_and_cursors_are_of_their_run(horse: Horse, tmp_path: Path) -> None:
    said = [(word, horse.give(SAYING + "say", word)) for word in ("one", "two", "three")]
    dropped = 0
    for word, execution in said:
        # A line waits 20 ms for another thread that writes, and is then dropped and counted: that happens on a busy machine.
        counted = int(horse.outcome(execution).get(b"unsaid", 0))
        assert [frame[b"message"] for frame in horse.of(execution)] == [word.encode()][counted:]
        dropped += counted
    assert dropped < 3
    runs = [horse.give(LONG + "checkpoints", str(tmp_path / str(number)), number, "") for number in range(5)]
    for number, execution in reversed(list(enumerate(runs))):
        report = horse.wait_for(lambda frame, e=execution: frame.get(b"wait") and frame[b"execution_id"] == e)  # type: ignore[misc]
        assert report[b"cursor"] == b"%d" % number
        horse.say({b"stored": report[b"wait"], b"execution_id": execution})
        assert horse.outcome(execution)[b"result"] == b"%d" % number


def test_a_soft_timeout_ends_one_and_not_its_neighbour(horse: Horse) -> None:
    long = horse.give(BESIDE + "turns", 1.0)
    short = horse.give(BESIDE + "turns", 20, timeout="0.1", on_failure='{"func": "tests.jobs.beside.failed"}')
    answer = horse.outcome(short)
    assert (
        answer[b"exc_line"]
        == b"fusion.exceptions.JobTimeoutException: Task exceeded maximum timeout value (0.1 seconds) [FUS-157]"
    )
    assert answer[b"exc_classes"].split(b"\n")[0] == b"fusion.exceptions.JobTimeoutException"
    text = answer[b"exc_info"].decode()
    assert "in turns" in text and "striking" not in text and "perform" not in text, text
    assert [frame[b"kind"] for frame in horse.of(short)] == [b"tainted", b"callback"]
    assert b"callback_error" not in answer and b"failed" in answer[b"meta"]
    assert horse.outcome(long)[b"result"] == b"1.0" and not horse.of(long)


def test_a_task_that_checks_ends_cleanly_at_its_timeout(horse: Horse) -> None:
    timed = horse.give(BESIDE + "checks", timeout="0.2")
    stopped = horse.give(BESIDE + "checks")
    time.sleep(0.1)
    horse.say({b"kind": b"stop", b"execution_id": stopped})
    assert horse.outcome(timed)[b"exc_line"].startswith(b"fusion.exceptions.JobTimeoutException: Task")
    assert horse.outcome(stopped)[b"kind"] == b"stopped"
    assert not horse.of(timed) and not horse.of(stopped)


def test_a_stop_ends_one_job_with_its_callback(horse: Horse) -> None:
    other = horse.give(BESIDE + "turns", 0.5)
    stopped = horse.give(BESIDE + "turns", 20, on_stopped='{"func": "tests.jobs.beside.stopped"}')
    time.sleep(0.1)
    horse.say({b"kind": b"stop", b"execution_id": stopped})
    answer = horse.outcome(stopped)
    assert answer[b"kind"] == b"stopped" and b"stopped" in answer[b"meta"], answer
    assert [frame[b"kind"] for frame in horse.of(stopped)] == [b"tainted", b"callback"]
    assert horse.outcome(other)[b"kind"] == b"finished"


def test_a_coroutine_is_ended_by_its_loop(horse: Horse, tmp_path: Path) -> None:
    path = tmp_path / "seen"
    execution = horse.give(STOPPING + "awaits", str(path))
    while not path.exists() or "here" not in path.read_text():
        time.sleep(0.01)
    horse.say({b"kind": b"stop", b"execution_id": execution})
    assert horse.outcome(execution)[b"kind"] == b"stopped"
    assert "cleaned" in path.read_text() and not horse.of(execution), "its clean-up awaits, and nothing is tainted"


def test_a_thread_horse_answers_pings_under_load(horse: Horse) -> None:
    busy = [horse.give(BESIDE + "turns", 0.5) for _ in range(4)]
    horse.say({b"kind": b"ping"})
    horse.wait_for(lambda frame: frame.get(b"kind") == b"pong", 2)
    for execution in busy:
        horse.outcome(execution)


def test_a_process_forked_by_a_task_reports_no_outcome(horse: Horse) -> None:
    execution = horse.give(BESIDE + "forks")
    assert horse.outcome(execution)[b"result"] == b"0"
    assert not horse.of(execution)


def test_the_end_of_the_stream_lets_jobs_finish_and_ends_it() -> None:
    horse = Horse()
    try:
        slow = horse.give(BESIDE + "turns", 0.4)
        quick = horse.give(BASIC + "echo", "x" * 200_000)
        says = horse.give(BESIDE + "prints", "a line of a task")
        long = horse.give(LONG + "slow_steps", os.devnull, 1000, 0.01)
        assert len(horse.outcome(quick)[b"result"]) > 1000
        horse.finish()
        assert horse.outcome(long)[b"kind"] == b"interrupted"
        assert horse.outcome(slow)[b"kind"] == b"finished"
        assert horse.outcome(says)[b"kind"] == b"finished"
        assert horse.process.wait(5) == 0
        assert horse.process.stdout is not None
        assert horse.process.stdout.read() == b"a line of a task\n"
    finally:
        horse.close()


def test_jobs_wait_for_a_thread_if_the_system_has_no_more() -> None:
    horse = Horse(_FEW_THREADS)
    try:
        runs = [horse.give(BESIDE + "turns", 0.05) for _ in range(12)]
        for execution in runs:
            assert horse.outcome(execution)[b"kind"] == b"finished"
        assert len({horse.outcome(horse.give(BESIDE + "thread"))[b"result"] for _ in range(5)}) <= 3
    finally:
        horse.close()
    assert horse.process.returncode == 0
