"""P9: one job per (entry, tick), whoever decides it, however often, and whatever breaks meanwhile."""

from __future__ import annotations

import secrets
import threading
from collections import Counter
from collections.abc import Callable

import pytest
import redis

from fusion.store.client.connections import connect
from fusion.store.layout.records import Tick
from fusion.store.read.cron_inspector import CronInspector
from fusion.store.read.inspector import Inspector
from fusion.store.write.broker import Broker
from fusion.store.write.cron_broker import CronBroker
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import Hand, drain, events_of, everything, fields_of, now_ms, promote_all, put, status_of
from tests.kit.promises import claim
from tests.kit.servers import SpawnedServer
from tests.store.cron_hands import Cron, fields_of_entry, history_of, job, look_of, mark_of, now_s, rung

INF = float("inf")


@pytest.fixture
def cron(conn: redis.Redis) -> Cron:
    """An entry `e`, last decided ten minutes ago."""
    return Cron(conn)


# -- one tick


def test_a_tick_is_a_job_like_any_other(cron: Cron, conn: redis.Redis) -> None:
    tick, following = cron.now - 60, cron.now + 60
    assert cron.tick(tick, following=following, of=job(priority=2, ttl=5, log_tag="SMS_OTP")) == ("ok", 1, 0)
    job_id = cron.id(tick)
    assert job_id.startswith("cron-e-20")
    assert check_conservation(conn, [job_id]) == {job_id: "queued"}, "also in a queue that nobody has used before"
    found = fields_of(conn, job_id)
    assert (found["priority"], found["log_tag"], found["original_queue"]) == ("2", "SMS_OTP", "q")
    assert int(found["expires_at"]) == pytest.approx(now_ms(conn) + 5000, abs=2000)
    assert [(e["event"], e["log_tag"]) for e in events_of(conn, job_id)] == [("queued", "SMS_OTP")]
    assert conn.lrange("rq:wake:q", 0, -1) == [b"1"]
    assert (mark_of(conn), look_of(conn)) == (tick, following)
    found = fields_of_entry(conn)
    assert (found["next"], found["last_job"], found["enqueued"]) == (str(following), job_id, "1")
    assert history_of(conn) == [(tick, "enqueued", job_id)]
    put(Broker(conn), "q", "behind", priority=2)
    assert Inspector(conn).queue_names() == ["q"]
    assert drain(Hand(Broker(conn), "q"), 1) == [job_id, "behind"]


def test_nothing_due_only_plans_the_next_look(cron: Cron, conn: redis.Redis) -> None:
    mark = mark_of(conn)
    assert mark is not None
    assert cron.tick(upto=mark, following=cron.now + 99) == ("ok", 0, 0)
    assert (mark_of(conn), look_of(conn)) == (mark, cron.now + 99)
    assert history_of(conn) == []
    assert conn.exists("rq:queues", "rq:wake:q", "rq:queue:q") == 0


def test_no_further_tick_is_the_end(cron: Cron, conn: redis.Redis) -> None:
    assert cron.tick(cron.now - 60, following=None) == ("ok", 1, 0)
    assert look_of(conn) == INF
    assert cron.broker.cron_due().entries == []
    info = CronInspector(conn).entry("e")
    assert info is not None
    assert (info.next, info.mark, info.enqueued) == (None, cron.now - 60, 1)


def test_several_ticks_at_once_and_those_that_were_missed(cron: Cron, conn: redis.Redis) -> None:
    ticks = [cron.now - 180, cron.now - 120, cron.now - 60]
    assert cron.tick(*ticks, missed=7) == ("ok", 3, 0)
    assert history_of(conn) == [(ticks[-1], "missed", "7"), *((t, "enqueued", cron.id(t)) for t in ticks)]
    assert cron.tick(upto=cron.now, missed=2) == ("ok", 0, 0), "and some that are skipped"
    assert history_of(conn)[-1] == (cron.now, "missed", "2")
    found = fields_of_entry(conn)
    assert (found["enqueued"], found["missed"], found["last_job"]) == ("3", "9", cron.id(ticks[-1]))
    assert mark_of(conn) == cron.now
    assert set(check_conservation(conn, map(cron.id, ticks)).values()) == {"queued"}
    assert drain(Hand(Broker(conn), "q"), 1) == [cron.id(t) for t in ticks]


