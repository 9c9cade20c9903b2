"""`top`: what a frame shows and reads, keys on a real terminal, and plain frames without one."""

from __future__ import annotations

import json
import re
import signal

import pytest
import redis

from fusion import Queue
from fusion.cli.top import MOST_QUEUES, Rates
from fusion.store.read.totals import read_counters
from fusion.store.write.broker import Broker
from tests.cli.conftest import Fail, Hands, Invoke, run_worker
from tests.cli.terminal import terminal
from tests.kit.hands import wire

TASK = "tasks.sms.sendSMS"


@pytest.fixture
def fleet(conn: redis.Redis, hands: Hands, fail: Fail) -> redis.Redis:
    fail("sms", 2)
    for priority in (2, 1, 1, 0):
        Queue("sms", conn).enqueue(TASK, priority=priority)
    worker = hands("email", name="web1.7").register()
    for job_id in ("young", "old"):
        Queue("email", conn).enqueue(TASK, job_id=job_id, job_timeout=100)
    worker.turn(slots=2)
    conn.hset("rq:job:old", "started_at", "2020-01-31T12:00:00.000000Z")
    return conn


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def test_a_plain_frame(fleet: redis.Redis) -> None:
    ended = run_worker("top")
    assert (ended.returncode, ended.stderr) == (0, "")
    said = ended.stdout
    assert re.search(r"^4 waiting \(oldest [\d.]+ s\), 2 running, in -, out - per min$", said, re.MULTILINE)
    assert "0 scheduled, 2 failed" in said
    assert re.search(r"^sms +1 +2 +1 +[\d.]+ s +0 +- +- +-$", said, re.MULTILINE)
    assert re.search(r"^web1\.7 +\w+ +2 +email +[\d.]+ s +0 +0$", said, re.MULTILINE)
    jobs = said[said.index("FUNCTION") :].splitlines()
    assert [re.split(r"  +", line)[:2] for line in jobs[1:]] == [[TASK, "old"], [TASK, "young"]], "the slowest first"
    assert "\x1b" not in said


def test_frames_of_a_pipe_are_counted(fleet: redis.Redis) -> None:
    said = run_worker("top", "--count", "3", "-i", "0.1").stdout
    assert said.count("QUEUE ") == 6
    assert "in 0, out 0 per min" in said, "from the second on there are rates"


def test_json(invoke: Invoke, fleet: redis.Redis) -> None:
    found = json.loads(invoke("top", "--json").stdout)
    assert [queue["name"] for queue in found["queues"]] == ["email", "sms"]
    assert [job["id"] for job in found["running"]] == ["old", "young"]
    assert found["running"][0]["timeout"] == 100
    assert {job["id"] for job in found["last_failed"]} == {"sms-000", "sms-001"}
    assert found["queues"][1]["total_failed"] == 2
    assert [job["id"] for job in json.loads(invoke("top", "--json", "sms").stdout)["running"]] == []


def test_rates_are_of_a_minute_and_exact() -> None:
    rates = Rates()

    def counters(came: int, done: int, failed: int) -> dict[str, object]:
        return {"sms": read_counters({"enqueued:1": b"%d" % came, "completed:1": b"%d" % done, "failed:0": b"%d" % failed})}

    assert rates.note(counters(10, 0, 0), 100.0) == {}  # type: ignore[arg-type]
    assert rates.note(counters(20, 4, 1), 130.0)["sms"].came == 20  # type: ignore[arg-type]
    rate = rates.note(counters(70, 34, 1), 190.0)["sms"]  # type: ignore[arg-type]
    assert (rate.came, rate.went, rate.failed) == (50, 30, 0)
    assert rates.note({}, 200.0) == {}


# -- on a terminal


