"""Whatever happens to a job, nothing it was given shows outside its own hash: not in logs, events, lists, or the processes' own entries.

The canary is alphabetic, so that no rule for tokens or digits finds it by its form. Two things are the users' own words and are shown:
a job's description, and what a task prints or says by `Log` without a name that tells that it is secret.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import redis

from fusion import Connection, Job, Queue, Retry
from fusion.cron.scheduler import Scheduler
from tests.jobs import canary
from tests.kit import guarded
from tests.kit.private_redis import PrivateRedis
from tests.kit.process import ROOT
from tests.kit.waiting import eventually
from tests.kit.witnesses import field
from tests.kit.workers import CROWDED, Workers

#: In every canary, so that one search finds them all and the text around it tells which.
MARK = "zqxjkv"
ENV, PASSWORD = f"{MARK}Environment", f"{MARK}Password"
TASKS = {"FUSION_TASKS": "tests.jobs", "CANARY": ENV, "FUSION_MAX_LOST": "1", "FUSION_SOCKET_TIMEOUT": "0.3"}


def hits(text: str | bytes) -> list[str]:
    shown = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    return [shown[max(0, found.start() - 60) : found.end() + 30] for found in re.finditer(MARK, shown, re.IGNORECASE)]


def given(what: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments full of canaries."""
    plain, mixed = f"{MARK}{what}", f"S3CR3T-{MARK}{what}"
    nested = {"text": f"your word is {plain}", "password": plain, "deep": [{"a": {"note": mixed}}, [plain]]}
    return (plain, mixed, f"a text with {plain} in it", 48151623, nested), {
        "token": plain,
        "name": mixed,
        "headers": {"Authorization": f"Bearer {plain}", "X-Note": plain},
        "pairs": [["Cookie", plain], ["X-Note", plain]],
        "callback_target": f"https://user:{plain}@hooks.invalid/{plain}?key={plain}#{plain}",
    }


def enqueue(func: Any, what: str, **options: Any) -> Job:
    args, kwargs = given(what)
    extra = options.pop("extra", {})
    options.setdefault("on_success", canary.callback)
    options.setdefault("on_failure", canary.callback)
    options.setdefault("retry", Retry(max=0))
    url = f"https://hooks.invalid/{MARK}?token={MARK}"
    return Queue("sms").enqueue_call(
        func,
        args,
        {**kwargs, **extra},
        meta={"given": f"{MARK}Meta"},
        success_task_handler=url,
        failed_task_handler=url,
        log_tag="SMS_OTP",
        **options,
    )


class Fleet:
    """Workers and a scheduler on a Redis with a password."""

    def __init__(self, workers: Workers, url: str) -> None:
        self.workers, self.url = workers, url

    def start(self, *args: str, **more: Any) -> Any:
        return self.workers.start(*args, url=self.url, env=TASKS, **more)

    def command(self, *args: str) -> str:
        """What a command says, and what it says on stderr."""
        env = {"PATH": "/usr/bin:/bin", "FUSION_REDIS_URL": self.url, "FUSION_HOME": "/nonexistent", "COLUMNS": "250"}
        done = subprocess.run(
            [sys.executable, "run_worker.py", *args], cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, check=False
        )
        return done.stdout + done.stderr

    def logs(self) -> str:
        return "\n".join(worker.output for worker in self.workers._started)


@pytest.fixture
def conn(private_redis: PrivateRedis, private_workers: Workers) -> Iterator[redis.Redis]:
    guarded.change_password(private_redis.conn, PASSWORD)
    client = guarded.client(guarded.with_password(private_redis.url, PASSWORD))
    with Connection(client):
        yield client
    private_workers.stop()
    guarded.change_password(client, "")
    client.close()


@pytest.fixture
def fleet(private_redis: PrivateRedis, conn: redis.Redis, private_workers: Workers) -> Fleet:
    return Fleet(private_workers, guarded.with_password(private_redis.url, PASSWORD))


def everything_but_the_jobs(conn: redis.Redis) -> Iterator[tuple[str, str]]:
    """Each key outside the hashes that hold a call, with all that is in it."""
    read = {
        "hash": conn.hgetall,
        "zset": lambda key: conn.zrange(key, 0, -1),
        "set": conn.smembers,
        "list": lambda key: conn.lrange(key, 0, -1),
        "string": conn.get,
        "stream": conn.xrange,
    }
    for raw in conn.scan_iter():
        key = raw.decode()
        kind = conn.type(key).decode()  # of a doorbell that was just answered, `none`
        if kind != "none" and not key.startswith(("rq:job:", "rq:cron:entry:")):
            yield key, repr(read[kind](key))


