"""Tasks that are given rows of the shop."""

from __future__ import annotations

from typing import Any

import django

django.setup()


def number_of(order: Any) -> str:
    found: str = order.number
    return found


async def number_of_awaited(order: Any) -> str:
    return number_of(order)
