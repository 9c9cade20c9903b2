"""A program for RQ is killed before and after each thing that it sends to Redis: what it leaves is whole, and doing it again does it once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from fusion.rq import Queue, Worker
from fusion.rq.cron import CronScheduler
from fusion.rq.defaults import DEFAULT_CRON_SCHEDULER_TTL
from fusion.rq.exceptions import DuplicateJobError, DuplicateSchedulerError, NoSuchJobError
from fusion.rq.job import Job
from fusion.settings import use_settings
from fusion.store.write.broker import Broker
from tests.faults.crash.zygote import Ended, Zygote
from tests.faults.rig.conservation import check_conservation, check_ended, memberships, runs_seen
from tests.kit.hands import expire_lease, may_reap
from tests.rq import tasks_of_rq as tasks

pytestmark = pytest.mark.long
#: The process kills itself before it sends for the n-th time, or when it has.
STRIKE = """
import os, signal, socket
nth, when, sent, real = int(os.environ["FUSION_STRIKE_NTH"]), os.environ["FUSION_STRIKE_WHEN"], 0, socket.socket.sendall
def sendall(self, data, *flags):
    global sent
    sent += 1
    if sent == nth and when == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    real(self, data, *flags)
    if sent == nth:
        os.kill(os.getpid(), signal.SIGKILL)
socket.socket.sendall = sendall
import redis
client = redis.Redis.from_url(os.environ["FUSION_REDIS_URL"])
"""
#: As one who does it again would.
DRAFT = """
from fusion.rq import Queue
from fusion.rq.exceptions import NoSuchJobError
from fusion.rq.job import Job
from tests.rq import tasks_of_rq as tasks
try:
    job = Job.fetch("draft", client)
except NoSuchJobError:
    job = Job.create(tasks.add, (1,), connection=client, id="draft")
    job.save()
print("saved", flush=True)
if job.get_status() == "created":
    Queue("work", connection=client).enqueue_job(job)
