"""Random walks over everything that happens to jobs with keys: after each step each slot is held by right, and none is free while a job waits."""

from __future__ import annotations

from dataclasses import replace

import pytest
import redis

from fusion.store.layout.records import Claimed, ClaimFilter, Commit
from fusion.store.read.limit_inspector import LimitInspector
from fusion.store.write.limit_broker import LimitBroker
from tests.kit.hands import TASK, Hand, outcome
from tests.kit.length import soaked
from tests.store.limits_hands import faults, holders, tied, waiting
from tests.store.walker import WalkOfWorkers

KEYS, QUEUES = ("k", "l"), ("q", "p", "scheduler")
KINDS = ("finished", "failed", "retry", "retry", "later", "held", "release", "lost", "struck", "limited")


class LimitWalk(WalkOfWorkers):
    QUEUES = QUEUES

    def __init__(self, conn: redis.Redis, seed: int) -> None:
        super().__init__(conn, seed, alone=1)
        self.limits = LimitBroker(conn)
        self.ids: list[str] = []

    STEPS = {  # noqa: RUF012 - by weight
        "enqueue": 5, "claim": 6, "tell": 6, "cancel": 1, "delete": 1, "requeue": 1, "due": 2, "lose": 1, "pin": 1, "pause": 1,
        "resume": 1, "lacking": 1, "having": 1, "empty": 0.2, "clean": 1,
    }  # fmt: skip

    def some(self) -> str:
        return self.chance.choice(self.ids or ["nobody"])

    def enqueue(self) -> None:
        new, chance = [], self.chance
        for _ in range(chance.randint(1, 3)):
            self.ids.append(f"j{len(self.ids)}")
            more = {"ties": "kd", "on_conflict": "discard"} if chance.random() < 0.2 else {}
            more |= {"on_lost": "again"} if chance.random() < 0.5 else {}  # without both: no option but its key
            delay = 60.0 if chance.random() < 0.1 else None
            limit = chance.choice((None, 1, 2, 3))
            new.append(tied(self.ids[-1], chance.choice(KEYS), limit, chance.choice((0, 1, 1, 2)), delay=delay, **more))
        if chance.random() < 0.5:  # under ids made by chance: the records have no nonce
            new = [replace(job, nonce=job.id) for job in new]
        self.broker.enqueue(chance.choice(QUEUES), new, "" if new[0].nonce else f"n{len(self.ids)}")

    def tell(self) -> None:
        if not self.running:
            return
        hand, first = self.a_running()
        beside = [one for one in self.running if one[0] is hand][: self.chance.randint(0, 2)]
        self.running = [one for one in self.running if one not in beside]
        told = [self.told_of(job) for job in (first, *(job for _, job in beside))]
        found = hand.turn(*told, slots=[0] * self.chance.randint(0, 2)).jobs
        self.running += [(hand, job) for job in found]

    def told_of(self, job: Claimed) -> Commit:
        kind = self.chance.choice(KINDS)
        fields = (
            {"keep_slot": "1"} if kind == "retry" and self.chance.random() < 0.3 else {"task": "shop.f"} if kind == "held" else {}
        )
        return outcome(job, kind, reason="r", delay=self.chance.choice((0.0, 60.0)), fields=fields)

    def requeue(self) -> None:
        self.broker.requeue([self.some()], f"r{self.chance.random()}", keep_place=self.chance.random() < 0.5)

    def pin(self) -> None:
        self.limits.pin_limit(self.chance.choice(KEYS), self.chance.choice((None, 1, 2, 4)))

    def pause(self) -> None:
        self.limits.pause_limit(self.chance.choice(KEYS))

    def resume(self) -> None:
        for key in KEYS:
            self.limits.resume_limit(key)

    def lacking(self) -> None:
        self.running += [
            (self.hands[1], job) for job in self.hands[1].turn(slots=[0], claim_filter=ClaimFilter(lacking={TASK: "no"})).jobs
        ]

    def having(self) -> None:
        """Who has the task takes from those that wait for it, and may find no slot."""
        wishes = ClaimFilter(sets=tuple(f"held:{queue}:{TASK}" for queue in QUEUES))
        self.running += [(self.hands[0], job) for job in self.hands[0].turn(slots=[0], claim_filter=wishes).jobs]

    def last_claim(self, hand: Hand) -> list[Claimed]:
        sets = tuple(f"held:{queue}:{task}" for queue in QUEUES for task in ("shop.f", TASK))
        own = ClaimFilter(sets=(*hand.claim_filter.sets, *sets), alone=True)
        return hand.turn(slots=[0] * 5, claim_filter=own).jobs


def walk(conn: redis.Redis, seed: int, steps: int) -> None:
    walked = LimitWalk(conn, seed)
    for _ in range(steps):
        walked.step()
        assert faults(conn) == [], (seed, walked.log[-5:])
    assert LimitInspector(conn).limits_audit() == 0, seed
    walked.resume()
    walked.end_all()
    assert faults(conn) == []
    for key in KEYS:
        assert (holders(conn, key), waiting(conn, key)) == ([], []), seed
    assert not any(conn.exists(f"rq:blocked:{queue}", f"rq:wip:{queue}") for queue in QUEUES)


@pytest.mark.parametrize("seed", range(6))
def test_a_walk(conn: redis.Redis, seed: int) -> None:
    walk(conn, seed, 100)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_many_walks(conn: redis.Redis) -> None:
    for seed in range(100, soaked(115, 160)):
        conn.flushall()
        walk(conn, seed, 300)
