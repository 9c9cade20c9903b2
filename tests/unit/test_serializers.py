from __future__ import annotations

import datetime as dt
import decimal
import json
import math
import os
import sys
import uuid
from collections import Counter, OrderedDict, defaultdict
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusion.exceptions import DeserializationError, PayloadTooLarge, SerializationError
from fusion.kernel.serializers import JSONSerializer
from tests.jobs import values

SERIALIZER = JSONSerializer()


def roundtrip(value: Any) -> Any:
    return SERIALIZER.loads(SERIALIZER.dumps(value))


def same(a: Any, b: Any) -> bool:
    """Equal, and of the same types all the way down."""
    if type(a) is not type(b):
        return False
    if isinstance(a, defaultdict) and a.default_factory is not b.default_factory:
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(map(same, a, b)) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        -(2**200),
        1.5,
        -0.0,
        "",
        "\u00e9\U0001f600\u2028\x00",
        "\ud800 lone",
        [],
        {},
        [[], {}, [None]],
        {"a": {"b": [1, 2.0, "x"]}},
        (),
        (1, (2, [3, (4,)])),
        {"t": (1,)},
        {1, 2},
        {(1, 2), frozenset({3})},
        frozenset({"a"}),
        b"",
        bytes(range(256)),
        dt.datetime(2026, 1, 2, 3, 4, 5, 6),  # noqa: DTZ001
        dt.datetime(2026, 1, 2, tzinfo=dt.timezone.utc),
        dt.datetime(2026, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=-3, minutes=-30))),
        dt.datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN),
        dt.datetime.min,  # noqa: DTZ901
        dt.datetime.max,  # noqa: DTZ901
        dt.date(1, 1, 1),
        dt.time(1, 2, 3, 4),
        dt.time(1, 2, tzinfo=dt.timezone.utc),
        dt.timedelta(days=-1, seconds=3, microseconds=7),
        decimal.Decimal("1.50"),
        decimal.Decimal("-0"),
        decimal.Decimal("1E+400"),
        uuid.UUID(int=5),
        {1: "a", "1": "b", None: "c", (1, 2): "d", 2.5: "e"},
        {dt.date(2026, 1, 1): [1]},
        {"__fusion__": ["tuple", []]},
        {"__fusion__": 1, "other": {"__fusion__": None}},
        [{"__fusion__": ["os", "system"]}],
        values.Color.RED,
        values.Color.NONE,
        values.Level.LOW,
        values.Word.HELLO,
        {values.Word.HELLO: 1},
        [values.Level.LOW, 1],
        values.Flags.A | values.Flags.B,
        values.Point(1, (2, values.Color.RED)),
        values.Point.Unit.CM,
        values.Frozen("n", ("a", "b")),
        OrderedDict(b=1, a=(2,)),
        Counter("abba"),
        Counter({1: 2}),
        defaultdict(list, a=[1]),
        defaultdict(None, {1: {2}}),
        [OrderedDict(), Counter(), defaultdict(int)],
    ],
    ids=repr,
)
def test_roundtrip(value: Any) -> None:
    assert same(roundtrip(value), value)


def test_zone_and_fold_survive() -> None:
    for fold in (0, 1):
        moment = dt.datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=fold)
        back = roundtrip(moment)
        assert back.tzinfo is BERLIN
        assert back.fold == fold
        assert back.timestamp() == moment.timestamp()
    assert roundtrip(dt.datetime(2026, 1, 1, fold=1)).fold == 1  # noqa: DTZ001
    assert roundtrip(dt.time(1, fold=1)).fold == 1


def test_negative_zero() -> None:
    assert math.copysign(1, roundtrip(-0.0)) == -1


def test_decimal_nan() -> None:
    assert roundtrip(decimal.Decimal("NaN")).is_nan()


def test_dataclass_comes_back_as_it_was() -> None:
    sent = values.Counted(4)
    sent.total = 99
    back = roundtrip(sent)
    assert (back.start, back.total, back.runs) == (4, 99, 1), "__post_init__ did not change what was sent"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text() | st.just("__fusion__"), inner, max_size=4)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.integers() | st.text(), inner, max_size=3)
        | st.binary(max_size=20).map(lambda raw: [raw])
        | st.decimals(allow_nan=False)
        | st.datetimes(timezones=st.none() | st.just(dt.timezone.utc))
        | st.uuids()
    ),
    max_leaves=20,
)


