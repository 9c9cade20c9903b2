"""Every road by which a job comes to Redis signs it, and nothing that happens to a job afterwards spoils that."""

from __future__ import annotations

import io
import json
import secrets
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone

import pytest
import redis

from fusion import FailedQueue, Job, Queue
from fusion.cli.main import cli
from fusion.cron.scheduler import Scheduler
from fusion.decorators import job as task
from fusion.kernel.signing import MISSING
from fusion.retry import Retry
from fusion.settings import get_settings, use_settings
from fusion.store.access import broker_of
from fusion.store.layout.records import Claimed
from fusion.web.api import Api
from fusion.web.app import App
from fusion.web.auth import ANONYMOUS
from fusion.web.exchange import Request
from tests.domain.cron_hands import Hourly, look
from tests.domain.cron_hands import hourly as hourly
from tests.domain.cron_hands import scheduler as scheduler
from tests.kit.hands import Hand, everything, expire_lease, may_reap, promote_all
from wrappers.task_queue import enqueue_bulk, enqueue_sms

SECRET = secrets.token_urlsafe(32)
TASK = "tasks.sms.sendSMS"
OTHER = "k2:" + secrets.token_urlsafe(32)


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch, redis_url: str) -> Iterator[None]:
    """This process has a key."""
    monkeypatch.setenv("FUSION_SECRET_KEYS", f"k1:{SECRET}")
    use_settings(None)
    yield
    use_settings(None)


@task("sms")
def marked(to: str) -> str:
    return to


def flaw(job: Claimed) -> str:
    keyring = get_settings().keyring
    assert keyring is not None
    return keyring.flaw(job.id, job.queue, job.fields)


def post(conn: redis.Redis, body: dict[str, object]) -> None:
    raw = json.dumps(body).encode()
    app = App(Api(conn, ("tasks",)).routes(), lambda request: ANONYMOUS)
    headers = {"content-type": "application/json", "host": "127.0.0.1"}
    answer = app.handle(Request("POST", "/api/v1/jobs", headers, length=len(raw), read=io.BytesIO(raw).read))
    assert answer.status in (201, 202), answer.body


ROADS: dict[str, Callable[[redis.Redis], object]] = {
    "enqueue": lambda conn: Queue("sms").enqueue(TASK, {"to": "ä"}, priority=2, ttl="5m", job_timeout=2.5, retry=Retry(1, [0.5])),
    "enqueue_call": lambda conn: Queue("sms").enqueue_call(TASK, ({},), timeout="5m", on_lost="fail", on_success=TASK),
    "callbacks": lambda conn: Queue("sms").enqueue(
        TASK, {"callback": 1, "callback_url": "https://a.example/x"}, failed_task_handler="https://a.example/y"
    ),
    "enqueue_many": lambda conn: Queue("sms").enqueue_many([Queue.prepare_data(TASK, (n,), priority=n) for n in range(3)]),
    "enqueue_in": lambda conn: Queue("sms").enqueue_in(3600, TASK, 1, ttl=90),
    "enqueue_at": lambda conn: Queue("sms").enqueue_at(datetime.now(timezone.utc) + timedelta(hours=1), TASK, 1, at_front=True),
    "default timeout": lambda conn: Queue("sms", default_timeout=7).enqueue(TASK, at_front=True),
    "@job": lambda conn: marked.delay("x"),
    "wrapper": lambda conn: enqueue_sms({"to": "+49"}, "SMS_OTP"),
    "wrapper, many": lambda conn: enqueue_bulk([("SMS_OTP", {"to": "+49"}), ("SMS_CAMPAIGN", {"to": "+49"})]),
    "HTTP": lambda conn: post(conn, {"queue": "sms", "func": TASK, "args": [1], "priority": "high", "ttl": 60, "retry_max": 2}),
    "HTTP, later": lambda conn: post(conn, {"queue": "sms", "func": TASK, "enqueue_in": 3600}),
    "command line": lambda conn: cli(["enqueue", TASK, "-q", "sms", "x"], standalone_mode=False),
}