def test_keys(fleet: redis.Redis, redis_url: str) -> None:
    with terminal("top", "-i", "0.1", lines=40, FUSION_REDIS_URL=redis_url) as screen:
        screen.read_until("every 0.1 s")
        screen.type("p")
        screen.read_until("frozen")
        Queue("arrives", fleet).enqueue(TASK)
        assert "arrives" not in screen.drawn
        screen.type("r")
        screen.read_until("arrives")
        screen.type("f")
        drawn = screen.read_until("sms-001")
        assert "f workers" in drawn
        screen.type("p")
        screen.read_until("every 0.1 s")
        screen.type("q")
        assert screen.end() == 0
    assert screen.drawn.endswith("\x1b[?7h\x1b[?25h\x1b[?1049l")
    assert "\x1b[2J" not in screen.drawn, "what is cleared flickers"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_terminal_is_given_back(fleet: redis.Redis, redis_url: str, number: signal.Signals) -> None:
    with terminal("top", FUSION_REDIS_URL=redis_url) as screen:
        before = screen.modes()
        screen.read_until("q quit")
        assert screen.modes() != before
        screen.process.send_signal(number)
        assert screen.end() == (0 if number == signal.SIGINT else 128 + signal.SIGTERM)
        assert screen.modes() == before
    assert screen.drawn.endswith("\x1b[?1049l")


@pytest.mark.parametrize("columns", [80, 200])
def test_a_frame_fits(fleet: redis.Redis, redis_url: str, columns: int) -> None:
    name = "q" * 128
    Queue(name, fleet).enqueue(TASK)
    with terminal("top", lines=24, columns=columns, FUSION_REDIS_URL=redis_url) as screen:
        screen.read_until("q quit")
        screen.type("q")
        screen.end()
    assert re.search(r" FAILED\r?$", plain(screen.drawn), re.MULTILINE), "what erases the rest of a line takes none of it"
    lines = plain(screen.drawn.replace("\r\n", "\n")).split("\n")
    assert max(map(len, lines)) <= columns
    frame = screen.drawn.split("\x1b[H")[1]
    assert frame.count("\n") < 24


# -- what it costs


def test_a_frame_is_a_handful_of_round_trips_however_much_there_is(fleet: redis.Redis, invoke: Invoke) -> None:
    for n in range(MOST_QUEUES + 50):
        fleet.sadd("rq:queues", f"rq:queue:q{n}")
    with wire(fleet) as sent:
        found = json.loads(invoke("top", "--json").stdout)
    assert len(found["queues"]) == MOST_QUEUES
    assert found["queue_count"] == MOST_QUEUES + 52
    assert len(sent) < 25 * MOST_QUEUES + 100


def test_the_graph_has_a_column_for_each_minute(fleet: redis.Redis, conn: redis.Redis) -> None:
    ended = [(0, "1:completed", 30), (2, "1:completed", 60), (2, "1:failed", 20), (300, "1:failed", 999)]
    Broker(conn).note_history("host.1", 1, {("queue", "sms"): ended, ("queue", "email"): [(0, "2:completed", 10)]})
    said = run_worker("top", "--utc").stdout
    bars = re.search(r"^ended {4}([ ▁-█]{60})  at most 80 a minute$", said, re.MULTILINE)
    assert bars and re.fullmatch(r" +█ ▄ ?", bars[1]), "a minute may end while they are written and read"
    assert re.search(r"^failed {3} +█ +  at most 20$", said, re.MULTILINE)
    assert re.search(r"^ {9}\d\d:\d\d +\d\d:\d\d$", said, re.MULTILINE)
    assert "at most 10 a minute" in run_worker("top", "email").stdout, "only of the named queues"
    assert "a minute" not in run_worker("top", "nothing*").stdout


@pytest.mark.long
def test_times_are_those_of_the_machine_or_utc(fleet: redis.Redis, redis_url: str) -> None:
    zone = {"TZ": "Asia/Kolkata", "FUSION_REDIS_URL": redis_url}
    assert re.search(r"^\S+  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \+0530$", run_worker("top", **zone).stdout, re.MULTILINE)
    assert re.search(r"^\S+  \d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ$", run_worker("top", "--utc", **zone).stdout, re.MULTILINE)
