"""What a newer version adds to the data is kept and shown by this one, and never makes it stumble: fields, options, statuses, outcomes."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fusion import FailedQueue, Job, JobStatus, Queue, Retry, Scheduler
from fusion.cron.entry import Entry
from fusion.exceptions import DuplicateJob, InvalidJobOperation
from fusion.jobs.attempts import parse_history
from fusion.store.layout.codec import RUN_FIELDS
from fusion.store.layout.records import Claimed
from fusion.store.read.inspector import Inspector
from fusion.store.write.broker import Broker
from fusion.store.write.cron_broker import CronBroker
from fusion.store.write.event_broker import EventBroker
from tests.cli.conftest import Invoke
from tests.events.hands import reader
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import LEASE, Hand, expire_lease, fields_of, may_reap, new, now_ms, promote_all, put
from tests.kit.witnesses import status_of
from tests.kit.workers import Workers
from tests.web.conftest import Start
from tests.web.harness import Tokens

#: Those of docs/keys.md: what is not among them is unknown to this version.
KNOWN = {
    line.split("|")[1].strip(" `")
    for line in (Path(__file__).parents[2] / "docs" / "keys.md")
    .read_text()
    .split("## Fields of a job")[1]
    .split("\n## ")[0]
    .splitlines()
    if line.startswith("| `")
}
NAMES = st.text("abcdefghijklmnopqrstuvwxyz_XYZ0123456789.\u00e9", min_size=1, max_size=12).filter(lambda name: name not in KNOWN)
EXTRA = st.dictionaries(NAMES, st.binary(max_size=20), min_size=1, max_size=6)
OUTCOMES = ("finished", "failed", "retry", "release", "lost", "held", "later")
STEPS = (
    *OUTCOMES,
    *("claim", "cancel", "requeue", "requeue later", "requeue in place", "reschedule", "promote", "quarantine", "reap"),
    *("extend", "save_meta", "clean", "enqueue again", "prune"),
)
_numbers = itertools.count()


class Walk:
    """One job with fields that nobody knows, and all that can happen to it."""

    def __init__(self, conn: redis.Redis, extra: dict[str, bytes]) -> None:
        conn.flushall()
        self.conn, self.broker, self.extra = conn, Broker(conn), extra
        self.id, self.queue = f"w{next(_numbers)}", f"q{next(_numbers)}"
        job = new(self.id, ttl=600, meta="{}", callback_url="https://x/", hooks=1, **extra)
        self.broker.enqueue(self.queue, [job], self.id)
        self.hand = Hand(self.broker, self.queue, name=f"{self.id}.1")
        self.claimed: Claimed | None = None

    def take(self) -> None:
        if status_of(self.conn, self.id) == "scheduled":
            self.conn.zadd("rq:scheduler:scheduled_jobs", {self.id: 1})
            self.broker.promote()
        jobs = self.hand.claim()
        if jobs:
            (self.claimed,) = jobs

    def step(self, name: str) -> None:
        if name in OUTCOMES:
            if self.claimed is None:
                self.take()
            if self.claimed is not None:
                self.hand.tell(
                    self.claimed, name, reason="r", delay=0.0, fields={"result": "1"}, attempt={"maxrss": 1, "later": 2}
                )
                self.claimed = None
            return
        steps: dict[str, Callable[[], Any]] = {
            "claim": self.take,
            "cancel": lambda: self.broker.cancel(self.id),
            "requeue": lambda: self.broker.requeue([self.id], f"n{next(_numbers)}"),
            "requeue later": lambda: self.broker.requeue([self.id], f"n{next(_numbers)}", delay=60.0),
            "requeue in place": lambda: self.broker.requeue([self.id], f"n{next(_numbers)}", keep_place=True),
            "reschedule": lambda: self.broker.reschedule(self.id, now_ms(self.conn) / 1000 + 60),
            "promote": lambda: promote_all(self.broker, self.conn),
            "quarantine": lambda: self.broker.quarantine([self.id], "why"),
            "extend": lambda: self.claimed and self.hand.extend(self.claimed),
            "save_meta": lambda: self.broker.save_meta(self.id, '{"k": 1}'),
            "clean": self.broker.clean,
            "enqueue again": self.enqueue_again,
            "reap": self.reap,
            "prune": self.prune,
        }
        steps[name]()

    def enqueue_again(self) -> None:
        """A resend of the first call; a new life of the id would be another job."""
        self.broker.enqueue(self.queue, [new(self.id)], fields_of(self.conn, self.id).get("nonce", self.id))

    def reap(self) -> None:
        may_reap(self.conn)
        expire_lease(self.conn, self.queue, self.id)
        self.broker.reap(LEASE, 0)
        self.claimed = None

    def prune(self) -> None:
        self.broker.prune(LEASE, self.hand.name)
        self.hand, self.claimed = Hand(self.broker, self.queue, name=self.hand.name), None

    def check(self) -> None:
        found = self.conn.hgetall(f"rq:job:{self.id}")
        kept = {name: found.get(name.encode()) for name in self.extra}
        assert kept == self.extra
        check_conservation(self.conn, [self.id])


# The server is the same for all examples, and empty at the start of each.
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(extra=EXTRA, steps=st.lists(st.sampled_from(STEPS), min_size=3, max_size=14))
def test_fields_that_nobody_knows_survive_whatever_happens_to_a_job(
    conn: redis.Redis, extra: dict[str, bytes], steps: list[str]
) -> None:
    walk = Walk(conn, extra)
    for step in steps:
        walk.step(step)
        walk.check()


@pytest.mark.parametrize("before", [[], ["claim"], ["failed"], ["retry"]], ids=["queued", "started", "failed", "scheduled"])
def test_each_step_keeps_them(conn: redis.Redis, before: list[str]) -> None:
    """No case rests on what hypothesis happens to draw."""
    for step in STEPS:
        walk = Walk(conn, {"later_field": b"\x00\xff", "X": b""})
        for name in (*before, step):
            walk.step(name)
            walk.check()


def test_they_go_with_the_life_of_the_id(conn: redis.Redis, broker: Broker) -> None:
    put(broker, "q", "a", later_field="x")
    Hand(broker, "q").tell(Hand(broker, "q", name="host.2").take())
    broker.cancel("a")
    put(broker, "q", "b", later_field="x")
    broker.cancel("b")
    put(broker, "q", "b")
    assert "later_field" not in fields_of(conn, "b")


@pytest.mark.long
def test_a_real_worker_runs_such_a_job_and_keeps_them(conn: redis.Redis, broker: Broker, workers: Workers) -> None:
    retry = json.dumps({"max": 1, "interval": [0.0], "on": ["builtins.ValueError"], "place": "middle", "budget": {"per": "day"}})
    callback = json.dumps({"func": "tests.jobs.basic.noop", "timeout": 5, "when": "later"})
    data = {name: json.dumps([f"tests.jobs.basic.{name}", None, [], {}]) for name in ("noop", "boom")}
    extra = {"retry": retry, "on_success": callback, "on_failure": callback, "later_field": b"\x00", "dependency_ids": "x,y"}
    for name, call in data.items():
        broker.enqueue("q", [new(name, **{**extra, "data": call})], name)
    workers.burst("q")
    assert (status_of(conn, "noop"), status_of(conn, "boom")) == ("finished", "failed")
    for name in data:
        found = conn.hgetall(f"rq:job:{name}")
        assert {key: found[key.encode()] for key in extra} == {
            k: v if isinstance(v, bytes) else v.encode() for k, v in extra.items()
        }
    assert Job.fetch("boom", conn).attempts == 2, "its retry policy was understood"


def test_options_of_a_retry_policy_that_nobody_knows_are_left_out() -> None:
    assert Retry.from_json('{"max": 2, "interval": [5], "jitter": 0.5, "place": "front"}') == Retry(2, [5])
    assert Retry.from_json('{"max": 2, "place": "back", "x": null}') == Retry(2, place="back")
    for broken in ("[1]", '{"max": -1}', "{", "7"):
        with pytest.raises((ValueError, TypeError)):
            Retry.from_json(broken)


def test_what_a_run_needs_is_asked_for_by_name(conn: redis.Redis, broker: Broker) -> None:
    """A worker of this version gets the fields that it knows, whatever else is there."""
    put(broker, "q", "a", later_field="x")
    assert set(Hand(broker, "q").take().fields) <= {name.encode() for name in RUN_FIELDS}


# -- statuses

STRANGE = ("blocked", "rate_limited", "waiting for approval")


@pytest.mark.parametrize("status", STRANGE)
def test_a_job_of_an_unknown_status_is_shown_and_left_alone(
    conn: redis.Redis, broker: Broker, status: str, invoke: Invoke
) -> None:
    put(broker, "q", "a")
    conn.zrem("rq:queue:q", "a")
    conn.hset("rq:job:a", "status", status)
    conn.zadd("rq:later:q", {"a": 1})
    before = conn.hgetall("rq:job:a")

    job = Job.fetch("a", conn)
    assert job.get_status() == status == str(job.get_status())
    assert job.get_status() not in (JobStatus.QUEUED, JobStatus.FINISHED)
    assert not (job.is_queued or job.is_failed or job.is_finished or job.is_canceled or job.get_status().is_terminal)
    assert job.result is None
    assert f"{status!s}" in repr(job)
    with pytest.raises(TimeoutError, match=status):
        job.wait(0.01)

    for change in (job.cancel, job.delete, job.requeue, lambda: job.reschedule(5)):
        with pytest.raises(InvalidJobOperation, match=status):
            change()
    with pytest.raises(InvalidJobOperation, match=status):
        FailedQueue(conn).requeue("a")
    with pytest.raises(DuplicateJob, match=status):
        Queue("q", conn).enqueue("tests.jobs.basic.noop", job_id="a")
    broker.quarantine(["a"], "why")
    result = invoke("cancel", "a", code=1)
    assert f"it is {status}, which only a newer version of Fusion knows" in result.stderr
    assert conn.hgetall("rq:job:a") == before
    assert conn.zrange("rq:later:q", 0, -1) == [b"a"]


@pytest.mark.parametrize("status", STRANGE)
def test_one_that_stands_in_a_set_of_this_version_stays_there(conn: redis.Redis, broker: Broker, status: str) -> None:
    put(broker, "q", "a", "b")
    hand = Hand(broker, "q")
    hand.claim()
    conn.hset("rq:job:a", "status", status)
    may_reap(conn)
    expire_lease(conn, "q", "a")
    broker.reap(LEASE, 0)
    assert conn.zscore("rq:wip:q", "a") > now_ms(conn)
    conn.hset("rq:job:b", "status", status)
    conn.zrem("rq:queue:q", "b")
    promoted = {"b": 1.0}
    conn.zadd("rq:scheduler:scheduled_jobs", promoted)
    assert broker.promote()[0] == 0
    assert conn.zscore("rq:scheduler:scheduled_jobs", "b") > now_ms(conn) / 1000
    assert {status_of(conn, job_id) for job_id in "ab"} == {status}


def test_one_in_a_queue_is_an_old_producers_and_runs(conn: redis.Redis, broker: Broker) -> None:
    """RQ's own producers write statuses of theirs."""
    put(broker, "q", "a", "b", "c")
    put(broker, "scheduler", "d")
    for job_id in "abcd":
        conn.hset(f"rq:job:{job_id}", "status", "created")
    assert broker.cancel("a") == broker.cancel("d") == "canceled"
    assert broker.delete(["b"]) == ["deleted"]
    assert [job.id for job in Hand(broker, "q", "scheduler").claim(4)] == ["c"]
    assert check_conservation(conn, ["a", "c", "d"]) == {"a": "canceled", "c": "started", "d": "canceled"}


