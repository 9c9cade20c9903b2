"""Stored calls: function name and arguments, as JSON and as pickle."""

from __future__ import annotations

import pickle
import zlib
from typing import Any

import pytest

from fusion.exceptions import ConfigurationError, DeserializationError, PayloadTooLarge, SerializationError
from fusion.kernel.serializers import JSONSerializer, PickleSerializer, dumps_call, get_serializer, loads_call
from tests.jobs import values

SERIALIZER = JSONSerializer()


# -- calls


def test_call() -> None:
    raw = dumps_call(SERIALIZER, "tasks.sms.sendSMS", ({"to": "+49"}, (1, 2)), {"k": {1}})
    assert raw.startswith(b'["tasks.sms.sendSMS",null,[{"to":"+49"},')
    assert loads_call(SERIALIZER, raw) == ("tasks.sms.sendSMS", ({"to": "+49"}, (1, 2)), {"k": {1}})


@pytest.mark.parametrize(
    ("args", "kwargs", "reason"),
    [
        ((1, object()), {}, "argument 2 of tasks.sms.sendSMS: a object is not JSON.*FUSION_ALLOW_PICKLE=1"),
        ((), {"a": 1, "user": object()}, "keyword 'user' of tasks.sms.sendSMS: a object is not JSON"),
        (([{"x": (float("nan"),)}],), {}, "argument 1 of tasks.sms.sendSMS: NaN"),
    ],
)
def test_the_argument_is_named(args: tuple[Any, ...], kwargs: dict[str, Any], reason: str) -> None:
    with pytest.raises(SerializationError, match=reason):
        dumps_call(SERIALIZER, "tasks.sms.sendSMS", args, kwargs)


def test_a_cyclic_argument_is_named() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    with pytest.raises(PayloadTooLarge, match=r"argument 1 of f\.g: nested too deeply"):
        dumps_call(SERIALIZER, "f.g", (cycle,), {})


@pytest.mark.parametrize("serializer", [SERIALIZER, PickleSerializer()], ids=["json", "pickle"])
def test_payload_limit(serializer: Any) -> None:
    size = len(
        serializer.dumps(("f.g", None, ("x" * 100,), {}) if serializer.name == "pickle" else ["f.g", None, ["x" * 100], {}])
    )
    dumps_call(serializer, "f.g", ("x" * 100,), {}, max_payload=size)
    with pytest.raises(
        PayloadTooLarge, match=rf"the arguments of f.g take {size + 1} bytes; the limit is {size} .*FUSION_MAX_PAYLOAD"
    ):
        dumps_call(serializer, "f.g", ("x" * 101,), {}, max_payload=size)


@pytest.mark.parametrize(
    "raw",
    [
        b"{}",
        b"[1,2,3]",
        b'["f",null,[],{},1]',
        b'["f",{"an":"object"},[],{}]',
        b"[7,null,[],{}]",
        b'["f",null,7,{}]',
        b'["f",null,[],[]]',
        b'["f",null,[],{"__fusion__":["tuple",[]]}]',
        b'["f",null,[],{"__fusion__":["dict",[[1,2]]]}]',
    ],
)
def test_data_that_is_no_call(raw: bytes) -> None:
    with pytest.raises(DeserializationError):
        loads_call(SERIALIZER, raw)


# -- pickle


def test_pickle_must_be_allowed() -> None:
    with pytest.raises(ConfigurationError, match="FUSION_ALLOW_PICKLE=1"):
        get_serializer("pickle", allow_pickle=False)
    assert get_serializer("pickle", allow_pickle=True).name == "pickle"
    assert get_serializer("json", allow_pickle=False).name == "json"
    with pytest.raises(ConfigurationError, match="'json' or 'pickle'"):
        get_serializer("yaml", allow_pickle=True)


def test_pickled_calls_are_rqs() -> None:
    serializer = PickleSerializer()
    raw = dumps_call(serializer, "tasks.f", (1, values.Plain), {"a": 1j})
    assert pickle.loads(zlib.decompress(raw)) == ("tasks.f", None, (1, values.Plain), {"a": 1j})
    assert loads_call(serializer, raw) == ("tasks.f", (1, values.Plain), {"a": 1j})
    assert loads_call(serializer, zlib.decompress(raw)) == ("tasks.f", (1, values.Plain), {"a": 1j})


def test_rq_reads_our_data() -> None:
    rq_job = pytest.importorskip("rq.job")
    job = rq_job.Job.__new__(rq_job.Job)
    from rq.serializers import DefaultSerializer

    raw = dumps_call(PickleSerializer(), "tasks.f", (1,), {"b": 2})
    job.serializer = DefaultSerializer
    job.data = zlib.decompress(raw)
    job._deserialize_data()
    assert (job._func_name, job._instance, job._args, job._kwargs) == ("tasks.f", None, (1,), {"b": 2})


def test_a_decompression_bomb_is_refused() -> None:
    bomb = zlib.compress(b"\0" * (PickleSerializer.max_size + 1))
    assert len(bomb) < 20_000
    with pytest.raises(DeserializationError, match="larger than"):
        PickleSerializer().loads(bomb)


@pytest.mark.parametrize(
    "raw", [b"", b"\x80\x04garbage", zlib.compress(b"nope"), pickle.dumps(values.Plain).replace(b"Plain", b"Gone!")]
)
def test_pickles_that_do_not_load(raw: bytes) -> None:
    with pytest.raises(DeserializationError):
        PickleSerializer().loads(raw)


def test_the_argument_that_does_not_pickle_is_named() -> None:
    with pytest.raises(SerializationError, match=r"argument 1 of f\.g: function can't be pickled"):
        dumps_call(PickleSerializer(), "f.g", (lambda: None,), {})
