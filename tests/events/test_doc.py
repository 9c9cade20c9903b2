"""docs/events.md and what the scripts emit agree."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

import pytest
import redis

from fusion.events.event import STATUSES
from fusion.store.layout.records import ClaimFilter, LogLine, Report
from fusion.store.write.broker import Broker
from tests.kit.hands import LEASE, Hand, events_of, expire_lease, may_reap, new, now_ms, put
from tests.store.kin_hands import child
from tests.store.limits_hands import give

DOC = (Path(__file__).resolve().parents[2] / "docs" / "events.md").read_text()
ALWAYS = {"event", "job_id", "queue", "log_tag", "epoch", "n"}
LUA = resources.files("fusion.store") / "lua"
SOURCES = [path.read_text() for folder in (LUA, *(LUA / "include").iterdir()) for path in folder.iterdir() if path.is_file()]


def _documented() -> dict[str, set[str]]:
    """Event -> the fields it may have besides those of all."""
    rows = [
        line.strip("|").split("|")
        for line in DOC.split("## The events")[1].split("\n## ")[0].splitlines()
        if line.startswith("| `")
    ]
    without_values = {row[0].strip(" `"): re.sub(r"\([^)]*\)", "", row[2]) for row in rows}
    return {event: set(re.findall(r"`(\w+)`", fields)) for event, fields in without_values.items()}


def _emitted() -> dict[str, set[str]]:
    """As the scripts have it."""
    found: dict[str, set[str]] = {}
    for source in SOURCES:
        for event, rest in re.findall(r"\bemit\('(\w+)',(.*?)\)\n", source + "\n", re.DOTALL):
            names = re.findall(r"'(\w+)', [^']", re.sub(r"\s+", " ", rest) + " ,")
            found.setdefault(event, set()).update(names)
        for told in re.findall(r"(?:told = |, )\{ ('reason'|'worker'.*?) \}|fail_job\(.*?\{(.*?)\}", source, re.DOTALL):
            found.setdefault("failed", set()).update(re.findall(r"'(\w+)', [^']", " ".join(told) + " ,"))
    return found


def test_every_event_is_documented() -> None:
    assert set(_emitted()) | {"log"} == set(_documented())
    assert set(_documented()) >= STATUSES


@pytest.mark.parametrize("event", sorted(_emitted()))
def test_every_field_in_the_scripts_is_documented(event: str) -> None:
    assert _emitted()[event] <= _documented()[event]


def test_the_fields_that_are_there(conn: redis.Redis) -> None:
    """Live: each event with all it may have, and nothing else."""
    broker = Broker(conn)
    put(broker, "q", *(f"j{n}" for n in range(12)), ttl=60)
    hand = Hand(broker, "q")
    kinds = ("finished", "failed", "retry", "held", "release", "lost")
    error, callback = {"error_class": "E"}, {"callback_error": "on_failure: E: r"}
    fields = {"finished": callback, "failed": error | callback, "retry": error | callback}
    for kind, claimed in zip(kinds, hand.claim(6), strict=True):
        hand.tell(claimed, kind, reason="E: r", delay=5.0, fields=fields.get(kind))
    put(broker, "q", "beside")
    hand.tell(hand.take(), "displaced", reason="E: r")
    broker.promote()
    conn.hset("rq:job:j11", "expires_at", 1)
    alone = Hand(broker, "q", name="host.2", alone=True)
    held = alone.turn(slots=[0] * 12).jobs
    broker.report("host.2", [Report(held[0].id, held[0].execution_id, b'{"done":1}', said="1 of 2")])
    put(broker, "q", "lacking")
    hand.turn(slots=[0], claim_filter=ClaimFilter(lacking={"tasks.sms.sendSMS": "E: r"}))
    conn.hset(f"rq:job:{held[0].id}", "lost", 4)
    may_reap(conn)
    expire_lease(conn, "q", *(claimed.id for claimed in held))
    broker.reap(LEASE, 0)
    broker.cancel(held[1].id)
    put(broker, "q", "later", due=now_ms(conn) / 1000 + 60)
    broker.reschedule("later", now_ms(conn) / 1000 + 90)
    broker.stop("later")
    broker.requeue(["j1"], "n")
    broker.requeue([held[0].id], "m", delay=60)
    broker.delete(["j0"])
    give(broker, "limited", "t1", "t2", ties="kt", limit_duration=1)
    Hand(broker, "limited", name="host.3").take()
    conn.zadd("rq:limits:due", {"k t1": 1})
    broker.promote()
    broker.enqueue("q", [new("apart", ties="h"), child("apart2", "apart")], "apart")
    broker.cancel("apart2")
    broker.requeue(["apart2"], "n")
    put(broker, "q", "thrown")
    broker.cancel("thrown")
    broker.delete_to_trash(["thrown"])
    broker.restore(["thrown"], "n")
    broker.log_event([LogLine("log", "said", dropped=2), LogLine("completed", "said", dropped=1)], "n")
    seen: dict[str, set[str]] = {}
    for fields in events_of(conn):
        assert set(fields) >= ALWAYS
        event = "log" if "source" in fields else fields["event"]
        seen.setdefault(event, set()).update(set(fields) - ALWAYS)
    assert seen == _documented()
