"""Rows of a database become jobs: each once, in order, whatever is refused, repeated or lost."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
import sqlalchemy

from fusion import Queue
from fusion.contrib.outbox.database import PARKED, SENT, WAITING
from fusion.contrib.outbox.row import JobRow, job_of, rows_of
from fusion.enqueue.call import PLAIN, Terms
from fusion.enqueue.sending import Chunk
from fusion.exceptions import OptionError
from fusion.store.layout.records import Room
from fusion.store.write.broker import Broker
from tests.contrib.outbox.hands import TASK, Base, a_server, in_queue, postgres, sqlite
from tests.inprocess.databases import PostgresServer
from tests.kit.hands import put
from tests.kit.length import long_case


@pytest.fixture(scope="module", params=["SQLite", long_case("PostgreSQL")])
def server(request: pytest.FixtureRequest) -> Iterator[PostgresServer | None]:
    """None for SQLite, which needs none."""
    if request.param == "SQLite":
        yield None
        return
    with a_server() as found:
        postgres(found).engine.dispose()  # it answers: all its processes are there
        yield found


@pytest.fixture
def base(server: PostgresServer | None, tmp_path: Path) -> Iterator[Base]:
    found = sqlite(tmp_path) if server is None else postgres(server)
    yield found
    found.engine.dispose()


def test_rows_become_jobs_in_their_order_and_are_kept_for_a_time(conn: redis.Redis, base: Base) -> None:
    base.add("q", "b", "a", args=(1, "två"))
    base.add("r", "x")
    base.add("q", "c")
    forwarder = base.forwarder(conn)
    assert forwarder.forward()
    assert (in_queue(conn), in_queue(conn, "r")) == (["b", "a", "c"], ["x"])
    assert not forwarder.forward()
    assert forwarder.forwarded == 4
    assert base.column(state=SENT) == ["b", "a", "x", "c"]
    base.forwarder(conn, keep=0).tidy()
    assert base.column() == []
    job = Queue("q", connection=conn).fetch_job("a")
    assert job is not None and list(job.args) == [1, "två"]


def test_an_uncommitted_row_is_forwarded_once_it_is_committed(conn: redis.Redis, base: Base) -> None:
    """Ids are not the order of commits."""
    if base.engine.dialect.name == "sqlite":
        pytest.skip("SQLite has one writer")
    with base.engine.begin() as slow:
        slow.execute(
            sqlalchemy.insert(base.tables.rows), rows_of([Chunk.of("q", [Queue.prepare_data(TASK, job_id="slow")], PLAIN)])
        )
        base.add("q", "fast")
        while base.forwarder(conn).forward():
            pass
        assert in_queue(conn) == ["fast"]
    while base.forwarder(conn).forward():
        pass
    assert in_queue(conn) == ["fast", "slow"]


def test_a_batch_that_was_sent_and_not_closed_is_the_same_batch_again(conn: redis.Redis, base: Base) -> None:
    base.add("q", "a", "b")
    opened = base.ledger.open(base.ledger.batch("q"), 10)
    assert opened is not None
    forwarder = base.forwarder(conn)
    batch, rows = opened
    forwarder._enqueue(batch, 0, [job_of(row, time.time()) for row in rows], (None, None))
    conn.delete("rq:job:a", "rq:job:b", "rq:queue:q")  # they have run, and their time is over
    base.add("q", "c")
    while base.forwarder(conn).forward():
        pass
    assert in_queue(conn) == ["c"]
    assert base.column(state=SENT) == ["a", "b", "c"]


def test_two_forwarders_at_once_make_one_job_of_each_row(conn: redis.Redis, base: Base) -> None:
    base.add("q", *(f"j{nth}" for nth in range(30)))
    one, other = base.forwarder(conn, most=7), base.forwarder(conn, most=5)
    batch = base.ledger.batch("q")
    opened = base.ledger.open(batch, 3)
    assert opened is not None and base.ledger.open(batch, 3) is None
    while other.forward() or one.forward():
        pass
    assert not one._send(*opened), "it comes late"
    assert in_queue(conn) == [f"j{nth}" for nth in range(30)]
    assert conn.hget("rq:totals:q", "enqueued:1") == b"30"


def test_one_forwards_until_it_leaves_or_is_silent(base: Base) -> None:
    ledger = base.ledger
    ledger.identity()
    assert ledger.lead("one", 100.0, 15)
    assert not ledger.lead("other", 110.0, 15)
    assert ledger.lead("one", 110.0, 15)
    assert ledger.lead("other", 126.0, 15)
    assert not ledger.lead("one", 127.0, 15)
    ledger.leave("other")
    assert ledger.lead("one", 127.0, 15)


def test_a_refused_row_is_parked_with_its_reason_and_stops_nobody(conn: redis.Redis, base: Base) -> None:
    broker = Broker(conn)
    put(broker, "q", "taken")
    base.add("q", "a", "taken", "b", "b", "c")
    base.add("q", "alone", terms=Terms(room=Room(2)))
    base.add("q", "d", depends_on="nobody")
    with base.engine.begin() as connection:
        connection.execute(
            sqlalchemy.insert(base.tables.rows), {"queue": "q", "job_id": "odd", "body": '{"v":9}', "written_at": 1.0}
        )
    base.add("q", "last")
    forwarder = base.forwarder(conn)
    while forwarder.forward():
        pass
    assert in_queue(conn) == ["taken", "a", "b", "c", "last"]
    reasons = {row["job_id"]: row["reason"] for row in base.ledger.parked()}
    assert {job_id: reason.split(":")[0] for job_id, reason in reasons.items()} == {
        "taken": "DuplicateJob", "b": "DuplicateJob", "alone": "QueueFull", "d": "UnknownDependency", "odd": "the row can't be read",
    }  # fmt: skip
    assert forwarder.parked == 5
    for job_id in in_queue(conn):
        broker.cancel(job_id)
    base.ledger.try_again(time.time() + 60)
    put(broker, "q", "nobody")
    while forwarder.forward():
        pass
    assert in_queue(conn) == ["nobody", "alone"]
    assert base.ledger.retry([row["id"] for row in base.ledger.parked() if row["job_id"] == "taken"]) == 1
    while forwarder.forward():
        pass
    assert in_queue(conn) == ["nobody", "alone", "taken"]
    assert base.ledger.drop([row["id"] for row in base.ledger.parked()]) == 2
    assert base.column(state=PARKED) == []


def test_a_full_queue_accepts_as_many_rows_as_fit(conn: redis.Redis, base: Base) -> None:
    Queue("q", connection=conn).set_max_length(3)
    base.add("q", *"abcde")
    base.add("q", "later", enqueue_in=60)
    while base.forwarder(conn).forward():
        pass
    assert in_queue(conn) == ["a", "b", "c"]
    assert [row["job_id"] for row in base.ledger.parked()] == ["d", "e"]
    assert conn.zcard("rq:scheduler:scheduled_jobs") == 1


def test_a_row_that_was_parked_is_done_if_an_earlier_edition_was_accepted(conn: redis.Redis, base: Base) -> None:
    """The answer to the first edition was lost, its refusal was not."""
    base.add("q", "a", "b")
    opened = base.ledger.open(base.ledger.batch("q"), 10)
    assert opened is not None
    batch, rows = opened
    assert base.ledger.take_out(batch, [rows[1].id], "DuplicateJob: b") is not None
    base.forwarder(conn)._enqueue(batch, 0, [job_of(row, time.time()) for row in rows], (None, None))
    while base.forwarder(conn).forward():
        pass
    assert in_queue(conn) == ["a", "b"]
    assert (base.column(state=SENT), base.ledger.parked()) == (["a", "b"], [])


def test_kept_rows_are_sent_again_to_a_redis_that_lost_data(
    conn: redis.Redis, base: Base, caplog: pytest.LogCaptureFixture
) -> None:
    forwarder = base.forwarder(conn, most=2)
    base.add("q", *"abcdef")
    while forwarder.forward():
        pass
    with caplog.at_level(logging.ERROR, "fusion.outbox"):
        conn.flushall()
        forwarder.tidy()
        assert in_queue(conn) == [*"abcdef"]
        assert "3 batches are sent again, whose jobs may run twice" in caplog.text
        conn.flushall()
        base.add("q", "g")
        while forwarder.forward():
            pass
        assert in_queue(conn) == [*"abcdefg"]
        caplog.clear()
        forwarder.tidy()
        assert not caplog.text
        conn.flushall()
        base.forwarder(conn, keep=0).tidy()  # forgets, having sent once more
        conn.flushall()
        forwarder.tidy()
        assert "4 are no longer kept in the database" in caplog.text
    base.add("q", "h")
    while forwarder.forward():
        pass
    assert in_queue(conn) == ["h"]


def test_a_database_that_went_back_sends_what_it_has_as_new(
    conn: redis.Redis, base: Base, caplog: pytest.LogCaptureFixture
) -> None:
    forwarder = base.forwarder(conn, most=1)
    base.add("q", *"abc")
    while forwarder.forward():
        pass
    with base.engine.begin() as connection:
        connection.execute(sqlalchemy.update(base.tables.queues).values(number=1))
    base.add("q", "d")
    with caplog.at_level(logging.ERROR, "fusion.outbox"):
        while forwarder.forward():
            pass
    assert "the database has gone back" in caplog.text
    assert in_queue(conn) == [*"abcd"]
    base.tables.rows.metadata.drop_all(base.engine)
    base.tables.rows.metadata.create_all(base.engine)
    base.add("q", "e")
    while base.forwarder(conn).forward():
        pass
    assert in_queue(conn) == [*"abcde"], "another outbox, with numbers of its own"


def test_times_count_from_the_row(conn: redis.Redis, base: Base) -> None:
    now = time.time()
    base.add("q", "short", now=now - 60, ttl=90)
    base.add("q", "over", now=now - 60, ttl=30)
    base.add("q", "soon", now=now - 60, enqueue_in=100, ttl=30)
    base.add("q", "due", now=now - 60, enqueue_in=50, ttl=30)
    while base.forwarder(conn).forward():
        pass
    time.sleep(0.01)
    Broker(conn).expire()
    assert in_queue(conn) == ["short", "due"]
    left = {job.decode(): score / 1000 - now for job, score in conn.zrange("rq:expiring", 0, -1, withscores=True)}
    assert 25 < left["short"] < 32 and 15 < left["due"] < 22
    (due,) = conn.zrange("rq:scheduler:scheduled_jobs", 0, -1, withscores=True)
    assert abs(due[1] - (now + 40)) < 2
    assert conn.hget("rq:job:over", "status") == b"canceled"


def test_a_row_is_the_job_that_was_enqueued_byte_for_byte() -> None:
    data = Queue.prepare_data(TASK, (b"\xff", "x" * 5000), meta={"a": 1}, priority="high", at_front=True, result_ttl=7)
    (columns,) = rows_of([Chunk.of("q", [data], PLAIN)], 5.0)
    job = job_of(JobRow(1, **columns), 9.0)
    assert job == data.new


def test_the_outbox_refuses_jobs_that_must_be_accepted_together() -> None:
    chunks = [Chunk.of(queue, [Queue.prepare_data(TASK)], PLAIN) for queue in "qr"]
    with pytest.raises(OptionError, match="can't go through an outbox"):
        rows_of(chunks)


def test_a_row_waits_while_nobody_forwards(base: Base) -> None:
    base.add("q", "a", now=7.0)
    counts = base.ledger.counts()
    assert (counts["waiting"], counts["oldest"]) == (1, 7.0)
    assert base.column(state=WAITING) == ["a"]
