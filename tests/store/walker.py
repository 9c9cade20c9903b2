"""Random walks: one step after another, by chance. What the walks of batches, of limits and of unique keys share."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import ClassVar

import redis

from fusion.store.layout.records import Claimed
from fusion.store.write.broker import Broker
from tests.kit.hands import LEASE, Hand, expire_lease, may_reap, promote_all


class Walk:
    """`step()` takes one of STEPS, a method each; `log` holds their names, for the report of a failure."""

    #: Name of a method -> its weight.
    STEPS: ClassVar[Mapping[str, float]]

    def __init__(self, conn: redis.Redis, seed: int) -> None:
        self.conn, self.chance, self.broker = conn, random.Random(seed), Broker(conn)
        self.log: list[str] = []

    def step(self) -> None:
        name = self.chance.choices(*zip(*self.STEPS.items(), strict=True))[0]
        self.log.append(name)
        getattr(self, name)()

    def some(self) -> str:
        """The id of a job, or one that no job has."""
        raise NotImplementedError

    def cancel(self) -> None:
        self.broker.cancel(self.some())

    def due(self) -> None:
        promote_all(self.broker, self.conn)

    def clean(self) -> None:
        self.broker.clean()


class WalkOfWorkers(Walk):
    """A walk in which several workers claim from QUEUES; `running`: jobs that they hold."""

    QUEUES: ClassVar[Sequence[str]]

    def __init__(self, conn: redis.Redis, seed: int, hands: int = 2, alone: int | None = None) -> None:
        """`alone`: this one of the workers runs one job at a time."""
        super().__init__(conn, seed)
        numbers = range(1, hands + 1)
        self.hands = [Hand(self.broker, *self.QUEUES, name=f"host.{n}", alone=n == alone) for n in numbers]
        self.running: list[tuple[Hand, Claimed]] = []

    def a_running(self) -> tuple[Hand, Claimed]:
        """Take one of the running jobs out of `running`."""
        return self.running.pop(self.chance.randrange(len(self.running)))

    def claim(self) -> None:
        hand = self.chance.choice(self.hands)
        found = hand.turn(slots=[0] * self.chance.randint(1, 3), ahead=self.chance.randint(0, 1)).jobs
        self.running += [(hand, job) for job in found]

    def delete(self) -> None:
        self.broker.delete([self.some()])

    def lose(self) -> None:
        if self.running:
            _, job = self.a_running()
            may_reap(self.conn)
            expire_lease(self.conn, job.queue, job.id)
            self.broker.reap(LEASE, 0)

    def empty(self) -> None:
        self.broker.empty(self.chance.choice(self.QUEUES))

    def end_all(self) -> None:
        """Run each job that there is to its end."""
        for _ in range(300):
            promote_all(self.broker, self.conn)
            for hand, job in self.running:
                hand.tell(job)
            self.running = [(self.hands[0], job) for job in self.last_claim(self.hands[0])]
            if not self.running and not self.conn.zcard("rq:scheduler:scheduled_jobs"):
                break

    def last_claim(self, hand: Hand) -> list[Claimed]:
        return hand.turn(slots=[0] * 5).jobs
