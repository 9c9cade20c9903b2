"""docs/keys.md, fusion/store/layout/keys.py, the scripts and a Redis in use agree."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

import pytest
import redis

from fusion import Queue
from fusion.enqueue.copying import Edit, copy_job
from fusion.retry import Retry
from fusion.runtime.served_queues import ServedQueues
from fusion.store.layout.codec import RUN_FIELDS
from fusion.store.layout.keys import Keys
from fusion.store.layout.records import LogLine, RunLog
from fusion.store.scripting.constants import FleetConstants
from fusion.store.stream.reader import EventReader
from fusion.store.write.broker import Broker
from fusion.store.write.cron_broker import CronBroker
from fusion.store.write.event_broker import EventBroker
from fusion.store.write.limit_broker import LimitBroker
from fusion.store.write.operation_broker import AuditBroker
from fusion.store.write.schema_broker import SchemaBroker
from fusion.store.write.session_broker import SessionBroker
from tests.events.hands import ack, reader
from tests.kit.hands import LEASE, Hand, events_of, expire_lease, may_reap, new, now_ms, put
from tests.store.batch_hands import add, begin, callback
from tests.store.cron_hands import Cron
from tests.store.kin_hands import child
from tests.store.limits_hands import give
from tests.store.operation_hands import begin as begin_operation
from tests.store.unique_hands import lone

DOC = (Path(__file__).resolve().parents[2] / "docs" / "keys.md").read_text()
_SCRIPTS = resources.files("fusion.store") / "lua"
LUA = {
    path.name: path.read_text()
    for folder in (_SCRIPTS, *(_SCRIPTS / "include").iterdir())
    for path in folder.iterdir()
    if path.is_file()
}
#: Not a key of its own: the one of two that applies.
DERIVED = {"ready", "prefix"}

#: Of a worker's hash, what its process notes.
NOTES = ("quiet", "throttled", "unloaded", "probation", "memory")


def _section(title: str) -> list[list[str]]:
    text = DOC.split(f"\n## {title}\n")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| `")]
    assert rows
    return rows


def _keys() -> dict[str, tuple[str, str, str]]:
    """Name in `Keys` -> (key, type, writers)."""
    rows = [row for title in ("Jobs and queues", "Schema", "Workers", "Schedulers and cron", "Events") for row in _section(title)]
    return {row[2].strip("`"): (row[0].strip("`"), row[1], row[4]) for row in rows}


def _pattern(key: str) -> re.Pattern[str]:
    """A set of blocked jobs has colons in its name, and a bell."""
    name = "[A-Za-z0-9_.*:-]+" if key in ("rq:waits:<set>", "rq:wake:<queue>", "rq:wake:<queue>:high") else "[A-Za-z0-9_.*-]+"
    return re.compile(re.sub(r"<\w+>", name, re.escape(key).replace(r"\<", "<").replace(r"\>", ">")) + r"\Z")


def test_every_key_of_python_is_documented_under_its_name() -> None:
    named = {
        name for kind in Keys.__mro__[:-1] for name in vars(kind) if not name.startswith(("_", "name_of_", "set_of"))
    } - DERIVED
    documented = _keys()
    assert set(documented) == named
    for name, (key, _, _) in documented.items():
        made = getattr(Keys("rq:"), name)
        assert (made if isinstance(made, str) else made(*re.findall(r"<\w+>", key))) == key


def test_every_key_of_the_scripts_is_documented() -> None:
    documented = [key.removeprefix("rq:") for key, _, _ in _keys().values()]
    pieces = {piece for text in LUA.values() for piece in re.findall(r"\bP \.\. '([^']+)'", text)}
    assert {"job:", "wip:", "seq:front", "events:meta"} <= pieces
    for piece in pieces:
        assert any(key.startswith(piece) for key in documented), piece
    spelled = [name for name, text in LUA.items() if re.search(r"'rq:", text)]
    assert spelled == [], "the prefix is a setting"


def test_the_writers_are_scripts() -> None:
    words = {word for _, _, writers in _keys().values() for word in re.findall(r"`([\w.]+)`", writers)}
    for title in ("Fields of a job", "Fields of a cron entry"):
        words |= {word for row in _section(title) for word in re.findall(r"`(\w+)`", row[2])}
    assert {f"{word}.lua" for word in words if "." not in word} <= set(LUA)
    assert all(
        any(
            hasattr(kind, word.rpartition(".")[2])
            for kind in (AuditBroker, Broker, CronBroker, EventBroker, EventReader, LimitBroker, SchemaBroker, SessionBroker)
        )
        for word in words
    )


@pytest.fixture
def used(conn: redis.Redis) -> redis.Redis:
    """A Redis in which everything has happened once."""
    broker = Broker(conn)
    broker.enqueue("copies", [new("copied")], "n")
    broker.cancel("copied")
    copy_job(conn, "copied", Edit())
    full = {
        "priority": 2,
        "job_timeout": 5,
        "ttl": 60,
        "failure_ttl": 60,
        "retry": Retry(max=1),
        "meta": {"k": 1},
        "log_tag": "SMS_OTP",
        "fair_key": "tenant-7",
    }
    handlers = {
        "on_success": "tasks.sms.sendSMS",
        "on_failure": "tasks.sms.sendSMS",
        "on_stopped": "tasks.sms.f",
        "on_lost": "fail",
    }
    urls = {"success_task_handler": "https://x/", "failed_task_handler": "https://x/", "callback_url": "https://y/"}
    Queue("q", conn).enqueue("tasks.sms.sendSMS", job_id="full", **full, **handlers, **urls)
    put(broker, "q", "front", front=True)
    put(broker, "q", *(f"j{i}" for i in range(12)))
    put(broker, "scheduler", "s1", "s2")
    give(broker, "limited", "t1", "t2")
    often = {"on_duplicate": "replace", "unique_window": 9**9, "unique_until": "start", "max_delay": 9}
    broker.enqueue("alone", [lone("u1", delay=60.0, **often)], "n1")
    broker.enqueue("alone", [lone("u2", delay=60.0, **often)], "n2")
    kin = [child("c1", "?p1"), child("c2", "p2", delay=9.0), child("c3", "p1")]
    broker.enqueue("kin", [new("p1"), new("p2"), *kin], "n")
    broker.cancel("p1")
    broker.release()
    broker.enqueue("other", [new("p3")], "n")
    broker.enqueue_part("kin", [child("c4", "p3")], "17", 0)
    broker.add_parents("c4", "17", 1, ["p2"])
    broker.cancel("p3")
    broker.release()
    give(broker, "limited", "t3", ties="kdt", key="l", on_conflict="discard", limit_duration=9**9, rate="9/1/9")
    begin(broker, "b", name="n", on_complete="b3")
    begin(broker, "inner", "b")
    callback(broker, "b", "complete", "b3")
    broker.enqueue("limited", [new("step", ties="pg", takes=1, parents='["b3"]')], "n")
    add(broker, "b", "b1", queue="limited")
    add(broker, "b", "b2", queue="limited", by="b1")
    broker.cancel("b2")
    hand = Hand(broker, "limited", name="logger.1")
    hand.claim(2)
    broker.survey(ServedQueues(["*"])._compiled, 0)
    hand = Hand(broker, "q", "scheduler")
    jobs = hand.claim(8, ["q"])
    put(broker, "calls", "m1", "m2", func="f", gather="10 0", ties="m")
    hand.broker.follow(hand.name, hand.incarnation, 1, 9.0, hand.take("calls"), 5)
    broker.enqueue("logs", [new("logging", keep_logs="1")], "logging")
    broker.write_logs([RunLog("logging", hand.take("logs").execution_id, lines="1 a line")])
    every = {"result": "1", "result_error": "e", "callback_error": "e", "exc_info": "t", "meta": "{}", "retryCount": 8}
    every |= {"progress": "{}", "cursor": "1"}
    every |= {"error_class": "E", "error_bases": "B", "error_frame": "m:f:1"}
    for claimed, kind in zip(jobs, ("finished", "failed", "retry", "held", "release", "lost", "finished"), strict=False):
        hand.tell(claimed, kind, reason="r", fields=every | ({"task": "shop.f"} if kind == "held" else {}))
    hand.broker.hold_probation("host", hand.incarnation, 20, ["held:q:shop.f"])
    hand.tell(hand.take("q"), "failed", reason="r")
    hand.claim(2, ["scheduler"])
    broker.cancel(jobs[7].id)
    broker.cancel("j9")
    broker.requeue(conn.zrange("rq:queue:failed", 0, 0), "n")
    broker.quarantine(conn.zrange("rq:queue:failed", -1, -1), "why")
    begin_operation(conn, "o", "quarantine", "failed")
    broker.do_operation("o", "quarantine", [conn.zrange("rq:queue:failed", -1, -1)[0].decode()], {"reason": "why"}, "n")
    conn.zadd("rq:queue:q", {b"not an id": 2})
    hand.claim()
    may_reap(conn)
    expire_lease(conn, "q", jobs[7].id)
    broker.reap(LEASE, 0)
    broker.promote()
    conn.hset("rq:job:" + conn.zrange("rq:canceled:q", 0, 0)[0].decode(), "ended_at", "2000")
    Broker(conn, FleetConstants(canceled_max=1)).clean()
    broker.log_event([LogLine("log", "said", dropped=2)], "n")
    put(broker, "q", "thrown")
    broker.delete_to_trash(["thrown"])
    AuditBroker(conn).log_audit("n2", {"who": "a@b"})
    SessionBroker(conn, "rq:").open_session("d" * 64, {"token": "t"}, 60)
    broker.suspend()
    broker.pause("q")
    due = now_ms(conn) / 1000 + 60
    broker.enqueue("q", [new("later", due=due, ttl=5), new("first", delay=60.0, front=True)], "n")
    broker.expire()
    broker.reschedule("later", due + 60)
    _schedule_all(conn)
    _relay_all(conn)
    give(broker, "limited", "t4")
    return conn


def _relay_all(conn: redis.Redis) -> None:
    """Everything that a relay does."""
    found = reader(EventBroker(conn), "host.3", "file")
    got = found.read(10, 0)
    ack(found, got, {got[0].event.id: "why"})
    conn.xtrim("rq:events", maxlen=20, approximate=False)
    found.read(1, 0)
    found.failing("503", 1, open_=False)


def _schedule_all(conn: redis.Redis) -> None:
    """Everything that a scheduler and the callers of cron do."""
    cron = Cron(conn, overlap="skip")
    broker = cron.broker
    presence = {"pid": 1, "hostname": "h", "fusion": "1", "app": "a", "version": "2"}
    broker.scheduler_beat("host.2", "i", LEASE, 420, presence)
    broker.cron_put("declared", "p", "s", "r", app="a", version="2")
    broker.cron_put("faulty", "", "", "", app="a", version="2", error="no such zone")
    broker.cron_retire("a", "2", ["declared", "faulty"])
    broker.cron_pause("declared")
    cron.run()
    cron.tick(cron.now - 120, missed=2)
    conn.delete(f"rq:job:{conn.hget('rq:cron:entry:e', 'manual_job').decode()}")
    cron.tick(cron.now - 60)
    broker.cron_fault(cron.stored, "damaged")


def test_every_key_in_use_is_documented_with_its_type(used: redis.Redis) -> None:
    documented = [(_pattern(key), kind) for key, kind, _ in _keys().values()]
    seen = set()
    for raw in used.scan_iter():
        kinds = [kind for pattern, kind in documented if pattern.match(raw.decode())]
        found = used.type(raw).decode()
        assert found in kinds or (raw == b"rq:queue:scheduler" and found == "list"), raw
        seen.add(found)
    assert seen == {"hash", "zset", "set", "list", "string", "stream"}


def test_every_field_of_a_job_is_documented(used: redis.Redis) -> None:
    documented = [row[0].strip("`") for row in _section("Fields of a job")]
    assert len(documented) == len(set(documented))
    records = [key for key in used.scan_iter("rq:job:*", _type="hash") if not key.endswith(b":parents")]
    found = {name.decode() for key in records for name in used.hkeys(key)}
    assert found <= set(documented)
    assert set(RUN_FIELDS) <= set(documented)
    promised = """data created_at origin original_queue description enqueued_at started_at ended_at status result exc_info timeout result_ttl
        priority retryCount log_tag failed_task_handler success_task_handler meta worker_name attempts lost deliveries seq execution_id
        nonce serializer"""
    assert set(promised.split()) <= set(documented)
    assert "at_front" in found
    assert set(documented) - found <= {
        "serializer",
        "wanted",
        "place_in_key",
        "follows",
        "followed_by",
        "signature",
        "requeue_nonce",
        "expires_at",
        "queue_timeout",
        "cancel",
        "isolate",
        "begun",
        "retry_since",
        "locks",
        "spared",
        "suspect",
        "result_once",
        "given",
        "given_as",
        "repeats_left",
        "repeat_intervals",
        "unsigned",
    }


def test_every_field_of_a_worker_and_of_an_event_is_documented(used: redis.Redis) -> None:
    documented = {row[0].strip("`") for row in _section("Fields of a worker")}
    found = {name.decode() for name in used.hkeys("rq:worker:host.1")}
    assert found <= documented
    assert documented - found <= {"pid", "hostname", "version", "python_version", *NOTES}, "the worker process adds these"
    (row,) = [row for row in _section("Events") if row[0] == "`rq:events`"]
    assert {name for event in events_of(used) for name in event} == set(re.findall(r"`(\w+)`", row[3]))
    (reap,) = [row for row in _section("Workers") if row[0] == "`rq:reap`"]
    assert {name.decode() for name in used.hkeys("rq:reap")} == set(re.findall(r"`(\w+)`", reap[3]))
    (meta,) = [row for row in _section("Events") if row[0] == "`rq:events:meta`"]
    assert {name.decode() for name in used.hkeys("rq:events:meta")} == set(re.findall(r"`(\w+)`", meta[3]))


def test_every_field_of_a_cron_entry_and_of_a_scheduler_is_documented(used: redis.Redis) -> None:
    documented = [row[0].strip("`") for row in _section("Fields of a cron entry")]
    found = {name.decode() for key in used.scan_iter("rq:cron:entry:*") for name in used.hkeys(key)}
    assert sorted(documented) == sorted(found)
    documented = [row[0].strip("`") for row in _section("Fields of a scheduler")]
    assert sorted(documented) == sorted(name.decode() for name in used.hkeys("rq:scheduler:process:host.2"))
    (row,) = [row for row in _section("Schedulers and cron") if row[0] == "`rq:cron:history:<entry>`"]
    outcomes = {line.split()[1].decode() for line in used.lrange("rq:cron:history:e", 0, -1)}
    assert {"manual", "missed", "overlap", "enqueued"} == outcomes
    assert outcomes | {"exists", "taken", "duplicate"} == set(re.findall(r"`(\w+)`", row[3]))


def test_every_field_of_a_sink_and_of_a_relay_is_documented(used: redis.Redis) -> None:
    for title, key in (("Fields of a sink", "rq:sink:file"), ("Fields of a relay", "rq:relay:host.3")):
        documented = [row[0].strip("`") for row in _section(title)]
        assert sorted(documented) == sorted(name.decode() for name in used.hkeys(key)), title
    (row,) = [row for row in _section("Events") if row[0] == "`rq:events:parked:<sink>`"]
    ((_, parked),) = used.xrange("rq:events:parked:file")
    assert {name.decode() for name in parked} == set(re.findall(r"`(\w+)`", row[3]))
