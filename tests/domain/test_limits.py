"""Size, depth and what JSON can't say: the same limits on every road by which data comes in, and on what tasks give back."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import redis
from click.testing import CliRunner

from fusion import Job, Queue
from fusion.cli.main import cli
from fusion.cron.entry import Entry
from fusion.cron.plan import Plan
from fusion.cron.scheduler import Scheduler
from fusion.exceptions import DeserializationError, PayloadTooLarge, SerializationError
from fusion.execution.perform import Performer
from fusion.kernel.serializers import JSONSerializer, PickleSerializer
from fusion.settings import Settings, use_settings
from fusion.web.api import Api
from fusion.web.app import App
from fusion.web.auth import ANONYMOUS
from fusion.web.exchange import Request

TASK = "tasks.sms.sendSMS"
LIMIT = 1000
#: Levels that an argument may have: `max_depth` is 64, and the call around it has two.
DEPTH = 62


@pytest.fixture(autouse=True)
def limits(monkeypatch: pytest.MonkeyPatch, redis_url: str) -> Iterator[None]:
    monkeypatch.setenv("FUSION_MAX_PAYLOAD", str(LIMIT))
    monkeypatch.setenv("FUSION_MAX_RESULT", str(LIMIT))
    use_settings(None)
    yield
    use_settings(None)


def post(conn: redis.Redis, raw: bytes) -> int:
    app = App(Api(conn, ("tasks",)).routes(), lambda request: ANONYMOUS)
    headers = {"content-type": "application/json", "host": "127.0.0.1"}
    return app.handle(Request("POST", "/api/v1/jobs", headers, length=len(raw), read=io.BytesIO(raw).read)).status


def by_http(conn: redis.Redis, value: Any) -> None:
    status = post(conn, json.dumps({"func": TASK, "args": [value]}).encode())
    if status == 413:
        raise PayloadTooLarge("413")
    if status in (400, 422):
        raise SerializationError(str(status))
    assert status == 201


def by_hand(conn: redis.Redis, value: Any) -> None:
    result = CliRunner().invoke(cli, ["enqueue", TASK, ":" + json.dumps(value)])
    if result.exit_code:
        raise PayloadTooLarge(result.output)


Road = Callable[[redis.Redis, Any], object]
ROADS: dict[str, Road] = {
    "enqueue": lambda conn, value: Queue(connection=conn).enqueue(TASK, value),
    "enqueue_call": lambda conn, value: Queue(connection=conn).enqueue_call(TASK, (value,)),
    "enqueue_in": lambda conn, value: Queue(connection=conn).enqueue_in(60, TASK, value),
    "prepare_data": lambda conn, value: Queue.prepare_data(TASK, (value,)),
    "cron": lambda conn, value: Scheduler(conn).every(timedelta(hours=1), TASK, id="e", args=(value,)),
    "HTTP": by_http,
    "command line": by_hand,
}


def text(over: int) -> str:
    """An argument that makes the call of TASK this many bytes larger than the limit."""
    return "x" * (LIMIT + over - len(JSONSerializer().dumps([TASK, None, [""], {}])))


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("over", [-1, 0, 1])
def test_max_payload(conn: redis.Redis, road: str, over: int) -> None:
    if over <= 0:
        ROADS[road](conn, text(over))
    else:
        with pytest.raises(PayloadTooLarge):
            ROADS[road](conn, text(over))
        assert conn.dbsize() == 0


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("over", [-1, 0, 1])
def test_max_depth(conn: redis.Redis, road: str, over: int) -> None:
    value = nested(DEPTH + over)
    if over <= 0:
        ROADS[road](conn, value)
    else:
        with pytest.raises((PayloadTooLarge, SerializationError)):
            ROADS[road](conn, value)
        assert conn.dbsize() == 0


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), -float("inf"), {"a": [float("nan")]}, 10**5000], ids=lambda v: str(type(v))
)
@pytest.mark.parametrize("road", [road for road in ROADS if road not in ("HTTP", "command line")])
def test_values_without_a_json_form_are_refused(conn: redis.Redis, road: str, value: Any) -> None:
    with pytest.raises(SerializationError):
        ROADS[road](conn, value)
    with pytest.raises(SerializationError, match="meta"):
        Queue(connection=conn).enqueue(TASK, meta={"a": value})
    assert conn.dbsize() == 0


TRAPS = {
    "NaN": b"NaN",
    "Infinity": b"[-Infinity]",
    "key twice": b'{"a": 1, "a": 2}',
    "4301 digits": b"9" * 4301,
    "too deep": b"[" * 65 + b"]" * 65,
    "far too deep": b"[" * 500_000,
    "not closed": b'{"a": [',
    "not UTF-8": b'"\xff"',
}


@pytest.mark.parametrize("trap", TRAPS)
def test_json_traps_on_reading(conn: redis.Redis, trap: str) -> None:
    raw = TRAPS[trap]
    with pytest.raises(DeserializationError):
        JSONSerializer().loads(raw)
    assert post(conn, b'{"func": "tasks.sms.sendSMS", "args": [' + raw + b"]}") == 400
    assert conn.dbsize() == 0
    job = Job("j", {"data": b'["a.b",null,[' + raw + b"],{}]", "meta": raw, "result": raw, "status": "finished"}, conn)
    for look in ("args", "meta", "result"):
        with pytest.raises(DeserializationError):
            getattr(job, look)
    outcome = Performer(("tasks",)).run({b"data": b'["tasks.sms.sendSMS",null,[' + raw + b"],{}]"}, lambda frame: None)
    assert outcome[b"kind"] == b"failed"
    assert b"DeserializationError" in outcome[b"exc_line"]


@pytest.mark.parametrize("digits", [4299, 4300])
def test_an_integer_as_long_as_may_be(conn: redis.Redis, digits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSION_MAX_PAYLOAD", "10k")
    use_settings(None)
    assert Queue(connection=conn).enqueue(TASK, 10 ** (digits - 1)).args == (10 ** (digits - 1),)


@pytest.mark.parametrize(
    "trap",
    [
        {"ttl": "NaN"},
        {"ttl": "1e999"},
        {"ttl": "-5"},
        {"ttl": "9" * 5000},
        {"jitter": "NaN"},
        {"jitter": "-Infinity"},
        {"misfire_grace": "NaN"},
        {"priority": "NaN"},
        {"fields": '{"data": true}'},
        {"fields": '{"data": "\\ud800"}'},
        {"fields": "[" * 200_000},
    ],
    ids=lambda trap: " ".join(f"{name} {value[:20]}" for name, value in trap.items()),
)
def test_json_traps_in_a_stored_cron_entry_are_reported_before_a_tick(trap: dict[str, str]) -> None:
    entry = Entry.make(TASK, Plan.interval(3600), Settings(), id="e", misfire_grace=5)
    plan, spec = entry.plan.to_json(), json.loads(entry.spec())
    assert Entry.of("e", plan, json.dumps(spec)).spec() == entry.spec()
    ((name, value),) = trap.items()
    with pytest.raises(ValueError, match=r"declare it again|or a whole number|digits"):
        Entry.of("e", plan, json.dumps({**spec, name: "@"}).replace('"@"', value))


# -- what is stored besides the arguments


def options_of(over: int) -> dict[str, Any]:
    """Options that take this many bytes more than the limit, by a text of two bytes a character."""
    name = "description"
    rest = len('{"a":""}')
    many = (LIMIT + over - rest) // 2
    return {name: "ä" * many, "meta": {"a": "x" * ((LIMIT + over - rest) % 2)}}


@pytest.mark.parametrize("over", [-1, 0, 1])
def test_options_count_by_themselves(conn: redis.Redis, over: int) -> None:
    calls: list[Callable[[], object]] = [
        lambda: Queue(connection=conn).enqueue(TASK, text(0), **options_of(over)),
        lambda: Scheduler(conn).every(3600, TASK, id="e", args=(text(0),), **options_of(over)),
    ]
    for call in calls:
        if over <= 0:
            call()
        else:
            with pytest.raises(PayloadTooLarge, match=f"take {LIMIT + over} bytes; the limit is {LIMIT}"):
                call()
            assert conn.dbsize() == 0


@pytest.mark.parametrize("over", [-1, 0, 1])
def test_meta_stored_from_outside_has_the_limit_that_tasks_have(conn: redis.Redis, over: int) -> None:
    job = Queue(connection=conn).enqueue(TASK)
    job.meta = {"a": "x" * (LIMIT + over - len('{"a":""}'))}
    if over <= 0:
        job.save_meta()
        assert len(conn.hget(f"rq:job:{job.id}", "meta")) == LIMIT + over
    else:
        with pytest.raises(PayloadTooLarge, match=f"meta takes {LIMIT + over} bytes; the limit is {LIMIT}"):
            job.save_meta()
        assert conn.hget(f"rq:job:{job.id}", "meta") is None


def test_meta_that_is_nested_too_deeply_is_named(conn: redis.Redis) -> None:
    Queue(connection=conn).enqueue(TASK, meta={"a": nested(63)})
    with pytest.raises(PayloadTooLarge, match="meta: nested"):
        Queue(connection=conn).enqueue(TASK, meta={"a": nested(64)})


# -- what tasks give back


def outcome_of(*args: Any) -> dict[bytes, bytes]:
    data = JSONSerializer().dumps(["tests.jobs.basic.echo", None, list(args), {}])
    return Performer(("tests.jobs.basic",), max_result=LIMIT).run({b"data": data}, lambda frame: None)


@pytest.mark.parametrize("over", [-1, 0, 1])
def test_max_result(over: int) -> None:
    found = outcome_of("x" * (LIMIT + over - 2))
    assert found[b"kind"] == b"finished", "the task is done, whatever happens to its result"
    if over <= 0:
        assert len(found[b"result"]) == LIMIT + over
    else:
        assert b"result" not in found
        assert b"PayloadTooLarge" in found[b"result_error"]


# -- pickles


@pytest.mark.parametrize("over", [-1, 0, 1])
def test_the_size_of_a_pickle_counts_before_it_is_compressed(
    conn: redis.Redis, monkeypatch: pytest.MonkeyPatch, over: int
) -> None:
    monkeypatch.setenv("FUSION_SERIALIZER", "pickle")
    use_settings(None)
    # over 255 characters a text has a longer header
    base = len(PickleSerializer().dumps((TASK, None, ("x" * 300,), {}))) - 300
    value = "x" * (LIMIT + over - base)
    if over <= 0:
        Queue(connection=conn).enqueue(TASK, value)
    else:
        with pytest.raises(PayloadTooLarge, match=f"take {LIMIT + over} bytes"):
            Queue(connection=conn).enqueue(TASK, value)


@pytest.mark.parametrize("over", [-1, 0, 1])
def test_the_largest_compressed_pickle_that_is_loaded(monkeypatch: pytest.MonkeyPatch, over: int) -> None:
    import zlib

    monkeypatch.setattr(PickleSerializer, "max_size", 300_000)
    empty = len(PickleSerializer().dumps(b"x" * 290_000)) - 290_000
    raw = zlib.compress(PickleSerializer().dumps(b"x" * (300_000 + over - empty)))
    if over <= 0:
        assert len(PickleSerializer().loads(raw)) == 300_000 + over - empty
    else:
        with pytest.raises(DeserializationError, match="larger than 300000 bytes"):
            PickleSerializer().loads(raw)
