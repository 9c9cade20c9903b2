"""What is enqueued in a transaction is a row of it: Django and SQLAlchemy."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest
import redis
import sqlalchemy
from sqlalchemy.orm import Session

from fusion import Batch, Queue, get_current_job
from fusion.contrib.outbox.forwarder import Forwarder
from fusion.contrib.outbox.ledger import Ledger
from fusion.contrib.sqlalchemy.outbox import Outbox
from fusion.exceptions import OptionError, PayloadTooLarge
from fusion.settings import use_settings
from fusion.store.write.broker import Broker
from tests.contrib.outbox.hands import TASK, in_queue, sqlite
from tests.kit.hands import Hand


def test_a_job_is_written_in_the_transaction_of_a_session(conn: redis.Redis, tmp_path: Path) -> None:
    base, outbox = sqlite(tmp_path), Outbox()
    queue = Queue("q", connection=conn)
    with Session(base.engine) as session:
        with outbox(session):
            job = queue.enqueue(TASK, job_id="a", priority="high")
            assert queue.enqueue(TASK, job_id="past", on_commit=False).id == "past"
            many = queue.enqueue_many([queue.prepare_data(TASK, job_id=f"m{nth}") for nth in range(3)])
        queue.enqueue(TASK, job_id="outside")
        assert (job.id, [one.id for one in many]) == ("a", ["m0", "m1", "m2"])
        assert in_queue(conn) == ["past", "outside"]
        session.rollback()
    assert base.column() == []
    with Session(base.engine) as session, outbox(session):
        queue.enqueue(TASK, job_id="b")
        with pytest.raises(PayloadTooLarge):
            queue.enqueue(TASK, "x" * 10_000_000)
        session.commit()
        queue.enqueue(TASK, job_id="uncommitted")
    assert base.column() == ["b"]
    base.forwarder(conn).forward()
    assert in_queue(conn) == ["past", "outside", "b"]


def test_an_enqueue_raises_the_error_of_the_database(conn: redis.Redis, tmp_path: Path) -> None:
    engine, outbox = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'empty.sqlite3'}"), Outbox()
    with Session(engine) as session, outbox(session), pytest.raises(sqlalchemy.exc.OperationalError, match="no such table"):
        Queue("q", connection=conn).enqueue(TASK)
    assert in_queue(conn) == []


def test_a_batch_is_refused(conn: redis.Redis, tmp_path: Path) -> None:
    base, outbox = sqlite(tmp_path), Outbox()
    refused = pytest.raises(OptionError, match="batches can't go through an outbox")
    with Session(base.engine) as session, outbox(session), refused, Batch("b", queue="q", connection=conn) as batch:
        batch.enqueue(TASK)


def test_rows_are_signed_when_they_are_written(conn: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base, outbox = sqlite(tmp_path), Outbox()
    monkeypatch.setenv("FUSION_SECRET_KEYS", "k1:" + secrets.token_urlsafe(32))
    use_settings(None)
    with Session(base.engine) as session, outbox(session):
        Queue("q", connection=conn).enqueue(TASK, job_id="a")
        session.commit()
    monkeypatch.delenv("FUSION_SECRET_KEYS")
    use_settings(None)
    base.forwarder(conn).forward()
    assert conn.hexists("rq:job:a", "signature")


def test_a_django_project_writes_rows_if_its_settings_say_so(conn: redis.Redis, shop: Path) -> None:
    from django.db import transaction
    from django.test import override_settings

    from fusion.contrib.django.outbox.database import DjangoDatabase
    from fusion.contrib.django.outbox.models import OutboxRow
    from tests.contrib.shop.orders.models import Order

    queue = Queue("q", connection=conn)
    with override_settings(FUSION={"OUTBOX": True}):
        _rolled_back(queue, "rolled")
        with transaction.atomic():
            Order.objects.create(number="2")
            assert queue.enqueue(TASK, job_id="a", on_commit=True).id == "a"
            _rolled_back(queue, "savepoint")
            assert in_queue(conn) == []
        queue.enqueue(TASK, job_id="b")
        queue.enqueue(TASK, job_id="past", on_commit=False)
    assert list(OutboxRow.objects.order_by("id").values_list("job_id", flat=True)) == ["a", "b"]
    assert in_queue(conn) == ["past"]
    ledger = Ledger(DjangoDatabase())
    forwarder = Forwarder(ledger, Broker(conn), keep=60)
    while forwarder.forward():
        pass
    assert in_queue(conn) == ["past", "a", "b"]
    assert ledger.counts()["kept"] == 2
    forwarder.tidy()
    assert Hand(Broker(conn), "q").take().id == "past"
    queue.enqueue(TASK, job_id="without")
    assert in_queue(conn)[-1] == "without"
    assert get_current_job() is None


def _rolled_back(queue: Queue, job_id: str) -> None:
    from django.db import transaction

    with transaction.atomic():
        queue.enqueue(TASK, job_id=job_id)
        transaction.set_rollback(True)