@given(JSON)
def test_any_value_roundtrips(value: Any) -> None:
    assert same(roundtrip(value), value)


def test_plain_values_are_plain_json() -> None:
    value = {"to": "+49", "list": [1, 2.5, None, True], "nested": {"\u00e9": "\u20ac"}}
    assert SERIALIZER.dumps(value) == json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    assert SERIALIZER.dumps((1, [2])) == b'{"__fusion__":["tuple",[1,[2]]]}'


@pytest.mark.parametrize(
    ("value", "base"),
    [
        (values.Text("real"), "real"),
        ([values.Text("real")], ["real"]),
        ({values.Text("key"): 1}, {"key": 1}),
        (type("Int", (int,), {})(7), 7),
        (type("Float", (float,), {})(7.5), 7.5),
    ],
)
def test_subclasses_arrive_as_their_base(value: Any, base: Any) -> None:
    assert same(roundtrip(value), base)


def loop() -> list[Any]:
    made: list[Any] = [1]
    made.append({"again": made})
    return made


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (float("nan"), "NaN and Infinity are not JSON"),
        ([float("inf")], "NaN and Infinity are not JSON"),
        ({"a": (float("-inf"),)}, "NaN and Infinity are not JSON"),
        pytest.param(10**5000, "4300", id="long"),
        (object(), "a object is not JSON"),
        (lambda: None, "a function is not JSON"),
        (values.Plain(), "a tests.jobs.values.Plain is not JSON.*FUSION_ALLOW_PICKLE=1"),
        (values.Plain, "a type is not JSON"),
        (values.Pair(1, 2), "would arrive as a bare tuple"),
        (1j, "a complex is not JSON"),
        (bytearray(b"x"), "a bytearray is not JSON"),
        ({"deep": [{"er": {1, object}}]}, "a type is not JSON"),
        (os.stat("."), "would arrive as a bare tuple"),
        (dt.time(1, tzinfo=BERLIN), "send a datetime"),
    ],
)
def test_what_is_refused(value: Any, reason: str) -> None:
    with pytest.raises(SerializationError, match=reason):
        SERIALIZER.dumps(value)


def test_local_enum_and_dataclass_are_refused() -> None:
    import dataclasses
    import enum

    local = dataclasses.make_dataclass("Local", [("x", int)])
    for value in (local(1), enum.Enum("LocalEnum", "A").A):  # type: ignore[attr-defined]
        with pytest.raises(SerializationError, match="can't be imported by a worker; define it at the top of a module"):
            SERIALIZER.dumps(value)


def nested(depth: int, kind: str) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"list": [value], "dict": {"k": value}, "tuple": (value,), "pairs": {1: value}, "data": values.Point(value)}[kind]
    return value


@pytest.mark.parametrize("kind", ["list", "dict", "tuple", "pairs", "data"])
def test_depth(kind: str) -> None:
    assert same(roundtrip(nested(64, kind)), nested(64, kind))
    with pytest.raises(PayloadTooLarge, match=r"nested too deeply, .*the limit is 64 levels"):
        SERIALIZER.dumps(nested(65, kind))


def test_cycles() -> None:
    with pytest.raises(PayloadTooLarge, match="contains itself"):
        SERIALIZER.dumps(loop())


