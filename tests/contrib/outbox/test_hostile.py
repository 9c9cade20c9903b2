"""An outbox among clocks that jump, rows that nobody of ours wrote, tables that were emptied, and operators who do the same at once."""

from __future__ import annotations

import json
import threading
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import sqlalchemy

from fusion.contrib.outbox.database import PARKED, SENT, WAITING
from fusion.contrib.outbox.ledger import Ledger
from fusion.contrib.outbox.opened import opened
from fusion.contrib.outbox.process import OutboxProcess
from fusion.contrib.sqlalchemy.outbox import Outbox
from fusion.contrib.sqlalchemy.tables import outbox_tables
from fusion.enqueue.call import Terms
from fusion.exceptions import ConfigurationError
from fusion.settings import Settings
from fusion.store.layout.records import Replicas
from tests.contrib.outbox.hands import Base, a_server, in_queue, postgres, sqlite
from tests.inprocess.databases import PostgresServer
from tests.kit.length import long_case, soaked
from tests.kit.waiting import unhurried


@pytest.fixture(scope="module", params=["SQLite", long_case("PostgreSQL")])
def server(request: pytest.FixtureRequest) -> Iterator[PostgresServer | None]:
    """None for SQLite, which needs none."""
    if request.param == "SQLite":
        yield None
        return
    with a_server() as found:
        postgres(found).engine.dispose()
        yield found


@pytest.fixture
def base(server: PostgresServer | None, tmp_path: Path) -> Iterator[Base]:
    found = sqlite(tmp_path) if server is None else postgres(server)
    yield found
    found.engine.dispose()


def another(base: Base) -> Ledger:
    """The same outbox by connections of its own."""
    return opened(base.url)


def forward_all(base: Base, redis_url: str) -> None:
    """By a process here that ends when nothing is left, or when it has had time enough; another takes over after 0.3 s."""
    process = OutboxProcess(Settings.load(None, redis_url=redis_url, lease=0.3), base.ledger, burst=True)
    process.timers.at(time.monotonic() + unhurried(10), lambda now: process.drain("it took too long"))
    assert process.run() == 0


def strange(base: Base, *bodies: str) -> None:
    with base.engine.begin() as connection:
        for nth, body in enumerate(bodies):
            values = {"queue": "q", "job_id": f"odd{nth}", "body": body, "written_at": 1.0}
            connection.execute(sqlalchemy.insert(base.tables.rows), values)


def written(**changed: Any) -> str:
    return json.dumps({"v": 1, "priority": 1, "nonce": "n", "fields": {"data": "[]"}} | changed)


ODD = (
    "",
    "null",
    "[]",
    "{}",
    '{"v": 0}',  # an older version's, one day
    '{"v": 2}',
    "\\ud800",
    written(priority="high"),
    written(priority=None),
    written(fields=None),
    written(fields=[1]),
    written(fields={"data": {"a": [1]}}),
    written(fields={"data": True}),
    written(fields={"data": "\ud800"}),
    written(raw=["nothing"]),
    written(raw=["data"], fields={"data": "no base64!"}),
    written(due=1e400),
    written(due="soon"),
    written(ttl=[5]),
    written(replicas=7),
    written(room="much"),
    written(nonce="\ud800"),
)


def test_rows_that_nobody_of_ours_wrote_are_parked_each_with_its_reason_and_stop_nobody(conn: redis.Redis, base: Base) -> None:
    base.add("q", "first")
    strange(base, *ODD)
    base.add("q", "last")
    forwarder = base.forwarder(conn)
    for _ in range(200):
        if not forwarder.forward():
            break
    assert in_queue(conn) == ["first", "last"]
    parked = {row["job_id"]: row["reason"] for row in base.ledger.parked()}
    assert [ODD[int(job_id[3:])] for job_id in (f"odd{nth}" for nth in range(len(ODD))) if job_id not in parked] == []
    assert all(parked.values())
    assert "upgrade what forwards it" in parked["odd5"]
    base.ledger.retry([row["id"] for row in base.ledger.parked()])
    while forwarder.forward():
        pass
    assert len(base.ledger.parked()) == len(ODD)


@pytest.mark.parametrize("queue", ["", "_callbacks", "failed", "a b", "x" * 129, "*"])
def test_rows_of_a_queue_that_can_not_be_are_parked(conn: redis.Redis, base: Base, queue: str) -> None:
    base.add(queue, "bad")
    base.add("q", "good")
    forwarder = base.forwarder(conn)
    while forwarder.forward():
        pass
    assert in_queue(conn) == ["good"]
    (parked,) = base.ledger.parked()
    assert parked["job_id"] == "bad"
    assert "InvalidName: queue name" in parked["reason"]
    assert conn.smembers("rq:queues") == {b"rq:queue:q"}
    assert not conn.exists(f"rq:queue:{queue}", f"rq:wake:{queue}", "rq:job:bad")


