"""Running cases of the crash matrix."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import psutil
import redis

from fusion import Queue
from fusion.retry import Retry
from fusion.store.read.limit_inspector import LimitInspector
from fusion.store.write.broker import Broker
from fusion.worker import probation
from tests.faults.crash.matrix import AMID_MANY, AT_END, Case
from tests.faults.rig.conservation import check_ended, dead_entries, leftovers, runs_seen
from tests.kit import guarded
from tests.kit.hands import events_of
from tests.kit.promises import PromiseBroken, promise
from tests.kit.waiting import eventually
from tests.kit.witnesses import status_of
from tests.kit.workers import WorkerProcess, Workers

LEASE = 0.8
ENV = {
    "FUSION_LEASE": str(LEASE),
    "FUSION_MAX_LOST": "1000",
    "FUSION_IDLE_WAIT": "0.3",
    "FUSION_MAINTENANCE_INTERVAL": "0.2",
    "FUSION_TASKS": "tests.faults.crash.jobs",
    "FUSION_CLAIM_AHEAD": "100",  # thus many jobs count as short on a busy machine, too
}
_JOBS = "tests.faults.crash.jobs"
_HORSES = 2
#: Work that one worker does for all.
_FOR_THE_FLEET = ("reap", "prune", "promote", "expire", "clean", "sample")
_MANY = (*["short"] * 24, "leaves", *["short"] * 24, "lingers", *["short"] * 6)


class UnderWay:
    """A case from its jobs to its strike. `step` goes on with it and is called again and again."""

    def __init__(self, case: Case, queue: str, workers: Workers, conn: redis.Redis, directory: Path) -> None:
        self.case, self.queue = case, queue
        self._conn = conn
        self.seen, self._gate = directory / "seen", directory / "gate"
        self._here = directory / "armed" / "here"
        self.struck = False
        self.frozen_at: float | None = None
        self._frozen: list[psutil.Process] = []
        self._waits = case.point.held == "first"
        self.jobs: list[str] = []
        self._overdue: list[str] = []
        self._over = ""
        self.ahead, self.waiting = 0, list[str]()
        directory.mkdir()
        if case.point.held or case.point.drive in AT_END:
            self._gate.touch()
        if not self._waits and case.point.drive != "bell":
            self._here.parent.mkdir()
        env = {**ENV, "FUSION_FAILPOINTS": f"{case.point.name}=wait:{self._here}@{case.point.nth}"}
        if case.point.drive == "hook":
            env["FUSION_MIDDLEWARE"] = f"{_JOBS}.AtEnd"
        if case.point.drive in ("ring", "bell"):
            env["FUSION_IDLE_WAIT"] = "20"  # it waits at the doorbell all the time
        else:
            self._enqueue_all()
        if case.mode.keyed:
            Queue(queue, conn).set_limit(1)
        guarded.allow_naming(conn)
        served = f"{queue}*" if case.point.drive == "wildcard" else queue
        url = f"{workers.redis_url}{'&' if '?' in workers.redis_url else '?'}client_name={queue}"
        self.worker: WorkerProcess = workers.start(served, *case.mode.args, ready=False, env=env, url=url)

    def _enqueue_all(self) -> None:
        if (
            self.case.point.drive in AT_END
        ):  # first, and the next one is held: another job that ends in a thread beside it would be struck
            options = {"on_success": f"{_JOBS}.called"} if self.case.point.drive == "callback" else {}
            self._enqueue("short", **options)
            self._over = self.jobs[-1]
        self._enqueue("gated", self._gate_of("first"))
        if self.case.point.drive == "suspect":
            self._enqueue("short", at_front=True)
            self._conn.hset(f"rq:job:{self.jobs[-1]}", mapping={"lost": 2, "deliveries": 2})
        self._enqueue("fails_once", retry=Retry(max=5, interval=0))
        if self.case.mode.ahead:
            self._enqueue_many()
        self._enqueue("speaks", self._gate_of("last"))

    def _enqueue_many(self) -> None:
        """Enough short ones that more are claimed ahead, and in their midst what makes those behind it come back."""
        prepared = [Queue.prepare_data(f"{_JOBS}.{task}", (str(self.seen),)) for task in _MANY]
        self.jobs += [job.id for job in Queue(self.queue, self._conn).enqueue_many(prepared)]

    def _gate_of(self, job: str) -> str:
        held = "first" if self.case.point.drive in AT_END else self.case.point.held
        return str(self._gate) if held == job else f"{self._gate}-open"

    def _enqueue(self, task: str, *args: str, **options: object) -> None:
        if self.case.mode.keyed:
            options |= {"concurrency_key": self.queue, "max_concurrent": 1}
        job = Queue(self.queue, self._conn).enqueue(f"{_JOBS}.{task}", str(self.seen), *args, **options)
        self.jobs.append(job.id)

    def step(self) -> bool:
        """Whether it was struck."""
        if self.struck:
            return True
        if self._waits and self.jobs[0] in runs_seen(self.seen):
            self._waits = False
            self._here.parent.mkdir()
            if self.case.point.drive == "quit":
                self.worker.signal(signal.SIGQUIT)
        if self.case.point.drive == "ring":
            self._ring()
        if self.case.point.drive == "bell" and not self.jobs and self._is_at_doorbell():
            self._here.parent.mkdir()  # no turn of its start is meant
            self._enqueue_all()
        if self.case.point.drive == "overdue":
            self._let_one_expire()
        if self.case.point.name.partition(".")[0] in _FOR_THE_FLEET:
            self._hear_of_no_duties()
        if not self._here.exists():
            assert self.worker.process.poll() is None, f"{self.case}: it was never there\n{self.worker.output}"
            if self.case.point in AMID_MANY and status_of(self._conn, self.jobs[-1]) == "finished":
                self._enqueue_many()  # a busy machine may have made short jobs look long
            return False
        self._strike(int(self._here.read_text()))
        self.struck = True
        return True

    def _ring(self) -> None:
        """Have a token come to a worker that waits for one and takes no job."""
        if self.jobs:
            return
        if "quiet" in self.worker.output:
            self._enqueue_all()
        elif self._is_at_doorbell():
            self.worker.signal(signal.SIGTSTP)

    def _is_at_doorbell(self) -> bool:
        return any((one["name"], one["cmd"]) == (self.queue, "blpop") for one in self._conn.client_list())

    def _hear_of_no_duties(self) -> None:
        """Cut its subscription: else it leaves the work to the worker that did it last, and may never get to its place."""
        for one in self._conn.client_list(_type="pubsub"):
            if one["name"] == self.queue:
                self._conn.client_kill_filter(_id=one["id"])

    def _let_one_expire(self) -> None:
        """Have one there at any time, as any worker ends it."""
        if not self._overdue or status_of(self._conn, self._overdue[-1]) == "canceled":
            job = Queue(f"{self.queue}-unserved", self._conn).enqueue(f"{_JOBS}.short", str(self.seen), ttl=0.001)
            self._overdue.append(job.id)

    def _look_ahead(self) -> None:
        """Note which jobs wait behind others, as far as anybody can see."""
        pipe = self._conn.pipeline()
        for job in self.jobs:
            pipe.hmget(f"rq:job:{job}", "status", "execution_id")
        begun = runs_seen(self.seen)
        marked = [
            job
            for job, (status, run) in zip(self.jobs, pipe.execute(), strict=True)
            if status == b"started" and run.endswith(b"a")
        ]
        self.ahead = len(marked)
        self.waiting = [job for job in marked if job not in begun]
        if self.case.point.name.startswith("ahead."):
            assert marked, f"{self.case}: nothing was claimed ahead"

    # -- the strike

    def _strike(self, there: int) -> None:
        point, victim = self.case.point, self.case.victim
        worker = psutil.Process(self.worker.pid)
        self._look_ahead()
        if point.in_worker:
            assert there == worker.pid
        if victim == "horse":
            self._kill([psutil.Process(there)] if point.name.startswith("horse.") else self._some_horses(worker))
        elif victim == "server":
            self._kill([psutil.Process(there)])
        elif victim == "worker":
            self._kill([worker])
        elif victim == "both":
            _send(signal.SIGSTOP, [worker])  # or it would see the others die
            self._kill([*_horses_of(worker), worker])
        else:
            self._freeze(worker, alone=point.in_worker)
        self._gate.unlink(missing_ok=True)
        if self.frozen_at is None:
            self._here.unlink()

    def _some_horses(self, worker: psutil.Process) -> list[psutil.Process]:
        """Those there are, the ones just asked for included."""
        return eventually(lambda: _horses_of(worker), why=f"{self.case}: there is a horse to kill")

    def _kill(self, processes: Sequence[psutil.Process]) -> None:
        _send(signal.SIGKILL, processes)
        if self.case.victim in ("worker", "both"):
            assert self.worker.wait() == -signal.SIGKILL

    def _freeze(self, worker: psutil.Process, *, alone: bool) -> None:
        """The worker, or all of its tree; in that order, so that it starts nothing meanwhile."""
        _send(signal.SIGSTOP, [worker])
        self._frozen = [worker, *([] if alone else worker.children(recursive=True))]
        _send(signal.SIGSTOP, self._frozen)
        self.frozen_at = time.monotonic()

    def let_go(self) -> None:
        """The end of a freeze; after a failure, of any wait."""
        self._gate.unlink(missing_ok=True)
        self._here.unlink(missing_ok=True)
        _send(signal.SIGCONT, self._frozen[::-1])

    def ended(self) -> bool:
        overdue = all(status_of(self._conn, job) == "canceled" for job in self._overdue)
        return overdue and all(status_of(self._conn, job) == "finished" for job in self.jobs)

    def _check_key(self) -> None:
        """Each began for the first time in its order, nobody has a slot any more, and all was counted."""
        began = dict.fromkeys(line.split()[1] for line in self.seen.read_text().splitlines())
        assert list(began) == self.jobs, "not in the order of their key"
        _key_as_it_should_be(self._conn, self.queue, len(self.jobs))

    def __str__(self) -> str:
        return f"-- {self.case}: {[status_of(self._conn, job) for job in self.jobs]}\n{self.worker.output}"

    @promise("P1", "P4", "P5")
    def check(self) -> None:
        states = check_ended(self._conn, self.jobs, runs_seen(self.seen))
        assert set(states.values()) == {"finished"}
        assert len(states) == len(self.jobs)
        told = Counter(event["job_id"] for event in events_of(self._conn) if event["event"] == "expired")
        assert [told[job] for job in self._overdue] == [1] * len(self._overdue)
        if self.case.mode.keyed:
            self._check_key()
        if self._over and self.case.victim == "horse":
            assert runs_seen(self.seen)[self._over] == 1, "its task was over when its process was killed"
        lost = [job for job in self.waiting if int(self._conn.hget(f"rq:job:{job}", "lost") or 0)]
        assert len(lost) <= _HORSES, f"{lost} were not begun: at most one in each process had just been read"


def _key_as_it_should_be(conn: redis.Redis, key: str, jobs: int) -> None:
    totals = {name: count for name, count in conn.hgetall(f"rq:limit:{key}").items() if b":" in name}
    assert totals == {b"enqueued:1": b"%d" % jobs, b"completed:1": b"%d" % jobs}
    assert not conn.exists(f"rq:limits:held:{key}", f"rq:limits:waiting:{key}"), "a slot leaked"


def run(cases: Sequence[Case], workers: Workers, conn: redis.Redis, directory: Path) -> None:
    """Strike them all, have a healthy worker finish, and see that nothing is lost, stuck, run too often or left over. All are of one mode."""
    under_way = [UnderWay(case, f"k{at}", workers, conn, directory / f"k{at}") for at, case in enumerate(cases)]
    try:
        # One worker takes a sample every ten seconds. Four cases may have to wait for each other.
        patience = 60 if any(case.point.name.startswith("sample.") for case in cases) else 30
        eventually(lambda: sum(one.step() for one in under_way) == len(cases), patience, why="each worker gets to its place")
    except AssertionError as error:
        for one in under_way:
            one.let_go()
        raise AssertionError(f"{error}\nnever there: {_told(one for one in under_way if not one.struck)}") from None
    healthy = workers.start(*(one.queue for one in under_way), *cases[0].mode.args, ready=False, env=ENV)
    thaw_at = max((one.frozen_at or 0.0) for one in under_way) + 2 * LEASE
    eventually(lambda: time.monotonic() >= thaw_at, why="the freeze is over")
    for one in under_way:
        one.let_go()
    try:
        patience = 30 + (
            probation._TTL if any(case.point.drive == "suspect" for case in cases) else 0
        )  # the right of a dead one runs out
        eventually(lambda: all(one.ended() for one in under_way), patience, why="all jobs are finished")
        eventually(lambda: not dead_entries(conn), why="no dead worker is in the list")
        _end([*(one.worker for one in under_way), healthy])  # what a thawed one runs for nothing is a run, too
        wrong = [f"{one.case}: {error}" for one in under_way if (error := _fault(one))]
        if wrong:
            raise PromiseBroken("\n".join(wrong))
        Broker(conn).clean()
        assert LimitInspector(conn).limits_audit() == 0, "slots that were nobody's"
        assert not leftovers(conn)
        assert not conn.exists("rq:workers")
        if cases[0].point in AMID_MANY:
            print("claimed ahead when struck:", {str(one.case): (one.ahead, len(one.waiting)) for one in under_way})
    except AssertionError as error:
        raise type(error)(f"{error}\n{_told(under_way)}\ndead: {dead_entries(conn)}; left: {leftovers(conn)}") from None


def _end(workers: Sequence[WorkerProcess]) -> None:
    living = [worker for worker in workers if worker.process.poll() is None]
    for worker in living:
        worker.signal(signal.SIGTERM)
    for worker in living:
        worker.wait()


def _horses_of(worker: psutil.Process) -> list[psutil.Process]:
    """Children of its fork server; none if that has just ended."""
    try:
        return [horse for server in worker.children() for horse in server.children()]
    except psutil.NoSuchProcess:
        return []


def _send(number: int, processes: Iterable[psutil.Process]) -> None:
    for process in processes:
        try:
            process.send_signal(number)
        except psutil.NoSuchProcess:  # a horse that had done its job
            continue


def _fault(one: UnderWay) -> str:
    try:
        one.check()
    except AssertionError as error:
        return str(error)
    return ""


def _told(some: Iterable[UnderWay]) -> str:
    return "\n".join(str(one) for one in some)
