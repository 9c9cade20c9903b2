"""The default log: lines of jobs are what `logging` would have written, byte for byte and in its order, whatever happens to stderr."""

from __future__ import annotations

import io
import logging
import os
import select
import sys
import time
from collections.abc import Callable
from typing import TextIO

import pytest

from fusion.execution.completion import Decision
from fusion.kernel.defaults import QUEUE
from fusion.runtime.terminal_log import DATE_FORMAT
from fusion.store.layout.records import Claimed
from tests.kit.default_log import DefaultLog, job, memory, written

TEXTS = (
    "", "plain", "%s %d %(message)s", "{braces}", "Überfluß", "語" * 300, "a\nb\r\x1b[2J", "\u2028\u202e\u0000\x7f", "\udcff\ud800", "🙂" * 150,
    "x" * 5000, "\xa0 \xad", "'\"\\",
)  # fmt: skip


@pytest.fixture
def stream() -> io.TextIOWrapper:
    return memory()


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_700_000_000.25)
    monkeypatch.setattr(time, "time_ns", lambda: 1_700_000_000_250_000_000)


def say_all(log: DefaultLog) -> None:
    """Each kind of line."""
    for number, text in enumerate(TEXTS):
        claimed = job(text, text or QUEUE, number)
        log.jobs.started(claimed)
        for decision in (Decision("finished"), Decision("failed", text), Decision("retry", text), Decision("lost", text)):
            for answer in ("ok", "stale", "gone", f"error: {text}"):
                log.jobs.committed(claimed, decision, answer)
        log.jobs.started(Claimed(QUEUE, text or "id", "1", {}))
        log.jobs.lost(claimed)
        log.jobs.suspended(number % 2 == 0)


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1", "utf-16"])
def test_the_bytes_are_the_same(encoding: str) -> None:
    def bytes_of(say: Callable[[DefaultLog], object]) -> bytes:
        stream = io.TextIOWrapper(io.BytesIO(), encoding, errors="backslashreplace", newline="")
        say(DefaultLog(stream))
        return written(stream)

    def together(log: DefaultLog) -> None:
        with log.jobs.batch:
            say_all(log)

    assert bytes_of(together) == bytes_of(say_all)


def test_lines_of_a_batch_go_out_in_one_write(stream: TextIO, monkeypatch: pytest.MonkeyPatch) -> None:
    log, writes = DefaultLog(stream), []
    monkeypatch.setattr(log.handler, "stream", Sink(writes.append))
    with log.jobs.batch:
        for number in range(5):
            log.jobs.started(job(number=number))
            log.jobs.committed(job(number=number), Decision("finished"), "ok")
        assert writes == []
    assert [text.count("\n") for text in writes] == [10]


class Sink(io.StringIO):
    """A stream that hands on what is written."""

    def __init__(self, take: Callable[[str], object]) -> None:
        super().__init__()
        self.take = take

    def write(self, text: str) -> int:
        self.take(text)
        return len(text)


def test_no_write_is_larger_than_what_a_pipe_takes_in_one_piece(stream: TextIO) -> None:
    log, writes = DefaultLog(stream), []
    log.handler.setStream(Sink(writes.append))
    with log.jobs.batch:
        for number in range(200):
            log.jobs.started(job("語" * (number % 60), number=number))
    assert sum(text.count("\n") for text in writes) == 200
    assert max(len(text.encode()) for text in writes) <= select.PIPE_BUF
    assert len(writes) < 20


def test_nothing_is_held_outside_a_batch(stream: TextIO) -> None:
    log = DefaultLog(stream)
    log.jobs.started(job())
    assert written(stream).endswith(b"default: shop.send(1) (job-1)\n")


def test_batched_lines_are_written_before_a_later_record(stream: TextIO) -> None:
    log = DefaultLog(stream)
    with log.jobs.batch:
        log.jobs.started(job("one"))
        log.jobs.committed(job(), Decision("failed", "two"), "ok")
        log.jobs.started(job("three"))
        log.parent.info("four")
        log.jobs.started(job("five"))
    words = [line.split(" ", 1)[1] for line in written(stream).decode().splitlines()]
    assert [next(w for w in ("one", "two", "three", "four", "five") if w in line) for line in words] == [
        "one", "two", "three", "four", "five",
    ]  # fmt: skip


def _end_badly(log: DefaultLog) -> None:
    with log.jobs.batch:
        log.jobs.started(job())
        raise ZeroDivisionError