def test_jitter_puts_a_job_into_the_schedule(cron: Cron, conn: redis.Redis) -> None:
    tick = now_s(conn)
    rung(conn)
    assert cron.tick(tick, delay=90.25, of=job(ttl=5)) == ("ok", 1, 0)
    job_id = cron.id(tick)
    assert check_conservation(conn, [job_id]) == {job_id: "scheduled"}
    assert conn.zscore("rq:scheduler:scheduled_jobs", job_id) == tick + 90.25
    assert int(fields_of(conn, job_id)["expires_at"]) == (tick + 95) * 1000 + 250
    assert rung(conn)
    assert conn.exists("rq:wake:q") == 0, "no worker is woken for it"
    assert cron.tick(tick - 1, upto=tick, delay=0.25) == ("ok", 1, 0), "the chance is over: at once"
    promote_all(Broker(conn), conn)
    assert check_conservation(conn, [job_id, cron.id(tick - 1)]) == {job_id: "queued", cron.id(tick - 1): "queued"}


# -- never twice


def test_a_scheduler_with_an_older_mark_or_revision_decides_nothing(cron: Cron, conn: redis.Redis) -> None:
    read = cron.stored
    assert cron.tick(cron.now - 60, read=read) == ("ok", 1, 0)
    before = everything(conn, clocks=True)
    assert cron.tick(cron.now - 60, read=read) == ("stale", 0, 0)
    assert cron.tick(cron.now, read=read) == ("stale", 0, 0)
    assert everything(conn, clocks=True) == before
    read = cron.stored
    cron.put(spec="{}")
    before = everything(conn, clocks=True)
    assert cron.tick(cron.now, read=read) == ("stale", 0, 0)
    assert everything(conn, clocks=True) == before


def test_a_resend_answers_as_the_first_time(cron: Cron, conn: redis.Redis) -> None:
    ticks, read = [cron.now - 120, cron.now - 60], cron.stored
    assert cron.tick(*ticks, read=read, missed=3, nonce="n") == ("ok", 2, 0)
    before = everything(conn, clocks=True)
    assert cron.tick(*ticks, read=read, missed=3, nonce="n") == ("ok", 2, 0)
    assert everything(conn, clocks=True) == before
    assert cron.tick(*ticks, read=read, missed=3, nonce="another") == ("stale", 0, 0)


def test_a_tick_that_has_not_come_is_early(cron: Cron, conn: redis.Redis) -> None:
    """By the clock of the server that decides: it was set back since somebody looked."""
    before = everything(conn, clocks=True)
    assert cron.tick(cron.now + 3600) == ("early", 0, 0)
    assert everything(conn, clocks=True) == before


def test_a_job_of_that_id_is_never_made_twice(cron: Cron, conn: redis.Redis) -> None:
    """The mark was lost, or somebody enqueued the id: what is there stays as it is, running, ended or waiting."""
    ticks = [cron.now - 180, cron.now - 120, cron.now - 60]
    cron.tick(*ticks)
    hand = Hand(Broker(conn), "q")
    hand.tell(hand.take())
    running = hand.take()
    before = {tick: fields_of(conn, cron.id(tick)) for tick in ticks}
    cron.set_mark(None)
    assert cron.stored.mark == ""
    assert cron.tick(*ticks, cron.now) == ("ok", 1, 0)
    assert {tick: fields_of(conn, cron.id(tick)) for tick in ticks} == before
    assert [outcome for _, outcome, _ in history_of(conn)[3:]] == ["exists"] * 3 + ["enqueued"]
    states = check_conservation(conn, map(cron.id, [*ticks, cron.now]))
    assert list(states.values()) == ["finished", "started", "queued", "queued"]
    assert hand.tell(running) == "ok"


