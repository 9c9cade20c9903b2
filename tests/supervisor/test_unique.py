"""Unique keys while producers, workers and jobs' processes are killed: what came in, and when, as the event stream has it."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import redis

from fusion.store.write.broker import Broker
from tests.faults.rig.conservation import check_conservation
from tests.kit.length import SOAK_ONLY
from tests.kit.process import ROOT
from tests.kit.promises import promise
from tests.kit.waiting import eventually
from tests.store.unique_hands import flaws
from tests.supervisor.harness import Service, Services
from tests.supervisor.test_limits import kill_some

#: No event is to be trimmed.
_CAP = "10000000"
_ENDS = ("completed", "failed", "canceled", "expired", "stopped")


class Producers:
    """Processes that enqueue this many jobs each, and are started again if they die before that."""

    def __init__(self, redis_url: str, directory: Path, count: int, calls: int, keys: int) -> None:
        self.places = [directory / f"producer-{n}" for n in range(count)]
        self.calls, self.keys = calls, keys
        self.env = {**os.environ, "FUSION_REDIS_URL": redis_url, "FUSION_EVENTS_CAP": _CAP}
        self.running: dict[Path, subprocess.Popen[bytes]] = {}
        self.deaths = 0

    def start(self) -> None:
        for place in self.places:
            process = self.running.get(place)
            if (process is None or process.poll() is not None) and self.done(place) < self.calls:
                code = [sys.executable, "-m", "tests.jobs.duplicating", str(place), str(self.calls), str(self.keys)]
                self.running[place] = subprocess.Popen(code, cwd=ROOT, env=self.env)

    @staticmethod
    def done(place: Path) -> int:
        return len(place.read_text()) if place.exists() else 0

    @property
    def made(self) -> int:
        return sum(map(self.done, self.places))

    def kill_one(self, chance: random.Random) -> None:
        alive = [process for process in self.running.values() if process.poll() is None]
        if alive:
            victim = chance.choice(alive)
            victim.kill()
            victim.wait()
            self.deaths += 1

    def close(self) -> None:
        for process in self.running.values():
            process.kill()
            process.wait()


def story(conn: redis.Redis) -> tuple[list[str], Counter[str], Counter[str]]:
    """What was against the rules of any key, from the events in their order; by key how many jobs came in, and how many finished."""
    key_of = {}
    for raw in conn.scan_iter("rq:job:*", count=1000):
        key_of[raw.decode().removeprefix("rq:job:")] = (conn.hget(raw, "unique_key") or b"").decode()
    holds = dict[str, str]()
    wrong, came, finished = list[str](), Counter[str](), Counter[str]()
    start, last = "-", 0
    while batch := conn.xrange("rq:events", start, count=5000):
        for _, fields in batch:
            event, job_id = fields[b"event"].decode(), fields[b"job_id"].decode()
            key = key_of.get(job_id, "")
            assert int(fields[b"n"]) == (last := last + 1), "no event is missing"
            if not key:
                continue
            if event == "queued" and b"reason" not in fields:
                came[key] += 1
                if key in holds:
                    wrong.append(f"{key}: {job_id} came in, and {holds[key]} had it")
                holds[key] = job_id
            if event in _ENDS:
                finished[key] += event == "completed"
            gives_up = event in _ENDS or (key[0] == "s" and event == "processing")
            if gives_up and holds.get(key) == job_id and key[0] not in "wa":
                del holds[key]
        start = f"({batch[-1][0].decode()}"
    return wrong, came, finished


def check(services: Services, conn: redis.Redis, directory: Path, *, producers: int, calls: int, keys: int, kills: int) -> None:
    chance = random.Random(kills)
    service = services.start(2, "s", "--slots", "2", env={"FUSION_TASKS": "tests.jobs.basic", "FUSION_EVENTS_CAP": _CAP})
    crowd = Producers(services.redis_url, directory, producers, calls, keys)
    try:
        crowd.start()
        for nth in range(kills):
            eventually(lambda: crowd.made >= producers * calls * (nth + 1) // (kills + 2), 120, why="producers go on")  # noqa: B023
            _strike(crowd, service, chance)
            crowd.start()
        while crowd.made < producers * calls:
            crowd.start()
            eventually(lambda: crowd.made >= producers * calls or _one_has_ended(crowd), 300, why="all is made")
    finally:
        crowd.close()
    eventually(lambda: not any(conn.exists(f"rq:{kind}:s") for kind in ("queue", "wip")), 120, why="all have run")
    eventually(lambda: not conn.zcard("rq:scheduler:scheduled_jobs"), 120, why="what was lost has run")
    wrong, came, finished = story(conn)
    with promise("P4", "P5"):
        assert wrong == []
    assert {key: came[key] for key in came if key[0] in "wa"} == {f"{kind}{n}": 1 for kind in "wa" for n in range(keys)}
    with promise("P4", "P5"):
        assert finished == came, "each that came in has run to its end, once"
    assert sum(came.values()) > 2 * keys, "some ran and came again"
    assert flaws(conn) == []
    assert {key[:11] for key in conn.keys("rq:unique:*")} <= {b"rq:unique:w", b"rq:unique:a"}, "nothing but windows is left"
    Broker(conn).clean()
    assert conn.get("rq:uniques:audit") is None
    check_conservation(conn, (raw.decode().removeprefix("rq:job:") for raw in conn.keys("rq:job:*")))
    assert crowd.deaths >= kills // 3


def _strike(crowd: Producers, service: Service, chance: random.Random) -> None:
    crowd.kill_one(chance)
    if chance.random() < 0.5:
        kill_some(service, chance)


def _one_has_ended(crowd: Producers) -> bool:
    return any(process.poll() is not None and crowd.done(place) < crowd.calls for place, process in crowd.running.items())


@pytest.mark.long
@pytest.mark.timeout(120)
def test_a_few_producers_and_kills(services: Services, conn: redis.Redis, tmp_path: Path) -> None:
    check(services, conn, tmp_path, producers=4, calls=100, keys=4, kills=4)


@SOAK_ONLY
@pytest.mark.long
@pytest.mark.timeout(900)
def test_twenty_producers_of_a_thousand_duplicates_each(services: Services, conn: redis.Redis, tmp_path: Path) -> None:
    check(services, conn, tmp_path, producers=20, calls=1000, keys=15, kills=40)