def test_replicas_that_do_not_answer_stop_no_row(conn: redis.Redis, base: Base) -> None:
    """The primary has them, and nobody waits for the answer."""
    lasting = Terms(replicas=Replicas(1, 0.2))
    base.add("q", "first", terms=lasting)
    base.add("q", "second")
    base.add("r", "third", "fourth", terms=lasting)
    begun, forwarder = time.monotonic(), base.forwarder(conn)
    while forwarder.forward():
        pass
    assert (in_queue(conn), in_queue(conn, "r")) == (["first", "second"], ["third", "fourth"])
    assert (forwarder.forwarded, base.ledger.parked(), base.column(state=WAITING)) == (4, [], [])
    assert time.monotonic() - begun < unhurried(1)
    conn.flushall()
    forwarder.tidy()
    assert in_queue(conn) == ["first", "second"], "as any other rows"


def test_a_forwarder_whose_clock_ran_ahead_is_succeeded_when_it_is_silent(base: Base, conn: redis.Redis, redis_url: str) -> None:
    base.ledger.identity()
    base.add("q", "a")
    assert base.ledger.lead("dead", time.time() + 10 * 365 * 86400, 15)  # it was killed before anybody set its clock right
    begun = time.monotonic()
    forward_all(base, redis_url)
    assert time.monotonic() - begun >= 0.3
    assert in_queue(conn) == ["a"]