def test_a_status_is_itself_and_a_text(conn: redis.Redis) -> None:
    strange = JobStatus("later")
    assert (strange, str(strange), strange.value, f"{strange}") == ("later",) * 4
    assert strange == JobStatus("later")
    assert len({strange, JobStatus("later")}) == 1
    assert strange not in list(JobStatus)
    for none in ("", None, 7):
        with pytest.raises(ValueError, match="JobStatus"):
            JobStatus(none)


# -- outcomes, processes, cron, events


def test_a_history_with_outcomes_that_nobody_knows_is_shown(conn: redis.Redis, broker: Broker, invoke: Invoke) -> None:
    put(broker, "q", "a", history='{"outcome":"preempted","error":"e","node":"n"}\n{"outcome":{}}\nnot json')
    hand = Hand(broker, "q")
    hand.tell(hand.take(), "failed", reason="ValueError: boom")
    found = Job.fetch("a", conn).attempt_history
    assert [attempt.outcome for attempt in found] == ["preempted", "", "failed"]
    assert parse_history(fields_of(conn, "a")["history"]) == found
    assert "ValueError" in invoke("failures").output


def test_readers_take_what_they_know_of_everything_else(
    conn: redis.Redis, broker: Broker, invoke: Invoke, redis_url: str, start_server: Start, tokens: Tokens
) -> None:
    strange = {"later_field": "x", "state": "hibernating", "sla": "\u00e9"}
    put(broker, "q", "a", "b", later_field=b"\xff\xfe")
    hand = Hand(broker, "q")
    hand.take()
    conn.hset("rq:worker:host.1", mapping=strange)
    CronBroker(conn).scheduler_beat("host.2", "i", LEASE, 420, {"app": "x", **strange})
    events = EventBroker(conn)
    events.relay_beat("host.3", "i", LEASE, 420, ["file"], 0, {"sinks": "file", **strange})
    Scheduler(conn).cron("* * * * *", "tests.jobs.basic.noop", id="e")
    spec = json.loads(conn.hget("rq:cron:entry:e", "spec"))
    conn.hset("rq:cron:entry:e", mapping={**strange, "spec": json.dumps({**spec, "calendar": "de"})})
    conn.rpush("rq:cron:history:e", "1700000000 deferred 1700000000000 somewhere else")
    conn.xadd("rq:events", {"event": "rerouted", "job_id": "a", "queue": "q", "epoch": "1", "n": 99, "node": "n7"})
    conn.xadd("rq:events", {"what": "nothing of ours"})
    conn.hset("rq:sink:file", mapping=strange)
    conn.hset("rq:schema", mapping=strange)
    conn.hset("rq:reap", mapping=strange)
    conn.hset("rq:dropped", mapping={"later": 3})
    before = {key: conn.hgetall(key) for key in conn.scan_iter(_type="hash")}

    for line in (
        "info",
        "info --json",
        "info -W",
        "cron list",
        "cron list --json",
        "cron history e",
        "events stats",
        "events stats --json",
    ):
        invoke(*line.split())
    for line in ("schema", "scheduled", "failures", "callbacks list", "events tail"):
        assert invoke(*line.split()).output, line
    assert "rerouted" in invoke("events", "tail").output
    assert "deferred" in invoke("cron", "history", "e").output
    assert "hibernating" in invoke("info", "-W").output
    assert Inspector(conn).workers()[0].state == "hibernating"
    server = start_server(redis_url, "--tokens", str(tokens.path))
    token = tokens.by_scope["read"]
    for path in ("/api/v1/jobs/a", "/api/v1/queues", "/api/v1/queues/q/stats"):
        assert server.ask("GET", path, token=token).status == 200, path

    got = reader(events, "host.3", "file").read(100, 0)
    assert [one.event.event for one in got if one.event.job_id == "a"][-1] == "rerouted"
    plan, spec = (text.decode() for text in conn.hmget("rq:cron:entry:e", "plan", "spec"))
    assert Entry.of("e", plan, spec).func_name == "tests.jobs.basic.noop", "an option that nobody knows is left out"
    now = {key: conn.hgetall(key) for key in before}
    for key, row in before.items():
        kept = {name: now[key][name] for name in (b"later_field", b"sla") if name in row}
        assert kept == {name: row[name] for name in kept}, key


def test_a_worker_that_registers_again_keeps_what_is_in_its_entry(conn: redis.Redis, broker: Broker) -> None:
    hand = Hand(broker, "q")
    conn.hset("rq:worker:host.1", "later_field", "x")
    broker.register(hand.name, hand.incarnation, LEASE, 420, {"queues": "q"})
    hand.extend()
    hand.turn(slots=[0])
    assert conn.hget("rq:worker:host.1", "later_field") == b"x"
