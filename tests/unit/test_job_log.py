"""What a worker's lines hold of a job, and what they never do."""

from __future__ import annotations

import logging

import pytest
from redis.exceptions import ResponseError

from fusion.execution.completion import Decision, decide, died
from fusion.runtime.job_log import JobLog, one_line
from fusion.store.client.classify import one_line as told
from fusion.store.layout.records import Claimed
from fusion.worker import outcomes

NASTY = 'sms\n{"level": "INFO"}\r\x1b[2J\u2028\u202e'
OUTCOME = {
    b"kind": b"failed",
    b"exc_line": b"ValueError: not swordfish",
    b"exc_info": b"Traceback ... ValueError: not swordfish",
    b"exc_classes": b"builtins.ValueError\nbuiltins.Exception\nbuiltins.BaseException",
    b"error_frame": b"shop.tasks:send:42",
}


def claimed(queue: str = "sms", **fields: bytes) -> Claimed:
    return Claimed(queue, "job-1", "1:1:1", {b"description": b"d", **{name.encode(): value for name, value in fields.items()}})


def lines(
    caplog: pytest.LogCaptureFixture, decision: Decision, job: Claimed, *, messages: bool = False, answer: str = "ok"
) -> str:
    caplog.clear()
    with caplog.at_level(logging.INFO, "job_log"):
        JobLog(logging.getLogger("job_log"), True, messages=messages).committed(job, decision, answer)
    return "\n".join(record.getMessage() for record in caplog.records)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"retryCount": b"10"}, "sms: job job-1 failed: ValueError at shop.tasks:send:42"),
        ({"retry": b'{"max": 3, "interval": [0]}'}, "sms: job job-1 failed, retry in 0 s: ValueError at shop.tasks:send:42"),
    ],
)
def test_an_error_is_its_class_and_place(caplog: pytest.LogCaptureFixture, fields: dict[str, bytes], said: str) -> None:
    job = claimed(**fields)
    decision = decide(job.fields, OUTCOME)
    assert lines(caplog, decision, job) == said
    assert lines(caplog, decision, job, messages=True) == said.replace(
        "ValueError at shop.tasks:send:42", "ValueError: not swordfish"
    )


def test_an_error_of_a_library_alone_has_no_place(caplog: pytest.LogCaptureFixture) -> None:
    job = claimed(retryCount=b"10")
    decision = decide(job.fields, {name: value for name, value in OUTCOME.items() if name != b"error_frame"})
    assert lines(caplog, decision, job).endswith("failed: ValueError")


def test_fusions_own_errors_are_shown_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    job = claimed(retryCount=b"10")
    decision = died(job.fields, "work-horse exited with code 7 without a result")
    assert lines(caplog, decision, job).endswith(
        "failed: fusion.exceptions.WorkHorseTerminated: work-horse exited with code 7 without a result [FUS-150]"
    )


def test_a_field_that_can_not_be_read_is_not_quoted(caplog: pytest.LogCaptureFixture) -> None:
    job = claimed(retry=b'{"max": "swordfish"}')
    decision = outcomes.of_frame(job.fields, OUTCOME)
    assert "swordfish" in decision.reason
    assert "swordfish" not in lines(caplog, decision, job)
    decision = outcomes.no_time_limit(ValueError("could not convert string to float: 'swordfish'"))
    assert lines(caplog, decision, job).endswith("failed: corrupt: its timeout is not a number of seconds")


def test_each_line_is_one_whatever_the_names_are(caplog: pytest.LogCaptureFixture) -> None:
    job = claimed(NASTY, description=NASTY.encode())
    for decision in (Decision("finished"), Decision("failed", NASTY), Decision("retry", NASTY), Decision("lost", NASTY)):
        for answer in ("ok", "stale", "gone", f"error: {NASTY}"):
            assert lines(caplog, decision, job, answer=answer).isprintable()
    with caplog.at_level(logging.INFO, "job_log"):
        job_log = JobLog(logging.getLogger("job_log"), True)
        job_log.started(job)
        job_log.bad_queue(NASTY, NASTY)
    assert all(record.getMessage().isprintable() for record in caplog.records)
    assert one_line(NASTY).isprintable()
    assert one_line("plain") == "plain"


def test_arguments_quoted_by_a_server_error_are_left_out() -> None:
    error = ResponseError("unknown command 'EVALSHA', with args beginning with: 'swordfish' '1' ")
    assert "swordfish" not in told(error)
    assert "EVALSHA" in told(error)
