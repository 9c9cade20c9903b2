"""Walks among jobs that know each other: unique keys, parents, batches and concurrency keys of the same jobs at the same time, with people,
workers, resends and time. There is no model of each answer here, as `model` has it: what must hold whatever came before is looked at after each call,
and when all has ended nothing may be left."""

from __future__ import annotations

import json
import re
from typing import Any, ClassVar

import redis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from fusion.exceptions import BatchClosed, DuplicateJob, FusionError, NoSuchBatchError
from fusion.store.layout.records import Claimed, ClaimFilter, Commit, NewJob, Report, TurnRequest
from fusion.store.write.broker import Broker
from fusion.store.write.queue_calls import met_in
from tests.faults.model.scripts import Mistake, broker_of, clock_at
from tests.faults.model.state import START
from tests.faults.rig.conservation import TERMINAL, check_conservation, leftovers, memberships
from tests.kit.hands import DATA, FULL
from tests.kit.promises import PromiseBroken
from tests.kit.still import Still
from tests.store.batch_hands import batch_faults
from tests.store.unique_hands import flaws

QUEUES, IDS, BATCHES = ("a", "b", "scheduler"), tuple(f"j{n}" for n in range(14)), ("x", "y", "z")
LEASE, WORKER_TTL, DAY = 30.0, 420, 86_400_000
#: From here on a child's place in the list of its parent's says that it waits for that to be requeued.
PARKED = 2.0**44
#: What is left when nothing is.
_KEPT = ("events", "leases", "fair:", "wake:", "work:", "seq", "totals:", "schema", "reap", "queues", "clean", "gate", "survey", "sample", "fifos",
         "fleet", "worker", "limits:audit", "limit", "history", "waits", "callbacks")  # fmt: skip

#: Failures by the minute.
_MINUTES = re.compile(r"failure:[0-9a-z]+:\d+")


#: Keys that `kin_faults` looks at.
SEEN = ("rq:job:*", "rq:releasing", "rq:pinned")


def kin_faults(redis_of_test: redis.Redis | Still) -> list[str]:
    """What is wrong with parents and children: who is deferred waits for somebody, who ended has left its parents or will soon, who is kept
    for its children has some."""
    conn = Still.of(redis_of_test, *SEEN)
    found = []
    soon = {raw.decode() for raw in conn.zrange("rq:releasing", 0, -1)}
    pinned = {raw.decode() for raw in conn.zrange("rq:pinned", 0, -1)}
    for raw in conn.scan_iter("rq:job:*"):
        job_id, _, what = raw.decode().removeprefix("rq:job:").partition(":")
        if what == "children":
            found += _of_parent(conn, job_id, soon, pinned)
        elif what == "dependencies":
            status = _status(conn, job_id)
            if status != "deferred" and f"p {job_id}" not in soon:
                found.append(f"{job_id} is {status}, and waits for {conn.smembers(raw)}")
        elif not what:
            found += _of_child(conn, job_id, soon)
    for job_id in pinned:
        if not conn.exists(f"rq:job:{job_id}:children") and f"c {job_id}" not in soon:
            found.append(f"{job_id} is kept for nobody")
    return found + _circles(conn)


def _circles(conn: redis.Redis | Still) -> list[str]:
    """Jobs that wait for each other: what is left once all are struck off that wait for none of these."""
    waiting = {}
    for raw in conn.scan_iter("rq:job:*"):
        job_id, _, what = raw.decode().removeprefix("rq:job:").partition(":")
        if what == "dependencies" and _status(conn, job_id) == "deferred":
            waiting[job_id] = {member.decode().lstrip("?~") for member in conn.smembers(raw)}
    while free := [job_id for job_id, parents in waiting.items() if not parents & waiting.keys()]:
        for job_id in free:
            del waiting[job_id]
    return [f"these wait for each other: {waiting}"] if waiting else []


def _of_parent(conn: redis.Redis | Still, job_id: str, soon: set[str], pinned: set[str]) -> list[str]:
    status, found = _status(conn, job_id), []
    for raw, _ in conn.zrange(f"rq:job:{job_id}:children", 0, -1, withscores=True):
        child = raw.decode()
        how = _status(conn, child)
        if (how is None or how in TERMINAL) and not {f"p {child}", f"c {job_id}"} & soon:
            found.append(f"{job_id} has the child {child}, which is {how}")
    if status in TERMINAL:
        origin = (conn.hget(f"rq:job:{job_id}", "origin") or b"").decode()
        until = conn.zscore("rq:queue:failed" if status == "failed" else f"rq:{status}:{origin}", job_id)
        if job_id not in pinned or until != float("inf"):
            found.append(f"{job_id} is {status}, has children, and is not kept")
    if status is None and f"c {job_id}" not in soon:
        found.append(f"{job_id} is gone, and has children")
    return found


