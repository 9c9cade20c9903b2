"""Queues, and one of them: what they show, pausing with a reason, emptying."""

from __future__ import annotations

import re
from collections.abc import Callable

import redis

from fusion.dashboard.pages.queues import empties
from fusion.store.write.broker import Broker
from tests.dashboard.browser import Browser, audited, path_of
from tests.kit.hands import Hand, put

HOSTILE = "<script>alert(1)<script>\u202e"


def sampled(conn: redis.Redis, queue: str, depths: list[int]) -> None:
    """This many waited, minute by minute up to now."""
    now = int(conn.time()[0]) // 60
    for minute, depth in zip(range(now - len(depths) + 1, now + 1), depths, strict=True):
        conn.hset(f"rq:history:minute:waiting:{queue}:{minute // 60}", str(minute % 60), f"{depth} 5 0 0 0 0")
        conn.hset(f"rq:history:minute:queue:{queue}:{minute // 60}", f"{minute % 60}:1:completed", depth)


def test_the_list_shows_depths_ages_rates_and_who_paused(client: Browser, broker: Broker, conn: redis.Redis) -> None:
    put(broker, "sms", "a", "b", priority=2)
    put(broker, "mail", "c")
    Hand(broker, "mail").take()
    broker.set_gate("mail", {"limit": 3})
    broker.pause("sms", by="anna", reason="the provider is down")
    sampled(conn, "sms", [0, 4, 7])
    page = client.get("/queues")
    assert "paused by anna: the provider is down" in page.text and "1 of 3" in page.text
    assert 'aria-label="Waiting in the last hour, up to 7"' in page.html and "<polyline" in page.html


def test_nothing_yet(client: Browser) -> None:
    assert "No job was ever enqueued" in client.get("/queues").text
    assert client.get("/queues/sms").status == 404


def test_one_queue_shows_its_history_limits_and_pause(client: Browser, broker: Broker, conn: redis.Redis) -> None:
    put(broker, "sms", "a", "b", priority=2)
    sampled(conn, "sms", [3, 9, 9, 2])
    broker.set_gate("sms", {"limit": 3, "max_length": 500})
    page = client.get("/queues/sms")
    assert "Waiting: 2" in page.text and "high 2" in page.text and "At once 3" in page.text and "Longest queue 500" in page.text
    assert re.search(r'<td class="n">0<td class="n">0<td class="n">9', page.html), "the numbers of a chart"
    for since in ("6h", "1d", "7d", "30d", "nonsense"):
        assert client.get(f"/queues/sms?since={since}").status == 200


def test_priorities_of_any_number_are_three_rows(client: Browser, broker: Broker, conn: redis.Redis) -> None:
    for priority in (0, 1, 2, 7, 101):
        put(broker, "mail", f"p{priority}", priority=priority)
        rows = [(0, f"{priority}:{what}", 1) for what in ("completed", "w3", "r9")]
        broker.note_history(f"host.{priority}", 1, {("queue", "mail"): rows})
    classes = ["high", "moderate", "low"]
    assert re.findall(r"<td>(\w+)<td>waited<", client.get("/queues/mail").html) == classes
    assert re.findall(r"<td>(\w+)<td>ran<", client.get("/queues/mail").html) == classes
    waited = client.get("/").html.partition('id="waited"')[2]
    assert re.findall(r"<tr><td>(\w+)<td", waited) == classes
    assert "high 3" in client.get("/queues/mail").text


def test_a_queue_of_another_program_may_have_a_slash_in_its_name(client: Browser, conn: redis.Redis) -> None:
    conn.sadd("rq:queues", "rq:queue:mail/bulk", "rq:queue:mail/bulk/stats")
    conn.rpush("rq:queue:mail/bulk", "a", "b")
    listed = client.get("/queues")
    assert '"/queues/mail%2Fbulk"' in listed.html or '"/queues/mail/bulk"' in listed.html
    assert "mail/bulk" in client.get("/queues/mail/bulk").text and client.get("/queues/mail%2Fbulk?since=1d").status == 200
    assert "Queue mail/bulk is paused" in client.press(client.get("/queues/mail/bulk"), "Pause", reason="", duration="").text
    assert "Queue mail/bulk is resumed" in client.press(client.get("/queues/mail/bulk"), "Resume").text
    assert client.get("/queues/mail/none").status == 404