def processes_of(fleet: Fleet) -> Iterator[tuple[str, str]]:
    """What anybody on the machine may see of the fleet's processes, and their environment as its owner sees it."""
    for worker in fleet.workers._started:
        for process in [psutil.Process(worker.pid), *worker.tree()]:
            proc = Path(f"/proc/{process.pid}")
            try:
                shown = (proc / "cmdline").read_bytes().decode() + (proc / "comm").read_text()
                environ = (proc / "environ").read_bytes().decode()
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has ended
            yield f"{process.pid} cmdline", shown
            # given to them that way by this test
            yield f"{process.pid} environ", environ.replace(f"CANARY={ENV}", "").replace(PASSWORD, "")


def assert_silent(fleet: Fleet, conn: redis.Redis) -> None:
    assert hits(fleet.logs()) == []
    assert {key: hits(text) for key, text in everything_but_the_jobs(conn) if hits(text)} == {}
    for command in (["info"], ["info", "--json"]):
        shown = fleet.command(*command)
        assert "sms" in shown
        assert hits(shown) == []


@pytest.mark.long
@pytest.mark.parametrize("flags", [("--logging-level", "DEBUG"), ("--log-json",)])
def test_no_end_of_a_job_shows_what_it_was_given(fleet: Fleet, conn: redis.Redis, tmp_path: Path, flags: tuple[str, ...]) -> None:
    worker = fleet.start("sms", "--slots", "4", *flags)
    told = tmp_path / "events.jsonl"
    relay = ("--events-file", str(told), "--events-log", *flags)
    fleet.start(*relay, ready=False, program=("run_worker.py", "relay"))
    gate = tmp_path / "gate"
    gate.touch()
    jobs = {
        "finished": enqueue(canary.keep, "Finished"),
        "failed": enqueue(canary.fail, "Failed"),
        "retried": enqueue(canary.fail, "Retried", retry=Retry(max=1, interval=0)),
        "late": enqueue(canary.linger, "Late", job_timeout=0.3),
        "stubborn": enqueue(canary.linger, "Stubborn", job_timeout=0.3, extra={"stubborn": True}),
        "unfit": enqueue(canary.unfit, "Unfit"),
        "misfit": enqueue("tests.jobs.basic.who", "Misfit"),
        "running": enqueue(canary.linger, "Running", extra={"until": str(gate)}),
    }
    if not CROWDED:  # they end the process of all that run beside them
        jobs |= {"lost": enqueue(canary.vanish, "Lost"), "gone": enqueue(canary.leave, "Gone")}
    corrupt = enqueue(canary.keep, "Corrupt", job_id="corrupt", enqueue_in=0.5)
    conn.hset("rq:job:corrupt", "timeout", f"{MARK}Timeout")
    broken = enqueue(canary.fail, "Broken", job_id="broken", enqueue_in=0.5)
    conn.hset("rq:job:broken", "retry", f'{{"max": "{MARK}Retry"}}')

    eventually(lambda: field(conn, jobs["running"].id, "status") == "started", timeout=20, why=worker.output)
    assert {name: hits(text) for name, text in processes_of(fleet) if hits(text)} == {}
    ended = [*(job for name, job in jobs.items() if name != "running"), corrupt, broken]
    eventually(lambda: all(job.get_status().is_terminal for job in ended), timeout=40, why=worker.output)
    assert {name: hits(text) for name, text in processes_of(fleet) if hits(text)} == {}
    gate.unlink()
    assert jobs["running"].wait(20) == "finished"

    # it is all where it belongs
    well = (jobs["finished"], jobs["unfit"])
    assert [str(job.get_status()) for job in ended] == ["finished" if job in well else "failed" for job in ended]
    for name in ("failed", "retried"):
        assert MARK in field(conn, jobs[name].id, "reason")
        assert MARK in field(conn, jobs[name].id, "exc_info")
        assert MARK in field(conn, jobs[name].id, "callback_error")
    assert MARK in field(conn, jobs["finished"].id, "result")
    assert MARK in field(conn, jobs["finished"].id, "meta")
    assert MARK in field(conn, "corrupt", "reason")
    # what is shown instead
    assert f"job {jobs['failed'].id} failed: ValueError at tests.jobs.canary:fail:" in worker.output
    assert f"job {jobs['retried'].id} failed, retry in 0 s: ValueError at tests.jobs.canary:fail:" in worker.output
    assert f"job {jobs['late'].id} failed: fusion.exceptions.JobTimeoutException" in worker.output
    assert "job corrupt failed: corrupt" in worker.output
    assert_silent(fleet, conn)
    worker.stop()
    assert_silent(fleet, conn)

    # and what sinks get
    last = int(conn.hget("rq:events:meta", "n") or 0)
    eventually(lambda: len(told.read_text().splitlines()) >= last, timeout=30, why=fleet.logs())
    assert hits(told.read_text()) == []
    (line,) = [line for line in told.read_text().splitlines() if '"completed"' in line and jobs["finished"].id in line]
    assert json.loads(json.loads(line)["payload"])["kwargs"]["headers"] == {"Authorization": "***", "X-Note": "***"}
    assert "***" in json.loads(line)["result"]
    for command in (["events", "stats"], ["events", "tail"]):
        assert hits(fleet.command(*command)) == []
    assert_silent(fleet, conn)


