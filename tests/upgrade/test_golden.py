"""What every layout before this one left behind is read, run and lost nowhere. The data are frozen: see make_golden.py."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from typing import Any

import pytest
import redis

from fusion import Job
from fusion.settings import get_settings, use_settings
from fusion.status import TERMINAL, JobStatus
from fusion.store.layout import schema
from fusion.store.read.callback_inspector import CallbackInspector
from fusion.store.read.inspector import Inspector
from fusion.store.redis_server.binary import ServerBinary
from fusion.store.stream.reader import EventReader
from fusion.store.write.broker import Broker
from fusion.store.write.event_broker import EventBroker
from fusion.store.write.schema_broker import SchemaBroker
from tests.cli.conftest import Invoke
from tests.faults.rig.conservation import check_conservation, check_groups
from tests.kit.hands import Hand, may_reap, promote_all
from tests.kit.servers import SpawnedServer
from tests.kit.waiting import eventually
from tests.kit.witnesses import status_of
from tests.kit.workers import Workers
from tests.upgrade import golden
from tests.upgrade.make_golden import EXTRA, SECRET

#: What was once released stays as it is: a change here is a change of history, whoever makes it. New layouts add lines.
FROZEN: dict[str, str] = {
    "2/data.rdb": "4de01fc427259fc9e673c8b1ff561b1ec7b447092d1024840a939c53855b27c9",
    "2/listing.json": "609d5ab7fb9890e0b7f15c17872e4a85f7d0a6883a32bb00619dc9838227b12a",
}
VERSIONS = golden.versions()
QUEUES = {2: {"bound", "cron", "email", "later", "paused", "run", "scheduler", "sms", "thrown", "work"}}
ENV = {
    "FUSION_SECRET_KEYS": SECRET,
    "FUSION_REQUIRE_SIGNATURES": "0",
    "FUSION_ALLOW_PICKLE": "1",
    "FUSION_TASKS": "tests.upgrade.tasks",
}
#: Long enough for leases and registrations, not for what is kept of ended jobs.
WEEKS = 40 * 86400
Load = Callable[..., dict[str, Any]]


@pytest.fixture(params=VERSIONS)
def load(request: pytest.FixtureRequest, conn: redis.Redis) -> Load:
    """`load(age=0)` puts the data of one layout into the test's Redis, as old as that, and returns the document."""

    def do(*, age: int | None) -> dict[str, Any]:
        document = golden.read(request.param)
        golden.load(conn, document, age=age)
        return document

    return do


def unended(conn: redis.Redis, jobs: dict[str, Any]) -> dict[str, str]:
    found = {job_id: status_of(conn, job_id) for job_id in jobs}
    return {job_id: status for job_id, status in found.items() if status not in {*TERMINAL, "missing"}}


def test_each_released_layout_has_its_data() -> None:
    assert schema.VERSION in VERSIONS, "make them with tests/upgrade/make_golden.py, and list them in FROZEN"
    assert schema.FIRST in VERSIONS


