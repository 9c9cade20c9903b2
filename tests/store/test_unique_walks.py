"""Random walks over everything that happens to jobs with unique keys: after each step each key is held by right, and never by two."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis

from fusion.store.layout.records import NewJob
from fusion.store.write.queue_calls import met_in
from tests.faults.rig.conservation import check_conservation, memberships
from tests.kit.hands import outcome
from tests.kit.length import soaked
from tests.kit.still import Still
from tests.store.limits_hands import SEEN, faults
from tests.store.unique_hands import flaws, lone
from tests.store.walker import WalkOfWorkers

KEYS, QUEUES = ("k", "l", "m"), ("q", "p")
KINDS = ("finished", "finished", "failed", "retry", "retry", "release", "lost", "later", "struck")
WINDOW = 3_600_000


class UniqueWalk(WalkOfWorkers):
    QUEUES = QUEUES

    def __init__(self, conn: redis.Redis, seed: int) -> None:
        super().__init__(conn, seed)
        self.sent: list[tuple[str, list[NewJob], str]] = []
        self.count = 0

    STEPS = {  # noqa: RUF012 - by weight
        "enqueue": 6, "again": 2, "claim": 5, "tell": 6, "cancel": 1, "delete": 1, "requeue": 2, "due": 2, "lose": 1, "over": 2,
        "empty": 0.2, "clean": 1,
    }  # fmt: skip

    def some(self) -> str:
        return f"j{self.chance.randrange(self.count or 1)}"

    def enqueue(self) -> None:
        """The model's own word on each job: it came in, or met another, which has its key."""
        chance, jobs = self.chance, []
        for _ in range(chance.randint(1, 3)):
            until = chance.choice(("end", "end", "start", "accept"))
            more: dict[str, object] = {} if until == "end" else {"unique_until": until}
            if until == "accept" or chance.random() < 0.3:
                more["unique_window"] = WINDOW
            if chance.random() < 0.5:
                more["on_duplicate"] = "replace"
            if until != "accept" and chance.random() < 0.2:
                more |= {"ties": "ku", "concurrency_key": "c", "max_concurrent": 1}
            delay = 60.0 if chance.random() < 0.2 else None
            jobs.append(
                lone(f"j{self.count}", chance.choice(KEYS), chance.choice((0, 1, 1)), delay=delay, on_lost="again", **more)
            )
            self.count += 1
        queue, nonce = chance.choice(QUEUES), f"n{self.count}"
        had = {key: self.conn.get(f"rq:unique:{key}") for key in KEYS}
        at = self.broker.enqueue(queue, jobs, nonce)
        for job in jobs:
            met = met_in(at).get(job.id)
            there = bool(self.conn.exists(f"rq:job:{job.id}"))
            assert there is not (met is not None and met.skipped), job.id
            key = job.fields["unique_key"]
            if met is None:
                assert had[key] is None, f"{job.id} came in, and {had[key]!r} had {key}"
            else:
                assert met.other == had[key].decode(), job.id
            if there:
                had[key] = job.id.encode()
        self.sent.append((queue, jobs, nonce))

    def again(self) -> None:
        """A resend right after the call, as a client makes it that heard nothing."""
        if self.sent and self.log[-2:-1] == ["enqueue"]:
            queue, jobs, nonce = self.sent[-1]
            before = self.conn.zcard(f"rq:queue:{queue}")
            self.broker.enqueue(queue, jobs, nonce)
            assert self.conn.zcard(f"rq:queue:{queue}") == before

    def tell(self) -> None:
        if self.running:
            hand, job = self.a_running()
            told = outcome(job, self.chance.choice(KINDS), reason="r", delay=self.chance.choice((0.0, 60.0)))
            self.running += [(hand, job) for job in hand.turn(told, slots=[0] * self.chance.randint(0, 2)).jobs]

    def requeue(self) -> None:
        self.broker.requeue([self.some(), self.some()], f"r{self.chance.random()}", delay=self.chance.choice((0, 60)))

    def over(self) -> None:
        """A window ends."""
        for key in KEYS:
            if self.conn.pttl(f"rq:unique:{key}") >= 0:
                self.conn.delete(f"rq:unique:{key}")


def walk(conn: redis.Redis, seed: int, steps: int, look: Callable[[], None] = lambda: None) -> None:
    walked = UniqueWalk(conn, seed)
    for _ in range(steps):
        walked.step()
        seen = Still(conn, *SEEN, "rq:unique*")
        assert (flaws(seen), faults(seen)) == ([], []), (seed, walked.log[-5:])
        look()
    check_conservation(conn, memberships(conn))
    assert conn.get("rq:uniques:audit") is None, seed
    walked.end_all()
    assert flaws(conn) == []
    walked.over()
    assert conn.keys("rq:unique*") == [], f"seed {seed}: a key is left"


@pytest.mark.parametrize("seed", range(4))
def test_a_walk(conn: redis.Redis, seed: int) -> None:
    walk(conn, seed, 100)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_many_walks(conn: redis.Redis) -> None:
    for seed in range(100, soaked(110, 130)):
        conn.flushall()
        walk(conn, seed, 300)
