"""No number that is infinite or none at all passes, wherever one is typed or stored."""

from __future__ import annotations

from datetime import timedelta

import pytest
import redis

from fusion import Job, Queue
from fusion.exceptions import DeserializationError
from fusion.kernel.timeutil import parse_seconds
from fusion.settings.readers import Invalid, percent, seconds, whole
from tests.cli.conftest import Invoke
from tests.jobs import basic

WRONG = ["nan", "inf", "-inf", "1e400", "Infinity", "9" * 400]


@pytest.mark.parametrize("number", WRONG)
@pytest.mark.parametrize(
    "command",
    [
        *(
            "health --max-age",
            "info -i",
            "suspend --duration",
            "pause sms --duration",
            "failures --older-than",
            "requeue --all --newer-than",
        ),
        *(
            "enqueue a.b --timeout",
            "enqueue a.b --ttl",
            "enqueue a.b --result-ttl",
            "enqueue a.b --failure-ttl",
            "enqueue a.b --schedule-in",
        ),
        *("enqueue a.b --retry-max 1 --retry-interval", "enqueue a.b --priority", "reschedule j", "worker sms --burst --lease"),
        *(
            "worker sms --burst --max-age",
            "worker sms --burst --max-idle-time",
            "worker sms --burst --results-ttl",
            "worker sms --burst --slots",
        ),
        *("cron next every", "scheduled --limit", "relay --burst --events-max"),
    ],
)
def test_the_command_line_takes_no_number_that_is_none(invoke: Invoke, conn: redis.Redis, command: str, number: str) -> None:
    Queue("sms").enqueue_in(60, basic.noop, job_id="j")
    words = [*command.split(), number] if not command.endswith("every") else ["cron", "next", f"every {number}"]
    done = invoke(*words, code=2)
    assert "Error" in done.stderr
    assert "Traceback" not in done.output


@pytest.mark.parametrize("number", WRONG)
def test_no_reader_of_settings_or_durations_takes_one(number: str) -> None:
    for read in (seconds(0), seconds(0, endless=True), whole(0, 10), percent):
        with pytest.raises(Invalid):
            read(number)
    for value in (number, number + "s", number + "d", float(number)):
        with pytest.raises(ValueError, match="is not a duration"):
            parse_seconds(value)
    assert parse_seconds(timedelta(seconds=1)) == 1


def test_a_stored_timeout_that_is_none_is_the_settings(conn: redis.Redis) -> None:
    job = Queue("sms").enqueue(basic.noop)
    for number in (*WRONG, "soon", ""):
        conn.hset(f"rq:job:{job.id}", "timeout", number)
        assert Job.fetch(job.id).timeout == 180


def test_stored_json_with_an_infinity_is_damaged(conn: redis.Redis) -> None:
    job = Queue("sms").enqueue(basic.noop)
    conn.hset(f"rq:job:{job.id}", "data", '["tests.jobs.basic.noop",null,[1e400],{}]')
    with pytest.raises(DeserializationError, match="1e400 is too large for a number"):
        _ = Job.fetch(job.id).args