def test_a_burst_does_not_take_an_error_of_the_database_for_an_end(
    base: Base, conn: redis.Redis, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, asked = base.ledger.work, list[int]()

    def breaks() -> list[str]:
        asked.append(1)
        if len(asked) == 2:  # whether anything is left
            base.add("q", "late")
            raise sqlalchemy.exc.OperationalError("SELECT", {}, Exception("database is locked"))
        return work()

    monkeypatch.setattr(base.ledger, "work", breaks)
    forward_all(base, redis_url)
    assert in_queue(conn) == ["late"]


def test_a_leader_that_renews_keeps_its_lease_though_clocks_differ(base: Base) -> None:
    ledger = base.ledger
    ledger.identity()
    ledger.lead("one", 1e10, 15)
    held = ledger.held()
    assert held is not None and held[0] == "one"
    ledger.lead("one", 1e10 + 5, 15)
    assert not ledger.succeed(held, "other", 100.0)
    assert ledger.lead("one", 50.0, 15), "its clock was set right"
    assert ledger.held() == ("one", 65.0)


def test_rows_parked_into_the_far_future_by_a_clock_jump_are_retried(conn: redis.Redis, base: Base) -> None:
    base.add("q", "a", "b", "c")
    batch, rows = base.ledger.open(base.ledger.batch("q"), 10) or pytest.fail("no rows")
    ids = [row.id for row in rows]
    first = base.ledger.take_out(batch, ids[:1], "QueueFull: q", time.time() + 86400 * 365)
    assert first is not None
    second = base.ledger.take_out(first, ids[1:2], "QueueFull: q", time.time() + 10)
    assert second is not None
    base.forwarder(conn).forward()
    base.forwarder(conn).tidy()
    assert base.column(state=WAITING) == ["a"]
    assert base.column(state=PARKED) == ["b"]
    assert in_queue(conn) == ["c"]


def test_tables_that_were_emptied_are_another_outbox(conn: redis.Redis, redis_url: str, base: Base) -> None:
    """`manage.py flush`, TRUNCATE: forwarders that run go on with what comes."""
    forwarder = base.forwarder(conn)
    base.add("q", "a", "b")
    while forwarder.forward():
        pass
    with base.engine.begin() as connection:
        for table in (base.tables.rows, base.tables.queues, base.tables.forwarders):
            connection.execute(sqlalchemy.delete(table))
    base.add("q", "c")
    while forwarder.forward():
        pass
    forwarder.tidy()
    assert in_queue(conn) == ["a", "b", "c"]
    with base.engine.begin() as connection:
        connection.execute(sqlalchemy.delete(base.tables.forwarders))
    base.add("q", "d")
    forward_all(base, redis_url)
    assert "d" in in_queue(conn)


def test_two_operators_retry_the_same_rows_and_each_row_waits_once(conn: redis.Redis, base: Base) -> None:
    strange(base, *["{}"] * 60)
    forwarder = base.forwarder(conn)
    while forwarder.forward():
        pass
    ids = [row["id"] for row in base.ledger.parked()]
    start, done = threading.Barrier(3), list[tuple[str, int]]()

    def operate(verb: str) -> None:
        ledger = another(base)
        start.wait(10)
        done.append((verb, getattr(ledger, verb)(ids)))
        ledger.reset()

    threads = [threading.Thread(target=operate, args=(verb,)) for verb in ("retry", "retry", "drop")]
    for thread in threads:
        thread.start()
    for _ in range(20):
        forwarder.forward()
    for thread in threads:
        thread.join(30)
    while forwarder.forward():
        pass
    dropped = sum(count for verb, count in done if verb == "drop")
    retried = [count for verb, count in done if verb == "retry"]
    assert len(done) == 3 and max(retried) <= 60
    assert len(base.ledger.parked()) == 60 - dropped
    assert in_queue(conn) == []


def test_rows_that_are_deleted_while_they_are_on_their_way_stay(conn: redis.Redis, base: Base) -> None:
    base.add("q", "a", "b", "c")
    batch, rows = base.ledger.open(base.ledger.batch("q"), 10) or pytest.fail("no rows")
    ids = [row.id for row in rows]
    assert base.ledger.take_out(batch, ids[:1], "DuplicateJob: a") is not None
    assert base.ledger.drop(ids) == 0
    assert base.ledger.retry(ids) == 0
    while base.forwarder(conn).forward():
        pass
    assert (in_queue(conn), base.column(state=SENT)) == (["b", "c"], ["b", "c"])
    assert base.ledger.drop(ids) == 1
    while base.forwarder(conn).forward():
        pass
    assert (in_queue(conn), base.column()) == (["b", "c"], ["b", "c"])


def test_a_missing_table_is_distinguished_from_a_missing_database(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"the outbox's tables are not in sqlite.*; make them: .*create_all"):
        opened(f"sqlite:///{tmp_path / 'empty.sqlite3'}")
    with pytest.raises(ConfigurationError, match=r"can't be used: unable to open database file; start it, or mend --database"):
        opened(f"sqlite:///{tmp_path / 'nowhere' / 'file.sqlite3'}")
    pytest.importorskip("psycopg", exc_type=ImportError)
    with pytest.raises(ConfigurationError, match="can't be used") as refused:
        opened(f"postgresql+psycopg://me:hunter2@/shop?host={tmp_path}")
    assert "hunter2" not in str(refused.value)


def test_a_session_of_asyncio_is_refused() -> None:
    """Its `execute` would be awaited by nobody, and the job lost."""
    from sqlalchemy.ext.asyncio import AsyncSession

    refused = pytest.raises(TypeError, match="run_sync")
    with refused, Outbox()(AsyncSession()):  # type: ignore[arg-type]
        pass


def test_errors_of_the_database_show_no_arguments(base: Base) -> None:
    ledger = another(base)
    outbox_tables().rows.metadata.drop_all(base.engine)
    with pytest.raises(sqlalchemy.exc.SQLAlchemyError) as raised:
        ledger.lead("secret-holder", 1.0, 1.0)
    assert "secret-holder" not in str(raised.value)
    ledger.reset()


MANY = soaked(4000, 40_000)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_many_rows_wait_are_forwarded_parked_retried_and_sent_again_in_bounded_memory(conn: redis.Redis, base: Base) -> None:
    base.add("q", "j")
    with base.engine.begin() as connection:
        (row,) = connection.execute(sqlalchemy.select(base.tables.rows)).mappings()
        values = {name: row[name] for name in ("queue", "body", "written_at")}
        connection.execute(sqlalchemy.delete(base.tables.rows))
        for first in range(0, MANY, 1000):
            rows = [values | {"job_id": f"j{nth}"} for nth in range(first, first + 1000)]
            connection.execute(sqlalchemy.insert(base.tables.rows), rows)
    size = len(row["body"])
    forwarder = base.forwarder(conn, keep=3600.0, most=500)  # longer than the test takes on any machine
    begun = time.monotonic()
    tracemalloc.start()
    while forwarder.forward():
        pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    seconds = time.monotonic() - begun
    assert forwarder.forwarded == MANY
    assert peak < 20e6
    assert conn.zcard("rq:queue:q") == MANY
    conn.flushall()
    begun = time.monotonic()
    tracemalloc.start()
    forwarder.tidy()
    _, again = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert again < 20e6
    assert conn.zcard("rq:queue:q") == MANY
    resent = time.monotonic() - begun
    assert in_queue(conn)[:3] == ["j0", "j1", "j2"]
    with base.engine.begin() as connection:
        connection.execute(sqlalchemy.update(base.tables.rows).values(state=PARKED, batch=None, reason="for the test"))
    ids = [row["id"] for row in base.ledger.parked()]
    assert (base.ledger.retry(ids), base.ledger.counts()["waiting"]) == (MANY, MANY)
    with base.engine.begin() as connection:
        connection.execute(sqlalchemy.update(base.tables.rows).values(state=PARKED))
    assert base.ledger.drop(ids) == MANY
    print(
        f"{base.engine.dialect.name}: {MANY} rows of {size} bytes forwarded in {seconds:.1f} s under tracemalloc, peak {peak / 1e6:.1f} MB; "
        f"sent again in {resent:.1f} s, peak {again / 1e6:.1f} MB"
    )
