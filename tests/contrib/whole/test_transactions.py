"""Orders of real pages, in transactions of every kind, and the jobs that ship them."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

from fusion import Job, Queue, Retry
from tests.contrib.databases import ShopDatabase
from tests.contrib.harness import Manages
from tests.contrib.whole.on import ON_POSTGRESQL, ON_SQLITE
from tests.kit.waiting import eventually, unhurried
from tests.kit.witnesses import status_of

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]

#: Way of an order -> what is there afterwards, and what never was.
WAYS = {
    "committed": (["1"], []),
    "nested": (["1-outer", "1-inner"], []),
    "rolled-back": ([], ["1"]),
    "savepoints": (["1-first", "1-last"], ["1-undone"]),
    "two-databases": (["1"], []),
}


def orders(using: str = "default") -> dict[str, tuple[str, int]]:
    """Number -> state, and how often it was shipped."""
    from tests.contrib.shop.orders.models import Order

    return {order.number: (order.state, order.runs) for order in Order.objects.using(using)}


def ended(conn: redis.Redis, job_id: str) -> str:
    return eventually(lambda: (found := status_of(conn, job_id)) in ("finished", "failed") and found, unhurried(20))


@ON_SQLITE
def test_a_job_is_there_if_and_when_its_order_is(manages: Manages, conn: redis.Redis) -> None:
    site = manages.serve(SHOP_ATOMIC_REQUESTS="1")
    worker = manages.start("fusion_worker", "--skip-checks").ready()
    for way, (there, gone) in WAYS.items():
        assert site.post(f"/orders/{way}/{way}-1") == 200, manages.output
        for number in there:
            assert ended(conn, f"ship-{way}-{number}") == "finished", (way, worker.output)
            assert orders()[f"{way}-{number}"] == ("shipped", 1)
        for number in gone:
            assert f"{way}-{number}" not in orders() and not Job.exists(f"ship-{way}-{number}")
    assert [*orders("archive")] == ["two-databases-1"]
    # of two databases one is committed, which nobody can take back: its row is there, and what waited for both is not
    assert site.post("/orders/one-of-two-rolled-back/x") == 200
    assert orders()["x"] == ("new", 0) and not Job.exists("ship-x")
    # ATOMIC_REQUESTS
    assert site.post("/orders/plainly/whole") == 200, site.output
    assert ended(conn, "ship-whole") == "finished", worker.output
    assert orders()["whole"] == ("shipped", 1)
    assert site.post("/orders/plainly/fails") == 500
    assert "fails" not in orders() and not Job.exists("ship-fails")
    assert site.ask("/ops/fusion/")[0] == 200  # the dashboard, on the way to its login


@ON_SQLITE
def test_a_row_deleted_meanwhile_has_an_error_of_its_own(manages: Manages, conn: redis.Redis, shop: Path) -> None:
    from fusion.exceptions import DeserializationError
    from tests.contrib.shop.billing import tasks
    from tests.contrib.shop.orders.models import Order

    stays, goes, returns = (Order.objects.create(number=number) for number in ("stays", "goes", "returns"))
    fine, gone = tasks.number_of.enqueue(stays), tasks.number_of.enqueue(goes)
    again = tasks.number_of.using(retry=Retry(5, interval=1, on="fusion.exceptions.DeserializationError")).enqueue(returns)
    key = returns.pk
    Order.objects.exclude(pk=stays.pk).delete()
    worker = manages.start("fusion_worker", "--skip-checks").ready()
    assert (ended(conn, fine.id), ended(conn, gone.id)) == ("finished", "failed"), worker.output
    eventually(lambda: Job.fetch(again.id, conn).attempts >= 1, unhurried(20))
    Order.objects.create(pk=key, number="returned")
    assert ended(conn, again.id) == "finished", worker.output
    for result in (fine, gone, again):
        result.refresh()
    assert (fine.return_value, again.return_value) == ("stays", "returned")
    assert gone.errors[0].exception_class is DeserializationError
    assert f"the orders.Order with primary key {goes.pk} is gone" in gone.errors[0].traceback


@ON_POSTGRESQL
def test_two_workers_wait_for_each_others_row(
    manages: Manages, conn: redis.Redis, database: ShopDatabase, tmp_path: Path
) -> None:
    from fusion.contrib.django.models import locked
    from tests.contrib.shop.orders.models import Order

    order, seen, leave = Order.objects.create(number="1"), tmp_path / "seen", tmp_path / "leave"
    for _ in range(2):
        manages.start("fusion_worker", "--skip-checks")
    eventually(lambda: manages.output.count("ready for jobs") == 2, unhurried(30), why=manages.output)
    jobs = [
        Queue("default").enqueue("tests.contrib.shop.orders.tasks.count", locked(order), str(seen), str(leave)) for _ in range(2)
    ]
    eventually(lambda: seen.exists() and seen.read_text().count("at ") == 2, unhurried(20), why=manages.output)
    eventually(lambda: "in " in seen.read_text() and database.waiting() == 1, unhurried(20), why="one has the row, one waits")
    leave.touch()
    assert [ended(conn, job.id) for job in jobs] == ["finished"] * 2, manages.output
    said = [line.split() for line in seen.read_text().splitlines() if not line.startswith("at")]
    assert [word for word, _ in said] == ["in", "out", "in", "out"]
    assert said[0][1] == said[1][1] != said[2][1] == said[3][1]
    assert orders() == {"1": ("new", 2)}
