"""Rows as arguments: what a job has of them, and what its task is given."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from fusion import Queue, Retry
from fusion.exceptions import DeserializationError, SerializationError
from fusion.kernel.redaction import masked_call
from fusion.kernel.serializers import JSONSerializer
from tests.kit.witnesses import field, status_of
from tests.kit.workers import Workers

SERIALIZER = JSONSerializer()


def again(value: Any) -> Any:
    return SERIALIZER.loads(SERIALIZER.dumps(value))


def stored(value: Any) -> Any:
    return json.loads(SERIALIZER.dumps(value))["__fusion__"]


@pytest.fixture
def made(shop: Path) -> Iterator[dict[str, Any]]:
    """Kinds of models, with tables of their own until the test ends."""
    from django.apps import apps
    from django.db import connection, models

    from tests.contrib.shop.orders.models import Order

    class Meta:
        app_label = "orders"

    bases = {"__module__": __name__}
    proxy_meta = type("Meta", (), {"app_label": "orders", "proxy": True})
    kinds: dict[str, Any] = {
        "Rush": type("Rush", (Order,), {**bases, "Meta": proxy_meta}),
        "Parcel": type("Parcel", (Order,), {**bases, "Meta": Meta, "weight": models.IntegerField(default=1)}),
        "Line": type(
            "Line",
            (models.Model,),
            {
                **bases,
                "Meta": Meta,
                "pk": models.CompositePrimaryKey("order", "place"),
                "order": models.IntegerField(),
                "place": models.IntegerField(),
            },
        ),
        "Tag": type(
            "Tag", (models.Model,), {**bases, "Meta": Meta, "id": models.UUIDField(primary_key=True), "word": models.TextField()}
        ),
    }
    tables = [kind for kind in kinds.values() if not kind._meta.proxy]
    with connection.schema_editor() as editor:
        for kind in tables:
            editor.create_model(kind)
    yield kinds
    with connection.schema_editor() as editor:
        for kind in reversed(tables):
            editor.delete_model(kind)
    for name in kinds:
        del apps.all_models["orders"][name.lower()]
    apps.clear_cache()


def test_a_row_goes_by_its_key_and_comes_as_it_is_then(shop: Path) -> None:
    from tests.contrib.shop.orders.models import Order

    order = Order.objects.create(number="1")
    raw = SERIALIZER.dumps([order, {"of": order}])
    Order.objects.update(state="paid")
    first, second = SERIALIZER.loads(raw)[0], SERIALIZER.loads(raw)[1]["of"]
    assert (first, first.state, second.state) == (order, "paid", "paid") and first is not order
    assert stored(order) == ["model", ["orders.order", order.pk, "default"]]
    archived = Order.objects.using("archive").create(number="2")
    assert again(archived)._state.db == "archive"
    assert again(Order.objects.only("number").get(pk=order.pk)).get_deferred_fields() == set()


def test_models_of_every_kind(made: dict[str, Any]) -> None:
    import uuid

    rush = made["Rush"].objects.create(number="1")
    assert type(again(rush)) is made["Rush"] and again(rush) == rush
    parcel = made["Parcel"].objects.create(number="2", weight=5)
    assert again(parcel).weight == 5 and again(parcel.order_ptr) == parcel.order_ptr
    line = made["Line"].objects.create(order=3, place=4)
    assert again(line).pk == (3, 4)
    tag = made["Tag"].objects.create(id=uuid.uuid4(), word="x")
    assert again(tag).pk == tag.pk and again([tag])[0].word == "x"
    with pytest.raises(SerializationError, match=r"orders\.Line is not saved"):
        SERIALIZER.dumps(made["Line"](order=3))


def test_unsaved_rows_and_querysets_cannot_be_enqueued(shop: Path) -> None:
    from tests.contrib.shop.orders.models import Order

    with pytest.raises(SerializationError, match=r"this orders\.Order is not saved yet; save it before enqueueing"):
        Queue("r").enqueue("tests.contrib.shop.orders.tasks.ship", Order(number="1"))
    for rows in (Order.objects.all(), Order.objects, Order.objects.raw("SELECT 1"), [Order.objects.filter(pk=1)]):
        with pytest.raises(SerializationError, match=r"values_list\('pk', flat=True\)"):
            SERIALIZER.dumps(rows)


def test_a_missing_or_moved_model_is_named(shop: Path) -> None:
    from fusion.contrib.django.models import _renamed, renamed
    from tests.contrib.shop.orders.models import Order

    order = Order.objects.create(number="1")
    raw = SERIALIZER.dumps(order)
    moved = raw.replace(b"orders.order", b"sales.order")
    with pytest.raises(DeserializationError, match=r"sales.*INSTALLED_APPS.*renamed\(old, new\)"):
        SERIALIZER.loads(moved)
    renamed("Sales.Order", "orders.Order")
    try:
        assert SERIALIZER.loads(moved) == order
    finally:
        _renamed.clear()
    with pytest.raises(DeserializationError, match=r"the database 'nowhere' of a orders\.Order is not among"):
        SERIALIZER.loads(raw.replace(b'"default"', b'"nowhere"'))
    assert SERIALIZER.loads(raw.replace(b'"default"', b"null")) == order
    for pk in (b'"x"', b"[1,2]", b"null"):
        with pytest.raises(DeserializationError):
            SERIALIZER.loads(raw.replace(b"%d" % order.pk, pk))
    order.delete()
    with pytest.raises(DeserializationError, match=r"the orders\.Order with primary key \d+ is gone from the database 'default'"):
        SERIALIZER.loads(raw)


def test_a_row_that_is_locked_while_a_block_works_on_it(shop: Path) -> None:
    from django.db import transaction

    from fusion.contrib.django.models import locked
    from tests.contrib.shop.orders.models import Order

    order = Order.objects.create(number="1")
    argument = again(locked(order))
    Order.objects.update(state="paid")
    with argument as row:
        assert row.state == "paid" and transaction.get_connection().in_atomic_block
        row.state = "sent"
        row.save()
    with pytest.raises(ZeroDivisionError), argument as row:
        _lose(row)
    assert Order.objects.get().state == "sent" and not transaction.get_connection().in_atomic_block
    assert repr(argument) == f"<Locked orders.Order {order.pk}>"
    order.delete()
    with pytest.raises(DeserializationError, match="gone"), argument:
        pass
    assert not transaction.get_connection().in_atomic_block
    with pytest.raises(SerializationError, match="not saved"):
        locked(Order())


def _lose(row: Any) -> None:
    row.state = "lost"
    row.save()
    raise ZeroDivisionError


def test_nothing_is_fetched_to_show_a_job(shop: Path) -> None:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    from fusion.contrib.django.models import locked
    from tests.contrib.shop.orders.models import Order

    order = Order.objects.create(number="1", pk=77)
    with CaptureQueriesContext(connection) as queries:
        raw = SERIALIZER.dumps(["t", None, [order, locked(order)], {}])
        assert masked_call(raw).count("orders.order 77") == 2
    assert not queries.captured_queries


def test_a_row_that_is_deleted_meanwhile_fails_its_job_by_an_error_that_a_retry_can_name(
    workers: Workers, conn: redis.Redis, shop: Path
) -> None:
    from tests.contrib.shop.orders.models import Order

    stays, goes = Order.objects.create(number="1"), Order.objects.create(number="2")
    queue = Queue("r", conn)
    task = "tests.contrib.row_tasks.number_of"
    fine = [queue.enqueue(f"{task}{how}", stays) for how in ("", "_awaited")]
    gone = [
        queue.enqueue(task, goes, retry=Retry(0)),
        queue.enqueue(task, goes, retry=Retry(3, interval=0, on="fusion.exceptions.DeserializationError")),
        queue.enqueue(task, goes, retry=Retry(3, interval=0, on="builtins.KeyError")),
    ]
    goes.delete()
    workers.burst("r", "--executor", "asyncio", env={"FUSION_TASKS": "tests.contrib.row_tasks"})
    assert [job.result for job in fine] == ["1", "1"]
    assert [status_of(conn, job.id) for job in gone] == ["failed"] * 3
    assert [field(conn, job.id, "attempts") for job in gone] == ["1", "4", "1"]
    assert {field(conn, job.id, "error_class") for job in gone} == {"fusion.exceptions.DeserializationError"}
