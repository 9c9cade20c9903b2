"""What the shop does with orders, later."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from pathlib import Path
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connection, transaction
from django.db.models import F

from fusion import get_current_job, recurring
from tests.contrib.shop.orders.models import Order


def ship(pk: int) -> str:
    order = Order.objects.get(pk=pk)
    order.state = "shipped"
    order.runs += 1
    order.save()
    return order.number


def look(file: str) -> None:
    """Say which process and which connection of the database a task has."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()" if connection.vendor == "postgresql" else "SELECT 1")
        (backend,) = cursor.fetchone()
    with Path(file).open("a") as out:
        out.write(f"{os.getpid()} {backend}\n")


async def look_later(file: str) -> None:
    """The same in a coroutine."""
    await sync_to_async(look)(file)


@recurring("0 3 * * *", id="orders-nightly", queue="mail")
def tidy() -> None:
    """Every night."""


def nothing() -> None:
    """For who waits until the worker was here."""


def ship_or_hang(pk: int, file: str) -> None:
    """Ship, in a transaction that the first to do it leaves open until it is killed."""
    first = not Path(file).exists()
    with transaction.atomic():
        Order.objects.filter(pk=pk).update(state="shipped", runs=F("runs") + 1)
        note(file, str(os.getpid()))
        if first:
            threading.Event().wait()


def count(order: Any, file: str, leave: str) -> None:
    """One more run of a row that is locked meanwhile: until the file `leave` is there."""
    note(file, f"at {os.getpid()}")
    with order as row:
        note(file, f"in {os.getpid()}")
        while not Path(leave).exists():
            time.sleep(0.01)
        row.runs += 1
        row.save()
        note(file, f"out {os.getpid()}")


def note(file: str, line: str) -> None:
    with Path(file).open("a") as out:
        out.write(f"{line}\n")


def tick() -> None:
    """Leave an order of the job's name."""
    if job := get_current_job():
        Order.objects.create(number=job.id, state="ticked")


if os.environ.get("SHOP_TICKS"):
    recurring(every="1s", id="tick")(tick)


def write(number: str) -> int:
    """One more order; returns the thread."""
    Order.objects.create(number=number, state="written")
    return threading.get_ident()


async def write_later(number: str) -> int:
    return await sync_to_async(write)(number)


def leave_open(number: str) -> int:
    """An order in a transaction that is entered and never left."""
    transaction.atomic().__enter__()
    return write(number)


async def leave_open_later(number: str) -> int:
    return await sync_to_async(leave_open)(number)


async def hold_open(number: str, at: str, leave: str) -> int:
    """A transaction that is held over an await, until the file `leave` is there, and then left in order."""
    block = transaction.atomic()
    await sync_to_async(block.__enter__)()
    thread = await write_later(number)
    note(at, "in")
    while not Path(leave).exists():
        await asyncio.sleep(0.01)
    await sync_to_async(block.__exit__)(None, None, None)
    return thread
