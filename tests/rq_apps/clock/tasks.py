"""Tasks that come at their times."""

from __future__ import annotations

import os

from redis import Redis


def note(what, amount=1):
    with Redis.from_url(os.environ["REDIS_URL"]) as connection:
        connection.hincrby("app:notes", what, amount)
    return what
