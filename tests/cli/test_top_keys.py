"""`top` on a real terminal: choosing, opening and stopping jobs, sizes of windows, and what strangers wrote."""

from __future__ import annotations

import re
import signal
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
import redis

from fusion import Queue
from fusion.cli import top_render
from fusion.cli.screen import keys_of
from fusion.jobs.moment import RunningJob
from fusion.store.read.audit_inspector import AuditFilter, AuditInspector
from fusion.store.redis_server.instance import EmbeddedRedis
from tests.cli.conftest import Fail, FakeHands, Hands
from tests.cli.terminal import Terminal, terminal
from tests.cli.test_output import BAD, EVIL

TASK = "tasks.sms.sendSMS"
UP, DOWN, PAGE_DOWN, ENTER, ESC = "\x1b[A", "\x1b[B", "\x1b[6~", "\r", "\x1b"
LONG_ID = "report-of-the-month-4711"


@pytest.fixture
def worker(conn: redis.Redis, hands: Hands, fail: Fail) -> FakeHands:
    """Three running jobs: `old` runs the longest, then `young`, then the one with a long id."""
    fail("sms", 2)
    made = hands("email", name="web1.7").register()
    for job_id in ("young", "old", LONG_ID):
        Queue("email", conn).enqueue(TASK, job_id=job_id, job_timeout=100, description=f"Says hello to {job_id[:6]}")
    made.turn(slots=3)
    conn.hset("rq:job:old", "started_at", "2020-01-31T12:00:00.000000Z")
    conn.hset("rq:job:young", "started_at", "2020-02-28T12:00:00.000000Z")
    return made


def end(screen: Terminal) -> None:
    screen.type("q")
    assert screen.end() == 0


def test_a_job_is_called_by_what_it_does(worker: FakeHands, redis_url: str) -> None:
    with terminal("top", columns=140, FUSION_REDIS_URL=redis_url) as screen:
        jobs = [line for line in screen.frame("q quit") if line.startswith(f"  {TASK}")]
        end(screen)
    words = [re.split(r"  +", line.strip()) for line in jobs]
    assert [(row[0], row[1]) for row in words] == [
        (f"{TASK} Says hello to old", "old"),
        (f"{TASK} Says hello to young", "young"),
        (f"{TASK} Says hello to report", "report-of…"),
    ]


def test_arrows_choose_and_enter_opens(worker: FakeHands, redis_url: str) -> None:
    with terminal("top", columns=140, FUSION_REDIS_URL=redis_url) as screen:
        screen.frame("q quit")
        screen.type(ENTER)
        screen.frame("^Choose a job first, with the arrows")
        screen.type(DOWN)
        screen.frame("^> .* hello to old ")
        screen.type(DOWN + DOWN + DOWN + UP)
        screen.frame("^> .* hello to young ")
        assert "\x1b[7m> " in screen.drawn
        screen.type(ENTER)
        opened = screen.frame("Says hello to young(.|\n)*^q back")
        assert [line for line in opened if line.startswith("It runs at web1.7")]
        assert not [line for line in opened if line.startswith("QUEUE ")], "it has the screen for itself"
        screen.type("q")
        screen.frame("^> .* hello to young (.|\n)*^q quit")
        screen.type(ESC)
        screen.frame("^  .* hello to young (.|\n)*^q quit")
        end(screen)


def test_a_long_page_of_a_job_is_scrolled(worker: FakeHands, redis_url: str) -> None:
    with terminal("top", lines=12, columns=80, FUSION_REDIS_URL=redis_url) as screen:
        screen.frame("q quit")
        screen.type(DOWN + ENTER)
        first = screen.frame(rf"\A{TASK}  old")
        assert not [line for line in first if line.startswith("Size:")]
        screen.type(DOWN)
        screen.frame(rf"\A{re.escape(first[1])}$")
        screen.type(PAGE_DOWN * 20)
        assert len(screen.frame("^Size:")) <= 12
        screen.type("\x1b[H")
        screen.frame(rf"\A{TASK}  old")
        screen.type("q")
        screen.frame("q quit")
        end(screen)


