"""Random walks over everything that happens to jobs of batches: after each step each batch counts what is so; at the end what is to follow has
followed once, and nothing is left over."""

from __future__ import annotations

from collections import Counter

import pytest
import redis

from fusion.exceptions import BatchClosed, DuplicateJob, NoSuchBatchError, UnknownDependency
from fusion.store.layout.records import Claimed, Commit
from tests.faults.rig.conservation import check_conservation, leftovers, memberships
from tests.kit.hands import Hand, events_of, expire_lease, may_reap, outcome, over, promote_all, status_of
from tests.kit.length import soaked
from tests.store.batch_hands import DAY, HOUR, batch_faults, batch_of, callback, of_batch
from tests.store.kin_hands import child, give, settle
from tests.store.walker import Walk

KINDS = ("finished", "finished", "finished", "failed", "failed", "retry", "release", "lost")
WHENS = ("complete", "success")


class BatchWalk(Walk):
    """Some of its steps are sent twice."""

    def __init__(self, conn: redis.Redis, seed: int) -> None:
        super().__init__(conn, seed)
        self.hand = Hand(self.broker, "q", "p", "back")
        self.running: list[Claimed] = []
        self.ids: list[str] = []
        self.batches: list[str] = []
        #: Callbacks that somebody canceled or deleted, or whose batch was canceled.
        self.struck: set[str] = set()

    STEPS = {  # noqa: RUF012 - by weight
        "open": 2, "add": 6, "claim": 6, "tell": 8, "close": 2, "requeue": 3, "cancel": 1, "stop": 1, "delete": 1, "empty": 0.3, "expire": 1,
        "due": 2, "lose": 1, "cancel_batch": 0.4, "abandon": 0.3, "tend": 2, "release": 3, "clean": 1, "again": 1, "beget": 1.5,
    }  # fmt: skip

    def some(self) -> str:
        return self.chance.choice(self.ids or ["nobody"])

    def batch(self) -> str:
        return self.chance.choice(self.batches or ["nobody"])

    def open(self) -> None:
        name, parent = f"b{len(self.batches)}", self.batch() if self.chance.random() < 0.4 else ""
        calls = {f"on_{when}": f"{name}-{when}" for when in WHENS if self.chance.random() < 0.7}
        nonce = f"n{name}"
        for _ in range(self.chance.randint(1, 2)):
            answer, _ = self.broker.open_batch(name, nonce, HOUR, DAY, calls, parent=parent)
        if answer != "ok":
            return
        self.batches.append(name)
        for job_id in calls.values():
            callback(self.broker, name, job_id.partition("-")[2], job_id)

    def add(self) -> None:
        batch, by = self.batch(), self.some() if self.chance.random() < 0.3 else None
        fresh = [f"j{len(self.ids) + n}" for n in range(self.chance.randint(1, 4))]
        if self.ids and self.chance.random() < 0.1:
            fresh = [self.some()]
        jobs = [
            of_batch(batch, one, by, ttl=600, delay=60.0 if self.chance.random() < 0.1 else None, on_lost="again")
            for one in fresh
        ]
        nonce = f"n{len(self.log)}"
        try:
            for _ in range(self.chance.randint(1, 2)):
                self.broker.enqueue(self.chance.choice("qp") if len(jobs) == 1 else "q", jobs, nonce)
        except (BatchClosed, NoSuchBatchError, DuplicateJob):
            return
        self.ids += [one for one in fresh if one not in self.ids]

    def beget(self) -> None:
        """A job that waits for some, members or not, ended or not."""
        parents = {self.some() for _ in range(self.chance.randint(1, 2))}
        one = f"j{len(self.ids)}"
        try:
            signed = [self.chance.choice(("", "?")) + parent for parent in parents]
            give(self.broker, "q", child(one, *signed, result_ttl=60, on_lost="again"))
        except UnknownDependency:
            return
        self.ids.append(one)

    def claim(self) -> None:
        self.running += self.hand.turn(slots=[0] * self.chance.randint(1, 4), ahead=self.chance.randint(0, 1)).jobs

    def _commit(self, claimed: Claimed) -> Commit:
        return outcome(
            claimed, self.chance.choice(KINDS), reason="r", delay=self.chance.choice((0, 60.0)), fields={"result": "1"}
        )

    def tell(self) -> None:
        self.chance.shuffle(self.running)
        told = [self.running.pop() for _ in range(min(len(self.running), self.chance.randint(1, 3)))]
        commits = [self._commit(claimed) for claimed in told]
        self.hand.token += 1
        for _ in range(self.chance.randint(1, 2)):
            found = self.hand.turn(*commits, slots=[0], token=self.hand.token)
        self.running += found.jobs

    def again(self) -> None:
        """An execution that is another's by now comes back to life."""
        if self.running:
            self.hand.turn(*[outcome(self.chance.choice(self.running), "finished") for _ in range(2)])

    def close(self) -> None:
        self.broker.close_batch(self.batch())

    def requeue(self) -> None:
        nonce, some = f"n{len(self.log)}", [self.some() for _ in range(3)]
        for _ in range(self.chance.randint(1, 2)):
            self.broker.requeue(some, nonce, delay=self.chance.choice((0, 60.0)))

    def cancel(self) -> None:
        self.broker.cancel(self.some())
        if self.chance.random() < 0.2:
            self.strike(self.broker.cancel)

    def strike(self, how: object) -> None:
        job_id = f"{self.batch()}-{self.chance.choice(WHENS)}"
        if status_of(self.conn, job_id) == "deferred":
            self.struck.add(job_id)
            how(job_id)  # type: ignore[operator]

    def stop(self) -> None:
        self.broker.stop(self.some())

    def delete(self) -> None:
        self.broker.delete([self.some(), self.some()])
        if self.chance.random() < 0.2:
            self.strike(lambda job_id: self.broker.delete([job_id]))

    def empty(self) -> None:
        self.broker.empty(self.chance.choice("qp"), 5)

    def expire(self) -> None:
        if status_of(self.conn, job_id := self.some()) == "queued":
            over(self.conn, job_id)
        self.broker.expire()

    def lose(self) -> None:
        if self.running:
            lost = self.chance.choice(self.running)
            may_reap(self.conn)
            expire_lease(self.conn, lost.queue, lost.id)
            self.broker.reap(30.0, 0)

    def cancel_batch(self) -> None:
        batch = self.batch()
        self._note_canceled(batch)
        self.broker.cancel_batch(batch, self.chance.randint(1, 4))

    def _note_canceled(self, batch: str) -> None:
        if batch in self.batches and "success_at" not in batch_of(self.conn, batch):
            self.struck.add(f"{batch}-success")
        for other in self.batches:
            if self.conn.hget(f"rq:batch:{other}", "parent") == batch.encode() and "over" not in batch_of(self.conn, other):
                self._note_canceled(other)

    def abandon(self) -> None:
        if "closed_at" not in batch_of(self.conn, batch := self.batch()) and batch in self.batches:
            self.conn.hset(f"rq:batch:{batch}", "open_until", 1)
            self.conn.zadd("rq:batches:due", {batch: 1})
            self.broker.tend_batches()

    def tend(self) -> None:
        self.broker.tend_batches(self.chance.randint(1, 5))

    def release(self) -> None:
        self.broker.release(self.chance.randint(1, 5))

    # -- the end

    def finish(self) -> None:
        for _ in range(3):
            for batch in self.batches:
                self.broker.close_batch(batch)
            while self.conn.zcard("rq:batches:due") and (step := self.broker.tend_batches())[0]:
                assert step[0] >= 0
            promote_all(self.broker, self.conn)
            settle(self.broker)
            for queue in ("q", "p", "back"):
                may_reap(self.conn)
                held = [one.decode() for one in self.conn.zrange(f"rq:wip:{queue}", 0, -1)]
                expire_lease(self.conn, queue, *held, "nobody")
            self.broker.reap(30.0, 0)
            promote_all(self.broker, self.conn)
            while jobs := self.hand.claim(20):
                self.hand.turn(*(outcome(claimed, fields={"result": "1"}) for claimed in jobs))
                settle(self.broker)

    def check_called(self) -> None:
        """Each callback once, if it was to follow."""
        released = Counter(e["job_id"] for e in events_of(self.conn) if e["event"] == "queued" and e.get("reason") == "released")
        for batch in self.batches:
            found = batch_of(self.conn, batch)
            assert "over" in found, (batch, found)
            for when, told in (("complete", "ended_at"), ("success", "success_at")):
                job_id = f"{batch}-{when}"
                if found.get(f"on_{when}") and job_id not in self.struck:
                    assert released[job_id] == (told in found), (job_id, found)
                assert released[job_id] <= 1

    def forget(self) -> None:
        for _ in range(8):
            for batch in self.batches:
                if self.conn.exists(f"rq:batch:{batch}"):
                    self.conn.hset(f"rq:batch:{batch}", "forget_ms", 1)
                    self.conn.zadd("rq:batches:due", {batch: 1})
            while self.broker.tend_batches(7)[1] == 0:
                pass


def _walk(conn: redis.Redis, seed: int, steps: int) -> None:
    may_reap(conn)
    walk = BatchWalk(conn, seed)
    try:
        for n in range(steps):
            walk.step()
            assert n % 3 or batch_faults(conn) == []
        walk.finish()
        assert batch_faults(conn) == []
        walk.check_called()
        assert conn.get("rq:batches:audit") is None
        walk.forget()
        assert [*conn.scan_iter("rq:batch*")] == []
        assert float("inf") not in dict(conn.zrange("rq:finished:q", 0, -1, withscores=True)).values()
        check_conservation(conn, memberships(conn))
        assert leftovers(conn) == []
    except BaseException:
        print(seed, walk.log)
        raise


@pytest.mark.parametrize("seed", range(3))
def test_whatever_happens_batches_count_what_is_so(conn: redis.Redis, seed: int) -> None:
    _walk(conn, seed, 60)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, soaked(120, 160)))
def test_whatever_happens_for_long(conn: redis.Redis, seed: int) -> None:
    _walk(conn, seed, 250)