@pytest.mark.parametrize("how", ["flush", "setStream", "shutdown", "exit"])
def test_batched_lines_are_written_before_the_process_ends(stream: TextIO, how: str) -> None:
    log = DefaultLog(stream)
    if how == "exit":
        with pytest.raises(ZeroDivisionError):
            _end_badly(log)
    else:
        log.jobs.batch.__enter__()
        log.jobs.started(job())
        assert written(stream) == b""
        if how == "setStream":
            log.handler.setStream(io.StringIO())
        elif how == "shutdown":
            logging.shutdown([lambda: log.handler])  # type: ignore[list-item]
        else:
            log.handler.flush()
    assert written(stream).count(b"\n") == 1


# -- streams in trouble


def test_a_letter_that_the_stream_lacks_costs_its_line_alone(capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), "ascii", errors="strict", newline="")
    log = DefaultLog(stream)
    with log.jobs.batch:
        for text in ("one", "Ü", "two"):
            log.jobs.started(job(text))
    assert [line.split()[2] for line in written(stream).decode().splitlines()] == ["one", "two"]
    said = capsys.readouterr().err
    assert said.count("--- Logging error ---") == 1
    assert "UnicodeEncodeError" in said


@pytest.mark.parametrize("raises", [True, False])
def test_a_stream_that_is_closed_or_missing_harms_nobody(
    stream: TextIO, raises: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", raises)
    log = DefaultLog(stream)
    stream.close()
    for _ in range(2):
        with log.jobs.batch:
            log.jobs.started(job())
            log.jobs.started(job())
    assert capsys.readouterr().err.count("--- Logging error ---") == 4 * raises
    log.handler.stream = None  # type: ignore[assignment]  # as where descriptor 2 is closed
    with log.jobs.batch:
        log.jobs.started(job())
    assert capsys.readouterr().err.count("AttributeError") == raises


def test_a_process_without_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    log = DefaultLog(io.StringIO())
    log.handler.stream = None  # type: ignore[assignment]  # as where descriptor 2 is closed
    with log.jobs.batch:
        log.jobs.started(job())


def test_a_full_pipe_that_does_not_wait_loses_no_more_than_it_must(capsys: pytest.CaptureFixture[str]) -> None:
    """What its buffer takes comes later, as with `logging`; it neither waits nor raises."""
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    os.set_blocking(reads, False)
    try:
        while select.select([], [writes], [], 0)[1]:
            os.write(writes, b"." * 4096)
        stream = io.TextIOWrapper(io.BufferedWriter(io.FileIO(writes, "w", closefd=False)), "utf-8", line_buffering=True)
        log = DefaultLog(stream)
        with log.jobs.batch:
            log.jobs.started(job("held up"))
        assert "BlockingIOError" in capsys.readouterr().err
        while os.read(reads, 65536).endswith(b"." * 4096):
            if not select.select([reads], [], [], 0)[0]:
                break
        with log.jobs.batch:
            log.jobs.started(job("later"))
        text = os.read(reads, 65536).decode()
        assert [line.split()[2:3] for line in text.splitlines()] == [["held"], ["later"]]
    finally:
        os.close(reads)
        os.close(writes)


def _say_many(log: DefaultLog) -> None:
    for turn in range(500):
        with log.jobs.batch:
            for number in range(16):
                log.jobs.started(job(number=turn * 16 + number))


def test_a_slow_reader_of_the_pipe_gets_every_line() -> None:
    reads, writes = os.pipe()
    pid = os.fork()
    if not pid:
        code = 1
        try:
            os.close(reads)
            _say_many(DefaultLog(io.TextIOWrapper(io.BufferedWriter(io.FileIO(writes, "w")), "utf-8", line_buffering=True)))
            code = 0
        finally:
            os._exit(code)
    os.close(writes)
    got = b""
    while chunk := os.read(reads, 1000):
        got += chunk
    os.close(reads)
    assert os.waitpid(pid, 0)[1] == 0
    assert [line.split(b"-")[-1] for line in got.splitlines()] == [b"%d)" % number for number in range(8000)]


def test_a_line_has_the_time_at_which_it_was_said(stream: TextIO, monkeypatch: pytest.MonkeyPatch) -> None:
    log = DefaultLog(stream)
    with log.jobs.batch:
        log.jobs.started(job())
        monkeypatch.setattr(time, "time", lambda: 1_700_000_061.0)
        log.jobs.started(job())
    clocks = [line[:8].decode() for line in written(stream).splitlines()]
    assert clocks == [time.strftime(DATE_FORMAT, time.localtime(second)) for second in (1_700_000_000, 1_700_000_061)]
