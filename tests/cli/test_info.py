"""`info` on a real Redis: what it shows, for whom, at what cost, and live on a terminal."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys

import pytest
import redis

from fusion import Queue
from fusion.cron.scheduler import Scheduler
from fusion.store.access import cron_broker_of
from fusion.store.write.broker import Broker
from tests.cli.conftest import ROOT, Fail, Hands, Invoke, run_worker
from tests.cli.terminal import terminal
from tests.kit.hands import wire

TASK = "tasks.sms.sendSMS"


@pytest.fixture
def fleet(conn: redis.Redis, hands: Hands, fail: Fail) -> redis.Redis:
    """Jobs in every state that `info` counts, one live worker."""
    fail("sms", 2)
    for priority, count in ((2, 1), (1, 2), (0, 3)):
        for _ in range(count):
            Queue("sms", conn).enqueue(TASK, priority=priority)
    worker = hands("email", "pn*").register()
    for _ in range(3):
        Queue("email", conn).enqueue(TASK)
    worker.end("finished", worker.turn(slots=1))
    worker.turn(slots=1)
    return conn


def test_info_verbatim(fleet: redis.Redis) -> None:
    ended = run_worker("info")
    assert (ended.returncode, ended.stderr) == (0, "")
    lines = ended.stdout.splitlines()
    assert lines[0].split() == "QUEUE HIGH MODERATE LOW TOTAL OLDEST STARTED FINISHED DEFERRED FAILED/M IN/M OUT/M".split()
    assert re.fullmatch(r"email +0 +1 +0 +1 +\d\.\d s +1 +1 +0 +- +- +-", lines[1])
    assert re.fullmatch(r"sms +1 +2 +3 +6 +\d\.\d s +0 +0 +0 +- +- +-", lines[2])
    assert lines[-1] == "2 queues, 7 jobs total"
    assert "2 failed, of all queues" in ended.stdout
    assert "Jobs wait, but no live worker serves: sms" in ended.stdout


def test_info_w_verbatim(fleet: redis.Redis) -> None:
    ended = run_worker("info", "-W")
    assert ended.returncode == 0
    assert re.search(r"^web1\.4711 +\S+ +\S+ +email, pn\* +\d\.\d s ago +1 +0$", ended.stdout, re.MULTILINE)
    assert ended.stdout.splitlines()[-1] == "1 workers, 2 queues"
    assert "MODERATE" not in ended.stdout


def test_only_queues(invoke: Invoke, fleet: redis.Redis) -> None:
    output = invoke("info", "-Q").stdout
    assert "MODERATE" in output
    assert "WORKER" not in output


def test_by_queue(invoke: Invoke, fleet: redis.Redis) -> None:
    assert re.search(r"^email: web1\.4711 \(\w+\)\nsms:   \u2013$", invoke("info", "-R").stdout, re.MULTILINE)
    assert "MODERATE" not in invoke("info", "-R", "-W").stdout


def test_raw(invoke: Invoke, fleet: redis.Redis) -> None:
    lines = invoke("info", "--raw").stdout.splitlines()
    assert lines[:3] == [
        "queue email 1, 1 executing, 1 finished, 0 failed",
        "queue sms 6, 0 executing, 0 finished, 0 failed",
        "queue failed 2, 0 executing, 0 finished, 2 failed",
    ]
    assert re.fullmatch(r"worker web1\.4711 \(web1 unknown 4711\) \w+ email, pn\*\. jobs: 1 finished, 0 failed", lines[3])


def test_chosen_queues(invoke: Invoke, fleet: redis.Redis) -> None:
    def names(*args: str) -> list[str]:
        return [queue["name"] for queue in json.loads(invoke("info", "--json", *args).stdout)["queues"]]

    assert names("sms") == ["sms"]
    assert names("s*") == ["sms"]
    assert names("email,sms") == ["email", "sms"]
    assert names("*m*", "sms") == ["email", "sms"]
    assert names("nobody*") == []
    assert names() == ["email", "sms"]


def test_workers_of_chosen_queues(invoke: Invoke, fleet: redis.Redis) -> None:
    def workers(queue: str) -> int:
        return len(json.loads(invoke("info", "--json", queue).stdout)["workers"])

    assert [workers(queue) for queue in ("sms", "email", "pn-eu")] == [0, 1, 1]


def test_a_queue_that_nobody_ever_used(invoke: Invoke, fleet: redis.Redis) -> None:
    assert "No job was ever enqueued to: smss" in invoke("info", "smss").stdout
    assert "reserved" in invoke("info", "failed", code=2).stderr


def test_json(invoke: Invoke, fleet: redis.Redis) -> None:
    output = invoke("info", "--json").stdout
    document = json.loads(output)
    assert output.count("\n") == 1
    parts = {"queues", "workers", "schedulers", "cron", "sinks", "callbacks"}
    assert set(document) == {
        "schema",
        "at",
        "suspended",
        "failed",
        "scheduled",
        "dropped",
        "callback_errors",
        "keyless",
        "broken",
        "blocked",
        "stuck",
        "verdict",
        "held",
        *parts,
    }
    assert (document["schema"], document["suspended"], document["failed"], document["scheduled"]) == (1, False, 2, 0)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", document["queues"][0]["oldest_enqueued_at"])
    assert json.loads(invoke("info", "--json", "-W").stdout)["queues"] is None
    assert json.loads(invoke("info", "--json", "-Q").stdout)["workers"] is None


def test_the_verdict_is_of_the_whole_fleet(invoke: Invoke, fleet: redis.Redis) -> None:
    assert json.loads(invoke("info", "--json").stdout)["verdict"]["verdict"] in ("strained", "unhealthy")
    for part in (["-W"], ["-Q"], ["sms"]):
        assert json.loads(invoke("info", "--json", *part).stdout)["verdict"] is None
    assert "; see run_worker.py doctor; " in invoke("info").stdout
    assert (
        "run_worker.py doctor" not in invoke("info", "-W").stdout + invoke("info", "sms").stdout + invoke("info", "--raw").stdout
    )


def test_jobs_without_the_key_that_their_task_declares(invoke: Invoke, conn: redis.Redis) -> None:
    broker, known = Broker(conn), "its @job declares"
    assert known not in invoke("info").stdout
    broker.note_history("w", 1, {("keyless", "mytasks.sync"): [(0, "", 3)], ("keyless", "mytasks.crawl"): [(0, "", 1)]})
    lines = [line for line in invoke("info").stdout.splitlines() if known in line]
    assert [re.match(r"(\d+) jobs? of (\S+) ran without", line)[0] for line in lines] == [  # type: ignore[index]
        "3 jobs of mytasks.sync ran without",
        "1 job of mytasks.crawl ran without",
    ]
    assert "give concurrency_key= with the enqueue" in lines[0]
    keyless = json.loads(invoke("info", "--json").stdout)["keyless"]
    assert [(one["function"], one["count"]) for one in keyless] == [("mytasks.sync", 3), ("mytasks.crawl", 1)]


def test_keys_that_hold_jobs_back(invoke: Invoke, conn: redis.Redis) -> None:
    """How many there are, and of a key of which nothing has started for ten minutes who has its slots."""
    assert "blocked" not in invoke("info").stdout
    for job_id, name in (("a", "unserved"), ("b", "sms"), ("c", "sms")):
        Queue(name, conn).enqueue("t.f", job_id=job_id, concurrency_key="user:42")
    said = invoke("info").stdout
    assert "2 blocked in sms by the limits of their concurrency keys; to see these: run_worker.py limit list" in said
    assert "stuck" not in said
    conn.hset("rq:job:a", mapping={"enqueued_at": "2020-01-31T12:00:00.000000Z", "created_at": "2020-01-31T12:00:00.000000Z"})
    told = "The key user:42 is stuck: 2 wait, and none has started for ten minutes. Its slots are held by a (queued in unserved);"
    assert told in invoke("info").stdout
    assert [key["key"] for key in json.loads(invoke("info", "--json").stdout)["stuck"]] == ["user:42"]


def test_suspended(invoke: Invoke, conn: redis.Redis) -> None:
    invoke("suspend")
    assert "Suspended: no new job is started until run_worker.py resume" in invoke("info").stdout
    assert json.loads(invoke("info", "--json").stdout)["suspended"] is True


def test_an_empty_redis(invoke: Invoke, conn: redis.Redis) -> None:
    assert invoke("info").stdout == (
        "No worker is alive: nothing runs, and no scheduled job becomes due. Start one: run_worker.py worker\n\n"
        "healthy; 0 jobs end a minute\n\n"
        "0 workers, 0 queues\n0 queues, 0 jobs total\n"
    )


def test_a_worker_whose_heart_stopped(invoke: Invoke, conn: redis.Redis, hands: Hands) -> None:
    hands("sms").register()
    conn.hincrby("rq:worker:web1.4711", "beat_ms", -31_000)
    assert re.search(r"^web1\.4711 +dead ", invoke("info").stdout, re.MULTILINE)


# -- schedulers and cron


@pytest.fixture
def alive(conn: redis.Redis) -> None:
    fields = {"pid": 7, "hostname": "web1", "app": "shop", "version": "1.4"}
    assert cron_broker_of(conn).scheduler_beat("web1.7", "incarnation", 30, 420, fields)


def test_schedulers_are_shown(invoke: Invoke, conn: redis.Redis, alive: None) -> None:
    said = invoke("info").stdout
    assert re.search(
        r"^SCHEDULER +STATE +PROCESS +APP +HEARTBEAT\nweb1\.7 +alive +7@web1 +shop 1\.4 +\d\.\d s ago$", said, re.MULTILINE
    )
    assert said.splitlines()[-2:] == ["0 workers, 0 queues", "0 queues, 0 jobs total"], "RQ's lines stay the last"
    (one,) = json.loads(invoke("info", "--json").stdout)["schedulers"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", one.pop("birth"))
    assert one.pop("last_heartbeat").endswith("Z")
    assert 0 <= one.pop("heartbeat_age") < 30
    assert one == {"name": "web1.7", "alive": True, "hostname": "web1", "pid": 7, "app": "shop", "version": "1.4"}


def test_info_shows_a_dead_scheduler(invoke: Invoke, conn: redis.Redis, alive: None) -> None:
    conn.hincrby("rq:scheduler:process:web1.7", "beat_ms", -31_000)
    said = invoke("info").stdout
    assert re.search(r"^web1\.7 +dead ", said, re.MULTILINE)
    assert "1 dead schedulers: a live one does their work and removes them" in said


@pytest.mark.parametrize("flag", ["-W", "-Q", "--raw"])
def test_only_queues_or_workers_means_no_schedulers(invoke: Invoke, conn: redis.Redis, alive: None, flag: str) -> None:
    Scheduler(conn).every(60, TASK, id="e")
    conn.hset("rq:cron:entry:e", "error", "x")
    assert not re.search(r"scheduler|cron", invoke("info", flag).stdout, re.IGNORECASE)
    if flag != "--raw":
        document = json.loads(invoke("info", flag, "--json").stdout)
        assert document["schedulers"] is document["cron"] is None


def test_cron_entries_without_a_scheduler_are_a_warning(invoke: Invoke, conn: redis.Redis) -> None:
    for name in ("a", "b", "c"):
        Scheduler(conn).every(60, TASK, id=name)
    Scheduler(conn).pause("c")
    assert "No scheduler is alive: 3 cron entries wait. Start one: run_worker.py scheduler\n" in invoke("info").stdout
    assert json.loads(invoke("info", "--json").stdout)["cron"] == {"entries": 3, "paused": 1, "errors": 0}
    with terminal("info") as tty:
        assert tty.end() == 0
        assert "\x1b[33mNo scheduler is alive" in tty.drawn


def test_cron_entries_with_a_scheduler_are_none(invoke: Invoke, conn: redis.Redis, alive: None) -> None:
    Scheduler(conn).every(60, TASK, id="a")
    assert "cron" not in invoke("info").stdout


def test_cron_entries_in_error_are_counted(invoke: Invoke, conn: redis.Redis, alive: None) -> None:
    Scheduler(conn).every(60, TASK, id="a")
    Scheduler(conn).every(60, TASK, id="fine")
    conn.hset("rq:cron:entry:a", "error", "can't be planned")
    cron_broker_of(conn).cron_put("b", "", "", "", app="shop", version="1.4", error="'61' is not a valid minute")
    assert "2 cron entries in error; to see why: run_worker.py cron list\n" in invoke("info").stdout
    assert json.loads(invoke("info", "--json").stdout)["cron"]["errors"] == 2


def test_due_jobs_need_no_scheduler_but_somebody(invoke: Invoke, conn: redis.Redis, hands: Hands) -> None:
    hands("sms").register()
    conn.zadd("rq:scheduler:scheduled_jobs", {"later": 2e9})
    by_workers = "1 scheduled, of all queues; no scheduler is alive, workers queue them when they are due\n"
    assert by_workers in invoke("info").stdout
    assert "1 scheduled, of all queues\n" in invoke("info", "-Q").stdout
    conn.hincrby("rq:worker:web1.4711", "beat_ms", -31_000)
    assert "1 scheduled, of all queues\n" in invoke("info").stdout
    assert "nothing runs, and no scheduled job becomes due" in invoke("info").stdout


def test_a_scheduler_moves_due_jobs_with_or_without_a_worker(
    invoke: Invoke, conn: redis.Redis, alive: None, hands: Hands
) -> None:
    conn.zadd("rq:scheduler:scheduled_jobs", {"later": 2e9})
    assert "No worker is alive: nothing runs. Start one: " in invoke("info").stdout
    hands("sms").register()
    assert "1 scheduled, of all queues\n" in invoke("info").stdout


def test_more_queues_entries_and_schedulers_take_no_more_round_trips(invoke: Invoke, conn: redis.Redis, alive: None) -> None:
    def round_trips() -> int:
        with wire(conn) as sent:
            invoke("info")
        return len(sent)

    Queue("sms", conn).enqueue(TASK)
    Scheduler(conn).every(60, TASK, id="a")
    few = round_trips()
    assert few > 5
    for n in range(20):
        Queue(f"q{n}", conn).enqueue(TASK)
        Scheduler(conn).every(60, TASK, id=f"e{n}")
        assert cron_broker_of(conn).scheduler_beat(f"more.{n}", "incarnation", 30, 420, {"pid": n})
    assert round_trips() == few


def test_the_cost_does_not_grow_with_the_jobs(invoke: Invoke, conn: redis.Redis) -> None:
    def cost() -> tuple[int, int]:
        conn.config_resetstat()
        invoke("info")
        stats = conn.info("commandstats")
        return sum(stat["calls"] for stat in stats.values()), conn.info("stats")["total_net_output_bytes"]

    Queue("sms", conn).enqueue(TASK)
    few = cost()
    data = [Queue.prepare_data(TASK) for _ in range(3000)]
    Queue("sms", conn).enqueue_many(data)
    many = cost()
    assert many[0] == few[0]
    assert many[1] < few[1] + 500


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["-W", "-Q"], "exclude each other"),
        (["--json", "--raw"], "--json goes with neither"),
        (["--json", "-i", "1"], "--json goes with neither"),
        (["-i", "0"], "--interval"),
        (["-i", "soon"], "--interval"),
        (["a b"], "use 1 to 128 of the characters"),
    ],
)
def test_usage(invoke: Invoke, args: list[str], message: str) -> None:
    assert message in invoke("info", *args, code=2).stderr


# -- live


def test_live_without_a_terminal_repeats_plain_text(conn: redis.Redis) -> None:
    command = [sys.executable, str(ROOT / "run_worker.py"), "info", "-i", "0.05"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        for _ in range(3):
            seen = next(line for line in lines if line.endswith("jobs total\n"))
            assert seen == "0 queues, 0 jobs total\n"
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=20)
    assert (process.returncode, errors) == (0, "")
    assert "\x1b" not in rest


def test_a_reader_that_leaves_ends_it_quietly(conn: redis.Redis) -> None:
    command = [sys.executable, str(ROOT / "run_worker.py"), "info", "-i", "0.05"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(20) == 1
        assert process.stderr.read() == ""


def test_live_on_a_terminal(conn: redis.Redis) -> None:
    Queue("sms", conn).enqueue(TASK)
    with terminal("info", "-i", "0.05") as tty:
        first = tty.read_until("Updated")
        assert first.startswith("\x1b[?1049h")
        assert "1 queues, 1 jobs total" in first
        Queue("sms", conn).enqueue(TASK)
        tty.read_until("1 queues, 2 jobs total")
        assert tty.interrupt() == 0
        # Nothing was ever cleared, which is what flickers, and the terminal is as it was.
        assert "\x1b[2J" not in tty.drawn
        assert tty.drawn.endswith("\x1b[?7h\x1b[?25h\x1b[?1049l")
        assert "Traceback" not in tty.drawn


def test_live_gives_the_terminal_back_when_terminated(conn: redis.Redis) -> None:
    with terminal("info", "-i", "5") as tty:
        tty.read_until("Updated")
        tty.process.terminate()
        assert tty.end() == 128 + signal.SIGTERM
        assert tty.drawn.endswith("\x1b[?1049l")


@pytest.mark.long
def test_live_survives_a_redis_that_refuses_for_a_while(conn: redis.Redis, redis_url: str) -> None:
    conn.acl_setuser("live", enabled=True, nopass=True, keys=["*"], commands=["+@all"], channels=["*"])
    try:
        with terminal("info", "-i", "0.05", FUSION_REDIS_URL=redis_url.replace("unix://", "unix://live:x@")) as tty:
            tty.read_until("Updated")
            conn.acl_setuser("live", commands=["-@all"])
            assert "0 queues, 0 jobs total" in tty.read_until("refused a command")
            conn.acl_setuser("live", commands=["+@all"])
            tty.read_until("Updated")
            assert tty.interrupt() == 0
    finally:
        conn.acl_deluser("live")


def test_live_when_redis_is_down_from_the_start() -> None:
    with terminal("info", "-i", "1") as tty:
        assert tty.end() == 1
        assert "\x1b[?1049h" not in tty.drawn
        assert "can't be reached" in tty.drawn


@pytest.mark.parametrize(("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colours_only_where_wanted(conn: redis.Redis, environment: dict[str, str], coloured: bool) -> None:
    with terminal("info", **environment) as tty:
        assert tty.end() == 0
        assert ("\x1b[33mNo worker is alive" in tty.drawn) is coloured
        assert ("\x1b" in tty.drawn) is coloured
