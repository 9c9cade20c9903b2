"""A task module with a Sentry client of its own, whose project is `OWN_DSN`; it starts a thread if OWN_THREAD is set."""

from __future__ import annotations

import os
import threading
import time

import sentry_sdk

if "OWN_DSN" in os.environ:
    sentry_sdk.init(dsn=os.environ["OWN_DSN"])
if "OWN_THREAD" in os.environ:
    threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()


def fails() -> None:
    raise ConnectionError("no way")