def test_s_stops_the_chosen_job_after_a_question(worker: FakeHands, conn: redis.Redis, redis_url: str) -> None:
    with terminal("top", columns=140, FUSION_REDIS_URL=redis_url) as screen:
        screen.frame("q quit")
        screen.type("s")
        screen.frame("^Choose a job first, with the arrows")
        screen.type(DOWN + DOWN + "s")
        screen.frame(f"^Stop it. y does, any other key does not: {TASK} Says hello to young young$")
        screen.type("n")
        screen.frame("^q quit")
        assert conn.hget("rq:job:young", "cancel") is None
        assert AuditInspector(conn).entries(AuditFilter(action="stop")) == []
        screen.type("s")
        screen.frame("^Stop it")
        screen.type("y")
        screen.frame(f"^Told its worker to stop: {TASK} Says hello to young young$")
        end(screen)
    (entry,) = AuditInspector(conn).entries(AuditFilter(action="stop"))
    assert (entry.target, entry.queues, entry.outcome, entry.count) == ("young", ("email",), "ok", 1)
    assert "@" in entry.who
    assert conn.hget("rq:job:young", "cancel") == b"stop"


def test_a_job_that_has_ended_is_not_stopped_nor_is_the_one_in_its_line(
    worker: FakeHands, conn: redis.Redis, redis_url: str
) -> None:
    with terminal("top", columns=140, FUSION_REDIS_URL=redis_url) as screen:
        screen.frame("q quit")
        screen.type("p" + DOWN + "s")
        screen.frame("^Stop it.* old old$")
        conn.hset("rq:job:old", "status", "finished")
        screen.type("y")
        screen.frame(r"\A(?!(.|\n)*^. .* hello to old  )(.|\n)*^Not stopped, it has ended \(finished\)")
        screen.type("s")
        screen.frame("^Choose a job first")
        screen.type(DOWN)
        screen.frame("^> .* hello to young ")  # the next choice begins at its place
        end(screen)
    assert [entry.outcome for entry in AuditInspector(conn).entries(AuditFilter(action="stop"))] == ["it has ended (finished)"]


def test_failed_jobs_can_be_opened(worker: FakeHands, redis_url: str) -> None:
    with terminal("top", columns=140, lines=40, FUSION_REDIS_URL=redis_url) as screen:
        screen.frame("q quit")
        screen.type("f")
        screen.frame("sms-000")
        screen.type(DOWN)
        screen.frame("^> .* sms-00")
        screen.type(ENTER)
        screen.frame("ValueError: boom")
        screen.type(ENTER)
        screen.frame("f workers")
        screen.type("s")
        screen.frame("^Stop it")
        screen.type("y")
        screen.frame(r"^Not stopped, it has ended \(failed\)")
        end(screen)


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_a_frame_fits_and_leaves_room_for_what_a_job_does(worker: FakeHands, redis_url: str, columns: int) -> None:
    with terminal("top", lines=24, columns=columns, FUSION_REDIS_URL=redis_url) as screen:
        screen.frame("q quit")
        screen.type(DOWN)
        frame = screen.frame(f"^> {TASK}")
        end(screen)
    assert max(map(len, frame)) < columns
    assert len(frame) <= 24
    assert "s stop" in frame[-1]
    assert frame[-1].endswith("every 1 s")


def test_the_window_may_change_its_size(worker: FakeHands, redis_url: str) -> None:
    with terminal("top", "-i", "3600", lines=40, columns=140, FUSION_REDIS_URL=redis_url) as screen:
        assert max(map(len, screen.frame("r read now"))) > 60
        screen.resize(14, 60)
        small = screen.frame(r"s stop   every 3600 s\Z")
        assert max(map(len, small)) < 60
        assert len(small) <= 14
        screen.resize(40, 140)
        assert len(screen.frame("r read now")) > 14
        end(screen)


