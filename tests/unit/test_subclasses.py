"""Arguments of a class below one that Fusion sends: they arrive as that one, equal to what was sent, or are refused where they are enqueued."""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import uuid
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from fusion.exceptions import DeserializationError, SerializationError
from fusion.execution.perform import Performer
from fusion.kernel.serializers import JSONSerializer, dumps_call, loads_call
from tests.jobs import values

SERIALIZER = JSONSerializer()
BERLIN = ZoneInfo("Europe/Berlin")


class Stamp(dt.datetime):
    """A moment with nanoseconds, as pandas has one: its text has them, and it is equal to none without."""

    nanos = 0

    def isoformat(self, *args: Any) -> str:
        return super().isoformat(*args) + f"{self.nanos:03}"

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other) and self.nanos == getattr(other, "nanos", 0)

    __hash__ = None  # type: ignore[assignment]


class Span(dt.timedelta):
    """A duration with nanoseconds."""

    nanos = 0

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other) and self.nanos == getattr(other, "nanos", 0)

    __hash__ = None  # type: ignore[assignment]


class Nothing(dt.datetime):
    """No moment at all: equal to nothing, itself included."""

    def isoformat(self, *args: Any) -> str:
        return "NaT"

    def __eq__(self, other: object) -> bool:
        return False

    def __ne__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


class Same(dt.datetime):
    """A moment that has nothing more than others."""


class Loud(str):  # noqa: SLOT000
    """A text that is equal to none of another case."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Loud)

    __hash__ = str.__hash__


class Raising(int):
    """A number whose comparison raises."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    __hash__ = int.__hash__


class Last(dict[str, Any]):
    """A dict of lists that answers with the last of each."""

    def __getitem__(self, key: str) -> Any:
        return super().__getitem__(key)[-1]


class Missing(dict[str, Any]):
    """A dict that has an answer for any key."""

    def __missing__(self, key: str) -> int:
        return 0


class Attributes(dict[str, Any]):
    """A dict whose keys are attributes, too."""

    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise AttributeError(name)
        return self[name]


def _with_nanos(made: Any) -> Any:
    made.nanos = 7
    return made


class Zone(dt.tzinfo):
    """A zone of another library: its hours are those of Berlin."""

    def utcoffset(self, moment: dt.datetime | None) -> dt.timedelta | None:
        return None if moment is None else moment.replace(tzinfo=BERLIN).utcoffset()

    def dst(self, moment: dt.datetime | None) -> dt.timedelta | None:
        return None


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (_with_nanos(Stamp(2026, 1, 2)), "a .*Stamp would arrive as a plain datetime that is not equal to it; send its text"),
        (_with_nanos(Span(1)), "would arrive as a plain timedelta that is not equal to it"),
        (Nothing(2026, 1, 2), "not equal to itself, as NaT, can't be sent; send None"),
        (Loud("x"), "would arrive as a plain str that is not equal"),
        (Raising(1), "would arrive as a plain int that is not equal"),
        (Last(a=[1, 2]), r"would arrive as a plain dict, which answers otherwise; send dict\(value\)"),
        (Missing(a=1), "would arrive as a plain dict, which answers otherwise"),
        (type("Mine", (collections.Counter,), {})("ab"), "would arrive as a plain dict, which answers otherwise"),
        (collections.defaultdict(lambda: 1, a=2), r"one of these factories only: list, dict, .*; send dict\(value\)"),
        (type("NaN", (float,), {})("nan"), "NaN and Infinity are not JSON"),
    ],
)
@pytest.mark.parametrize("within", [lambda value: value, lambda value: [{"a": (value,)}]], ids=["bare", "deep"])
def test_one_that_would_be_another_value_is_refused_with_the_fix(value: Any, reason: str, within: Any) -> None:
    with pytest.raises(SerializationError, match=reason):
        SERIALIZER.dumps(within(value))