@pytest.mark.long
def test_no_trouble_with_redis_shows_a_password(fleet: Fleet, conn: redis.Redis, private_redis: PrivateRedis) -> None:
    worker = fleet.start("sms", "--logging-level", "DEBUG")
    private_redis.pause()
    eventually(lambda: "Redis is away" in worker.output, timeout=20)
    private_redis.resume()
    eventually(lambda: "Redis is back" in worker.output, timeout=20)
    guarded.change_password(conn, f"{PASSWORD}Changed")
    conn.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    eventually(lambda: "refused the login" in worker.output, timeout=20, why=worker.output)
    wrong = fleet.command("info")
    assert "refused the login" in wrong
    away = Fleet(fleet.workers, f"redis://:{PASSWORD}@127.0.0.1:1/0").command("info")
    assert "can't be reached" in away
    guarded.change_password(conn, PASSWORD)
    eventually(lambda: worker.output.count("Redis is back") >= 2, timeout=20, why=worker.output)
    assert hits(wrong + away + fleet.logs()) == []


@pytest.mark.long
def test_a_scheduler_keeps_to_itself_what_its_entries_hold(fleet: Fleet, conn: redis.Redis) -> None:
    args, kwargs = given("Cron")
    scheduler = fleet.start("--logging-level", "DEBUG", ready=False, program=("run_worker.py", "scheduler"))
    Scheduler(connection=conn).every(1, "tests.jobs.canary.keep", id="often", queue="sms", args=args, kwargs=kwargs)
    Scheduler(connection=conn).every(1, "tests.jobs.canary.fail", id="broken", queue="sms", args=args, kwargs=kwargs)
    eventually(lambda: conn.zcard("rq:queue:sms") >= 2, timeout=20, why=scheduler.output)
    conn.hset("rq:cron:entry:broken", "spec", json.dumps({"func": {MARK: 1}, "priority": MARK}))
    conn.hset("rq:cron:entry:broken", "rev", "changed")
    eventually(
        lambda: "cron entry broken" in scheduler.output and "half a minute" in scheduler.output, timeout=20, why=scheduler.output
    )
    job = enqueue(canary.keep, "Scheduled", enqueue_in=0.2)
    eventually(lambda: field(conn, job.id, "status") == "queued", timeout=20, why=scheduler.output)
    assert {name: hits(text) for name, text in processes_of(fleet) if hits(text)} == {}
    assert_silent(fleet, conn)


def test_a_search_for_nothing_would_find_something(fleet: Fleet, conn: redis.Redis, tmp_path: Path) -> None:
    """The description is the producer's own word: it is shown, and this suite sees it where it is."""
    gate = tmp_path / "gate"
    gate.touch()
    worker = fleet.start("sms")
    job = Queue("sms").enqueue(canary.linger, until=str(gate), description=f"for {MARK}")
    eventually(lambda: field(conn, job.id, "status") == "started")
    eventually(lambda: hits(worker.output), why="the line about the job")
    assert any(hits(text) for _, text in processes_of(fleet)) is False
    conn.set("rq:elsewhere", MARK)
    assert [key for key, text in everything_but_the_jobs(conn) if hits(text)] == ["rq:elsewhere"]
    gate.unlink()
    assert job.wait(10) == "finished"
