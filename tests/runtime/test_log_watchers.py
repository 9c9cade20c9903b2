"""Whoever means to see records of jobs gets them, from whichever moment: handlers, filters, levels, formats, libraries that watch `logging`."""

from __future__ import annotations

import io
import logging
import time
from collections.abc import Callable
from typing import Any, TextIO

import pytest

from fusion.runtime.terminal_log import DATE_FORMAT, LOG_FORMAT, LineBatch
from tests.kit.default_log import DefaultLog, job, memory, written


@pytest.fixture
def stream() -> io.TextIOWrapper:
    return memory()


class Records(logging.Handler):
    """Keeps what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def _another_handler(log: DefaultLog, other: Records) -> None:
    log.parent.addHandler(other)


def _a_handler_of_its_own(log: DefaultLog, other: Records) -> None:
    log.logger.addHandler(other)


def _a_root(log: DefaultLog, other: Records) -> None:
    log.parent.parent, log.parent.propagate = logging.getLogger(f"{log.parent.name}-root"), True
    log.parent.parent.propagate = False
    log.parent.parent.addHandler(other)


def _another_instead(log: DefaultLog, other: Records) -> None:
    log.parent.handlers = [other]


@pytest.mark.parametrize("change", [_another_handler, _a_handler_of_its_own, _a_root, _another_instead])
def test_another_handler_gets_records_from_then_on(stream: TextIO, change: Callable[[DefaultLog, Records], None]) -> None:
    log, other = DefaultLog(stream), Records()
    with log.jobs.batch:
        log.jobs.started(job("before"))
        change(log, other)
        log.jobs.started(job("amid"))
        assert b"before" in written(stream)  # no later than what follows
        log.logger.handlers.clear()
        log.parent.handlers[:] = [log.handler]
        if log.parent.parent and log.parent.propagate:
            log.parent.parent.handlers.clear()
        log.jobs.started(job("after"))
    assert [word for word in ("before", "amid", "after") if any(word in message for message in other.messages)] == ["amid"]
    text = written(stream).decode()
    assert [text.count(word) for word in ("before", "amid", "after")] == [1, change is not _another_instead, 1]


class Deaf(logging.Filter):
    """Lets nothing pass."""

    def __init__(self, seen: list[str]) -> None:
        super().__init__()
        self.seen = seen

    def filter(self, record: logging.LogRecord) -> bool:
        self.seen.append(record.getMessage())
        return False


def _filter_of_logger(log: DefaultLog, seen: list[str]) -> None:
    log.logger.addFilter(Deaf(seen))


def _filter_of_handler(log: DefaultLog, seen: list[str]) -> None:
    log.handler.addFilter(Deaf(seen))


def _level_of_logger(log: DefaultLog, seen: list[str]) -> None:
    log.logger.setLevel(logging.WARNING)
    seen.append("x")


def _level_of_handler(log: DefaultLog, seen: list[str]) -> None:
    log.handler.setLevel(logging.WARNING)
    seen.append("x")


def _disabled(log: DefaultLog, seen: list[str]) -> None:
    log.logger.disabled = True
    seen.append("x")


@pytest.mark.parametrize("change", [_filter_of_logger, _filter_of_handler, _level_of_logger, _level_of_handler, _disabled])
def test_a_filter_that_drops_records_drops_batched_lines_too(
    stream: TextIO, change: Callable[[DefaultLog, list[str]], None]
) -> None:
    log, seen = DefaultLog(stream), list[str]()
    with log.jobs.batch:
        log.jobs.started(job("before"))
        change(log, seen)
        log.jobs.started(job("amid"))
    assert seen
    assert (b"before" in written(stream), b"amid" in written(stream)) == (True, False)


class Loud(logging.Formatter):
    """Another format."""

    def format(self, record: logging.LogRecord) -> str:
        return super().format(record).upper()


def _formatter(log: DefaultLog) -> None:
    log.handler.setFormatter(Loud(LOG_FORMAT, DATE_FORMAT))


def _no_formatter(log: DefaultLog) -> None:
    log.handler.setFormatter(None)


def _other_format(log: DefaultLog) -> None:
    log.handler.setFormatter(logging.Formatter("%(levelname)s %(worker)s %(message)s", DATE_FORMAT))


def _other_date(log: DefaultLog) -> None:
    log.handler.setFormatter(logging.Formatter(LOG_FORMAT, "%H.%M"))


def _changed_date(log: DefaultLog) -> None:
    assert log.handler.formatter
    log.handler.formatter.datefmt = "%d"


def _utc(log: DefaultLog) -> None:
    assert log.handler.formatter
    log.handler.formatter.converter = time.gmtime


def _other_ends(log: DefaultLog) -> None:
    log.handler.terminator = ";\r\n"


@pytest.mark.parametrize(
    "change", [_formatter, _no_formatter, _other_format, _other_date, _changed_date, _utc, _other_ends]
)  # fmt: skip
def test_another_format_is_kept(change: Callable[[DefaultLog], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tehran")
    time.tzset()
    try:
        found = []
        for in_batch in (True, False):
            stream = io.TextIOWrapper(io.BytesIO(), "utf-8", newline="")
            log = DefaultLog(stream)
            log.jobs.batch._is_open = False
            if in_batch:
                log.jobs.batch.__enter__()
            log.jobs.started(job("before"))
            log.handler.flush()
            change(log)
            log.jobs.started(job("amid"))
            log.handler.flush()
            found.append(written(stream))
        assert found[0] == found[1]
        assert found[0].count(b"before") == found[0].lower().count(b"amid") == 1
    finally:
        monkeypatch.undo()
        time.tzset()


def test_libraries_that_collect_records_get_them(stream: TextIO, monkeypatch: pytest.MonkeyPatch) -> None:
    """They replace a method, or the class of records."""
    log, seen = DefaultLog(stream), list[str]()
    handle = logging.Logger.callHandlers

    def collect(self: logging.Logger, record: logging.LogRecord) -> None:
        seen.append(record.getMessage())
        handle(self, record)

    monkeypatch.setattr(logging.Logger, "callHandlers", collect)
    with log.jobs.batch:
        log.jobs.started(job("patched"))
    monkeypatch.undo()
    with log.jobs.batch:
        log.jobs.started(job("plain"))
    before = logging.getLogRecordFactory()

    def make(*args: Any, **options: Any) -> logging.LogRecord:
        record = before(*args, **options)
        seen.append(record.getMessage())
        return record

    logging.setLogRecordFactory(make)
    try:
        with log.jobs.batch:
            log.jobs.started(job("made"))
    finally:
        logging.setLogRecordFactory(before)
    assert [message.split()[1] for message in seen] == ["patched", "made"]
    assert written(stream).count(b"\n") == 3


def test_a_batch_needs_a_default_handler_somewhere() -> None:
    logger = logging.getLogger("terminal-log-alone")
    logger.propagate = False
    logger.setLevel(logging.INFO)
    with LineBatch(logger) as batch:
        assert not batch.add("x")
