"""Entries whose jobs must not overlap, and runs by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis

from fusion.store.read.inspector import Inspector
from fusion.store.write.broker import Broker
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import Hand, everything, fields_of, status_of
from tests.store.cron_hands import Cron, fields_of_entry, history_of, look_of, mark_of


@pytest.fixture
def cron(conn: redis.Redis) -> Cron:
    return Cron(conn, overlap="skip")


def _end(hand: Hand, kind: str) -> None:
    if kind != "queued":
        claimed = hand.take()
        if kind == "canceled":
            hand.broker.cancel(claimed.id)
            hand.tell(claimed, "release", reason="r")
        elif kind != "started":
            hand.tell(claimed, kind, delay=60.0, reason="r")


@pytest.mark.parametrize("kind", ["queued", "started", "retry", "held"])
@pytest.mark.parametrize("by_hand", [False, True])
def test_a_tick_is_skipped_while_a_job_of_the_entry_has_not_ended(
    cron: Cron, conn: redis.Redis, kind: str, by_hand: bool
) -> None:
    first, second = cron.now - 120, cron.now - 60
    if by_hand:
        live = cron.run()[1]
    else:
        cron.tick(first)
        live = cron.id(first)
    _end(Hand(Broker(conn), "q"), kind)
    assert cron.tick(second) == ("ok", 0, 1)
    assert (mark_of(conn), conn.exists(f"rq:job:{cron.id(second)}")) == (second, 0), "it is decided: it never runs"
    assert history_of(conn)[-1] == (second, "overlap", live)
    assert fields_of_entry(conn)["overlapped"] == "1"
    assert check_conservation(conn, [live])[live] == {"retry": "scheduled", "held": "scheduled"}.get(kind, kind)


@pytest.mark.parametrize("kind", ["finished", "failed", "canceled"])
@pytest.mark.parametrize("by_hand", [False, True])
def test_an_ended_job_does_not_block_a_tick(cron: Cron, conn: redis.Redis, kind: str, by_hand: bool) -> None:
    first, second = cron.now - 120, cron.now - 60
    ended = cron.run()[1] if by_hand else cron.id(first)
    if not by_hand:
        cron.tick(first)
    _end(Hand(Broker(conn), "q"), kind)
    assert cron.tick(second) == ("ok", 1, 0)
    assert check_conservation(conn, [ended, cron.id(second)]) == {ended: kind, cron.id(second): "queued"}


def test_a_deleted_job_does_not_block_a_tick(cron: Cron, conn: redis.Redis) -> None:
    cron.tick(cron.now - 120)
    Broker(conn).delete([cron.id(cron.now - 120)])
    assert cron.tick(cron.now - 60) == ("ok", 1, 0)


def test_only_one_of_several_due_ticks_runs(cron: Cron, conn: redis.Redis) -> None:
    ticks = [cron.now - 180, cron.now - 120, cron.now - 60]
    assert cron.tick(*ticks, nonce="n") == ("ok", 1, 2)
    assert [(t, outcome) for t, outcome, _ in history_of(conn)] == [
        (ticks[0], "enqueued"),
        (ticks[1], "overlap"),
        (ticks[2], "overlap"),
    ]
    assert cron.tick(*ticks, nonce="n") == ("ok", 1, 2), "a resend answers the same"
    assert mark_of(conn) == ticks[-1]
    assert check_conservation(conn, [cron.id(ticks[0])]) == {cron.id(ticks[0]): "queued"}


def test_allowed_to_overlap_all_run(cron: Cron, conn: redis.Redis) -> None:
    cron.overlap = "allow"
    ticks = [cron.now - 180, cron.now - 120, cron.now - 60]
    assert cron.tick(*ticks) == ("ok", 3, 0)
    assert set(check_conservation(conn, map(cron.id, ticks)).values()) == {"queued"}


def test_a_job_put_off_by_jitter_has_not_ended(cron: Cron, conn: redis.Redis) -> None:
    cron.tick(cron.now - 60, delay=3600.0)
    assert status_of(conn, cron.id(cron.now - 60)) == "scheduled"
    assert cron.tick(cron.now) == ("ok", 0, 1)


# -- by hand


def test_a_run_by_hand_changes_no_tick(cron: Cron, conn: redis.Redis) -> None:
    cron.overlap = "allow"
    mark, look = mark_of(conn), look_of(conn)
    assert cron.run() == ("ok", "cron-e-manual-1")
    assert cron.run() == ("ok", "cron-e-manual-2")
    assert (mark_of(conn), look_of(conn)) == (mark, look)
    assert conn.lrange("rq:wake:q", 0, -1) == [b"1"]
    assert Inspector(conn).queue_names() == ["q"]
    assert [(outcome, what) for _, outcome, what in history_of(conn)] == [("manual", f"cron-e-manual-{i}") for i in (1, 2)]
    assert check_conservation(conn, ["cron-e-manual-1", "cron-e-manual-2"]) == {
        "cron-e-manual-1": "queued",
        "cron-e-manual-2": "queued",
    }
    assert cron.tick(cron.now - 60) == ("ok", 1, 0)


def test_a_run_by_hand_must_not_overlap_either_unless_it_is_forced(cron: Cron, conn: redis.Redis) -> None:
    cron.tick(cron.now - 60)
    before = everything(conn, clocks=True)
    assert cron.run() == ("overlap", cron.id(cron.now - 60))
    assert everything(conn, clocks=True) == before
    assert cron.run(overlap="allow") == ("ok", "cron-e-manual-1")
    hand = Hand(Broker(conn), "q")
    hand.tell(hand.take())
    assert cron.run() == ("overlap", "cron-e-manual-1")
    hand.tell(hand.take())
    assert cron.run() == ("ok", "cron-e-manual-2")
    states = check_conservation(conn, [cron.id(cron.now - 60), "cron-e-manual-1", "cron-e-manual-2"])
    assert list(states.values()) == ["finished", "finished", "queued"]


def test_a_resend_of_a_run_by_hand(cron: Cron, conn: redis.Redis) -> None:
    assert cron.run("n") == ("ok", "cron-e-manual-1")
    before = everything(conn, clocks=True)
    assert cron.run("n") == ("ok", "cron-e-manual-1")
    assert everything(conn, clocks=True) == before


def test_entries_that_cannot_be_run_by_hand(cron: Cron, conn: redis.Redis) -> None:
    cron.broker.cron_put("faulty", "", "", "", error="no such zone")
    before = everything(conn, clocks=True)
    assert cron.run(rev="of before") == ("stale", "")
    cron.entry = "nobody"
    assert cron.run() == ("missing", "")
    cron.entry = "faulty"
    assert cron.run() == ("missing", "")
    assert everything(conn, clocks=True) == before


def test_a_paused_entry_can_be_run_by_hand(cron: Cron, conn: redis.Redis) -> None:
    cron.broker.cron_pause("e")
    assert cron.run() == ("ok", "cron-e-manual-1")
    assert cron.broker.cron_due().entries == []
    assert check_conservation(conn, ["cron-e-manual-1"]) == {"cron-e-manual-1": "queued"}


@pytest.mark.parametrize("spoil", [lambda hand: None, lambda hand: hand.take(), lambda hand: hand.tell(hand.take())])
def test_an_entry_of_the_same_id_leaves_the_jobs_of_the_former_alone(
    cron: Cron, conn: redis.Redis, spoil: Callable[[Hand], object]
) -> None:
    """Its count begins again; a job that waits, runs or has ended under such an id is not overwritten."""
    cron.run()
    spoil(Hand(Broker(conn), "q"))
    before = fields_of(conn, "cron-e-manual-1")
    cron.broker.cron_remove("e")
    cron.put()
    assert cron.run() == ("ok", "cron-e-manual-2")
    assert fields_of(conn, "cron-e-manual-1") == before
    states = check_conservation(conn, ["cron-e-manual-1", "cron-e-manual-2"])
    assert states["cron-e-manual-2"] == "queued"


def test_a_broken_queue_refuses_a_run_by_hand(cron: Cron, conn: redis.Redis) -> None:
    conn.set("rq:queue:q", "junk")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        cron.run("n")
    assert conn.exists("rq:job:cron-e-manual-1") == 0
    assert history_of(conn) == []
    conn.delete("rq:queue:q")
    status, job_id = cron.run("n")
    assert status == "ok"
    assert check_conservation(conn, [job_id]) == {job_id: "queued"}