@pytest.mark.parametrize("road", ROADS)
def test_every_road_signs(conn: redis.Redis, road: str) -> None:
    ROADS[road](conn)
    promote_all(broker_of(conn), conn)
    found = Hand(broker_of(conn), "sms").claim(5)
    assert found
    assert [flaw(job) for job in found] == [""] * len(found)
    for job in found:  # the id counts, the queue counts
        assert flaw(Claimed(job.queue, job.id + "x", "", job.fields))
        assert flaw(Claimed("email", job.id, "", job.fields))


def test_a_queue_that_is_a_list(conn: redis.Redis) -> None:
    Queue("scheduler").enqueue(TASK, priority=2)
    (job,) = Hand(broker_of(conn), "scheduler").claim()
    assert flaw(job) == ""


def test_a_job_written_by_another_program_has_no_signature(conn: redis.Redis) -> None:
    conn.hset("rq:job:foreign", mapping={"data": '["tasks.sms.sendSMS",null,[],{}]', "status": "queued", "origin": "sms"})
    conn.zadd("rq:queue:sms", {"foreign": 2})
    (job,) = Hand(broker_of(conn), "sms").claim()
    assert flaw(job) == MISSING


def test_an_old_envelope_under_a_new_id_is_refused(conn: redis.Redis) -> None:
    made = Queue("sms").enqueue(TASK, "pay 100")
    stored = conn.hgetall(f"rq:job:{made.id}")
    conn.hset("rq:job:replayed", mapping=stored)
    conn.zadd("rq:queue:sms", {"replayed": conn.zscore("rq:queue:sms", made.id) - 0.001})
    first, second = Hand(broker_of(conn), "sms").claim(2)
    assert (first.id, flaw(first)) == (made.id, "")
    assert "another id" in flaw(second)


def test_one_moved_to_another_queue_is_refused(conn: redis.Redis) -> None:
    made = Queue("sms").enqueue(TASK, priority=1)
    conn.zadd("rq:queue:root", {made.id: conn.zscore("rq:queue:sms", made.id)})
    conn.zrem("rq:queue:sms", made.id)
    (job,) = Hand(broker_of(conn), "root").claim()
    assert "another queue" in flaw(job)


# -- what happens to a job


def again(conn: redis.Redis, hand: Hand) -> None:
    promote_all(broker_of(conn), conn)
    (job,) = hand.claim()
    assert flaw(job) == ""
    assert hand.tell(job) == "ok"


@pytest.fixture
def taken(conn: redis.Redis) -> tuple[Hand, Claimed]:
    Queue("sms").enqueue(TASK, 1, priority=2, ttl=600, retry=Retry(3), on_lost="requeue")
    hand = Hand(broker_of(conn), "sms")
    (job,) = hand.claim()
    return hand, job


def test_a_retry(conn: redis.Redis, taken: tuple[Hand, Claimed]) -> None:
    hand, job = taken
    assert hand.tell(job, "retry", delay=60.0, reason="x", fields={"retryCount": 8, "meta": '{"a":1}', "seq": ""}) == "ok"
    again(conn, hand)


def test_a_release_and_a_hold(conn: redis.Redis, taken: tuple[Hand, Claimed]) -> None:
    hand, job = taken
    assert hand.tell(job, "release", reason="x") == "ok"
    (job,) = hand.claim()
    assert flaw(job) == ""
    assert hand.tell(job, "held", delay=1.0, reason="x") == "ok"
    again(conn, hand)


def test_a_loss(conn: redis.Redis, taken: tuple[Hand, Claimed]) -> None:
    hand, job = taken
    may_reap(conn)
    expire_lease(conn, "sms", job.id)
    assert broker_of(conn).reap(30.0, 0.0)[0] == 1
    again(conn, hand)


@pytest.mark.parametrize("how", ["place", "end", "later"])
def test_a_requeue(conn: redis.Redis, taken: tuple[Hand, Claimed], how: str) -> None:
    hand, job = taken
    assert hand.tell(job, "failed", reason="x", fields={"exc_info": "x", "error_class": "builtins.ValueError"}) == "ok"
    if how == "later":
        assert broker_of(conn).requeue([job.id], "n", delay=60.0) == ["ok"]
    else:
        Job.fetch(job.id).requeue(keep_place=how == "place")
    again(conn, hand)


