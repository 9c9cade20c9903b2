"""The rows of the table in docs/dependencies.md: what stock RQ does, run here, and what Fusion does."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from typing import Any

import pytest
import redis

from fusion import Dependency, Job, Queue
from fusion.enqueue.build import JobData
from fusion.exceptions import DependencyCycle, InvalidJobOperation, NoSuchJobError, UnknownDependency
from fusion.store.write.broker import Broker
from tests.kit import guarded
from tests.kit.hands import Hand
from tests.kit.process import ROOT
from tests.kit.waiting import eventually
from tests.store.kin_hands import settle

rq = pytest.importorskip("rq")
pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(guarded.GUARDED, reason="stock RQ needs rights that Fusion's user does not have"),
]

TASK = "tests.jobs.basic.noop"


class Dying(rq.Queue):  # type: ignore[misc]
    """Its worker is killed when it is about to release what waited for a job."""

    def enqueue_dependents(self, *args: Any, **kwargs: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class Hasty(rq.SimpleWorker):  # type: ignore[misc]
    """Ends without waiting for its thread for commands."""

    def unsubscribe(self) -> None: ...


class Stock:
    """Stock RQ, with its jobs of the queue `r`."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.conn = guarded.client(url)
        self.queue = rq.Queue("r", connection=self.conn)

    def enqueue(self, arg: Any = "", **options: Any) -> Any:
        """`builtins.len` of this; of what is no text it fails."""
        return self.queue.enqueue("builtins.len", arg, **options)

    def work(self, kind: Any = rq.Queue) -> None:
        """A worker runs what there is, in a process of its own."""
        if (pid := os.fork()) == 0:
            try:
                conn = guarded.client(self._url)
                Hasty([kind("r", connection=conn)], connection=conn, queue_class=kind).work(burst=True, logging_level="CRITICAL")
            finally:
                os._exit(0)
        os.waitpid(pid, 0)

    def of(self, *jobs: Any) -> list[str]:
        """Their states, `gone` for those of which there is no record."""
        found = [self.conn.hget(f"rq:job:{job.id}", "status") for job in jobs]
        return ["gone" if status is None else status.decode() for status in found]


@pytest.fixture
def stock(redis_url: str) -> Any:
    made = Stock(redis_url)
    yield made
    made.conn.close()


class Ours:
    """Fusion, with its jobs of the queue `q`."""

    def __init__(self, broker: Broker) -> None:
        self.queue, self.broker, self.hand = Queue("q"), broker, Hand(broker, "q")

    def enqueue(self, **options: Any) -> Job:
        return self.queue.enqueue(TASK, **options)

    def end(self, outcome: str = "finished", *, released: bool = True) -> None:
        """The next job of the queue ends so."""
        self.hand.tell(self.hand.take(), outcome, **({"reason": "r"} if outcome == "failed" else {"fields": {"result": "7"}}))
        if released:
            settle(self.broker)

    @staticmethod
    def of(*jobs: Job) -> list[str]:
        return [str(job.get_status()) for job in jobs]


@pytest.fixture
def ours(conn: redis.Redis, broker: Broker) -> Ours:
    return Ours(broker)


ROWS: dict[str, Callable[[Stock, Ours], None]] = {}


def row(name: str) -> Callable[[Callable[[Stock, Ours], None]], None]:
    """A row of the table, by the text of its first column."""

    def keep(test: Callable[[Stock, Ours], None]) -> None:
        ROWS[name] = test

    return keep


@row("a parent that has finished")
def _finished(stock: Stock, ours: Ours) -> None:
    a = stock.enqueue()
    stock.work()
    assert stock.of(a, stock.enqueue(depends_on=a)) == ["finished", "queued"]
    parent = ours.enqueue()
    ours.end()
    assert ours.of(parent, ours.enqueue(depends_on=parent)) == ["finished", "queued"]


@row("an id that nobody knows")
def _unknown(stock: Stock, ours: Ours) -> None:
    assert stock.of(stock.enqueue(depends_on="nobody")) == ["queued"]
    with pytest.raises(NoSuchJobError) as caught:
        ours.enqueue(depends_on="nobody")
    assert isinstance(caught.value, UnknownDependency)


@row("a parent fails")
def _fails(stock: Stock, ours: Ours) -> None:
    a = stock.enqueue(5)
    b = stock.enqueue(depends_on=a)
    stock.work()
    assert stock.of(a, b) == ["failed", "deferred"]
    parent = ours.enqueue()
    jobs = [ours.enqueue(depends_on=Dependency(parent, on_failure=policy)) for policy in ("fail", "ignore", "wait")]  # type: ignore[arg-type]
    ours.end("failed")
    assert ours.of(*jobs) == ["failed", "queued", "deferred"]


@row("`allow_failure=True`")
def _allowed(stock: Stock, ours: Ours) -> None:
    a = stock.enqueue(5)
    b = stock.enqueue(depends_on=rq.job.Dependency(a, allow_failure=True))
    stock.work()
    assert stock.of(a, b) == ["failed", "finished"]
    parent = ours.enqueue()
    child = ours.enqueue(depends_on=Dependency(parent, allow_failure=True))
    ours.end("failed")
    assert ours.of(parent, child) == ["failed", "queued"]


