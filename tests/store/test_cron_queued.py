"""Entries with overlap="queue": a tick that meets a job which has not ended waits behind it, one at most."""

from __future__ import annotations

import pytest
import redis

from fusion.store.write.broker import Broker
from tests.faults.rig.conservation import check_ended, leftovers
from tests.kit.hands import Hand, fields_of, may_reap, status_of
from tests.store.cron_hands import Cron, history_of


@pytest.fixture
def cron(conn: redis.Redis) -> Cron:
    may_reap(conn)
    return Cron(conn, overlap="queue")


def drain(broker: Broker) -> None:
    while broker.release()[1] is not None:
        pass


@pytest.mark.parametrize("how", ["finished", "failed", "canceled", "deleted"])
@pytest.mark.parametrize("by_hand", [False, True])
def test_one_tick_waits_until_the_job_before_it_has_ended(cron: Cron, conn: redis.Redis, how: str, by_hand: bool) -> None:
    broker = Broker(conn)
    hand = Hand(broker, "q")
    first, second, third, fourth = (cron.now - n for n in (240, 180, 120, 60))
    if by_hand:
        live = cron.run()[1]
    else:
        assert cron.tick(first) == ("ok", 1, 0)
        live = cron.id(first)
    assert cron.tick(second) == ("ok", 1, 0)
    assert status_of(conn, cron.id(second)) == "deferred"
    assert cron.tick(third) == ("ok", 0, 1)
    assert history_of(conn)[-1] == (third, "overlap", cron.id(second))
    if how in ("finished", "failed"):
        hand.tell(hand.take(), how, reason="r")
    elif how == "canceled":
        broker.cancel(live)
    else:
        broker.delete([live])
    drain(broker)
    assert status_of(conn, cron.id(second)) == "queued"
    running = hand.take()
    assert running.id == cron.id(second)
    assert cron.tick(fourth) == ("ok", 1, 0)
    assert status_of(conn, cron.id(fourth)) == "deferred" and hand.claim() == []
    hand.tell(running)
    drain(broker)
    hand.tell(hand.take())
    drain(broker)
    check_ended(conn, [cron.id(second), cron.id(fourth)])
    assert leftovers(conn) == []


def test_a_tick_that_meets_nobody_runs_at_once(cron: Cron, conn: redis.Redis) -> None:
    hand = Hand(Broker(conn), "q")
    for at in (cron.now - 120, cron.now - 60):
        assert cron.tick(at) == ("ok", 1, 0)
        hand.tell(hand.take())
        assert "parents" not in fields_of(conn, cron.id(at))


def test_a_resend_is_no_second_one_and_of_several_ticks_one_waits(cron: Cron, conn: redis.Redis) -> None:
    cron.tick(cron.now - 240)
    read = cron.stored
    ticks = [cron.now - n for n in (180, 120, 60)]
    assert cron.tick(*ticks, read=read, nonce="n") == ("ok", 1, 2)
    assert cron.tick(*ticks, read=read, nonce="n") == ("ok", 1, 2)
    assert conn.zcard("rq:deferred:q") == 1


def test_a_run_by_hand_is_refused_as_with_skip(cron: Cron) -> None:
    cron.tick(cron.now - 60)
    assert cron.run()[0] == "overlap"
