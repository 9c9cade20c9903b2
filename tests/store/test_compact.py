"""Compact records: a job holds nothing that equals its default or another field, and everybody reads what it means all the same."""

from __future__ import annotations

import json
import secrets
import zlib
from typing import Any

import pytest
import redis
import redis.asyncio
from hypothesis import given
from hypothesis import strategies as st

from fusion import Job, Queue
from fusion.enqueue.build import build
from fusion.enqueue.options import EnqueueOptions
from fusion.exceptions import DataTooOld, DeserializationError, DuplicateJob, PayloadTooLarge
from fusion.jobs.failures import FailedFilter, scan
from fusion.kernel import compression
from fusion.kernel.serializers import PickleSerializer
from fusion.kernel.signing import Keyring, as_claimed
from fusion.settings import Settings, use_settings
from fusion.store.layout import schema
from fusion.store.layout.compact import compact, expand, expand_claimed
from fusion.store.read.inspector import Inspector
from fusion.store.scripting.constants import FleetConstants
from fusion.store.write.broker import Broker
from tests.jobs import basic
from tests.kit.hands import TASK, Hand, fields_of, full_of, put

LONG = "a text that repeats itself, " * 40
LEAST = {"status", "origin", "created_at", "seq", "func", "data"}

# -- forms


def _texts(fields: dict[str, Any]) -> dict[str, bytes]:
    return {n: v if isinstance(v, bytes) else str(v).encode() for n, v in fields.items() if v is not None}


@given(
    args=st.lists(st.text(max_size=8) | st.integers(), max_size=3),
    kwargs=st.dictionaries(st.sampled_from("ab"), st.none() | st.text(max_size=700), max_size=2),
    name=st.sampled_from(["m.f", "tasks.sms.größe", 'odd "name"', "back\\slash", "]", "a,null,b"]),
    options=st.fixed_dictionaries(
        {},
        optional={
            "job_timeout": st.sampled_from([180, "3m", 180.0, 7, -1, 0.5]),
            "result_ttl": st.sampled_from([500, 0, -1]),
            "meta": st.sampled_from([{}, {"k": LONG}]),
            "description": st.sampled_from(["m.f", "other"]),
            "log_tag": st.just("SMS_OTP"),
        },
    ),
)
def test_what_is_stored_means_what_was_sent(args: list[Any], kwargs: dict[str, Any], name: str, options: dict[str, Any]) -> None:
    sent = build(name, tuple(args), kwargs, EnqueueOptions(**options), Settings()).new.fields
    stored = compact(sent)
    if stored is None:
        assert '"' in name or "\\" in name
        return
    assert sum(map(len, map(str, stored.values()))) <= sum(map(len, map(str, sent.values())))
    meant = expand(_texts(stored))
    for field, value in _texts(sent).items():
        assert compression.plain(meant[field]) == value if field in ("data", "meta") else meant[field] == value
    claimed = expand_claimed({n.encode(): v for n, v in _texts(stored).items()})
    assert {n: claimed[n.encode()] for n in ("data", "timeout", "description", "retryCount")} == {
        n: meant[n] for n in ("data", "timeout", "description", "retryCount")
    }


def test_nobody_passes_one_call_off_as_another() -> None:
    """Whoever may write to Redis could divide a signed call at another place."""
    for func in (b'm.f",null,[[],{}],"x', b"m\\u002ef"):
        data = b"[[],{}]"
        assert expand({"func": func, "data": data})["data"] == data, "no call, so it fails"


@pytest.mark.parametrize("size", [0, compression.THRESHOLD - 1, compression.THRESHOLD, 100_000])
def test_what_is_long_is_compressed_if_that_is_shorter(size: int) -> None:
    text = json.dumps("x" * max(0, size - 2)).encode()[:size]
    stored = compression.compressed(text)
    assert (stored[:1] == b"x") is (size >= compression.THRESHOLD)
    assert compression.plain(stored) == text
    noise = json.dumps(secrets.token_bytes(size).decode("latin-1"), ensure_ascii=False).encode()
    assert len(compression.compressed(noise)) <= len(noise)


def test_a_bomb_is_not_unpacked() -> None:
    bomb = zlib.compress(b'"' + b"a" * compression.LARGEST + b'"')
    with pytest.raises(DeserializationError, match="larger than"):
        compression.plain(bomb)
    with pytest.raises(DeserializationError):
        compression.plain(b"x is no zlib stream")


# -- writers