def _of_child(conn: redis.Redis | Still, job_id: str, soon: set[str]) -> list[str]:
    status, ties = ((value or b"").decode() for value in conn.hmget(f"rq:job:{job_id}", "status", "ties"))
    unmet = [raw.decode() for raw in conn.smembers(f"rq:job:{job_id}:dependencies")]
    if status != "deferred":
        return []
    if not unmet:
        return [] if "h" in ties or {f"u {job_id}"} & soon else [f"{job_id} is deferred, and waits for nobody"]
    found = []
    for member in unmet:
        sign, parent = member[: len(member) - len(member.lstrip("?~"))], member.lstrip("?~")
        score = conn.zscore(f"rq:job:{parent}:children", job_id)
        if score is None:
            found.append(f"{job_id} waits for {member}, which does not know it")
        how = _status(conn, parent)
        if (how is None or how in TERMINAL) and f"c {parent}" not in soon and not (sign == "~" and score and score >= PARKED):
            found.append(f"{job_id} waits for {member}, which is {how}, at {score}")
    return found


def _status(conn: redis.Redis | Still, job_id: str) -> str | None:
    raw = conn.hget(f"rq:job:{job_id}", "status")
    return raw.decode() if raw else None


NUMBERS = st.integers(0, 13)
_few = st.lists(NUMBERS, max_size=3, unique=True)
#: What is drawn for a new job.
NEW: dict[str, st.SearchStrategy[Any]] = {
    "queue": st.sampled_from(QUEUES),
    "number": NUMBERS,
    "parents": _few,
    "signs": st.lists(st.sampled_from(["", "", "?", "~"]), min_size=3, max_size=3),
    "unique": st.sampled_from(["", "", "u", "v"]),
    "until": st.sampled_from(["end", "end", "start"]),
    "way": st.sampled_from(["skip", "skip", "replace", "raise"]),
    "batch": st.sampled_from(["", "", *BATCHES]),
    "key": st.sampled_from(["", "", "", "k"]),
    "discard": st.booleans(),
    "delay": st.sampled_from([None, None, None, 5, 40]),
    "ttl": st.sampled_from([None, None, 40]),
    "more": st.booleans(),
}
_kinds = st.sampled_from(["finished", "finished", "finished", "failed", "repeat", "retry", "release", "later", "lost", "stopped"])


