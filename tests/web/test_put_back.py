"""Putting an ended job back with a delay: the script, the wrapper, and `POST /retryTask/`."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path

import pytest
import redis

from fusion import Job
from fusion.exceptions import InvalidJobOperation, InvalidName, NoSuchJobError
from fusion.kernel import defaults
from fusion.store.scripting.constants import FleetConstants
from fusion.store.write.broker import Broker
from fusion.web.putback import DELAY
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import Hand, drain, events_of, everything, fields_of, ids, now_ms, promote_all, put, status_of
from tests.kit.witnesses import runs_of
from tests.kit.workers import Workers
from tests.web.conftest import Fail
from tests.web.harness import Answer, ServerProcess, Tokens
from wrappers.retry_task import retry_task

SCHEDULE = "rq:scheduler:scheduled_jobs"


# -- the script


def test_it_waits_in_the_schedule_from_the_first_moment(broker: Broker, conn: redis.Redis, fail: Fail) -> None:
    fail("a", ttl=60, priority=2)
    begin = now_ms(conn)
    assert broker.requeue(["a"], "n", delay=120) == ["ok"]
    due = conn.zscore(SCHEDULE, "a") * 1000
    assert begin + 120_000 <= due <= now_ms(conn) + 120_000
    found = fields_of(conn, "a")
    assert (found["status"], found["seq"], found["retryCount"], found["requeued"]) == ("scheduled", "", "7", "1")
    assert int(found["expires_at"]) == pytest.approx(due + 60_000, abs=1), "its ttl begins when it is due"
    assert not {"exc_info", "error_class", "ended_at", "reason"} & set(found)
    assert conn.ttl("rq:job:a") == -1
    assert conn.exists("rq:wake:_scheduler") == 1, "a scheduler that sleeps for longer is woken"
    assert conn.exists("rq:wake:sms") == 1, "left by enqueue"
    last = events_of(conn, "a")[-1]
    assert (last["event"], last["reason"]) == ("scheduled", "requeued")
    assert last["due"].endswith("Z")
    assert check_conservation(conn, ["a"]) == {"a": "scheduled"}
    assert broker.promote()[:2] == (0, pytest.approx(120, abs=5))
    assert Hand(broker, "sms").claim() == []


def test_it_is_a_new_arrival_when_it_is_due(broker: Broker, conn: redis.Redis, fail: Fail) -> None:
    fail("a")
    fail("kept")
    put(broker, "sms", "before")
    assert broker.requeue(["a"], "n", delay=60) == ["ok"]
    assert broker.requeue(["kept"], "n", delay=60, keep_place=True) == ["ok"]
    put(broker, "sms", "after")
    promote_all(broker, conn)
    put(broker, "sms", "last")
    assert drain(Hand(broker, "sms"), 1) == ["kept", "before", "after", "a", "last"]


def test_a_job_of_the_list_queue_is_requeued_with_a_delay(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "scheduler", "s")
    hand = Hand(broker, "scheduler")
    hand.tell(hand.take(), "failed", reason="r")
    assert broker.requeue(["s"], "n", delay=60) == ["ok"]
    assert check_conservation(conn, ["s"]) == {"s": "scheduled"}
    promote_all(broker, conn)
    assert ids(hand.claim()) == ["s"]


def test_a_resend_changes_nothing(broker: Broker, conn: redis.Redis, fail: Fail) -> None:
    fail("a")
    assert broker.requeue(["a"], "n", delay=60) == ["ok"]
    before = everything(conn)
    conn.script_flush()
    assert broker.requeue(["a"], "n", delay=60) == ["ok"]
    assert everything(conn) == before
    assert broker.requeue(["a"], "other", delay=60) == ["scheduled"]
    promote_all(broker, conn)
    assert broker.requeue(["a"], "n", delay=60) == ["ok"], "whatever happened to it since"
    assert status_of(conn, "a") == "queued"


@pytest.mark.parametrize("broken", [SCHEDULE, "rq:queues"])
def test_a_broken_key_leaves_it_where_it_was(broker: Broker, conn: redis.Redis, fail: Fail, broken: str) -> None:
    fail("a")
    conn.delete(broken)
    conn.set(broken, "a text")
    before = everything(conn)
    (answer,) = broker.requeue(["a"], "n", delay=60)
    assert answer.startswith("error: WRONGTYPE")
    assert everything(conn) == before


def test_without_a_delay_it_is_as_before(broker: Broker, conn: redis.Redis, fail: Fail) -> None:
    fail("a")
    assert broker.requeue(["a"], "n") == ["ok"]
    assert check_conservation(conn, ["a"]) == {"a": "queued"}
    assert conn.exists(SCHEDULE) == 0


# -- the wrapper


@pytest.mark.parametrize(("given", "seconds"), [((), 120), ((5,), 5), (("5m",), 300), ((timedelta(seconds=7),), 7), ((0,), 0)])
def test_the_service_puts_a_task_back_itself(conn: redis.Redis, fail: Fail, given: tuple[float], seconds: float) -> None:
    assert DELAY == 120
    fail("a")
    begin = now_ms(conn) / 1000
    retry_task("a", *given, connection=conn)
    if seconds:
        assert begin + seconds <= conn.zscore(SCHEDULE, "a") <= now_ms(conn) / 1000 + seconds
    assert status_of(conn, "a") == ("scheduled" if seconds else "queued")


def test_what_the_service_is_told_when_it_cannot_be(conn: redis.Redis, fail: Fail) -> None:
    fail("a")
    retry_task("a", connection=conn)
    with pytest.raises(InvalidJobOperation, match="a is scheduled; only failed, canceled or stopped"):
        retry_task("a", connection=conn)
    with pytest.raises(NoSuchJobError, match="no job 'b'"):
        retry_task("b", connection=conn)
    with pytest.raises(InvalidName):
        retry_task("a b", connection=conn)
    for delay in (-1, "soon", 1e10):
        with pytest.raises(ValueError, match=r"delay|duration"):
            retry_task("a", delay, connection=conn)
    fail("c")
    conn.hdel("rq:job:c", "data")
    with pytest.raises(InvalidJobOperation, match="no data"):
        retry_task("c", connection=conn)
    assert check_conservation(conn, ["a", "c"]) == {"a": "scheduled", "c": "failed"}


# -- by HTTP


def _post(service: ServerProcess, tokens: Tokens, body: object, key: str = "") -> Answer:
    headers = {"Idempotency-Key": key} if key else {}
    return service.ask("POST", "/retryTask/", body, token=tokens.by_scope["operate"], headers=headers)


def test_a_job_is_put_back_for_a_caller_outside(service: ServerProcess, tokens: Tokens, conn: redis.Redis, fail: Fail) -> None:
    fail("a")
    begin = now_ms(conn) / 1000
    answer = _post(service, tokens, {"job_id": "a"})
    assert (answer.status, answer.json) == (202, {"job_id": "a", "status": "scheduled", "delay": 120})
    assert answer.headers["location"] == "/api/v1/jobs/a"
    assert begin + 120 <= conn.zscore(SCHEDULE, "a") <= now_ms(conn) / 1000 + 120
    shown = service.ask("GET", "/api/v1/jobs/a", token=tokens.by_scope["read"]).json
    assert shown["status"] == "scheduled"
    assert shown["scheduled_at"] is not None


def test_answers_to_what_cannot_be_put_back(service: ServerProcess, tokens: Tokens, conn: redis.Redis, fail: Fail) -> None:
    put(Broker(conn), "sms", "waiting")
    assert (_post(service, tokens, {"job_id": "waiting"}).status, _post(service, tokens, {"job_id": "nobody"}).status) == (
        409,
        404,
    )
    assert "is queued" in _post(service, tokens, {"job_id": "waiting"}).json["error"]["message"]
    for bad in ("a b", 5, None, "a\r\nb", ""):
        answer = _post(service, tokens, {"job_id": bad})
        assert (answer.status, answer.json["error"]["field"]) == (422, "job_id")
    answer = _post(service, tokens, {"job_id": "waiting", "delay": 0})
    assert (answer.status, answer.json["error"]["field"]) == (422, "delay")
    assert check_conservation(conn, ["waiting"]) == {"waiting": "queued"}


def test_a_caller_that_has_only_the_call(service: ServerProcess, tokens: Tokens, conn: redis.Redis) -> None:
    body = {"queue": "sms", "func": "tasks.sms.sendSMS", "payload": {"to": "+49151"}, "priority": "high", "log_tag": "SMS_OTP"}
    answer = _post(service, tokens, body, key="k")
    assert (answer.status, answer.json["status"]) == (202, "scheduled")
    job = Job.fetch(answer.json["job_id"], conn)
    assert (job.func_name, job.args, job.priority, job.log_tag) == ("tasks.sms.sendSMS", ({"to": "+49151"},), 2, "SMS_OTP")
    assert conn.zscore(SCHEDULE, job.id) == pytest.approx(now_ms(conn) / 1000 + 120, abs=10)
    assert _post(service, tokens, body, key="k").body == answer.body
    assert conn.zcard(SCHEDULE) == 1
    for name in ("enqueue_in", "enqueue_at"):
        refused = _post(service, tokens, {**body, name: 0})
        assert (refused.status, refused.json["error"]["field"]) == (422, name)
    assert _post(service, tokens, {"func": "os.system", "payload": "x"}).status == 403
    assert _post(service, tokens, {}).json["error"]["field"] == "func"


def test_a_repetition_with_a_key_is_answered_alike(service: ServerProcess, tokens: Tokens, conn: redis.Redis, fail: Fail) -> None:
    fail("a")
    first = _post(service, tokens, {"job_id": "a"}, key="k")
    before = everything(conn)
    again = _post(service, tokens, {"job_id": "a"}, key="k")
    assert (again.status, again.body) == (202, first.body)
    assert _post(service, tokens, {"job_id": "a"}, key="other").status == 409
    assert everything(conn) == before


@pytest.mark.long
@pytest.mark.parametrize("ways", [("http", "http", "http", "http"), ("http", "wrapper", "requeue", "http")])
def test_f83_put_back_many_times_at_once_while_clean_up_runs_it_runs_once(
    service: ServerProcess, tokens: Tokens, conn: redis.Redis, fail: Fail, workers: Workers, tmp_path: Path, ways: tuple[str, ...]
) -> None:
    seen = tmp_path / "seen"
    fail("a", "tests.jobs.basic.witness", args=(str(seen), "ran"))
    barrier, done, outcomes = threading.Barrier(len(ways) + 1), threading.Event(), list[bool]()

    def call(way: str) -> None:
        barrier.wait(10)
        try:
            if way == "http":
                outcomes.append(_post(service, tokens, {"job_id": "a"}).status == 202)
            elif way == "wrapper":
                retry_task("a", connection=conn)
                outcomes.append(True)
            else:
                Job.fetch("a", conn).requeue()
                outcomes.append(True)
        except InvalidJobOperation:
            outcomes.append(False)

    def clean() -> None:
        barrier.wait(10)
        while not done.is_set():
            Broker(conn, FleetConstants(failed_max=1)).clean()

    threads = [threading.Thread(target=call, args=(way,)) for way in ways]
    cleaner = threading.Thread(target=clean)
    for thread in (*threads, cleaner):
        thread.start()
    for thread in threads:
        thread.join(20)
    done.set()
    cleaner.join(20)
    assert sorted(outcomes) == [False] * (len(ways) - 1) + [True]
    promote_all(Broker(conn), conn)
    workers.burst("sms", env={"FUSION_TASKS": "tests.jobs.basic"})
    assert len(runs_of(seen, "ran", "a")) == 1
    assert check_conservation(conn, ["a"]) == {"a": "finished"}


def test_a_put_back_job_starts_its_retries_anew(conn: redis.Redis, fail: Fail) -> None:
    fail("a")
    conn.hset("rq:job:a", "retryCount", 10)
    retry_task("a", connection=conn)
    assert Job.fetch("a", conn).retry_count == defaults.RETRY_COUNT_START
