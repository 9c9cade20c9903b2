"""Random graphs of jobs, with failures, retries, losses, cancels, stops, deletes, requeues and resends: each job ends as a small model says."""

from __future__ import annotations

import secrets

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fusion.store.layout.records import Claimed
from fusion.store.write.broker import Broker
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import Hand, outcome, promote_all, status_of
from tests.kit.length import soaked
from tests.store.kin_hands import child, of_kin, settle

MOST = 40
ENDED = {"finished", "failed", "canceled", "stopped", "deleted"}
NODES = st.lists(
    st.lists(st.tuples(st.integers(0, MOST - 1), st.sampled_from(["", "", "?", "~"])), max_size=4), min_size=1, max_size=MOST
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["run", "run", "fail", "retry", "lose", "cancel", "stop", "delete", "requeue", "resend"]),
        st.integers(0, MOST - 1),
    ),
    max_size=60,
)


class Model:
    """What should be of each job. Parents are those that the job was enqueued with; `unmet` those that it waits for."""

    def __init__(self, parents: dict[str, dict[str, str]]) -> None:
        self.parents = parents
        self.unmet = {job: dict(found) for job, found in parents.items()}
        self.state = dict.fromkeys(parents, "deferred")
        self.settle()

    def settle(self) -> None:
        changed = True
        while changed:
            changed = False
            for job, state in self.state.items():
                if state == "deferred" and (found := self._next(job)) != "deferred":
                    self.state[job], changed = found, True

    def _next(self, job: str) -> str:
        for parent, sign in [*self.unmet[job].items()]:
            how = self.state[parent]
            if how == "finished" or (how in ENDED and sign == "?"):
                del self.unmet[job][parent]
            elif how in ENDED and (sign == "" or how == "deleted"):
                return "failed"
        return "deferred" if self.unmet[job] else "queued"

    def requeue(self, job: str) -> None:
        self.unmet[job] = {one: sign for one, sign in self.parents[job].items() if self.state[one] not in ENDED}
        self.state[job] = "deferred"


class Run:
    """The same by the scripts."""

    def __init__(self, conn: redis.Redis, nodes: list[list[tuple[int, str]]]) -> None:
        self.conn, self.broker = conn, Broker(conn)
        self.hand = Hand(self.broker, "q")
        parents = {f"n{i}": {f"n{at % i}": sign for at, sign in found} if i else {} for i, found in enumerate(nodes)}
        self.model = Model(parents)
        jobs = [child(job, *(sign + one for one, sign in found.items())) for job, found in parents.items()]
        self.broker.enqueue("q", jobs, "nonce")
        self.broker.enqueue("q", jobs, "nonce")

    def step(self, kind: str, at: int) -> None:
        job = f"n{at % len(self.model.parents)}"
        if kind in ("run", "fail", "retry", "lose"):
            self.run(kind)
        else:
            getattr(self, kind)(job)
        settle(self.broker)
        self.model.settle()

    def run(self, kind: str) -> None:
        jobs = self.hand.claim(1)
        if not jobs:
            assert "queued" not in self.model.state.values()
            return
        (claimed,) = jobs
        assert self.model.state[claimed.id] == "queued", claimed.id
        told = {"run": "finished", "fail": "failed", "retry": "retry", "lose": "release"}[kind]
        self.tell(claimed, told)
        self.model.state[claimed.id] = {"finished": "finished", "failed": "failed"}.get(told, "queued")

    def tell(self, claimed: Claimed, told: str) -> None:
        self.hand.turn(outcome(claimed, told, reason="r", delay=0))
        self.hand.turn(outcome(claimed, told, reason="r", delay=0), token=self.hand.token)

    def cancel(self, job: str) -> None:
        answer = self.broker.cancel(job)
        if self.model.state[job] not in ENDED:
            assert answer == "canceled"
            self.model.state[job] = "canceled"

    def stop(self, job: str) -> None:
        self.broker.stop(job)
        if self.model.state[job] not in ENDED:
            self.model.state[job] = "stopped"

    def delete(self, job: str) -> None:
        self.broker.delete([job])
        self.model.state[job] = "deleted"

    def requeue(self, job: str) -> None:
        (answer,) = self.broker.requeue([job], secrets.token_hex(6))
        if self.model.state[job] in ("failed", "canceled", "stopped"):
            assert answer == "ok"
            self.model.requeue(job)

    def resend(self, job: str) -> None:
        settle(self.broker)
        self.conn.zadd("rq:releasing", {f"c {job}": 1, f"p {job}": 1})

    def check(self) -> None:
        found = {job: status_of(self.conn, job) or "deleted" for job in self.model.state}
        assert found == self.model.state
        check_conservation(self.conn, [job for job, state in found.items() if state != "deleted"])

    def end(self) -> None:
        while "queued" in self.model.state.values():
            self.step("run", 0)
        for job, state in self.model.state.items():
            if state == "deferred":  # for a parent that nobody puts back
                self.step("cancel", int(job[1:]))
        while "queued" in self.model.state.values():
            self.step("run", 0)
        self.check()
        assert of_kin(self.conn) == set()


def _walk(conn: redis.Redis, nodes: list[list[tuple[int, str]]], steps: list[tuple[str, int]]) -> None:
    conn.flushall()
    run = Run(conn, nodes)
    run.check()
    for step in steps:
        run.step(*step)
        promote_all(run.broker, conn)
        run.check()
    run.end()


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(NODES, STEPS)
def test_graphs_end_as_the_model_says(
    conn: redis.Redis, nodes: list[list[tuple[int, str]]], steps: list[tuple[str, int]]
) -> None:
    _walk(conn, nodes, steps)


@pytest.mark.long
@settings(max_examples=soaked(200, 400), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(NODES, STEPS)
def test_many_graphs_end_as_the_model_says(
    conn: redis.Redis, nodes: list[list[tuple[int, str]]], steps: list[tuple[str, int]]
) -> None:
    _walk(conn, nodes, steps)