def test_width_is_no_depth() -> None:
    value = [[[number]] for number in range(1000)]
    assert roundtrip(value) == value


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"nope",
        b"[1",
        b"[1] 2",
        b"NaN",
        b"1e400",
        b"-1e400",
        b'{"a":[1e400]}',
        b"1" * 400 + b".0",
        b"[Infinity]",
        b'{"a": -Infinity}',
        b'{"a":1,"a":2}',
        b'[{"x":{"b":1,"c":2,"b":3}}]',
        b"\xff",
        b"\xef\xbb\xbf1",
        b"1" * 5000,
        b"[" * 100_000 + b"]" * 100_000,
        b"[" * 65 + b"]" * 65,
        b'{"a":' * 65 + b"1" + b"}" * 65,
        b'{"__fusion__":["tuple",' * 300 + b"[]" + b"]}" * 300,
        b'{"__fusion__":1}',
        b'{"__fusion__":["tuple"]}',
        b'{"__fusion__":["tuple",[1]],"more":1}',
        b'{"__fusion__":["tuple",7]}',
        b'{"__fusion__":["exec","1"]}',
        b'{"__fusion__":[["tuple"],[]]}',
        b'{"__fusion__":["datetime",["yesterday",null,0]]}',
        b'{"__fusion__":["datetime",["2026-01-01","../../etc/passwd",0]]}',
        b'{"__fusion__":["datetime",7]}',
        b'{"__fusion__":["decimal","x"]}',
        b'{"__fusion__":["bytes",5]}',
        b'{"__fusion__":["set",[[1]]]}',
        b'{"__fusion__":["dict",[[[1],2]]]}',
        b'{"__fusion__":["dict",[1]]}',
        b'{"__fusion__":["enum",["os:system","x"]]}',
        b'{"__fusion__":["enum",["tests.jobs.values:Color","GREEN"]]}',
        b'{"__fusion__":["enum",["tests.jobs.values:Point","x"]]}',
        b'{"__fusion__":["enum",["tests.jobs.values:Color.__class__","x"]]}',
        b'{"__fusion__":["flag",["tests.jobs.values:Flags",64]]}',
        b'{"__fusion__":["dataclass",["tests.jobs.values:Color",{}]]}',
        b'{"__fusion__":["dataclass",["subprocess:Popen",{"args":"true"}]]}',
        b'{"__fusion__":["dataclass",["tests.jobs.values:Point",{}]]}',
        b'{"__fusion__":["dataclass",["tests.jobs.values:Point",{"x":1,"z":1}]]}',
        b'{"__fusion__":["dataclass",["tests.jobs.values:NeedsMore",{"x":1}]]}',
        b'{"__fusion__":["dataclass",["no_such_module_here:X",{}]]}',
        b'{"__fusion__":["model",["app.model",1,null]]}',
        b'{"__fusion__":["counter",[[[1],2]]]}',
        b'{"__fusion__":["ordered",7]}',
        b'{"__fusion__":["defaultdict",["eval",[]]]}',
        b'{"__fusion__":["defaultdict",[["list"],[]]]}',
        b'{"__fusion__":["defaultdict",[]]}',
    ],
    ids=lambda raw: raw[:70].decode("latin-1"),
)
def test_what_can_not_be_loaded(raw: bytes) -> None:
    with pytest.raises(DeserializationError):
        SERIALIZER.loads(raw)


@given(st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode("utf-8", "replace")))
def test_any_bytes_load_or_are_refused(raw: bytes) -> None:
    try:
        SERIALIZER.loads(raw)
    except DeserializationError:
        pass


def test_white_space_of_other_producers() -> None:
    assert SERIALIZER.loads(b' \n{"a": [1, 2]}\r\n') == {"a": [1, 2]}


def test_an_escaped_tag_is_no_tag() -> None:
    assert SERIALIZER.loads(rb'{"\u005f_fusion__":["tuple",[]]}') == {"__fusion__": ["tuple", []]}


def test_classes_only_from_permitted_modules() -> None:
    raw = SERIALIZER.dumps([values.Color.RED, values.Point(1)])
    assert JSONSerializer(may_import=lambda module: module == "tests.jobs.values").loads(raw)
    with pytest.raises(DeserializationError, match=r"--tasks tests\.jobs\.values \[FUS-124\]$"):
        JSONSerializer(may_import=lambda module: module == "tests.jobs").loads(raw)
    with pytest.raises(DeserializationError):
        JSONSerializer(may_import=lambda module: False).loads(b'{"__fusion__":["enum",["antigravity:x","y"]]}')
    assert "antigravity" not in sys.modules


def test_plain_values_import_nothing_more() -> None:
    import subprocess

    script = "import sys; from fusion.kernel.serializers import JSONSerializer as S; S().loads(S().dumps([1,{'a':2}])); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=30)
    assert not set(done.stdout.split()) & {
        "datetime",
        "decimal",
        "uuid",
        "dataclasses",
        "pickle",
        "zlib",
        "fusion.kernel.json_types",
    }