def test_a_pause_has_a_reason_and_an_end(client: Browser, broker: Broker, conn: redis.Redis) -> None:
    put(broker, "sms", "a")
    told = client.press(client.get("/queues/sms"), "Pause", reason="the provider is down", duration="10m")
    assert "Queue sms is paused: none of its jobs starts for 10m." in told.text and "the provider is down" in told.text
    assert 0 < conn.pttl("rq:paused:sms") <= 600_000
    assert "Queue sms is resumed" in client.press(client.get("/queues/sms"), "Resume").text
    wrong = client.post("/queues/sms/pause", duration="never")
    assert "duration" in wrong.text and not conn.exists("rq:paused:sms")
    assert audited(conn, "pause")[0] == "token:adminer"


def test_emptying_says_how_many_and_the_trash_keeps_them(client: Browser, broker: Broker, conn: redis.Redis) -> None:
    put(broker, "sms", *(f"j{n}" for n in range(7)))
    page = client.get("/queues/sms")
    assert "Delete the 7 jobs that wait in queue sms? The trash keeps them for an hour." in page.html
    assert "Queue sms: 7 jobs that waited are deleted" in client.press(page, "Empty").text
    assert conn.zcard("rq:queue:sms") == 0 and conn.exists("rq:trash")


def test_questions_and_messages_about_one_job_are_in_the_singular(client: Browser, broker: Broker) -> None:
    put(broker, "sms", "one")
    page = client.get("/queues/sms")
    assert "Delete the 1 job that waits in queue sms? The trash keeps it for an hour." in page.html
    assert "Pause queue sms? None of its 1 waiting job starts until it is resumed, or the time is over." in page.html
    assert "1 job that waited is deleted. The trash keeps it for an hour." in client.press(page, "Empty").text


def test_a_reader_has_no_buttons(reader: Browser, broker: Broker, conn: redis.Redis) -> None:
    put(broker, "sms", "a")
    for path in ("/queues", "/queues/sms"):
        assert not {"Pause", "Resume", "Empty"} & {label for _, _, label in reader.get(path).forms()}
    for verb in ("pause", "resume", "empty"):
        assert reader.send(f"/queues/sms/{verb}").status == 403
    assert conn.zcard("rq:queue:sms") == 1 and not conn.exists("rq:paused:sms")


def test_hostile_names_are_shown_and_lead_to_their_page(client: Browser, conn: redis.Redis) -> None:
    conn.sadd("rq:queues", f"rq:queue:{HOSTILE}")
    conn.zadd(f"rq:queue:{HOSTILE}", {"a": 1.5})
    for path in ("/queues", f"/queues/{path_of(HOSTILE)}"):
        page = client.get(path)
        assert page.status == 200 and "<script>alert" not in page.html and "\u202e" not in page.html and "alert(1)" in page.text


def test_a_token_for_some_queues_sees_nothing_of_the_others(restricted: Callable[..., Browser], broker: Broker) -> None:
    put(broker, "sms", "ours")
    put(broker, "zebra", "theirs")
    browser = restricted("sms")
    page = browser.get("/queues")
    assert "sms" in page.text and "zebra" not in page.html
    assert browser.get("/queues/zebra").status == browser.get("/queues/nobody").status == 404
    assert browser.post("/queues/zebra/empty").text.replace("zebra", "nobody") == browser.post("/queues/nobody/empty").text


def test_a_queue_is_empty_after_its_jobs_at_this_rate() -> None:
    one = {"queue_length": 120, "paused": False, "per_minute": {"came": 10.0, "went": 70.0, "failed": 0.0}}
    assert empties(one) == ("2m", "until it is empty: 60.0 a minute more go out than come in")
    assert empties(one | {"per_minute": {"came": 75.0, "went": 70.0}}) == ("+5.0", "a minute: more come in than go out")
    assert empties(one | {"paused": True}) == ("", "it is paused: no job leaves it")
    assert empties(one | {"queue_length": 0}) == ("", "")
