from __future__ import annotations

import asyncio
import pickle
import zlib
from typing import Any

import pytest
import redis

from fusion import AsyncQueue, Job, Queue
from fusion.exceptions import ConfigurationError, SerializationError
from fusion.settings import Settings, use_settings


class Thing:
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Thing)

    __hash__ = None  # type: ignore[assignment]


def enqueue(kind: type[Any], serializer: Any, argument: Any) -> Job:
    if kind is Queue:
        return Queue("sms", serializer=serializer).enqueue("shop.f", argument)

    async def call() -> Job:
        async with AsyncQueue("sms", serializer=serializer) as queue:
            return await queue.enqueue("shop.f", argument)

    return asyncio.run(call())


BOTH = pytest.mark.parametrize("kind", [Queue, AsyncQueue])


@BOTH
def test_a_queue_of_pickles_where_they_are_allowed(conn: redis.Redis, kind: type[Any]) -> None:
    use_settings(Settings.load(allow_pickle=True))
    job = enqueue(kind, "pickle", Thing())
    stored = conn.hgetall(f"rq:job:{job.id}")
    assert stored[b"serializer"] == b"pickle"
    assert pickle.loads(zlib.decompress(stored[b"data"])) == ("shop.f", None, (Thing(),), {})
    assert Job.fetch(job.id).args == (Thing(),)
    assert b"serializer" not in conn.hgetall(f"rq:job:{enqueue(kind, None, 1).id}"), "the setting is json"
    use_settings(Settings.load(allow_pickle=True, serializer="pickle"))
    assert b"serializer" not in conn.hgetall(f"rq:job:{enqueue(kind, 'json', 1).id}")
    assert conn.hget(f"rq:job:{enqueue(kind, None, 1).id}", "serializer") == b"pickle"


@BOTH
def test_pickle_that_is_not_allowed_names_the_setting(conn: redis.Redis, kind: type[Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"set allow_pickle \(FUSION_ALLOW_PICKLE=1\)"):
        enqueue(kind, "pickle", 1)
    with pytest.raises(ConfigurationError, match="FUSION_ALLOW_PICKLE=1"):
        Queue.prepare_data("shop.f", (1,), serializer="pickle")
    assert conn.dbsize() == 0


@BOTH
@pytest.mark.parametrize("wrong", ["yaml", "JSON", "rq.serializers.JSONSerializer", dict, object()])
def test_an_unknown_serializer_is_refused_with_the_known_ones(kind: type[Any], wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"use 'json' or 'pickle', or none for the setting serializer \(FUSION_SERIALIZER\)"):
        kind("sms", serializer=wrong)
    with pytest.raises(ValueError, match="use 'json' or 'pickle'"):
        kind.prepare_data("shop.f", serializer=wrong)


def test_prepared_data_have_their_own(conn: redis.Redis) -> None:
    use_settings(Settings.load(allow_pickle=True))
    (job,) = Queue("sms").enqueue_many([Queue.prepare_data("shop.f", (Thing(),), serializer="pickle")])
    assert Job.fetch(job.id).args == (Thing(),)


def test_the_error_of_an_argument_that_is_no_json_advises_what_works(conn: redis.Redis) -> None:
    with pytest.raises(SerializationError, match=r"argument 1 of shop\.f: a .*Thing is not JSON") as caught:
        Queue("sms").enqueue("shop.f", Thing())
    told = str(caught.value)
    assert "FUSION_SERIALIZER=pickle" in told
    assert "Queue(serializer='pickle')" in told
    assert "-S pickle" in told
    # As told, each of the two:
    use_settings(Settings.load(allow_pickle=True))
    assert Queue("sms", serializer="pickle").enqueue("shop.f", Thing()).args == (Thing(),)
    use_settings(Settings.load(allow_pickle=True, serializer="pickle"))
    assert Queue("sms").enqueue("shop.f", Thing()).args == (Thing(),)
