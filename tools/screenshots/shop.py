"""What the workers of the pictures run: a shop's messages, payments and reports, some of which go wrong."""

from __future__ import annotations

import time

from fusion.context import get_current_job


class CardDeclined(Exception):
    """The bank said no."""


class ProviderDown(Exception):
    """The other side does not answer."""


def send_code(number: str, code: str) -> str:
    """A one-time password."""
    return "accepted"


def send_offer(customer: int) -> str:
    """One of a campaign."""
    return "accepted"


def send_receipt(order: int, address: str) -> None:
    """Not today."""
    _deliver(address)


def charge(order: int, amount: float, currency: str) -> None:
    """Nor this."""
    raise CardDeclined(f"the bank declined order {order}: limit exceeded")


def update_stock(sku: str) -> None:
    """An article that nobody knows."""
    raise KeyError(sku)


def render_report(month: str, done: int, total: int) -> None:
    """Long, and says how far it is."""
    job = get_current_job()
    assert job is not None
    job.progress(done, total, f"{month}: page {done}")
    time.sleep(600)


def sync_stock(shop: str) -> None:
    """Long, and says nothing."""
    time.sleep(600)


def _deliver(address: str) -> None:
    raise ProviderDown("mail.example.com: Service Unavailable")
