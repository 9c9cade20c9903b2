"""A worker and a scheduler, each for itself or by `fusion_start`, at work for the shop."""

from __future__ import annotations

import signal

import pytest
import redis

from fusion import Queue, Scheduler
from tests.contrib.harness import Manages
from tests.contrib.whole.on import ON_SQLITE
from tests.kit.length import soak_case
from tests.kit.waiting import eventually, unhurried
from tests.kit.witnesses import status_of

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]


@ON_SQLITE
@pytest.mark.parametrize(
    "commands", [pytest.param(["fusion_start -n 2"], id="start"), soak_case(["fusion_worker", "fusion_scheduler"], id="each")]
)
def test_recurring_and_enqueued_tasks_run(manages: Manages, conn: redis.Redis, commands: list[str]) -> None:
    from tests.contrib.shop.orders.models import Order

    started = [manages.start(*command.split(), "--skip-checks", SHOP_TICKS="1") for command in commands]
    order = Order.objects.create(number="1")
    job = Queue("mail").enqueue("tests.contrib.shop.orders.tasks.ship", order.pk)
    ticks = Order.objects.filter(state="ticked")
    eventually(lambda: ticks.count() >= 2, unhurried(40), 0.1, why=manages.output)
    numbers = [tick.number for tick in ticks]
    assert len(set(numbers)) == len(numbers) and all(number.startswith("cron-tick-") for number in numbers)
    eventually(lambda: {status_of(conn, number) for number in numbers} == {"finished"}, unhurried(20), why=manages.output)
    eventually(lambda: status_of(conn, job.id) == "finished", unhurried(20), why=manages.output)
    assert {"orders-nightly", "dunning", "tick"} <= {entry.id for entry in Scheduler(conn).entries()}  # those of all apps
    order.refresh_from_db()
    assert (order.state, order.runs) == ("shipped", 1)
    for one in started:
        one.signal(signal.SIGTERM)
    assert [one.wait(unhurried(20)) for one in started] == [0] * len(started), manages.output
