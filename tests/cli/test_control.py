"""`suspend` and `resume`: RQ's words, and the key that workers look at."""

from __future__ import annotations

import json
import re

import redis

from fusion import Queue
from tests.cli.conftest import Hands, Invoke, run_worker


def test_suspend_and_resume(invoke: Invoke, conn: redis.Redis, hands: Hands) -> None:
    Queue("sms", conn).enqueue("tasks.sms.sendSMS")
    worker = hands("sms").register()
    said = invoke("suspend").stdout
    assert said == "Suspending workers.  No new jobs will be started.  But current jobs will be completed\n"
    assert worker.turn(slots=1) == []
    assert conn.ttl("rq:suspended") == -1
    assert invoke("resume").stdout == "Resuming workers.\n"
    assert len(worker.turn(slots=1)) == 1


def test_resume_when_nothing_is_suspended(invoke: Invoke, conn: redis.Redis) -> None:
    assert invoke("resume").stdout == "Resuming workers.\n"


def test_suspend_for_a_while(invoke: Invoke, conn: redis.Redis) -> None:
    said = invoke("suspend", "--duration", "600").stdout
    assert said.startswith("Suspending workers for 600 seconds. No new jobs will be started during that time")
    assert 590 < conn.ttl("rq:suspended") <= 600


def test_a_duration_below_one_second_is_refused_in_rqs_words(invoke: Invoke, conn: redis.Redis) -> None:
    for duration in ("0", "-5"):
        result = invoke("suspend", "--duration", duration, code=1)
        assert result.stderr == "Duration must be an integer greater than 1\n"
    invoke("suspend", "--duration", "1")
    assert conn.exists("rq:suspended")


def test_a_duration_beyond_all_time(invoke: Invoke, conn: redis.Redis) -> None:
    for command, rule in ((["suspend"], "is not in the range"), (["pause", "sms"], "up to 1000000000 s")):
        assert rule in invoke(*command, "--duration", "9" * 30, code=2).stderr


def test_a_duration_that_is_no_number(invoke: Invoke, conn: redis.Redis) -> None:
    assert "'5m' is not a valid integer" in invoke("suspend", "--duration", "5m", code=2).stderr
    assert not conn.exists("rq:suspended")


def test_the_real_process(conn: redis.Redis) -> None:
    assert run_worker("suspend").returncode == 0
    assert conn.exists("rq:suspended")
    ended = run_worker("resume")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "Resuming workers.\n", "")
    assert not conn.exists("rq:suspended")


def test_pause_and_unpause(invoke: Invoke, conn: redis.Redis, hands: Hands) -> None:
    Queue("sms", conn).enqueue("tasks.sms.sendSMS")
    worker = hands("sms").register()
    assert invoke("pause", "sms", "email", "--duration", "600").stdout == (
        "sms is paused for 600 seconds\nemail is paused for 600 seconds\n"
    )
    assert worker.turn(slots=1) == []
    assert "sms (paused)" in invoke("info").stdout
    assert re.fullmatch(
        r"sms goes on; it was paused for [\d.]+ s by \S+@\S+\npn was not paused\n", invoke("unpause", "sms", "pn").stdout
    )
    assert len(worker.turn(slots=1)) == 1


def test_a_pause_has_a_reason_that_is_shown(invoke: Invoke, conn: redis.Redis) -> None:
    Queue("sms", conn).enqueue("tasks.sms.sendSMS")
    assert (
        invoke("pause", "sms", "--duration", "10m", "--reason", "the provider is down").stdout
        == "sms is paused for 600 seconds\n"
    )
    said = invoke("info").stdout
    assert re.search(
        r"The queue sms is paused for 10 min more, since [\d.]+ s by \S+@\S+: the provider is down; to go on: \S+ unpause sms",
        said,
    )
    (shown,) = json.loads(invoke("info", "--json").stdout)["queues"]
    assert shown["paused"]
    assert shown["pause"]["reason"] == "the provider is down"
    assert shown["pause"]["since"] < shown["pause"]["until"]
    assert re.fullmatch(
        r"sms goes on; it was paused for [\d.]+ s by \S+: the provider is down\n", invoke("unpause", "sms").stdout
    )
    for wrong in (("--duration", "soon"), ("--duration", "0"), ("--reason", "two\nlines")):
        assert "use " in invoke("pause", "sms", *wrong, code=2).stderr
    assert not conn.exists("rq:paused:sms")


def test_info_names_a_full_queue(invoke: Invoke, conn: redis.Redis) -> None:
    queue = Queue("sms", conn)
    queue.set_max_length(2)
    queue.enqueue("tasks.sms.sendSMS")
    assert "is full" not in invoke("info").stdout
    queue.enqueue("tasks.sms.sendSMS")
    assert "The queue sms is full: 2 of 2 wait, enqueues are refused (max_queue_length)" in invoke("info").stdout
    (shown,) = json.loads(invoke("info", "--json").stdout)["queues"]
    assert (shown["max_queue_length"], shown["queue_timeout"], shown["blocked_count"]) == (2, None, 0)


def test_pause_of_an_unknown_queue_pauses_nothing(invoke: Invoke, conn: redis.Redis, hands: Hands) -> None:
    Queue("campaigns", conn).enqueue("tasks.sms.sendSMS")
    hands("otp").register()
    said = invoke("pause", "campaigns", "campaings", code=1)
    assert said.stdout == ""
    assert said.stderr == "Error: no queue campaings is known; did you mean campaigns?; --yes pauses it anyway\n"
    assert not conn.exists("rq:paused:campaigns")
    assert "no queue xyz is known; --yes pauses" in invoke("pause", "xyz", code=1).stderr
    assert invoke("pause", "otp", "email").stdout == "otp is paused\nemail is paused\n", (
        "served by a worker, named by the settings"
    )
    assert invoke("pause", "tomorrow", "--yes").stdout == "tomorrow is paused\n"
    conn.set("rq:paused:tomorrow", 1)
    assert invoke("unpause", "tomorrow").stdout == "tomorrow goes on\n", "an older version paused it"
    said = invoke("unpause", "campaings", code=1)
    assert (said.stdout, said.stderr) == (
        "campaings was not paused\n",
        "Error: no queue campaings is known; did you mean campaigns?\n",
    )


def test_pause_wants_a_queue(invoke: Invoke, conn: redis.Redis) -> None:
    assert "QUEUE" in invoke("pause", code=2).stderr
    assert "reserved" in invoke("pause", "sms", "failed", code=2).stderr
    assert not conn.exists("rq:paused:sms")