@claim("P9")
@pytest.mark.parametrize("callers", [2, 10])
def test_one_of_many_concurrent_schedulers_decides_a_tick(conn: redis.Redis, redis_url: str, callers: int) -> None:
    rounds = 150 // callers
    crons = [Cron(conn, f"e{i}", since=1200) for i in range(rounds)]
    reads = [cron.stored for cron in crons]
    start, answers, errors = threading.Barrier(callers), [Counter[str]() for _ in crons], list[BaseException]()

    def decide() -> None:
        mine = connect(redis_url)
        try:
            broker = CronBroker(mine)
            start.wait(10)
            for i, (cron, read) in enumerate(zip(crons, reads, strict=True)):
                tick = Tick(cron.now - 60, ((cron.now - 120, 0.0), (cron.now - 60, 0.0)), cron.now + 60)
                status, enqueued, _ = broker.cron_tick(read, tick, job(), "q", secrets.token_hex(6), overlap="allow")
                answers[i][f"{status} {enqueued}"] += 1
        except BaseException as error:
            errors.append(error)
        finally:
            mine.close()

    threads = [threading.Thread(target=decide) for _ in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors
    assert answers == [Counter({"ok 2": 1, "stale 0": callers - 1})] * rounds
    wanted = [cron.id(tick) for cron in crons for tick in (cron.now - 120, cron.now - 60)]
    assert sorted(drain(Hand(Broker(conn), "q"))) == sorted(wanted), "one job per (entry, tick)"
    assert len(check_conservation(conn, wanted)) == 2 * rounds


# -- what is broken or full


def test_a_broken_queue_leaves_the_tick_undecided_and_no_other(cron: Cron, conn: redis.Redis) -> None:
    tick, mark = cron.now - 60, mark_of(conn)
    conn.set("rq:queue:q", "junk")
    for _ in range(2):
        status, enqueued, skipped = cron.tick(tick, missed=4)
        assert (status.partition(":")[0], enqueued, skipped) == ("error", 0, 0)
        assert "WRONGTYPE" in status
    assert mark_of(conn) == mark
    assert look_of(conn) == pytest.approx(now_s(conn) + 30, abs=2)
    assert "WRONGTYPE" in fields_of_entry(conn)["error"]
    assert conn.exists(f"rq:job:{cron.id(tick)}") == 0
    assert history_of(conn) == [], "nothing was decided, so there is nothing to tell"
    other = Cron(conn, "other", queue="r")
    assert other.tick(tick) == ("ok", 1, 0)
    conn.delete("rq:queue:q")
    assert cron.tick(tick, missed=4) == ("ok", 1, 0)
    found = fields_of_entry(conn)
    assert not {"error", "error_at"} & set(found)
    assert found["missed"] == "4"
    assert history_of(conn) == [(tick, "missed", "4"), (tick, "enqueued", cron.id(tick))]
    assert set(check_conservation(conn, [cron.id(tick), other.id(tick)]).values()) == {"queued"}


def test_broken_half_way_the_rest_is_decided_later(cron: Cron, conn: redis.Redis) -> None:
    """Numbers of arrival run out between two ticks: the first stands, the second is decided once that is mended."""
    first, second = cron.now - 120, cron.now - 60
    conn.set("rq:seq", 2**63 - 2)
    status, enqueued, _ = cron.tick(first, second, missed=5)
    assert (status.partition(":")[0], enqueued) == ("error", 1)
    assert mark_of(conn) == first
    assert look_of(conn) == pytest.approx(now_s(conn) + 30, abs=2)
    assert history_of(conn) == [(second, "missed", "5"), (first, "enqueued", cron.id(first))]
    conn.set("rq:seq", 10)
    assert cron.tick(second) == ("ok", 1, 0)
    found = fields_of_entry(conn)
    assert (found["enqueued"], found["missed"]) == ("2", "5")
    assert conn.exists(f"rq:job:{cron.id(first)}", f"rq:job:{cron.id(second)}") == 2
    assert conn.zcard("rq:queue:q") == 2


@pytest.mark.parametrize(
    "spoil",
    [
        lambda conn: conn.set("rq:cron:history:e", "junk"),
        lambda conn: conn.hset("rq:cron:entry:e", mapping={"enqueued": "junk", "missed": "junk", "overlapped": "junk"}),
        lambda conn: conn.hset("rq:cron:entry:e", mapping={"last_job": "odd", "manual_job": "not\nan id"}),
        lambda conn: conn.set("rq:events", "junk"),
    ],
    ids=["history", "counters", "last jobs", "events"],
)
def test_garbage_never_stands_between_a_job_and_its_mark(
    cron: Cron, conn: redis.Redis, spoil: Callable[[redis.Redis], object]
) -> None:
    """Else the tick would run again once its job is forgotten."""
    conn.set("rq:job:odd", "no hash")
    spoil(conn)
    cron.overlap = "skip"
    assert cron.tick(cron.now - 60, missed=1) == ("ok", 1, 0)
    assert mark_of(conn) == cron.now - 60
    assert cron.tick(cron.now) == ("ok", 0, 1)
    assert mark_of(conn) == cron.now
    assert check_conservation(conn, [cron.id(cron.now - 60)]) == {cron.id(cron.now - 60): "queued"}


def test_a_full_server_decides_nothing_and_forgets_nothing(spawn: Callable[..., SpawnedServer]) -> None:
    conn = spawn("--maxmemory-policy", "noeviction").client()
    cron = Cron(conn)
    before, look = everything(conn), look_of(conn)
    tick = cron.now - 60
    conn.config_set("maxmemory", 1)
    with pytest.raises(redis.OutOfMemoryError):
        cron.tick(tick, missed=2)
    with pytest.raises(redis.OutOfMemoryError):
        cron.tick(tick, delay=90.0)
    with pytest.raises(redis.OutOfMemoryError):
        cron.run()
    with pytest.raises(redis.OutOfMemoryError):
        CronBroker(conn).cron_put("new", "p", "s", "r")
    assert cron.broker.cron_due().entries[0].id == "e"
    assert (everything(conn), look_of(conn)) == (before, look)
    assert cron.broker.cron_pause("e"), "what stops something is not refused"
    assert cron.broker.cron_resume("e") == "ok"
    assert cron.broker.scheduler_beat("s", "i", 30.0, 420, {})
    conn.config_set("maxmemory", 0)
    cron.set_mark(tick - 60)
    assert cron.tick(tick, missed=2) == ("ok", 1, 0)
    assert check_conservation(conn, [cron.id(tick)]) == {cron.id(tick): "queued"}
    assert status_of(conn, cron.id(tick)) == "queued"


def test_the_history_is_bounded(cron: Cron, conn: redis.Redis) -> None:
    for i in range(60):
        assert cron.tick(cron.now - 60 + i) == ("ok", 1, 0)
    rows = history_of(conn)
    assert [tick for tick, _, _ in rows] == [cron.now - 50 + i for i in range(50)]
    shown = CronInspector(conn).history("e", 3)
    assert [int(d.tick.timestamp()) for d in shown] == [cron.now - 1, cron.now - 2, cron.now - 3], "the newest first"
    assert len(CronInspector(conn).history("e", 100)) == 50
    assert CronInspector(conn).history("e", 0) == []
    assert len(check_conservation(conn, [cron.id(cron.now - 60 + i) for i in range(60)])) == 60


def test_a_tick_whose_id_is_taken_is_reported_everywhere(cron: Cron, conn: redis.Redis) -> None:
    """A producer of before could name a job like a tick to come: that tick would not run, and nobody would know."""
    ticks = [cron.now - 120, cron.now - 60]
    stranger = cron.id(ticks[0])
    put(Broker(conn), "other", stranger, data=b'["tests.jobs.basic.noop",null,[],{}]')
    before = fields_of(conn, stranger)
    answer = cron.tick(*ticks, nonce="n")
    assert answer == (f"taken {stranger}", 1, 0), "the other one runs"
    assert cron.tick(*ticks, nonce="n") == answer, "a resend gets the same answer"
    assert fields_of(conn, stranger) == before
    assert [(tick, outcome) for tick, outcome, _ in history_of(conn)] == [(ticks[0], "taken"), (ticks[1], "enqueued")]
    assert fields_of_entry(conn)["error"] == f"a tick did not run: the id {stranger} is taken by a job that is not of this entry"
    assert (mark_of(conn), fields_of(conn, cron.id(ticks[1]))["cron"]) == (ticks[1], "e"), "it is decided, and the ticks go on"
    assert cron.tick(cron.now) == ("ok", 1, 0)
    assert "error" not in fields_of_entry(conn)
