"""`enqueue_many` cuts what it sends by the work that it is for the server."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from fusion import Queue
from fusion.enqueue.call import terms_of
from fusion.enqueue.options import EnqueueOptions
from fusion.enqueue.sending import chunks
from fusion.settings import get_settings
from tests.jobs import basic
from tests.kit.hands import wire


def sizes(count: int, **options: Any) -> list[int]:
    """Jobs of each call."""
    datas = [
        Queue.prepare_data(
            basic.noop, (n,), **{name: f"{value}-{n}" if name == "unique" else value for name, value in options.items()}
        )
        for n in range(count)
    ]
    return [len(chunk.jobs) for chunk in chunks("q", datas, terms_of(EnqueueOptions(), get_settings()))]


def test_plain_jobs_go_by_a_hundred_and_fifty() -> None:
    assert sizes(500, priority=2, ttl=60, meta={"a": 1}) == [150, 150, 150, 50]


@pytest.mark.parametrize(
    ("options", "most"),
    [({"fair_key": "f"}, 75), ({"concurrency_key": "k"}, 37), ({"concurrency_key": "k", "fair_key": "f"}, 30)],
)
def test_bound_jobs_go_by_fewer(options: dict[str, Any], most: int) -> None:
    assert sizes(120, **options)[:-1] == [most] * ((120 - 1) // most)


def test_light_and_heavy_jobs_share_a_call(conn: redis.Redis) -> None:
    datas = [Queue.prepare_data(basic.noop, (n,), concurrency_key="k" if n % 2 else None) for n in range(200)]
    with wire(conn) as sent:
        jobs = Queue("q", conn).enqueue_many(datas)
    assert sent.count("EVALSHA") == 4
    assert [job.args for job in jobs] == [(n,) for n in range(200)]