@pytest.mark.long
def test_a_redis_that_goes_away_leaves_the_figures_and_the_keys(
    worker: FakeHands, redis_server: EmbeddedRedis, redis_url: str
) -> None:
    assert redis_server.process is not None
    with terminal("top", "-i", "0.1", columns=200, FUSION_REDIS_URL=redis_url) as screen:
        screen.read_until("q quit")
        redis_server.process.send_signal(signal.SIGSTOP)
        try:
            screen.type("p")
            assert "web1.7" in screen.read_until("frozen")
            screen.type(DOWN + "s")
            screen.read_until("Stop it?")
            screen.type("y")
            screen.read_until("Stopping it ...")
            screen.type("q")
            assert screen.end() == 0, "it waits a moment for the stop, and no longer"
        finally:
            redis_server.process.send_signal(signal.SIGCONT)


@pytest.mark.long
def test_nothing_of_a_strangers_steers_the_terminal(worker: FakeHands, conn: redis.Redis, redis_url: str) -> None:
    texts = {"func": EVIL, "origin": EVIL, "error_class": EVIL, "error_frame": EVIL, "original_queue": EVIL, "progress": EVIL}
    conn.hset("rq:job:old", mapping={**texts, "description": EVIL})
    conn.hset("rq:job:sms-000", mapping=texts)
    conn.hset(
        "rq:job:young", mapping={"func": b"\xff\xfe" + b"x" * 1_000_000, "started_at": EVIL, "timeout": EVIL, "attempts": EVIL}
    )
    conn.sadd("rq:queues", "rq:queue:" + EVIL)
    conn.sadd("rq:workers", "rq:worker:" + EVIL)
    conn.hset("rq:worker:" + EVIL, mapping={"state": EVIL, "queues": EVIL, "incarnation": "x", "throttled": EVIL})
    with terminal("top", "-i", "0.1", columns=200, lines=50, FUSION_REDIS_URL=redis_url) as screen:
        screen.read_until("q quit")
        screen.type("f")
        screen.read_until("WHERE")
        screen.type("f")
        screen.read_until("f failures")
        screen.type("p" + DOWN)
        screen.read_until("> ")
        screen.type("s")
        screen.read_until("Stop it?")
        screen.type("n" + ENTER)
        screen.read_until("q back")
        screen.type("q" + "q")
        screen.end()
    drawn = screen.drawn.replace("\x1b[?1049h\x1b[?25l\x1b[?7l", "")
    assert [one for one in BAD if one in drawn] == []


# -- what needs no terminal


def test_names_of_keys() -> None:
    assert keys_of("sy") == ["s", "y"]
    assert keys_of("\x1b[A\x1bOB\r\x1b") == ["up", "down", "enter", "esc"], "also in the mode of applications"
    assert keys_of("\x1b[15~\x1b[1;5Cq") == ["q"], "other keys are no characters"
    assert keys_of("") == []


def test_the_chosen_job_stays_in_sight(conn: redis.Redis) -> None:
    at = datetime.now(timezone.utc)
    jobs = [RunningJob(f"j{n:02}", "w", "sms", TASK, at - timedelta(seconds=100 - n), None, None, 0) for n in range(40)]
    reading = top_render.Reading(at, "", _totals(conn), (), 0, (), 0, tuple(jobs), 0, {}, {})
    for place in (0, 7, 39):
        lines = top_render.text(reading, width=79, height=20, chosen=place).split("\n")
        (line,) = [line for line in lines if "> " in line]
        assert f"j{place:02}" in line
        assert len(lines) <= 20
        assert re.fullmatch(r"\.\.\. \d\d more", lines[-1])
    assert ">" not in top_render.text(reading, width=79, height=20)


def _totals(conn: redis.Redis) -> Any:
    from fusion.store.access import inspector_of

    return inspector_of(conn).totals()