print("enqueued", flush=True)
"""
AT_ONCE = """
from fusion.rq import Queue
from tests.rq import tasks_of_rq as tasks
job = Queue("work", connection=client, is_async=False).enqueue(tasks.add, 1, job_id="now", result_ttl=60)
assert job.result == 1
"""
CRON = """
from fusion.rq.cron import CronScheduler
from tests.rq import tasks_of_rq as tasks
scheduler = CronScheduler(client, name="clock")
scheduler.register(tasks.add, "work", args=(1,), interval=60)
scheduler.register_birth()
assert scheduler.enqueue_jobs()
scheduler.save()
scheduler.heartbeat()
scheduler.register_death()
"""
SIMPLE = """
from fusion.rq import SimpleWorker
SimpleWorker(["work"], connection=client).work(burst=True)
"""


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    found = Zygote(("fusion.rq.cron", "fusion.rq.worker", "fusion.worker.in_process", "tests.rq.tasks_of_rq"))
    yield found
    found.close()


Strikes = Callable[..., Iterator[Ended]]


@pytest.fixture
def strikes(zygote: Zygote, client: redis.Redis) -> Strikes:
    """Run a program again and again on an empty Redis, each time killed at another place; the last run comes to its end."""

    def run(program: str, before: Callable[[], object] = lambda: None) -> Iterator[Ended]:
        places = ((nth, when) for nth in range(1, 200) for when in ("before", "after"))
        for nth, when in places:
            client.flushall()
            before()
            env = {"FUSION_STRIKE_NTH": str(nth), "FUSION_STRIKE_WHEN": when}
            ended = zygote.run(("-c", STRIKE + program), env={**os.environ, **env})
            assert ended.code in (0, -signal.SIGKILL), ended.output
            yield ended
            if ended.code == 0:
                assert nth > 4, "it was struck"
                return

    return run


def test_a_saved_draft_is_a_draft_or_a_job_whenever_its_program_is_killed(
    strikes: Strikes, zygote: Zygote, client: redis.Redis, queue: Queue, burst: Callable[..., bool]
) -> None:
    left = set[str]()
    for ended in strikes(DRAFT):
        places = memberships(client).get("draft", [])
        try:
            status = str(Job.fetch("draft", client).get_status().value)
        except NoSuchJobError:
            assert "saved" not in ended.output
            status = "nothing"
        assert places == (["queued"] if status == "queued" else []), status
        assert "enqueued" not in ended.output or status == "queued"
        assert status != "created" or client.ttl("rq:job:draft") > 0
        left.add(status)
        again = zygote.run(("-c", STRIKE + DRAFT), env={**os.environ, "FUSION_STRIKE_NTH": "0", "FUSION_STRIKE_WHEN": "before"})
        assert again.code == 0, again.output
        assert check_conservation(client, ["draft"]) == {"draft": "queued"} and client.ttl("rq:job:draft") == -1
    assert left == {"nothing", "created", "queued"}
    burst()
    assert Job.fetch("draft", client).result == 1


def test_a_job_that_runs_at_once_leaves_a_record_that_goes_one_day(strikes: Strikes, client: redis.Redis, queue: Queue) -> None:
    left = set[str]()
    for _ in strikes(AT_ONCE):
        assert memberships(client) == {}
        record = client.hget("rq:job:now", "status")
        assert record is None or client.ttl("rq:job:now") > 0
        left.add((record or b"nothing").decode())
        again = Queue("work", connection=client, is_async=False).enqueue(tasks.add, 1, job_id="now")
        assert again.result == 1 and again.is_finished
    assert left == {"nothing", "started", "finished"}


def test_a_cron_scheduler_that_is_killed_leaves_whole_jobs_and_a_name_that_is_free_again(
    strikes: Strikes, client: redis.Redis, queue: Queue
) -> None:
    left = set[int]()
    for ended in strikes(CRON):
        ids = queue.job_ids
        left.add(len(ids))
        check_conservation(client, ids)
        assert {key for key in client.scan_iter("rq:*cron*") if client.ttl(key) < 0} <= {b"rq:cron_schedulers"}
        there = [one.name for one in CronScheduler.all(client)]
        assert there in ([], ["clock"])
        successor = CronScheduler(client, name="clock")
        if ended.code and client.zscore("rq:cron_schedulers", "clock"):
            with pytest.raises(DuplicateSchedulerError):
                successor.register_birth()
            client.zincrby("rq:cron_schedulers", -DEFAULT_CRON_SCHEDULER_TTL - 1, "clock")
        successor.register_birth()
        assert [one.name for one in CronScheduler.all(client)] == ["clock"]
    assert left == {0, 1}


def test_a_job_of_a_simple_worker_that_is_killed_fails_or_runs_once(
    strikes: Strikes,
    client: redis.Redis,
    queue: Queue,
    burst: Callable[..., bool],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FUSION_TASKS", "tests.jobs.basic")
    use_settings(None)
    seen, left = tmp_path / "seen", set[str]()

    def enqueue() -> None:
        seen.unlink(missing_ok=True)
        queue.enqueue("tests.jobs.basic.witness", str(seen), "ran", job_id="one")

    for _ in strikes(SIMPLE, enqueue):
        left.add(check_conservation(client, ["one"])["one"])
        if left == {"started"} or client.hget("rq:job:one", "status") == b"started":
            expire_lease(client, "work", "one")
        for key in client.smembers("rq:workers"):
            client.hset(key, "beat_ms", 0)
        may_reap(client)
        broker = Broker(client)
        broker.prune(1.0)
        may_reap(client)
        broker.reap(1.0, 0)
        burst()
        states = check_ended(client, ["one"], runs_seen(seen))
        runs = runs_seen(seen)["one"]
        assert (states["one"], runs) == ("finished", 1) or (states["one"] == "failed" and runs <= 1)
        assert Worker.count(client) == 0
    assert left == {"queued", "started", "finished"}


def test_a_job_that_runs_at_once_never_replaces_an_accepted_one(
    client: redis.Redis, queue: Queue, burst: Callable[..., bool]
) -> None:
    draft = Job.create(tasks.add, (2,), connection=client, id="same")
    accepted = queue.enqueue(tasks.add, 1, job_id="same")
    with pytest.raises(DuplicateJobError):
        Queue("work", connection=client, is_async=False).enqueue(tasks.add, 2, job_id="same")
    with pytest.raises(DuplicateJobError):
        draft.save()
    burst()
    accepted.refresh()
    assert accepted.result == 1
    assert Queue("work", connection=client, is_async=False).enqueue(tasks.add, 2, job_id="same").result == 2