def test_only_what_must_be(conn: redis.Redis) -> None:
    job = Queue("q", conn).enqueue(basic.add, 1, 2)
    stored = fields_of(conn, job.id)
    assert set(stored) == LEAST
    assert (stored["func"], stored["data"]) == ("tests.jobs.basic.add", "[[1,2],{}]")
    found = Job.fetch(job.id, conn)
    assert (found.func_name, found.args, found.description) == ("tests.jobs.basic.add", (1, 2), "tests.jobs.basic.add")
    assert (found.timeout, found.result_ttl, found.priority, found.retry_count) == (180, 500, 1, 7)
    assert (found.original_queue, found.enqueued_at) == ("q", found.created_at)
    for name in ("timeout", "priority", "created_at", "enqueued_at", "args", "origin", "result_ttl"):
        assert getattr(job, name) == getattr(found, name), "the same to who enqueued it"


def test_what_differs_is_stored_and_comes_back(conn: redis.Redis) -> None:
    use_settings(Settings(job_timeout=60, result_ttl=9))
    queue = Queue("q", conn)
    one = queue.enqueue(basic.noop, priority="high", description="other", job_id="named")
    assert {n: fields_of(conn, "named")[n] for n in ("timeout", "result_ttl", "priority", "description")} == {
        "timeout": "60", "result_ttl": "9", "priority": "2", "description": "other",
    }  # fmt: skip
    assert len(fields_of(conn, "named")["nonce"]) > 10
    assert Job.fetch(one.id, conn).timeout == 60


def test_other_settings_change_nothing_that_was_accepted(conn: redis.Redis) -> None:
    job = Queue("q", conn).enqueue(basic.noop)
    use_settings(Settings(job_timeout=60, result_ttl=9))
    broker = Broker(conn, FleetConstants(result_ttl=9))
    assert (Job.fetch(job.id, conn).timeout, Job.fetch(job.id, conn).result_ttl) == (180, 500)
    hand = Hand(broker, "q")
    claimed = hand.take()
    assert claimed.fields[b"timeout"] == b"180"
    assert hand.tell(claimed) == "ok"
    assert 490 < conn.zscore("rq:finished:q", job.id) - conn.time()[0] <= 501


def test_a_job_of_another_writer_has_the_workers_settings(conn: redis.Redis) -> None:
    broker = Broker(conn, FleetConstants(result_ttl=9000))
    put(broker, "q", "a", result_ttl=None, timeout=None)
    hand = Hand(broker, "q")
    claimed = hand.take()
    assert b"timeout" not in claimed.fields
    hand.tell(claimed)
    assert conn.zscore("rq:finished:q", "a") - conn.time()[0] > 8000


def test_a_resend_is_distinguished_from_another_call(conn: redis.Redis) -> None:
    queue = Queue("q", conn)
    data = Queue.prepare_data(basic.noop)
    assert [job.id for _ in range(3) for job in queue.enqueue_many([data])] == [data.new.id] * 3
    assert queue.count == 1
    assert "nonce" not in fields_of(conn, data.new.id)
    with pytest.raises(DuplicateJob):
        queue.enqueue(basic.noop, job_id=data.new.id)
    hand = Hand(Broker(conn), "q")
    hand.tell(hand.take())
    queue.enqueue_many([data])
    assert full_of(conn, data.new.id)["status"] == "finished", "a resend, however late"
    queue.enqueue(basic.noop, job_id=data.new.id)
    assert full_of(conn, data.new.id)["status"] == "queued", "a new life"
    with pytest.raises(DuplicateJob):
        queue.enqueue_many([data])


def test_one_whose_record_was_lost_is_accepted_anew(conn: redis.Redis, broker: Broker) -> None:
    """What stands in its place has no nonce, and is no job that was enqueued."""
    queue, data = Queue("q", conn), Queue.prepare_data(basic.noop)
    (job,) = queue.enqueue_many([data])
    conn.delete(f"rq:job:{job.id}")
    hand = Hand(broker, "q")
    assert not hand.claim()
    assert fields_of(conn, job.id)["status"] == "failed"
    queue.enqueue_many([data])
    assert hand.take().id == job.id


def test_moved_by_hand_it_is_requeued_to_where_it_came_from(conn: redis.Redis, broker: Broker) -> None:
    put(broker, "q", "a")
    conn.zadd("rq:queue:r", {"a": conn.zscore("rq:queue:q", "a")})
    conn.zrem("rq:queue:q", "a")
    hand = Hand(broker, "r")
    claimed = hand.take()
    assert (full_of(conn, "a")["origin"], full_of(conn, "a")["original_queue"]) == ("r", "q")
    hand.tell(claimed, "failed", fields={"exc_info": "x"})
    assert broker.requeue(["a"], "n") == ["ok"]
    assert full_of(conn, "a")["origin"] == "q"


