"""`events stats`, `tail`, `replay`, `forget` and `setup` on a real Redis."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from fusion.settings import use_settings
from fusion.store.stream.reader import SinkEvent
from fusion.store.write.broker import Broker
from fusion.store.write.event_broker import EventBroker
from tests.cli.conftest import ROOT, Invoke
from tests.events.hands import ack, beat, reader, silence
from tests.kit.hands import put


@pytest.fixture
def outage(broker: Broker, events: EventBroker, conn: redis.Redis) -> list[SinkEvent]:
    """A sink called `file` that took 2 of 12 events, refused 1, never gets 2, and fails."""
    put(broker, "sms", *(f"j{n}" for n in range(12)), log_tag="SMS_OTP")
    found = reader(events, "box.1", "file")
    first = found.read(3, 0)
    ack(found, first, {first[0].event.id: "mapper_parsing_exception"})
    conn.xtrim("rq:events", maxlen=7, approximate=False)
    found.failing("503 \x1b[31mService Unavailable", 6, open_=True)
    beat(events, "box.1", "file")
    return first


# -- stats


def test_stats_of_a_redis_without_events(invoke: Invoke, conn: redis.Redis) -> None:
    assert invoke("events", "stats").stdout.splitlines() == [
        "Stream: 0 events; 10,000 at most, no sink has asked for more",
        "No relay runs",
        "No sink has been served yet",
    ]


def test_stats_show_an_outage(invoke: Invoke, outage: list[SinkEvent]) -> None:
    said = invoke("events", "stats").stdout
    stream, relay, _, head, row, trouble, hint = said.splitlines()
    assert stream.startswith("Stream: 7 events, the oldest ")
    assert stream.endswith("; 1,000,000 at most")
    assert re.match(r"Relay box\.1: file, alive \d+\.\d s", relay)
    assert head.split() == ["SINK", "BEHIND", "OLDEST", "DELIVERED", "PARKED", "DROPPED", "STATE"]
    assert row.split()[:2] == ["file", "7"]
    assert re.search(r" 2 +1 +2 +failing for \d+\.\d s, breaker open$", row)
    assert re.match(r"file: last error \d+\.\d s ago", trouble)
    assert trouble.endswith("ago, 6 times in a row: 503 \\x1b[31mService Unavailable")
    assert hint.endswith("run_worker.py events replay")
    assert "\x1b" not in said


def test_stats_after_an_outage(invoke: Invoke, outage: list[SinkEvent], events: EventBroker, conn: redis.Redis) -> None:
    found = reader(events, "box.1", "file")
    ack(found, found.read(500, 0))
    silence(conn, "box.1", 99)
    conn.hincrby("rq:sink:file", "served_ms", -3600_000)
    said = invoke("events", "stats").stdout
    assert "No relay runs; start one: run_worker.py relay" in said
    (row,) = [line.split() for line in said.splitlines() if line.startswith("file ")]
    assert row == ["file", "0", "9", "1", "2", "no", "relay", "for", "60", "min"]
    assert ", works again: 503" in said


def test_stats_name_what_is_configured_and_not_served(
    invoke: Invoke, outage: list[SinkEvent], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUSION_EVENTS_LOG", "1")
    use_settings(None)
    assert "Configured and not served yet: log" in invoke("events", "stats").stdout


def test_stats_as_json(invoke: Invoke, outage: list[SinkEvent]) -> None:
    found = json.loads(invoke("events", "stats", "--json").stdout)
    assert (found["schema"], found["stream"]["length"], found["stream"]["cap"], found["stream"]["last"]) == (1, 7, 1_000_000, 12)
    (sink,) = found["sinks"]
    assert sink["oldest_seconds"] > 0
    kept = {
        name: sink[name] for name in ("name", "state", "behind", "delivered", "parked", "dropped", "failures", "breaker_open")
    }
    assert kept == {
        "name": "file",
        "state": "open",
        "behind": 7,
        "delivered": 2,
        "parked": 1,
        "dropped": 2,
        "failures": 6,
        "breaker_open": True,
    }
    assert sink["last_event"] == outage[-1].event.id
    (relay,) = found["relays"]
    assert (relay["name"], relay["sinks"], relay["alive"]) == ("box.1", ["file"], True)


# -- tail


def test_tail(invoke: Invoke, broker: Broker) -> None:
    put(broker, "sms", "a", "b", "c")
    broker.cancel("b")
    lines = invoke("events", "tail", "-n", "2").stdout.splitlines()
    assert [line.split(maxsplit=1)[1] for line in lines] == [
        "queued     sms c: queued to sms",
        "canceled   sms b: canceled: canceled",
    ]
    (line,) = invoke("events", "tail", "--job", "b", "-n", "1").stdout.splitlines()
    assert " canceled " in line
    documents = [json.loads(line) for line in invoke("events", "tail", "--job", "b", "--json").stdout.splitlines()]
    assert [found["event"] for found in documents] == ["queued", "canceled"]
    assert documents[0]["n"] == "2"


def test_tail_keeps_a_hostile_event_on_its_line(invoke: Invoke, conn: redis.Redis) -> None:
    conn.xadd("rq:events", {"event": "q\n{}\x1b[2J", "job_id": "a\rb", "reason": "\x9b31m\u202e"})
    for mode in ((), ("--json",)):
        (line,) = invoke("events", "tail", *mode).stdout.rstrip("\n").split("\n")
        assert line.isprintable()


def test_tail_follows(broker: Broker) -> None:
    put(broker, "sms", "old")
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "run_worker.py"), "events", "tail", "--follow", "--json"],
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert json.loads(process.stdout.readline())["job_id"] == "old"
        put(broker, "sms", "new")
        assert json.loads(process.stdout.readline())["job_id"] == "new"
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.stdout.close()
        process.wait(10)


# -- replay


def test_replay_delivers_what_was_parked(
    invoke: Invoke, outage: list[SinkEvent], conn: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "events.jsonl"
    monkeypatch.setenv("FUSION_EVENTS_FILE", str(path))
    use_settings(None)
    assert invoke("events", "replay").stdout == "file: 1 delivered\n"
    (line,) = path.read_text().splitlines()
    assert json.loads(line)["id"] == outage[0].event.id
    assert conn.xlen("rq:events:parked:file") == 0
    assert invoke("events", "replay").stdout == "file: 0 delivered\n"


def test_replay_keeps_what_is_refused_again(
    invoke: Invoke, outage: list[SinkEvent], conn: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(300):
        conn.xadd("rq:events:parked:file", {"why": "w", "document": "no event" if n % 3 == 0 else json.dumps(_document(n))})
    monkeypatch.setenv("FUSION_EVENTS_FILE", str(tmp_path / "e"))
    use_settings(None)
    assert invoke("events", "replay", "--limit", "10").stdout.startswith(
        "file: 7 delivered, 3 refused again\n  3 x it can't be read\n"
    )
    assert invoke("events", "replay", "--sink", "file").stdout.startswith("file: 194 delivered, 100 refused again\n")
    assert conn.xlen("rq:events:parked:file") == 100


def _document(n: int) -> dict[str, object]:
    return {"id": f"1-{n}", "event": "queued", "job_id": "j", "queue": "q", "time": "2026-01-01T00:00:00Z"}


def test_replay_to_a_sink_that_is_down_keeps_all(
    invoke: Invoke, outage: list[SinkEvent], conn: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FUSION_EVENTS_FILE", str(tmp_path / "file" / "e"))
    use_settings(None)
    assert "can't be written" in invoke("events", "replay", code=1).output
    assert conn.xlen("rq:events:parked:file") == 1


def test_replay_needs_a_sink(invoke: Invoke, conn: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no sink is configured" in invoke("events", "replay", code=1).output
    monkeypatch.setenv("FUSION_EVENTS_LOG", "1")
    use_settings(None)
    assert "no sink 'file' is configured; there is log" in invoke("events", "replay", "--sink", "file", code=2).output


# -- forget, setup


def test_forget(invoke: Invoke, outage: list[SinkEvent], conn: redis.Redis) -> None:
    assert "no sink 'files' has ever been served; there is file" in invoke("events", "forget", "files", code=2).output
    invoke("events", "forget", "file", code=130)  # nobody said yes
    assert conn.exists("rq:sink:file")
    assert invoke("events", "forget", "file", "--yes").stdout == "file is forgotten\n"
    assert not conn.exists("rq:sink:file", "rq:events:parked:file")
    assert conn.xinfo_groups("rq:events") == []


def test_setup_needs_an_elasticsearch(invoke: Invoke, conn: redis.Redis) -> None:
    assert "set FUSION_ELASTICSEARCH_URL" in invoke("events", "setup", code=1).output
