"""Pages on which a customer orders something, which is shipped by a job: in transactions as projects have them. Jobs are called after the number."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress

from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt

from fusion import Queue
from tests.contrib.shop.orders.models import Order
from tests.contrib.shop.orders.tasks import nothing, ship


class TakenBack(Exception):
    pass


def _order(number: str) -> None:
    order = Order.objects.create(number=number)
    Queue("default").enqueue(ship, order.pk, job_id=f"ship-{number}")


def _let_pass() -> None:
    """Wait until the one worker has run what is enqueued now: whatever was sent before has run, too."""
    Queue("default").enqueue(nothing, on_commit=False).wait(60)


def _committed(number: str) -> None:
    with transaction.atomic():
        _order(number)
        _let_pass()


def _nested(number: str) -> None:
    with transaction.atomic():
        _order(f"{number}-outer")
        with transaction.atomic():
            _order(f"{number}-inner")
        _let_pass()


def _rolled_back(number: str) -> None:
    with suppress(TakenBack), transaction.atomic():
        _order(number)
        raise TakenBack


def _savepoints(number: str) -> None:
    with transaction.atomic():
        _order(f"{number}-first")
        with suppress(TakenBack), transaction.atomic():
            _order(f"{number}-undone")
            raise TakenBack
        _order(f"{number}-last")
        _let_pass()


def _two_databases(number: str) -> None:
    with transaction.atomic(using="archive"):
        with transaction.atomic():
            _order(number)
        _let_pass()  # committed in one of them
        Order.objects.using("archive").create(number=number)


def _one_of_two_rolled_back(number: str) -> None:
    with suppress(TakenBack), transaction.atomic(using="archive"):
        with transaction.atomic():
            _order(number)
        raise TakenBack


def _killed(number: str) -> None:
    """The process dies when the transaction is committed, and before any other process learns of it."""
    with transaction.atomic():
        transaction.on_commit(lambda: os.kill(os.getpid(), signal.SIGKILL))
        _order(number)


WAYS: dict[str, Callable[[str], None]] = {
    "committed": _committed,
    "nested": _nested,
    "rolled-back": _rolled_back,
    "savepoints": _savepoints,
    "two-databases": _two_databases,
    "one-of-two-rolled-back": _one_of_two_rolled_back,
    "killed": _killed,
}


@csrf_exempt
@transaction.non_atomic_requests
def take(request: HttpRequest, way: str, number: str) -> HttpResponse:
    """An order, in one of WAYS."""
    WAYS[way](number)
    return HttpResponse("taken")


@csrf_exempt
def take_plainly(request: HttpRequest, number: str) -> HttpResponse:
    """An order in the transaction of the request, with ATOMIC_REQUESTS."""
    _order(number)
    if transaction.get_connection().in_atomic_block:
        _let_pass()
    if "fails" in number:
        raise TakenBack
    return HttpResponse("taken")
