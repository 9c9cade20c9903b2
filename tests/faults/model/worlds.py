"""All that can happen to one job and two workers, a few calls deep: the real scripts, from each state that was reached."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import redis

from tests.faults.model.scripts import Line, Mistake, broker_of, clock_at, limit_broker_of
from tests.faults.model.state import START, Order, Told
from tests.faults.model.store import Store

JOB, QUEUE, TICK_MS = "j", "a", 15_000

_SAVE = """
local out = {}
for _, key in ipairs(redis.call('KEYS', 'rq:*')) do
  if key ~= 'rq:events' then out[#out + 1] = key; out[#out + 1] = redis.call('DUMP', key) end
end
return out
"""
_RESTORE = """
redis.call('FLUSHDB')
for i = 1, #ARGV, 2 do redis.call('RESTORE', ARGV[i], 0, ARGV[i + 1]) end
return 1
"""


@dataclass(frozen=True)
class Sent:
    """A turn that was sent: its outcomes, how many slots it had, and its outcome when it was carried out first."""

    name: str
    token: int
    told: tuple[Told, ...]
    slots: tuple[int, ...]
    answers: tuple[str, ...] = ()
    jobs: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True)
class Client:
    """What a worker knows: `held`, the execution it runs, and the turn it has no answer to."""

    name: str
    token: int = 0
    held: str = ""
    unanswered: Sent | None = None

    @property
    def incarnation(self) -> str:
        return f"{self.name}1"


@dataclass(frozen=True)
class Job:
    """The job as Redis has it. `lease`: ms from now, None without one."""

    status: str
    execution: str
    attempts: int
    lost: int
    lease: int | None
    waits: bool


@dataclass(frozen=True)
class World:
    """A state. `seen`: what tells it from others; `saved`: how to come back to it; `sent`: all turns so far."""

    job: Job
    seen: str
    saved: tuple[Any, ...]
    now: int
    clients: dict[str, Client]
    sent: tuple[Sent, ...]
    path: tuple[str, ...]


class Explorer:
    """Goes through the worlds. Each step asserts what holds of the store whatever came before."""

    def __init__(self, conn: redis.Redis, mistakes: tuple[Mistake, ...] = ()) -> None:
        self._conn, self._line = conn, Line.like(conn)
        broker = broker_of(self._line, mistakes, max_lost=3)
        self._store = Store(self._line, broker, limit_broker_of(self._line, mistakes))
        self.steps = 0

    def first(self) -> World:
        self._line.begin(("FLUSHDB",), clock_at(START))
        self._store.enqueue(QUEUE, (Order(JOB),), "n")
        clients = {name: Client(name) for name in "AB"}
        for client in clients.values():
            self._store.register(client.name, client.incarnation)
        # past the time after the first look for which nobody is given up
        now = START + 2 * TICK_MS
        self._line.before.append(clock_at(now))
        self._line.hset("rq:reap", mapping={"last": now, "hold": 0})
        return self._world(now, clients, (), ())

    def explore(self, depth: int) -> int:
        """Breadth first; how many worlds there are."""
        known, layer = set(), [self._keep(self.first())]
        for _ in range(depth):
            following = []
            for world in layer:
                for after in self._after(world):
                    if after.seen not in known:
                        known.add(after.seen)
                        following.append(self._keep(after))
            layer = following
        return len(known)

    def _keep(self, world: World) -> World:
        """Redis is in this one now."""
        return replace(world, saved=tuple(self._conn.eval(_SAVE, 0)))

    # -- what may happen next

    def _after(self, world: World) -> Iterator[World]:
        clients = list(world.clients.values()) if world.sent else [world.clients["A"]]  # the two are alike
        for client in clients:
            yield from self._turns(world, client)
            if client.held:
                yield self._beat(world, client)
            yield self._prune(world, client)
        for sent in world.sent:
            yield self._resend(world, sent)
        yield self._tick(world)

    def _turns(self, world: World, client: Client) -> Iterator[World]:
        if client.unanswered:
            yield self._turn(world, client, client.unanswered, answered=True)
            return
        token = client.token + 1
        if client.held:
            calls = [Sent(client.name, token, (Told(kind, JOB, client.held),), ()) for kind in ("finished", "failed", "release")]
            calls.append(Sent(client.name, token, (Told("release", JOB, client.held),), (0,)))
        else:
            calls = [Sent(client.name, token, (), (0,))]
        for sent in calls:
            for answered in (True, False):
                yield self._turn(world, client, sent, answered=answered)

    def _turn(self, world: World, client: Client, sent: Sent, *, answered: bool) -> World:
        """`sent` again if it has not been answered. A worker whose answer is to register does so, and sends it again."""
        where = f"{'' if answered else 'unheard '}turn {sent.name}{sent.token} {[t.kind for t in sent.told]} {sent.slots}"
        self._go_to(world)
        first = sent if sent in world.sent else None
        status, answers, jobs = self._send(sent)
        fresh = first is None and status == "ok"
        if status == "unregistered":
            assert self._store.register(client.name, client.incarnation)
            before = self._job(world.now)
            assert before == world.job, "a refused turn changes nothing"
            status, answers, jobs = self._send(sent)
            fresh = True
        assert status == "ok", f"{where}: {status}"
        done = replace(sent, answers=tuple(answers), jobs=tuple(jobs))
        clients = dict(world.clients)
        held = jobs[0][2] if jobs else "" if sent.told else client.held
        clients[client.name] = (
            Client(client.name, sent.token, held) if answered else replace(client, token=sent.token, unanswered=done)
        )
        history = world.sent if done in world.sent else (*(s for s in world.sent if s != first), done)
        after = self._world(world.now, clients, history, (*world.path, where))
        if fresh:
            self._check_turn(world, after, done)
        else:
            self._check_resent(world, after, sent, answers, jobs)
        return after

    def _resend(self, world: World, sent: Sent) -> World:
        """A turn from before comes late: nobody reads the answer."""
        self._go_to(world)
        status, answers, jobs = self._send(sent)
        after = self._world(world.now, world.clients, world.sent, (*world.path, f"again {sent.name}{sent.token}"))
        last = max(other.token for other in world.sent if other.name == sent.name)
        if status == "ok" and sent.token == last and answers == list(sent.answers) and after.job == world.job:
            self._check_resent(world, after, sent, answers, jobs)
        elif (
            status == "ok"
        ):  # its worker was pruned and is back: nothing is known of the turn any more, so it is one like any other
            assert any("prune" in step for step in world.path), after.path
            self._check_turn(world, after, replace(sent, answers=tuple(answers), jobs=tuple(jobs)))
        else:
            assert status == "unregistered" or (status == "outdated" and sent.token < last), after.path
            assert (answers, jobs, after.job) == ([], [], world.job), after.path
        return after

    def _send(self, sent: Sent) -> tuple[str, list[str], list[tuple[str, str, str]]]:
        return self._store.turn(sent.name, f"{sent.name}1", sent.token, sent.told, (QUEUE,), sent.slots)

    def _beat(self, world: World, client: Client) -> World:
        self._go_to(world)
        _, answers = self._store.extend(client.name, client.incarnation, ((JOB, client.held),))
        after = self._world(world.now, world.clients, world.sent, (*world.path, f"beat {client.name}"))
        holds = world.job.status == "started" and world.job.execution == client.held
        assert answers == ["ok" if holds else "lost"], after.path
        assert after.job == (replace(world.job, lease=30_000) if holds else world.job), after.path
        return after

    def _prune(self, world: World, client: Client) -> World:
        """Its supervisor takes it for dead."""
        self._go_to(world)
        self._store.prune(client.name, client.incarnation)
        after = self._world(world.now, world.clients, world.sent, (*world.path, f"prune {client.name}"))
        holds = world.job.status == "started" and world.job.execution.startswith(client.incarnation)
        self._check_lost(world, after, holds)
        return after

    def _tick(self, world: World) -> World:
        """Half a lease passes, and maintenance is done."""
        self._go_to(world)
        now = world.now + TICK_MS
        self._line.before.append(clock_at(now))
        self._store.reap()
        self._store.promote(100)
        after = self._world(now, world.clients, world.sent, (*world.path, "tick"))
        lease = world.job.lease
        self._check_lost(world, after, lease is not None and lease <= TICK_MS)
        return after

    # -- what must hold

    def _check_turn(self, world: World, after: World, done: Sent) -> None:
        """One that is carried out: the fence."""
        job, path = world.job, after.path
        for told, answer in zip(done.told, done.answers, strict=True):
            if job.execution != told.execution:
                assert answer == "stale", path
            else:
                assert answer == "ok", path
                if job.status == "started":
                    status = {"finished": "finished", "failed": "failed", "release": "queued"}[told.kind]
                    job = replace(
                        job, status=status, attempts=job.attempts + (told.kind == "failed"), lease=None, waits=status == "queued"
                    )
                    job = replace(job, lost=job.lost if told.kind == "release" else 0)
        if done.slots and job.waits:
            execution = f"{done.name}1:{done.token}:1"
            assert done.jobs == ((QUEUE, JOB, execution),), path
            job = replace(job, status="started", execution=execution, lease=30_000, waits=False)
        else:
            assert not done.jobs, path
        assert after.job == job, f"{path}: {after.job}, not {job}"

    @staticmethod
    def _check_resent(world: World, after: World, sent: Sent, answers: list[str], jobs: list[tuple[str, str, str]]) -> None:
        """One that was carried out before: the answers of then, and of its jobs those it still holds."""
        assert after.job == world.job, after.path
        assert answers == list(sent.answers), after.path
        job = world.job
        assert jobs == [row for row in sent.jobs if job.status == "started" and job.execution == row[2]], after.path

    @staticmethod
    def _check_lost(world: World, after: World, lost: bool) -> None:
        job, now = world.job, after.job
        if lost:
            assert now.lost == job.lost + 1 and not now.execution and now.lease is None, after.path
            assert now.status == ("failed" if now.lost == 3 else "scheduled" if now.lost == 2 else "queued"), after.path
        else:
            assert (now.execution, now.lost) == (job.execution, job.lost), after.path
            assert now.status == job.status or (job.status, now.status) == ("scheduled", "queued"), after.path
        assert now.attempts == job.attempts, after.path

    # -- there and back

    def _go_to(self, world: World) -> None:
        self.steps += 1
        self._line.begin(("EVAL", _RESTORE, 0, *world.saved), clock_at(world.now))

    def _job(self, now: int) -> Job:
        return self._look(now)[0]

    def _look(self, now: int) -> tuple[Job, dict[str, Any]]:
        keys = dict(self._line.look().keys)
        record, leases = keys[f"rq:job:{JOB}"], keys.get(f"rq:wip:{QUEUE}", {})
        sets = [
            name
            for name in ("queue:a", "wip:a", "finished:a", "queue:failed", "scheduler:scheduled_jobs")
            if JOB in keys.get(f"rq:{name}", {})
        ]
        home = {"queued": "queue:a", "started": "wip:a", "finished": "finished:a", "failed": "queue:failed"}
        assert sets == [home.get(record["status"], "scheduler:scheduled_jobs")], f"{record['status']} but in {sets}"
        lease = int(leases[JOB]) - now if JOB in leases else None
        attempts, lost = int(record.get("attempts", 0)), int(record.get("lost", 0))
        waits = record["status"] == "queued"
        return Job(record["status"], record.get("execution_id", ""), attempts, lost, lease, waits), keys

    def _world(self, now: int, clients: dict[str, Client], sent: tuple[Sent, ...], path: tuple[str, ...]) -> World:
        job, keys = self._look(now)
        workers = {key: value.get("turn") if isinstance(value, dict) and "incarnation" in value else value
                   for key, value in keys.items() if key.startswith("rq:worker")}  # fmt: skip
        seen = repr((job, sorted(workers.items(), key=str), sorted(clients.items()), sorted(map(repr, sent))))
        return World(job, seen, (), now, clients, sent, path)
