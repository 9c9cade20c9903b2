"""What a sink does is its own affair: no other sink and no job feels it, and nothing is lost by it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import redis

from fusion.store.read.event_inspector import EventInspector
from fusion.store.write.broker import Broker
from tests.kit.relays import DRIVER, Relays
from tests.kit.waiting import eventually
from tests.relay.harness import emit, ids_in, is_delivered, sink_of


def test_a_sink_that_hangs_and_one_that_raises_delay_no_other(
    relays: Relays, broker: Broker, inspector: EventInspector, tmp_path: Path
) -> None:
    emit(broker, 1000)
    relay = relays.start("hang", "raise", f"good={tmp_path / 'good'}", program=DRIVER)
    eventually(lambda: is_delivered(inspector, "good"), 10)
    emit(broker, 1000, "k")
    eventually(lambda: is_delivered(inspector, "good"), 10)
    assert len(set(ids_in(tmp_path / "good"))) == 2000
    for name in ("hang", "raise"):
        sink = sink_of(inspector, name)
        assert sink is not None
        # On a slow machine the one that raises has given its first event up by now.
        assert (sink.behind + sink.parked, sink.delivered, sink.dropped) == (2000, 0, 0)
        assert sink.parked == 0 or name == "raise"
    assert "S3CR3T" not in relay.output
    raising = sink_of(inspector, "raise")
    assert raising is not None
    assert raising.error.startswith("RuntimeError at driver.py:")


@pytest.mark.long
def test_a_sink_that_hangs_keeps_the_relay_from_nothing(relays: Relays, broker: Broker, conn: redis.Redis) -> None:
    """It says that it lives, tells what it waits for, and ends in bounded time."""
    relay = relays.start("hang", program=DRIVER, env={"FUSION_SHUTDOWN_TIMEOUT": "0.5"})
    emit(broker, 1)
    before = conn.hget("rq:relay:" + conn.zrange("rq:relays", 0, 0)[0].decode(), "last_heartbeat")
    eventually(lambda: conn.hget("rq:relay:" + conn.zrange("rq:relays", 0, 0)[0].decode(), "last_heartbeat") != before)
    relay.signal(15)
    assert relay.wait() == 1
    assert "hang did not answer in time" in relay.output
    assert conn.zcard("rq:relays") == 0


@pytest.mark.long
def test_an_outage_is_shown_and_made_up_for(relays: Relays, broker: Broker, inspector: EventInspector, tmp_path: Path) -> None:
    """P12: the breaker opens, nothing is lost, and all comes once."""
    path = tmp_path / "down"
    (tmp_path / "down.down").touch()
    relays.start(f"down={path}", program=DRIVER)
    emit(broker, 1000)

    def is_open() -> bool:
        sink = sink_of(inspector, "down")
        return sink is not None and sink.breaker_open

    eventually(is_open, 20, why="the breaker opens")
    sink = sink_of(inspector, "down")
    assert sink is not None
    assert (sink.behind, sink.delivered, sink.error) == (1000, 0, "503 of the test [FUS-134]")
    assert sink.failing_since is not None
    assert sink.failures >= 5
    (tmp_path / "down.down").unlink()
    eventually(lambda: is_delivered(inspector, "down"), 30, why="caught up")
    sink = sink_of(inspector, "down")
    assert sink is not None
    assert (sink.delivered, sink.dropped, sink.failing_since, sink.breaker_open) == (1000, 0, None, False)
    assert sink.error == "503 of the test [FUS-134]", "what it was stays to be seen"
    found = ids_in(path)
    assert len(found) == len(set(found)) == 1000


def test_refused_events_are_parked_and_others_are_delivered(
    relays: Relays, broker: Broker, inspector: EventInspector, tmp_path: Path
) -> None:
    relays.start(f"odd={tmp_path / 'odd'}", program=DRIVER)
    emit(broker, 100)
    eventually(lambda: is_delivered(inspector, "odd"), 10)
    sink = sink_of(inspector, "odd")
    assert sink is not None
    assert (sink.delivered, sink.parked) == (90, 10)
    parked = inspector.parked("odd", 100)
    assert {entry.why for entry in parked} == {"it ends with 7"}
    assert {json.loads(entry.document)["job_id"] for entry in parked} == {f"j{n}7" if n else "j7" for n in range(10)}
    assert len(ids_in(tmp_path / "odd")) == 90


def test_an_event_that_breaks_a_sink_is_found_and_parked(
    relays: Relays, broker: Broker, inspector: EventInspector, tmp_path: Path
) -> None:
    emit(broker, 20)
    relay = relays.start(f"poison={tmp_path / 'p'}", program=DRIVER)
    eventually(lambda: is_delivered(inspector, "poison"), 50, why="all but one are delivered")
    (parked,) = inspector.parked("poison", 10)
    assert json.loads(parked.document)["job_id"] == "j7"
    assert parked.why.startswith("ValueError at driver.py:")
    assert "S3CR3T" not in parked.why + relay.output
    assert len(set(ids_in(tmp_path / "p"))) == 19


@pytest.mark.long
def test_told_to_end_a_relay_delivers_what_there_is(
    relays: Relays, broker: Broker, inspector: EventInspector, tmp_path: Path
) -> None:
    relay = relays.start(f"slow={tmp_path / 's'}", program=DRIVER)
    emit(broker, 3000)
    relay.signal(15)
    assert relay.wait() == 0
    assert is_delivered(inspector, "slow")
    assert len(ids_in(tmp_path / "s")) == 3000


@pytest.mark.long
def test_ending_while_the_sink_is_down_keeps_all_for_the_next(
    relays: Relays, broker: Broker, inspector: EventInspector, tmp_path: Path
) -> None:
    (tmp_path / "down.down").touch()
    relay = relays.start(f"down={tmp_path / 'down'}", program=DRIVER)
    emit(broker, 600)
    eventually(lambda: "503 of the test" in relay.output)
    relay.signal(15)
    assert relay.wait() == 0
    (tmp_path / "down.down").unlink()
    relays.start(f"down={tmp_path / 'down'}", program=DRIVER)
    eventually(lambda: is_delivered(inspector, "down"), 10)
    found = ids_in(tmp_path / "down")
    assert len(found) == len(set(found)) == 600
