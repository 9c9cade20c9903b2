"""Events in the log: one line each, whatever is in them."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from fusion.cli.logs import JSONFormatter
from fusion.sinks.logs import LoggingSink, line_of
from tests.events.hands import event

HOSTILE = 'x\n{"level":"INFO"}\r\x1b[2J\x1b]0;title\x07 \u202e\u2028 end'


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """The sink's, given back as it was."""
    found = logging.getLogger("fusion.events")
    level, handlers = found.level, list(found.handlers)
    found.setLevel(logging.NOTSET)
    yield found
    found.setLevel(level)
    found.handlers = handlers


@pytest.fixture
def lines(logger: logging.Logger) -> io.StringIO:
    stream = io.StringIO()
    logger.addHandler(logging.StreamHandler(stream))
    return stream


def test_one_line_says_what_happened_to_which_job(lines: io.StringIO) -> None:
    LoggingSink().write([event(1, func_name="tasks.sms.sendSMS", message="completed in 0.120 s"), event(2, log_tag="SMS_OTP")])
    assert lines.getvalue() == "j1 tasks.sms.sendSMS: completed in 0.120 s\nj2 SMS_OTP: completed\n"


def test_neither_arguments_nor_results_are_for_logs(lines: io.StringIO) -> None:
    LoggingSink().write([event(1, payload="P4YLOAD", result="R3SULT")])
    assert "P4YLOAD" not in lines.getvalue()
    assert "R3SULT" not in lines.getvalue()


def test_hostile_texts_stay_on_their_line(lines: io.StringIO, logger: logging.Logger) -> None:
    """No text of a job can forge a line of the log."""
    hostile = event(1, func_name=HOSTILE, message=HOSTILE)
    LoggingSink().write([hostile])
    (line,) = lines.getvalue().splitlines()
    assert line.isprintable()
    as_json = io.StringIO()
    handler = logging.StreamHandler(as_json)
    handler.setFormatter(JSONFormatter())
    logger.addHandler(handler)
    LoggingSink().write([hostile])
    (line,) = as_json.getvalue().splitlines()
    assert json.loads(line)["job_id"] == "j1"


def test_a_line_has_an_end() -> None:
    assert len(line_of(event(1, message="m" * 10_000))) == 1000


def test_failures_are_logged_at_a_higher_level(logger: logging.Logger) -> None:
    levels: list[int] = []
    handler = logging.Handler()
    handler.emit = lambda record: levels.append(record.levelno)  # type: ignore[method-assign]
    logger.addHandler(handler)
    from dataclasses import replace

    LoggingSink().write([event(1), replace(event(2), event="failed"), replace(event(3), event="retry")])
    assert levels == [logging.INFO, logging.ERROR, logging.WARNING]


def test_a_quiet_relay_still_writes_events(lines: io.StringIO) -> None:
    """They were asked for by a setting of their own."""
    parent = logging.getLogger("fusion")
    before = parent.level
    parent.setLevel(logging.WARNING)
    try:
        LoggingSink().write([event(1)])
    finally:
        parent.setLevel(before)
    assert lines.getvalue()