class TiedMachine(RuleBasedStateMachine):
    """Each rule is a call, after which all must be sound."""

    conn: ClassVar[redis.Redis]
    mistakes: ClassVar[tuple[Mistake, ...]] = ()
    _brokers: ClassVar[dict[Any, Broker]] = {}

    def __init__(self) -> None:
        super().__init__()
        key = id(self.conn), self.mistakes
        if key not in self._brokers:
            self._brokers.clear()
            self._brokers[key] = broker_of(self.conn, self.mistakes, max_lost=4)
        self._broker = self._brokers[key]
        self.conn.flushdb()
        self._now, self._nonces = START, 0
        self._set_clock(0)
        self._ending = False
        self._held: dict[str, dict[str, str]] = {"A": {}, "B": {}}
        self._tokens = {"A": 0, "B": 0}
        self._unanswered: dict[str, Any] = {}
        self._calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        for name in "AB":
            self._register(name)

    def _set_clock(self, ms: int) -> None:
        self._now += ms
        self.conn.execute_command(*clock_at(self._now))

    def _register(self, name: str) -> bool:
        return self._broker.register(name, f"{name}1", LEASE, WORKER_TTL, {"pid": 1})

    def _call(self, name: str, *args: Any, **named: Any) -> Any:
        self._calls.append((name, args, named))
        return self._do(name, *args, **named)

    def _do(self, name: str, *args: Any, **named: Any) -> Any:
        try:
            return getattr(self._broker, name)(*args, **named)
        except (DuplicateJob, BatchClosed, NoSuchBatchError, FusionError) as error:
            return error
        finally:
            if not self._ending:
                self._check(f"{name}{args}")

    def _check(self, after: str) -> None:
        still = Still(self.conn, "rq:[^e]*")  # no events
        check_conservation(self.conn, memberships(still), still=still)
        wrong = kin_faults(still) + batch_faults(still) + flaws(still)
        if wrong:
            raise PromiseBroken(f"after {after}: {wrong}")

    def _nonce(self) -> str:
        self._nonces += 1
        return f"n{self._nonces}"

    # -- producers

    @rule(**NEW)
    def enqueue(
        self, queue: str, number: int, parents: list[int], signs: list[str], unique: str, until: str, way: str, batch: str, key: str,
        discard: bool, delay: int | None, ttl: int | None, more: bool, shares: bool = False,
    ) -> None:  # fmt: skip
        """One job, and with `more` a plain child of it in the same call; `shares` is drawn where there is `follow` (`sharing`)."""
        job_id = IDS[number]
        named = [sign + IDS[parent] for sign, parent in zip(signs, parents, strict=False)]
        named = [member for member in named if _status(self.conn, member.lstrip("?~"))]
        fields: dict[str, Any] = {"data": DATA, "result_ttl": 500, "ttl": ttl}
        ties = ""
        if key:
            ties += "kd" if discard else "k"
            fields |= {"concurrency_key": key, "max_concurrent": 1} | ({"on_conflict": "discard"} if discard else {})
        if unique:
            ties += "u"
            fields |= {"unique_key": unique, "unique_until": until, "on_duplicate": way}
        if named:
            ties += "p"
            fields["parents"] = json.dumps(named)
        if batch:
            ties += "b"
            fields["batch"] = batch
        if shares:
            ties += "m"
            fields = {**FULL, **fields, "func": "f", "gather": "5 1"}
        jobs = [NewJob(job_id, 1, fields | ({"ties": ties} if ties else {}), False, ttl, None, delay)]
        if more and number + 1 < len(IDS):
            child = {"data": DATA, "result_ttl": 0, "ties": "p", "parents": json.dumps([job_id])}
            jobs.append(NewJob(IDS[number + 1], 1, child))
        answer = self._call("enqueue", queue, jobs, self._nonce())
        skipped = met_in(answer).get(job_id) if isinstance(answer, str) else None
        if skipped and skipped.skipped and len(jobs) > 1:
            parents = json.loads(self.conn.hget(f"rq:job:{jobs[1].id}", "parents") or b"[]")
            if parents != [skipped.other]:
                raise PromiseBroken(f"{jobs[1].id} waits for {parents}, and its parent {job_id} was skipped for {skipped.other}")

    @rule(batch=st.sampled_from(BATCHES), parent=st.sampled_from(["", "", *BATCHES]), calls=st.booleans())
    def open_batch(self, batch: str, parent: str, calls: bool) -> None:
        nonce = self._nonce()
        ids = {f"on_{what}": f"{batch}-{what}-{nonce}" for what in ("complete", "success")} if calls else {}
        found = self._call("open_batch", batch, nonce, 60.0, 5.0, ids, parent=parent if parent != batch else "", by="")
        if found[0] == "ok":
            for name, job_id in ids.items():
                fields = {"data": DATA, "ties": "bh", "batch": batch, "batch_as": name.removeprefix("on_")}
                self._call("enqueue", "a", [NewJob(job_id, 1, fields)], self._nonce())

    @rule(batch=st.sampled_from(BATCHES), cancel=st.sampled_from([False, False, True]), limit=st.sampled_from([1, 50]))
    def end_batch(self, batch: str, cancel: bool, limit: int) -> None:
        if cancel:
            self._call("cancel_batch", batch, limit)
        else:
            self._call("close_batch", batch)

    # -- workers

    @rule(name=st.sampled_from("AB"), kinds=st.lists(_kinds, max_size=2), slots=st.integers(0, 2), answered=st.sampled_from([True, True, False]),
          delay=st.sampled_from([0, 0, 20]))  # fmt: skip
    def turn(self, name: str, kinds: list[str], slots: int, answered: bool, delay: int) -> None:
        call = self._unanswered.pop(name, None)
        if call is None:
            self._tokens[name] += 1
            told = [
                Commit(
                    kind,
                    job_id,
                    execution,
                    elapsed=0.5,
                    delay=delay,
                    reason="why",
                    fields={"result": "1"} if kind in ("finished", "repeat") else {},
                )
                for kind, (job_id, execution) in zip(kinds, self._held[name].items(), strict=False)
            ]
            call = TurnRequest(name, f"{name}1", self._tokens[name], told, QUEUES, (0,) * slots, LEASE, WORKER_TTL)
        found = self._call("turn", call)
        if found.status == "unregistered" and self._register(name):
            found = self._call("turn", call)
        if not answered or found.status == "unregistered":
            self._unanswered[name] = call
            return
        assert not found.bad, found.bad
        for commit in call.commits:
            self._held[name].pop(commit.job_id, None)
        self._hold(name, found.jobs)

    def _hold(self, name: str, jobs: list[Claimed]) -> None:
        self._held[name] |= {job.id: job.execution_id for job in jobs}

    @rule(name=st.sampled_from("AB"), cursor=st.integers(1, 9))
    def report(self, name: str, cursor: int) -> None:
        self._call(
            "report",
            name,
            [Report(job_id, execution, cursor=str(cursor).encode()) for job_id, execution in self._held[name].items()],
        )

    @rule(name=st.sampled_from("AB"))
    def prune(self, name: str) -> None:
        """Its supervisor saw it die."""
        self._call("prune", LEASE, name, incarnation=f"{name}1")
        self._held[name].clear()
        self._unanswered.pop(name, None)
        self._register(name)

    # -- people

    @rule(number=NUMBERS, what=st.sampled_from(["stop", "cancel", "delete", "requeue"]))
    def person(self, number: int, what: str) -> None:
        if what == "delete":
            self._call("delete", [IDS[number]])
        elif what == "requeue":
            ended = [job_id for job_id in IDS if _status(self.conn, job_id) in ("failed", "canceled", "stopped")]
            if ended:
                self._call("requeue", [ended[number % len(ended)]], self._nonce())
        else:
            self._call(what, IDS[number])

    @rule(queue=st.sampled_from(QUEUES), limit=st.sampled_from([1, 500]))
    def empty(self, queue: str, limit: int) -> None:
        self._call("empty", queue, limit)

    # -- the world

    @rule(limit=st.sampled_from([1, 50]))
    def release(self, limit: int) -> None:
        self._call("release", limit)

    @rule(
        ms=st.sampled_from([1, 6_000, 31_000, 65_000, 2 * DAY]),
        what=st.sampled_from(["promote", "expire", "clean", "tend_batches", ""]),
    )
    def time(self, ms: int, what: str) -> None:
        self._set_clock(ms)
        if what:
            self._call(what)

    @rule(back=st.integers(0, 12))
    def resend(self, back: int) -> None:
        if self._calls:
            name, args, named = self._calls[-1 - back % len(self._calls)]
            self._do(name, *args, **named)

    # -- the end

    def teardown(self) -> None:
        """All has its time: nothing may be left then."""
        self._ending = True
        rounds = 0
        for batch in BATCHES:
            self._do("close_batch", batch)
        self._finish_some()  # an inbox forgets who was struck when it is read
        while not rounds or self._live():  # once at least: both may have been pruned, and nobody read the inbox
            for name in "AB":
                self._do("prune", LEASE, name, incarnation=f"{name}1")
                self._held[name].clear()
                self._unanswered.clear()
                self._register(name)
            for _ in range(4):
                self._finish_some()
                self._check("some have ended")
            parked = [job_id for job_id in IDS if _status(self.conn, job_id) == "deferred"]
            for job_id in parked:
                self._do("cancel", job_id)
            self._finish_some()
            self._set_clock(65_000)
            rounds += 1
            assert rounds < 15, f"these never end: {self._live()}"
        self._finish_some()  # what the last ends have left to do
        self._check("the end")
        assert not (found := leftovers(self.conn)), found
        for _ in range(4):
            self._set_clock(40 * DAY)
            for _ in range(6):
                self._do("release")
                self._do("tend_batches")
                self._do("clean")
        kept = [raw.decode().removeprefix("rq:") for raw in self.conn.scan_iter("rq:*")]
        left = sorted(name for name in kept if not name.startswith(_KEPT))
        # Redis itself forgets these, by its own clock
        assert not (left := [name for name in left if not _MINUTES.fullmatch(name) or self.conn.ttl(f"rq:{name}") < 0]), left

    def _live(self) -> dict[str, list[str]]:
        return {job_id: places for job_id, places in memberships(self.conn).items() if places[0] not in TERMINAL}

    def _finish_some(self) -> None:
        for what in ("promote", "release", "tend_batches", "expire"):
            self._do(what)
        for name in "AB":
            self._tokens[name] += 1
            told = [Commit("finished", job_id, execution, elapsed=0.1) for job_id, execution in self._held[name].items()]
            claim_filter = ClaimFilter("", tuple(f"probation:{queue}" for queue in QUEUES), {}, True, False)
            token = self._tokens[name]
            request = TurnRequest(name, f"{name}1", token, told, QUEUES, (0,) * 4, LEASE, WORKER_TTL, claim_filter=claim_filter)
            found = self._do("turn", request)
            self._held[name] = {job.id: job.execution_id for job in found.jobs}