def test_a_reschedule_and_a_cancel(conn: redis.Redis) -> None:
    made = Queue("sms").enqueue_in("1h", TASK, 1, ttl=600)
    made.reschedule("2h")
    made.cancel()
    made.requeue()
    again(conn, Hand(broker_of(conn), "sms"))


def test_a_failed_one_put_back_in_bulk(conn: redis.Redis, taken: tuple[Hand, Claimed]) -> None:
    hand, job = taken
    hand.tell(job, "failed", reason="x", fields={"exc_info": "x", "error_class": "builtins.ValueError"})
    assert FailedQueue(conn).requeue_all().moved == 1
    again(conn, hand)


# -- cron


def test_a_tick_and_a_run_by_hand_have_the_entry_s_signature(conn: redis.Redis, hourly: Hourly, scheduler: Scheduler) -> None:
    hourly("nightly", queue="sms", args=("ä", 1.5), ttl="90s", job_timeout=2.5, priority=2, retry=Retry(1), misfire="all")
    use_settings(None)
    assert look(conn, "nightly", ticks=2)[:2] == ("ok", 2)
    assert scheduler.run("nightly").id == "cron-nightly-manual-1"
    jobs = Hand(broker_of(conn), "sms").claim(5)
    assert len(jobs) == 3
    assert [flaw(job) for job in jobs] == [""] * 3
    assert len({job.fields[b"signature"] for job in jobs}) == 1


def test_a_scheduler_without_keys_enqueues_signed_jobs_of_an_entry(
    conn: redis.Redis,
    hourly: Hourly,
    scheduler: Scheduler,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hourly("nightly", queue="sms")
    with monkeypatch.context() as without:
        without.delenv("FUSION_SECRET_KEYS")
        use_settings(None)
        assert get_settings().keyring is None
        assert look(conn, "nightly", ticks=1)[:2] == ("ok", 1)
        scheduler.run("nightly")
    use_settings(None)
    assert [flaw(job) for job in Hand(broker_of(conn), "sms").claim(5)] == ["", ""]


def test_an_altered_entry_makes_jobs_that_are_refused(conn: redis.Redis, hourly: Hourly) -> None:
    hourly("nightly", queue="sms")
    spec = conn.hget("rq:cron:entry:nightly", "spec").decode()
    assert "tasks.sms.sendSMS" in spec
    conn.hset("rq:cron:entry:nightly", "spec", spec.replace("tasks.sms.sendSMS", "tasks.pay.everyone"))
    assert look(conn, "nightly", ticks=1)[:2] == ("ok", 1)
    (job,) = Hand(broker_of(conn), "sms").claim()
    assert b"tasks.pay.everyone" in job.fields[b"data"]
    assert "was altered" in flaw(job)


def test_the_same_entry_is_the_same_text_and_another_key_changes_it(
    conn: redis.Redis,
    hourly: Hourly,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hourly("nightly", queue="sms")
    before = conn.hget("rq:cron:entry:nightly", "rev")
    hourly("nightly", queue="sms")
    assert conn.hget("rq:cron:entry:nightly", "rev") == before
    monkeypatch.setenv("FUSION_SECRET_KEYS", f"{OTHER},k1:{SECRET}")
    use_settings(None)
    hourly("nightly", queue="sms")
    assert conn.hget("rq:cron:entry:nightly", "rev") != before


# -- what is shown


def test_a_dry_run_shows_no_secret(conn: redis.Redis, capsys: pytest.CaptureFixture[str]) -> None:
    cli(["enqueue", TASK, "-q", "sms", "x", "--dry-run"], standalone_mode=False)
    shown = capsys.readouterr()
    assert '"queue": "sms"' in shown.out
    assert SECRET not in shown.out + shown.err
    assert conn.dbsize() == 0


def test_nothing_that_is_stored_holds_the_secret(conn: redis.Redis, hourly: Hourly) -> None:
    for road in ROADS.values():
        road(conn)
    hourly("nightly", queue="sms")
    stored = repr(everything(conn, clocks=True))
    assert "v1.k1." in stored
    assert SECRET not in stored