def test_retried_and_requeued_it_holds_what_differs(conn: redis.Redis) -> None:
    job = Queue("q", conn).enqueue(basic.boom)
    hand = Hand(Broker(conn), "q")
    hand.tell(hand.take(), "retry", fields={"retryCount": 8, "exc_info": "x"})
    assert Job.fetch(job.id, conn).retry_count == 8
    hand.tell(hand.take(), "failed", fields={"retryCount": 8, "exc_info": "x"})
    (failure,) = (one for _, part in scan(Inspector(conn), FailedFilter(function="tests.jobs.basic.b*")) for one in part)
    assert failure.function == "tests.jobs.basic.boom"
    job.requeue()
    found = Job.fetch(job.id, conn)
    assert found.retry_count == 7
    assert found.enqueued_at is not None
    assert found.created_at is not None
    assert found.enqueued_at > found.created_at


# -- compressed


def test_long_arguments_and_meta(conn: redis.Redis) -> None:
    job = Queue("q", conn).enqueue(basic.echo, LONG, meta={"note": LONG})
    raw = conn.hmget(f"rq:job:{job.id}", "data", "meta")
    assert [value[:1] for value in raw] == [b"x", b"x"]
    assert conn.hget(f"rq:job:{job.id}", "func") == b"tests.jobs.basic.echo"
    found = Job.fetch(job.id, conn)
    assert (found.func_name, found.args, found.meta) == ("tests.jobs.basic.echo", (LONG,), {"note": LONG})
    found.meta["more"] = 1
    found.save_meta()
    assert conn.hget(f"rq:job:{job.id}", "meta")[:1] == b"x"
    assert Job.fetch(job.id, conn).meta == {"note": LONG, "more": 1}


def test_limits_count_what_was_compressed(conn: redis.Redis) -> None:
    use_settings(Settings(max_payload=1000))
    with pytest.raises(PayloadTooLarge):
        Queue("q", conn).enqueue(basic.echo, LONG)


def test_a_signature_covers_the_call_whatever_is_stored(conn: redis.Redis) -> None:
    ring = Keyring(["k:" + "s" * 32])
    for argument in ("short", LONG):
        fields = build("m.f", (argument,), {}, EnqueueOptions(), Settings()).new.fields
        signed = {**fields, "signature": ring.sign("a", "q", 1, fields)}
        full = {**as_claimed({**signed, "priority": 1})}
        stored = compact(signed)
        assert stored is not None
        claimed = expand_claimed({n.encode(): v for n, v in _texts(stored).items()})
        assert (ring.flaw("a", "q", full), ring.flaw("a", "q", claimed)) == ("", "")
        assert ring.flaw("a", "q", {**claimed, b"timeout": b"181"}) != ""
        other = compact({**signed, "data": signed["data"].replace(b"m.f", b"m.g")})
        assert other is not None
        assert ring.flaw("a", "q", expand_claimed({n.encode(): v for n, v in _texts(other).items()})) != ""
        assert ring.flaw("a", "q", {**claimed, b"data": b"x is no zlib stream"}) != ""


# -- stock RQ


def test_rq_reads_a_pickled_job(conn: redis.Redis) -> None:
    rq_job = pytest.importorskip("rq.job")
    use_settings(Settings(serializer="pickle", allow_pickle=True))
    job = Queue("q", conn).options(meta={"told": LONG}).enqueue(basic.noop, {"a": (1, LONG)}, b=2)
    assert set(fields_of(conn, job.id)) == LEAST | {"serializer", "meta"}
    theirs = rq_job.Job.fetch(job.id, connection=conn)
    assert (theirs.func_name, theirs.args, theirs.kwargs) == ("tests.jobs.basic.noop", ({"a": (1, LONG)},), {"b": 2})
    assert (theirs.origin, theirs.get_status(), theirs.created_at is not None) == ("q", "queued", True)
    ours = Job.fetch(job.id, conn)
    assert (ours.args, ours.timeout, ours.description) == (({"a": (1, LONG)},), 180, "tests.jobs.basic.noop")
    assert LONG.encode() in conn.hget(f"rq:job:{job.id}", "meta")
    ours.meta["more"] = LONG
    ours.save_meta()
    assert conn.hget(f"rq:job:{job.id}", "meta").count(LONG.encode()) == 2
    raw = conn.hget(f"rq:job:{job.id}", "data")
    assert PickleSerializer().loads(raw)[0] == "tests.jobs.basic.noop"


# -- the step


def test_what_the_data_cannot_hold_is_refused_with_what_to_do(conn: redis.Redis, broker: Broker) -> None:
    put(broker, "q", "first")
    before = set(conn.keys("*"))
    args = {"queue": "q", "n_jobs": 1, "needs": schema.VERSION + 1, "minute": 0, "minute_text": ""}
    with pytest.raises(DataTooOld, match=r"run the command `schema --raise`") as caught:
        broker._script("enqueue")({"queues": "rq:queues"}, args, ["a", "n", 1, "back", "", 2, "func", TASK])
    assert (caught.value.version, caught.value.needed) == (schema.VERSION, schema.VERSION + 1)
    assert set(conn.keys("*")) == before
