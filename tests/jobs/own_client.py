"""A task module with a Sentry client of its own, whose project is `OWN_DSN`."""

from __future__ import annotations

import os

import sentry_sdk

if "OWN_DSN" in os.environ:
    sentry_sdk.init(dsn=os.environ["OWN_DSN"])


def fails() -> None:
    raise ConnectionError("no way")
