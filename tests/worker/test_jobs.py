"""One job from enqueue to its end: values, options, callbacks and retries, through a real worker."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import uuid
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
import redis

from fusion import Job, Queue, Retry
from fusion.status import JobStatus
from tests.cli.conftest import run_worker
from tests.faults.rig.conservation import check_conservation
from tests.jobs import basic
from tests.jobs.typed import Colour, Point, Rights
from tests.kit.hands import events_of
from tests.kit.length import long_case
from tests.kit.waiting import eventually
from tests.kit.witnesses import lines
from tests.kit.workers import SharedWorkers, WorkerProcess, Workers

BASIC = "tests.jobs.basic"
#: Loading `typed` too, so that its classes may arrive.
TYPED = {"FUSION_TASKS": "tests.jobs.basic,tests.jobs.typed"}

VALUES = [
    None,
    True,
    -(2**70),
    1.5,
    "text \u00e9 \U0001f600 \x00 \ud800",
    b"\x00\xff raw",
    [1, [2, ["x"]]],
    (1, (2,), []),
    {"a": {"b": (1, 2)}},
    {1: "int key", (1, 2): "tuple key"},
    {"__fusion__": ["set", [1]]},
    {1, 2, 3},
    frozenset({"a"}),
    dt.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=dt.timezone.utc),
    dt.datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
    dt.datetime(2026, 1, 2, 3, 4, 5),  # noqa: DTZ001 - naive ones must come back naive
    dt.date(2026, 2, 28),
    dt.time(23, 59, 59, 5),
    dt.timedelta(days=-1, seconds=5, microseconds=7),
    decimal.Decimal("12.340"),
    uuid.UUID(int=7),
    Colour.BLUE,
    Rights.READ | Rights.WRITE,
    Point(3, ("a",), Point(4)),
]


@pytest.fixture
def worker(shared_workers: SharedWorkers) -> WorkerProcess:
    """The one of all these tests."""
    return shared_workers.start("sms", env=TYPED)


@pytest.mark.usefixtures("worker")
def test_every_type_comes_back_as_it_was(conn: redis.Redis) -> None:
    jobs = [Queue("sms").enqueue(basic.echo, value) for value in VALUES]
    for job, value in zip(jobs, VALUES, strict=True):
        assert job.wait(20) == "finished", job.exc_info
        assert (type(job.result), job.result) == (type(value), value)
    zoned = jobs[VALUES.index(VALUES[14])].result
    assert (zoned.tzinfo.key, zoned.fold) == ("Europe/Berlin", 1)
    check_conservation(conn, [job.id for job in jobs])


@pytest.mark.usefixtures("worker")
def test_what_a_task_is_given() -> None:
    """Arguments by keyword and apart, its job, its timeout; as a coroutine and as a marked function too."""
    sums = [
        Queue("sms").enqueue(basic.add, 1, 2),
        Queue("sms").enqueue(f"{BASIC}.add", a=1, b=2),
        Queue("sms").enqueue(basic.add, args=(1,), kwargs={"b": 2}),
        Queue("sms").enqueue_call(basic.add, (1,), {"b": 2}),
        *Queue("sms").enqueue_many([Queue.prepare_data(basic.add, (1, 2))]),
    ]
    later = Queue("sms").enqueue(basic.later, 0.01)
    who = Queue("sms").enqueue(basic.who, priority=2)
    marked = basic.marked.delay(21)
    limits = [Queue("sms").enqueue(basic.limit, job_timeout=t) for t in (7.5, "2m", -1, None)]
    assert (marked.origin, marked.priority) == ("sms", 2)
    assert {job.wait(20) for job in (*sums, later, who, marked, *limits)} == {"finished"}
    assert [job.result for job in sums] == [3] * 5
    assert later.result == "async"
    assert who.result == {"id": who.id, "origin": "sms", "priority": 2, "args": []}
    assert marked.result == 42
    assert basic.marked(4) == 8
    assert [job.result for job in limits] == [7.5, 120, None, 180]


@pytest.mark.usefixtures("worker")
def test_meta_is_seen_while_the_job_runs_and_after(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    job = Queue("sms").enqueue(basic.noting, str(gate), meta={"given": "by producer"})

    def meta() -> dict[str, object]:
        job.refresh()
        return job.meta

    eventually(lambda: meta().get("stage") == "under way")
    assert job.get_status() is JobStatus.STARTED
    gate.unlink()
    assert job.wait(10) is JobStatus.FINISHED
    assert job.meta == {"given": "by producer", "stage": "over"}
    assert job.result == "by producer"


@pytest.mark.usefixtures("worker")
def test_callbacks(tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    succeeds = Queue("sms").enqueue(basic.echo, str(good), on_success=basic.remember, on_failure=basic.complain)
    fails = Queue("sms").enqueue(basic.boom, str(bad), on_success=basic.remember, on_failure=basic.complain)
    assert succeeds.wait(20) == "finished"
    assert fails.wait(20) == "failed"
    assert list(lines(good)) == [f"success {succeeds.id} None"]
    assert list(lines(bad)) == [f"failure {fails.id} ValueError"]


# -- retries


def _delay(conn: redis.Redis, job: Job, attempt: int) -> float:
    """Seconds from the end of this run to the next, once it waits for that; then it is due at once."""
    eventually(lambda: job.refresh() is None and (job.get_status(), job.attempts) == ("scheduled", attempt))
    assert job.ended_at is not None
    delay = float(conn.zscore("rq:scheduler:scheduled_jobs", job.id)) - job.ended_at.timestamp()
    check_conservation(conn, [job.id])
    job.reschedule(0)
    return delay


@pytest.mark.long
@pytest.mark.usefixtures("worker")
def test_the_default_policy_retries_what_networks_do_three_times(conn: redis.Redis) -> None:
    job = Queue("sms").enqueue(basic.refused)
    for retry in (1, 2, 3):
        base = 120 * 2 ** (retry - 1)
        assert base - 0.1 <= _delay(conn, job, retry) <= base * 1.25 + 2, retry
        assert job.retry_count == 7 + retry
    assert (job.wait(10), job.retry_count, job.attempts) == ("failed", 10, 4)
    assert "ConnectionError: connection refused" in (job.exc_info or "")


@pytest.mark.long
@pytest.mark.usefixtures("worker")
def test_backoff_doubles_from_the_figure_given(conn: redis.Redis) -> None:
    job = Queue("sms").enqueue(basic.boom, retry=Retry(5, backoff=1000))
    for retry, base in enumerate((1000, 2000, 3600), 1):
        assert base - 0.1 <= _delay(conn, job, retry) <= base * 1.25 + 2, retry


@pytest.mark.usefixtures("worker")
def test_retry_intervals_until_it_succeeds(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    job = Queue("sms").enqueue(basic.flaky, str(seen), 3, retry=Retry(3, interval=[0, 0.05, 0.1]))
    assert (job.wait(15), job.result, job.attempts, job.retry_count) == ("finished", 4, 3, 10)
    assert job.exc_info is None
    assert job.reason == ""


@pytest.mark.usefixtures("worker")
def test_which_failures_are_retried_and_how_often(conn: redis.Redis, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    at_once = Queue("sms").enqueue(basic.boom)
    job = Queue("sms").enqueue(basic.flaky, str(seen), 9, retry=Retry(2))
    never = Queue("sms").enqueue(basic.refused, retry=Retry(0))
    covered = Queue("sms").enqueue(basic.boom, retry=Retry(1, on=(ValueError,)))
    by_base = Queue("sms").enqueue(basic.refused, retry=Retry(1, on=("builtins.OSError",)))
    other = Queue("sms").enqueue(basic.boom, retry=Retry(1, on=(KeyError,)))
    assert (at_once.wait(20), at_once.attempts, at_once.retry_count) == ("failed", 1, 7), "no network's fault"
    assert at_once.reason == "ValueError: boom"
    assert (at_once.exc_info or "").startswith("Traceback (most recent call last):")
    assert "fusion/execution" not in (at_once.exc_info or "")
    assert (job.wait(20), job.attempts, len(list(lines(seen)))) == ("failed", 3, 3)
    assert (never.wait(20), never.attempts) == ("failed", 1)
    assert [job.wait(20) for job in (covered, by_base, other)] == ["failed"] * 3
    assert [job.attempts for job in (covered, by_base, other)] == [2, 2, 1]
    check_conservation(conn, [one.id for one in (at_once, job, never, covered, by_base, other)])


# -- with workers of their own


@pytest.mark.parametrize(
    "mode", [pytest.param([], id="fork"), long_case(["--horses", "1"], id="warm"), long_case(["--quiet"], id="quiet")]
)
def test_a_callback_that_raises_changes_no_outcome_and_is_logged(workers: Workers, conn: redis.Redis, mode: list[str]) -> None:
    succeeds = Queue("sms").enqueue(basic.add, 1, 2, on_success=basic.breaking_callback)
    fails = Queue("sms").enqueue(basic.boom, on_failure=basic.breaking_callback)
    worker = workers.burst("sms", *mode)
    assert (succeeds.wait(0), succeeds.result) == ("finished", 3)
    assert fails.wait(0) == "failed"
    assert "ValueError: boom" in (fails.exc_info or "")
    for job, name in ((succeeds, b"on_success"), (fails, b"on_failure")):
        assert conn.hget(f"rq:job:{job.id}", "callback_error") == name + b": RuntimeError: the callback broke"
        logged = [line for line in worker.output.splitlines() if f"a callback of job {job.id} raised: " in line]
        assert [line.partition(" raised: ")[2] for line in logged] == [f"{name.decode()}: RuntimeError"], (
            "its text is not for logs"
        )
        (told,) = [fields for fields in events_of(conn, job.id) if fields["event"] in ("completed", "failed")]
        assert told["callback_error"] == "RuntimeError", "nor for events"
    assert Job.fetch(fails.id).callback_error == "on_failure: RuntimeError: the callback broke"
    assert conn.hmget("rq:callback_errors", "count", "job_id") == [b"2", fails.id.encode()]
    assert run_worker("info").stdout.count("2 callbacks (on_success, on_failure) raised an error, the last one") == 1


@pytest.mark.long
def test_a_retried_job_keeps_its_place_unless_told_otherwise(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    """`first` is due again before those behind it have run."""
    places = {place: tmp_path / place for place in ("keep", "back")}
    for place, seen in places.items():
        Queue(place).enqueue(basic.flaky, str(seen), 1, "first", retry=Retry(1, interval=1000, place=place))
    workers.burst(*places)
    for place, seen in places.items():
        for word in ("second", "third"):
            Queue(place).enqueue(basic.witness, str(seen), word)
    for job_id in conn.zrange("rq:scheduler:scheduled_jobs", 0, -1):
        conn.zadd("rq:scheduler:scheduled_jobs", {job_id: 0})
    # maintenance promotes before a worker's first claim, and it can't claim before its horses are ready
    workers.burst(*places)
    orders = {place: [line.split()[0] for line in lines(seen)] for place, seen in places.items()}
    assert orders == {"keep": ["first", "first", "second", "third"], "back": ["first", "second", "third", "first"]}


def test_a_job_that_waited_longer_than_its_ttl_does_not_run(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    late = Queue("sms").enqueue(basic.witness, str(seen), "late", ttl=0.05)
    in_time = Queue("sms").enqueue(basic.witness, str(seen), "in time", ttl=60)
    expires = int(conn.hget(f"rq:job:{late.id}", "expires_at"))

    def is_late() -> bool:
        seconds, micros = conn.time()
        return bool(seconds * 1000 + micros // 1000 > expires)

    eventually(is_late)
    workers.burst("sms")
    assert (late.wait(0), late.reason, late.deliveries) == ("canceled", "expired", 0)
    assert in_time.wait(0) == "finished"
    assert [line.split()[1:2] for line in lines(seen)] == [["time"]]
    check_conservation(conn, [late.id, in_time.id])


@pytest.mark.long
def test_how_long_results_are_kept(workers: Workers, conn: redis.Redis) -> None:
    jobs = {ttl: Queue("sms").enqueue(basic.add, 1, 2, result_ttl=ttl) for ttl in (0, -1, 1000)}
    usual = Queue("sms").enqueue(basic.add, 1, 2)
    workers.burst("sms", "--results-ttl", "7")  # a worker's own setting is for jobs that say nothing; this producer said 500
    seconds, micros = conn.time()

    def kept(job: Job) -> float:
        return float(conn.zscore("rq:finished:sms", job.id)) - seconds - micros / 1e6

    assert [job.wait(0) for job in jobs.values()] == ["finished"] * 3
    assert jobs[0].result is None
    assert 30 < kept(jobs[0]) <= 60
    assert (jobs[-1].result, kept(jobs[-1]), conn.ttl(f"rq:job:{jobs[-1].id}")) == (3, float("inf"), -1)
    assert 950 < kept(jobs[1000]) <= 1000
    assert 450 < kept(usual) <= 500
    assert conn.ttl(f"rq:job:{usual.id}") > 500


@pytest.mark.parametrize("given", [7, 7.5, "7", "2m", dt.timedelta(seconds=90), -1, None])
def test_spellings_of_a_timeout(conn: redis.Redis, given: object) -> None:
    job = Queue("sms", default_timeout="3m").enqueue(basic.limit, job_timeout=given)
    wanted = {"7": 7, "2m": 120, "None": 180, "1:30": 90, "0:01:30": 90}.get(str(given), given)
    assert Job.fetch(job.id).timeout == wanted


@pytest.mark.long
def test_at_front_comes_before_its_own_class_only(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    seen, queue = str(tmp_path / "seen"), Queue("sms")
    for word, options in {
        "b": {},
        "a": {"at_front": True},
        "first": {"at_front": True},
        "low": {"priority": 0, "at_front": True},
        "high": {"priority": 2},
    }.items():
        queue.enqueue(basic.witness, seen, word, **options)
    workers.burst("sms")
    assert [line.split()[0] for line in lines(Path(seen))] == ["high", "first", "a", "b", "low"]


@pytest.mark.long
def test_a_result_that_can_not_be_kept_is_no_failure(workers: Workers, conn: redis.Redis) -> None:
    big = Queue("sms").enqueue(basic.echo, "x" * 2000)
    workers.burst("sms", env={"FUSION_MAX_RESULT": "1k"})
    assert (big.wait(0), big.result) == ("finished", None)
    assert b"max_result" in (conn.hget(f"rq:job:{big.id}", "result_error") or b"")


@pytest.mark.long
def test_what_the_hash_holds_afterwards(workers: Workers, conn: redis.Redis) -> None:
    job = Queue("sms").enqueue(basic.add, 1, 2, log_tag="SMS_OTP", description="one and two", meta={"a": 1})
    worker = workers.burst("sms")
    job.refresh()
    assert (job.description, job.log_tag, job.meta, job.func_name, job.args) == (
        "one and two",
        "SMS_OTP",
        {"a": 1},
        f"{BASIC}.add",
        (1, 2),
    )
    assert job.created_at and job.enqueued_at and job.started_at and job.ended_at
    assert job.created_at <= job.enqueued_at <= job.started_at <= job.ended_at
    assert job.worker_name.endswith(f".{worker.pid}")
    assert (job.deliveries, job.attempts, job.lost, job.original_queue) == (1, 0, 0, "sms")
    events = [fields[b"event"] for _, fields in conn.xrange("rq:events")]
    assert events == [b"queued", b"processing", b"completed"]
    assert all(json.loads(conn.hget(f"rq:job:{job.id}", "meta"))[key] == 1 for key in ("a",))