def test_the_error_names_the_argument() -> None:
    with pytest.raises(SerializationError, match=r"^keyword 'at' of shop\.pay: a .*Stamp would arrive"):
        dumps_call(SERIALIZER, "shop.pay", (1,), {"at": _with_nanos(Stamp(2026, 1, 2))})


@pytest.mark.parametrize(
    ("value", "base"),
    [
        (Stamp(2026, 1, 2, 3), dt.datetime(2026, 1, 2, 3)),  # noqa: DTZ001
        (Span(1, 2), dt.timedelta(1, 2)),
        (Same(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1), dt.datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1)),
        (type("Day", (dt.date,), {})(2026, 1, 2), dt.date(2026, 1, 2)),
        (type("Hour", (dt.time,), {})(3), dt.time(3)),
        (type("Price", (decimal.Decimal,), {"__str__": lambda self: "a price"})("1.50"), decimal.Decimal("1.50")),
        (type("Id", (uuid.UUID,), {"__str__": lambda self: "an id"})(int=5), uuid.UUID(int=5)),
        (type("Raw", (bytes,), {})(b"x"), b"x"),
        (type("Bag", (set,), {})({1}), {1}),
        (type("Rows", (list,), {})([1]), [1]),
        (Attributes(a=1), {"a": 1}),
        (type("Sorted", (collections.OrderedDict,), {})(a=1), {"a": 1}),
        (values.Text("real"), "real"),
    ],
)
def test_others_arrive_as_their_base(value: Any, base: Any) -> None:
    back = SERIALIZER.loads(SERIALIZER.dumps(value))
    assert (back, type(back)) == (base, type(base))


def test_a_moment_in_an_hour_that_its_zone_has_twice_passes() -> None:
    for fold in (0, 1):
        sent = Same(2026, 10, 25, 2, 30, tzinfo=Zone(), fold=fold)
        assert SERIALIZER.loads(SERIALIZER.dumps(sent)).timestamp() == sent.timestamp()


COLOR = b'{"__fusion__":["enum",["tests.jobs.values:Color","%s"]]}'
POINT = b'{"__fusion__":["dataclass",["tests.jobs.values:Point",{"x":1,"z":1}]]}'
GONE = b'{"__fusion__":["enum",["tests.jobs.values:%s","RED"]]}'


@pytest.mark.parametrize(
    ("args", "kwargs", "reason"),
    [
        (
            b"[1,%s]" % (COLOR % b"GREEN"),
            b"{}",
            "argument 2 of f.g: tests.jobs.values:Color has no member 'GREEN' here: was it removed",
        ),
        (
            b"[]",
            b'{"to":[%s]}' % POINT,
            "keyword 'to' of f.g: tests.jobs.values:Point has no field 'z' here: was it removed or renamed",
        ),
        (b"[%s]" % (GONE % b"Size"), b"{}", "argument 1 of f.g: tests.jobs.values:Size is not here: was it removed or renamed"),
    ],
)
def test_what_a_deploy_removed_is_named_with_its_argument_and_class(args: bytes, kwargs: bytes, reason: str) -> None:
    with pytest.raises(DeserializationError) as caught:
        loads_call(SERIALIZER, b'["f.g",null,%s,%s]' % (args, kwargs))
    assert reason in str(caught.value)


def test_tasks_that_fail_before_they_begin_are_groups_of_their_own() -> None:
    frames = {}
    for task in ("basic.echo", "basic.add"):
        data = b'["tests.jobs.%s",null,[%s],{}]' % (task.encode(), COLOR % b"GREEN")
        answer = Performer(("tests.jobs",)).run({b"id": b"j", b"data": data}, lambda frame: None)
        assert answer[b"exc_classes"].startswith(b"fusion.exceptions.DeserializationError")
        frames[task] = answer[b"error_frame"].decode()
    assert [frame.rpartition(":")[0] for frame in frames.values()] == ["tests.jobs.basic:echo", "tests.jobs.basic:add"]