def test_what_is_frozen_stays_as_it_is() -> None:
    found = {
        str(path.relative_to(golden.ROOT)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(golden.ROOT.rglob("*"))
        if path.is_file()
    }
    assert found == FROZEN


def test_every_state_is_among_them() -> None:
    document = golden.read(schema.FIRST)
    keys = {one["key"]: one["content"] for one in document["keys"]}
    statuses = {status for status, _ in document["jobs"].values()}
    assert statuses == {
        *("", "queued", "started", "finished", "failed", "scheduled", "canceled", "deferred", "blocked", "stopped"),
    }
    jobs = {
        key.removeprefix("rq:job:"): {str(name): value for name, value in row}
        for key, row in keys.items()
        if key.startswith("rq:job:") and key.count(":") == 2
    }
    assert {
        "quarantined",
        "history",
        "signature",
        "serializer",
        "cancel",
        "held_since",
        "meta",
        "callback_url",
        "later_field",
    } <= {name for row in jobs.values() for name in row}
    assert keys["rq:queue:scheduler"] == ["list-inbox", "list-outsider"]
    assert [member for member, _ in keys["rq:fifo:scheduler"]] == ["list-over"]
    assert all(group["held"] for group in keys["rq:events"]["groups"])
    assert {
        "rq:suspended",
        "rq:paused:paused",
        "rq:schema",
        "rq:cron:marks",
        "rq:cron:history:hourly",
        "rq:events:parked:file",
    } <= set(keys)


def test_every_kind_of_key_is_among_them() -> None:
    keys = [one["key"] for one in golden.read(schema.FIRST)["keys"]]
    kinds = ("batch:", "limit:", "trash", "audit", "gates", "unique:", "fair:", "blocked:", "failure:")
    assert [kind for kind in kinds if not any(key.startswith(f"rq:{kind}") for key in keys)] == []


def test_the_listing_says_what_redis_wrote(server_binary: ServerBinary) -> None:
    """The real file, loaded by the server under test: what expires may be gone by now."""
    for version in VERSIONS:
        server = SpawnedServer(server_binary.path, "--save", "", "--enable-debug-command", "yes")
        client = server.client()
        try:
            if int(client.info("server")["redis_version"].split(".")[0]) < 7:
                pytest.skip("an older server can't read what a newer one wrote")
            shutil.copy(golden.ROOT / str(version) / "data.rdb", server.home / "dump.rdb")
            client.execute_command("DEBUG", "RELOAD", "NOSAVE", "NOFLUSH")
            found = {one["key"]: one for one in golden.dump(client)}
            lasting = [one for one in golden.read(version)["keys"] if one["ttl"] is None]
            assert len(lasting) > 70
            assert [found.get(one["key"]) for one in lasting] == lasting
        finally:
            client.close()
            server.close()


def test_the_listing_comes_back_as_it_was(load: Load, conn: redis.Redis) -> None:
    document = load(age=None)
    kept = [{**one, "ttl": None} for one in golden.dump(conn)]
    assert kept == [{**one, "ttl": None} for one in document["keys"]]


@pytest.mark.parametrize("age", [0, WEEKS], ids=["at once", "weeks later"])
def test_everything_is_read(load: Load, conn: redis.Redis, invoke: Invoke, age: int) -> None:
    document = load(age=age)
    assert SchemaBroker(conn).stored().version == document["schema"]
    there = {
        job_id: status for job_id, (status, _) in document["jobs"].items() if not age or status not in ("canceled", "stopped")
    }  # kept for a day
    for job_id, status in there.items():
        job = Job.fetch(job_id, conn)
        assert (str(job.get_status()) if status else "") == status
        assert job_id == "queued-pickled" or job.func_name.startswith("tests.upgrade.tasks.")
        assert job.attempt_history is not None
        assert job.created_at is not None
    assert Job.fetch("finished", conn).result == 42
    assert [one.outcome for one in Job.fetch("failed-history", conn).attempt_history] == ["retry", "lost", "retry", "failed"]
    assert Job.fetch("failed-quarantined", conn).quarantined == "the receiver is being rebuilt"
    check_conservation(conn, [job_id for job_id, status in there.items() if status], grouped=False)
    shown = json.loads(invoke("info", "--json").output)
    assert {queue["name"] for queue in shown["queues"]} == QUEUES[document["schema"]]
    assert shown["suspended"] is True
    for line, words in {
        "info": "email sms paused" if age else "email sms paused golden-live.1 golden-dead.1 golden-scheduler",
        "failures": "ValueError boom",
        "scheduled": "scheduled-far retry held",
        "cron list": "hourly nightly paused faulty",
        "cron history hourly": "missed exists",
        "events stats": "file elasticsearch 503",
        "events tail": "queued",
        "callbacks list": "callbacks.golden.invalid",
        "schema": f"schema {document['schema']}",
    }.items():
        output = invoke(*line.split()).output
        assert [word for word in words.split() if word not in output] == [], (line, output)
    told = {one.status for one in CallbackInspector(conn).find()}
    assert told == ({"retrying", "waiting"} if age else {"delivered", "failed", "retrying", "waiting"})


def test_every_event_is_delivered_that_was_not_acknowledged(load: Load, conn: redis.Redis) -> None:
    document = load(age=0)
    stream = next(one["content"] for one in document["keys"] if one["key"] == "rq:events")
    events = EventBroker(conn)
    for group in stream["groups"]:
        held = {entry for entry, _ in group["held"]}
        new = {entry for entry, _ in stream["entries"] if _order(entry) > _order(group["last"])}
        found = EventReader(events, group["name"], lambda: "golden-relay", "masked")
        got: list[str] = []
        while deliveries := found.read(50, 0):
            got += [delivery.entry for delivery in deliveries]
            found.ack(deliveries, {})
        assert sorted(got) == sorted(held | new), group["name"]


def _order(entry: str) -> tuple[int, int]:
    ms, _, n = entry.partition("-")
    return int(ms), int(n)


@pytest.mark.timeout(180)
def test_it_drains_to_its_ends_with_a_real_worker_and_scheduler(
    load: Load, conn: redis.Redis, workers: Workers, invoke: Invoke
) -> None:
    document = load(age=0)
    ends = {job_id: end for job_id, (_, end) in document["jobs"].items()}
    scheduler = workers.start(ready=False, program=("run_worker.py", "scheduler"), env=ENV)
    worker = workers.start("--customq", "all", "--lease", "3", "--slots", "2", "--no-relay", env=ENV)
    eventually(
        lambda: status_of(conn, "started-expired") == status_of(conn, "started-ahead") == "queued",
        30,
        why="what a dead worker held is given back",
    )
    assert (status_of(conn, "queued-high"), status_of(conn, "started-live")) == ("queued", "started"), (
        "suspended; and that lease lives"
    )

    invoke("resume")
    invoke("unpause", "paused")
    incarnation = conn.hget("rq:worker:golden-live.1", "incarnation").decode()
    assert Broker(conn).deregister("golden-live.1", incarnation) == 2
    for job_id in [one for one in ends if status_of(conn, one) == "scheduled"]:
        invoke("reschedule", job_id, "+0")
    eventually(lambda: not unended(conn, ends) and status_of(conn, "list-outsider") == "finished", 40, why="all of them end")
    states = check_conservation(conn, ends)
    assert states == ends, worker.output
    for job_id in ends:
        found = conn.hgetall(f"rq:job:{job_id}")
        assert {name: found[name.encode()] for name in EXTRA} == {
            n: v if isinstance(v, bytes) else v.encode() for n, v in EXTRA.items()
        }
    assert Job.fetch("queued-add", conn).result == 5
    assert Job.fetch("queued-boom", conn).attempts == 2
    assert Job.fetch("started-expired", conn).attempt_history[-1].outcome == "lost"
    told = [one.status for one in CallbackInspector(conn).find()]
    assert sorted(told) == ["delivered", "failed", "retrying", "waiting"], "nobody was there to deliver"
    assert worker.output.count("refused") == 0, worker.output
    assert "Traceback" not in scheduler.output, scheduler.output


def test_weeks_later_it_drains_as_well(load: Load, conn: redis.Redis) -> None:
    """Leases, times to live and ticks are long over. Without processes: what counts is that nothing is left behind."""
    document = load(age=WEEKS)
    broker = Broker(conn)
    broker.resume()
    broker.unpause("paused")
    may_reap(conn)
    while broker.reap(3, 0)[1]:
        pass
    broker.prune(3)
    promote_all(broker, conn)
    queues = [*Inspector(conn).queue_names(), "scheduler"]
    hand = Hand(broker, *dict.fromkeys(queues), name="later.1")
    for _ in range(50):
        jobs = hand.claim(5)
        for claimed in jobs:
            hand.tell(claimed)
        promote_all(broker, conn)
    assert unended(conn, document["jobs"]) == {}
    left = [job_id for job_id in document["jobs"] if conn.exists(f"rq:job:{job_id}")]
    assert {JobStatus(status) for status in check_conservation(conn, left, grouped=False).values()} <= TERMINAL
    while broker.clean():
        pass
    check_groups(conn)


def test_the_signed_one_is_still_signed(load: Load, conn: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    load(age=0)
    monkeypatch.setenv("FUSION_SECRET_KEYS", SECRET)
    use_settings(None)
    keyring = get_settings().keyring
    assert keyring is not None
    broker = Broker(conn)
    broker.resume()
    claimed = {job.id: job for job in Hand(broker, "email", name="other.1").claim(10)}
    assert keyring.flaw("queued-signed", "email", claimed["queued-signed"].fields) == ""
    assert keyring.flaw("queued-pickled", "email", claimed["queued-pickled"].fields) == ""
    assert keyring.flaw("queued-add", "email", claimed["queued-add"].fields)
