"""The app of orders; SHOP_THREAD has it start a thread as soon as it is ready, as some do."""

from __future__ import annotations

import os
import threading

from django.apps import AppConfig


class OrdersConfig(AppConfig):
    name = "tests.contrib.shop.orders"

    def ready(self) -> None:
        if os.environ.get("SHOP_THREAD"):
            threading.Thread(target=threading.Event().wait, daemon=True).start()