@row("`allow_failure=True` for one of several parents")
def _allowed_for_one(stock: Stock, ours: Ours) -> None:
    a, b = stock.enqueue(), stock.enqueue(5)
    c = stock.enqueue(depends_on=[rq.job.Dependency(a, allow_failure=True), b])
    stock.work()
    assert stock.of(a, b, c) == ["finished", "failed", "finished"]
    first, second = ours.enqueue(), ours.enqueue()
    child = ours.enqueue(depends_on=[Dependency(first, allow_failure=True), second])
    ours.end()
    ours.end("failed")
    assert ours.of(first, second, child) == ["finished", "failed", "failed"]


@row("a parent is canceled")
def _canceled(stock: Stock, ours: Ours) -> None:
    for released, status in ((False, "deferred"), (True, "finished")):
        a = stock.enqueue()
        b = stock.enqueue(depends_on=a)
        a.cancel(enqueue_dependents=released)
        stock.work()
        assert stock.of(a, b) == ["canceled", status]
    parent = ours.enqueue()
    child = ours.enqueue(depends_on=parent)
    parent.cancel()
    settle(ours.broker)
    assert ours.of(parent, child) == ["canceled", "failed"]


@row("a parent is deleted")
def _deleted(stock: Stock, ours: Ours) -> None:
    for along, status in ((False, "deferred"), (True, "gone")):
        a = stock.enqueue()
        b = stock.enqueue(depends_on=a)
        a.delete(delete_dependents=along)
        stock.work()
        assert stock.of(a, b) == ["gone", status]
    parent = ours.enqueue()
    child = ours.enqueue(depends_on=parent)
    parent.delete()
    settle(ours.broker)
    assert ours.of(child) == ["failed"]


@row("a deferred job is requeued")
def _requeued(stock: Stock, ours: Ours) -> None:
    a = stock.enqueue()
    b = stock.enqueue(depends_on=a)
    with pytest.raises(rq.exceptions.InvalidJobOperation):
        b.requeue()
    stock.queue.deferred_job_registry.requeue(b)
    assert stock.of(a, b) == ["queued", "queued"]
    child = ours.enqueue(depends_on=ours.enqueue())
    with pytest.raises(InvalidJobOperation, match="deferred"):
        child.requeue()
    assert ours.of(child) == ["deferred"]


@row("the parent's `result_ttl` is over before the child runs")
def _result_ttl(stock: Stock, ours: Ours) -> None:
    a, other = stock.enqueue(result_ttl=1), stock.enqueue(5)
    b = stock.enqueue(depends_on=[a, other])
    stock.work()
    parent = ours.enqueue(result_ttl=1)
    child = ours.enqueue(depends_on=[parent, ours.enqueue()])
    ours.end()
    eventually(lambda: stock.of(a) == ["gone"], 10)
    assert [job.id for job in b.fetch_dependencies()] == [other.id]
    ours.broker.clean()
    assert [job.result for job in child.dependencies] == [7, None]


@row("two jobs that wait for each other")
def _cycle(stock: Stock, ours: Ours) -> None:
    pair = [
        rq.job.Job.create("builtins.len", ("",), id=one, depends_on=other, connection=stock.conn, origin="r")
        for one, other in ("ab", "ba")
    ]
    for job in pair:
        job.save()
    for job in pair:
        stock.queue.enqueue_job(job)
    stock.work()
    assert stock.of(*pair) == ["deferred", "deferred"]

    def node(job_id: str, parent: str) -> JobData:
        return Queue.prepare_data(TASK, job_id=job_id, depends_on=parent)

    with pytest.raises(DependencyCycle):
        ours.queue.enqueue_many([node("c", "d"), node("d", "c")])


@row("the worker dies between a parent's failure and the release of those that allow it")
def _dies(stock: Stock, ours: Ours) -> None:
    a = stock.enqueue(5)
    b = stock.enqueue(depends_on=rq.job.Dependency(a, allow_failure=True))
    stock.work(Dying)
    stock.work()
    assert stock.of(a, b) == ["failed", "deferred"]
    parent = ours.enqueue()
    child = ours.enqueue(depends_on=Dependency(parent, allow_failure=True))
    ours.end("failed", released=False)
    assert ours.of(parent, child) == ["failed", "deferred"]
    settle(Broker(ours.queue.connection))
    assert ours.of(child) == ["queued"]


@pytest.mark.parametrize("name", ROWS)
def test_as_the_table_says(stock: Stock, ours: Ours, name: str) -> None:
    ROWS[name](stock, ours)


def test_each_row_of_the_table_is_tested() -> None:
    text = (ROOT / "docs" / "dependencies.md").read_text()
    told = re.findall(r"^\| ([^|]+?) \|", text[text.index("## Beside RQ") :], re.MULTILINE)
    assert told == list(ROWS)
