"""P12: a relay may be killed at any instant. Every event arrives, and a repetition has the same id."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import pytest
import redis

from fusion.store.read.event_inspector import EventInspector
from fusion.store.write.broker import Broker
from tests.kit.hands import Hand, new, outcome
from tests.kit.promises import promise
from tests.kit.relays import Relays
from tests.kit.waiting import eventually
from tests.relay.harness import documents_in, emit, ids_in, is_delivered

SOAK = bool(os.environ.get("FUSION_TEST_SOAK"))
KILLS, JOBS = (50, 17_000) if SOAK else (6, 1_500)
PLACES = ("relay.before_write", "relay.after_write", "events_ack.after")
LIMIT = 900 if SOAK else 60


def _run_some(broker: Broker, hand: Hand, first: int, count: int) -> Counter[str]:
    """Three events for each of this many jobs, which end in three ways: how many in which."""
    broker.enqueue("q", [new(f"j{n}") for n in range(first, first + count)], str(first))
    ends: Counter[str] = Counter()
    while jobs := hand.claim(100):
        kinds = [("finished", "failed", "retry")[int(claimed.id[1:]) % 3] for claimed in jobs]
        hand.turn(*(outcome(claimed, kind, delay=3600.0) for claimed, kind in zip(jobs, kinds, strict=True)))
        ends.update(kinds)
    return ends


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


@pytest.mark.long
@pytest.mark.timeout(LIMIT)
def test_killed_again_and_again_a_relay_loses_nothing(
    relays: Relays, broker: Broker, conn: redis.Redis, inspector: EventInspector, tmp_path: Path
) -> None:
    path = tmp_path / "events.jsonl"
    relays.start("--events-file", str(path)).stop()  # from now on all is kept
    hand, ends, struck = Hand(broker, "q", name="host.1"), Counter[str](), 0
    chance = random.Random(7)
    for n in range(KILLS):
        ends += _run_some(broker, hand, n * JOBS // KILLS, (n + 1) * JOBS // KILLS - n * JOBS // KILLS)
        if n % 2:
            place = f"{chance.choice(PLACES)}=kill@{chance.randint(1, 2)}"
            relay = relays.start("--events-file", str(path), env={"FUSION_FAILPOINTS": place}, ready=False)
            eventually(lambda relay=relay: relay.process.poll() is not None or is_delivered(inspector), 20)  # type: ignore[misc]
        else:
            grown = _size(path) + chance.randint(1, 200_000)
            relay = relays.start("--events-file", str(path))
            eventually(lambda grown=grown: _size(path) >= grown or is_delivered(inspector), 20, 0.0005)  # type: ignore[misc]
        relay.kill()
        struck += not is_delivered(inspector)
    assert struck >= KILLS // 2, "most of them in the middle of it"
    assert sum(ends.values()) == JOBS
    assert conn.zcard("rq:finished:q") == ends["finished"]
    assert (conn.zcard("rq:queue:failed"), conn.zcard("rq:scheduler:scheduled_jobs")) == (ends["failed"], ends["retry"])
    relays.start("--events-file", str(path))
    eventually(lambda: is_delivered(inspector), LIMIT - 20, why="all is delivered")

    total = 3 * JOBS
    numbers = sorted({int(found.partition("-")[2]) for found in ids_in(path)})
    with promise("P12"):
        assert numbers == list(range(1, total + 1)), "each event, none besides"
    once = {str(found["id"]): str(found["event"]) for found in documents_in(path)}
    told = Counter(once.values())
    assert told["queued"] == told["processing"] == JOBS
    assert (told["completed"], told["failed"], told["retry"]) == (ends["finished"], ends["failed"], ends["retry"])
    (sink,) = inspector.sinks()
    assert (sink.delivered, sink.parked, sink.dropped, sink.behind) == (total, 0, 0, 0), "counted once each"
    repeated = len(ids_in(path)) - total
    assert repeated <= KILLS * 500, "at most what each of the dead held"
    print(f"{KILLS} kills, {struck} of them in the middle of it; {total} events, {repeated} written twice")


@pytest.mark.long
def test_a_kill_between_writing_and_acknowledging_repeats_with_the_same_ids(
    relays: Relays, broker: Broker, inspector: EventInspector, tmp_path: Path
) -> None:
    path = tmp_path / "events.jsonl"
    emit(broker, 100)
    first = relays.start("--events-file", str(path), env={"FUSION_FAILPOINTS": "relay.after_write=kill"}, ready=False)
    assert first.wait() == -9
    relays.start("--events-file", str(path))
    eventually(lambda: is_delivered(inspector))
    assert Counter(ids_in(path)).most_common()[-1][1] == 2
    assert len(set(ids_in(path))) == 100


@pytest.mark.long
def test_two_relays_share_the_work_and_one_dies(
    relays: Relays, broker: Broker, inspector: EventInspector, tmp_path: Path
) -> None:
    path = tmp_path / "events.jsonl"
    one, two = (relays.start("--events-file", str(path)) for _ in range(2))
    names = {relay.name for relay in inspector.relays()}
    assert len(names) == 2
    emit(broker, 5_000)
    eventually(lambda: _size(path) > 0)
    one.kill()
    emit(broker, 5_000, "k")
    eventually(lambda: is_delivered(inspector), 20)
    assert len(set(ids_in(path))) == 10_000
    eventually(lambda: sum(relay.alive for relay in inspector.relays()) == 1)
    two.signal(15)
    assert two.wait() == 0
