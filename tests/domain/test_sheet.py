"""The sheet of a job: why it waits, state by state, what happened to it, and what never shows, whoever wrote its record."""

from __future__ import annotations

import json
import random
import secrets
from collections.abc import Callable
from typing import Any

import click
import pytest
import redis

from fusion import Queue, Retry
from fusion.cli.job_render import lines
from fusion.exceptions import NoSuchJobError
from fusion.jobs.sheet import Sheet, sheet
from fusion.kernel.scope import Scope
from fusion.settings import use_settings
from fusion.settings.settings import Settings
from fusion.store.access import sheet_inspector_of
from fusion.store.read.sheet_inspector import ALL, FIELDS, LARGEST, SheetInspector
from fusion.store.write.broker import Broker
from fusion.store.write.limit_broker import LimitBroker
from fusion.views.base import EVERYONE, NOBODY, to_json
from fusion.views.job_sheet import JobView
from tests.kit.hands import Hand

TASK = "tasks.sms.sendSMS"
SECRET = "+4915112345678"


def document(found: Sheet, *, details: bool = False, trace: bool = False) -> Any:
    """The sheet as JSON shows it to who asked for these details, and may see them."""
    return to_json(JobView.of(found, about=details, trace=trace), EVERYONE if details or trace else NOBODY)


def read(conn: redis.Redis, job_id: str = "a") -> Sheet:
    return sheet(sheet_inspector_of(conn), job_id)


def shown(conn: redis.Redis, job_id: str = "a") -> str:
    """All that people and programs are shown."""
    found = read(conn, job_id)
    return "\n".join(
        [*lines(found, trace=True), json.dumps(document(found, details=True, trace=True)), json.dumps(document(found))]
    )


# -- why it waits


def _worker(conn: redis.Redis, queue: str = "sms", **fields: str) -> None:
    Hand(Broker(conn), queue, name="web.1")
    if fields:
        conn.hset("rq:worker:web.1", mapping=fields)


def _queued(conn: redis.Redis) -> None:
    for job_id in ("before", "a", "after"):
        Queue("sms", conn).enqueue(TASK, job_id=job_id)


def _suspended_and_paused(conn: redis.Redis) -> None:
    _queued(conn)
    _worker(conn)
    Broker(conn).pause("sms", 600, by="ann@web1", reason="the provider is down")
    Broker(conn).suspend(None)


def _limited(conn: redis.Redis) -> None:
    _queued(conn)
    _worker(conn)
    Broker(conn).set_gate("sms", {"limit": 1})
    Hand(Broker(conn), "sms").take()


def _keyed(conn: redis.Redis) -> None:
    _worker(conn)
    for job_id in ("first", "second", "a"):
        Queue("sms", conn).enqueue(TASK, job_id=job_id, concurrency_key="smtp", max_concurrent=1)


def _key_paused(conn: redis.Redis) -> None:
    _keyed(conn)
    LimitBroker(conn).pause_limit("smtp", 600, by="bob", reason="too many")


def _held(conn: redis.Redis) -> None:
    Queue("sms", conn).enqueue(TASK, job_id="a")
    hand = Hand(Broker(conn), "sms")
    hand.tell(hand.take(), "held", reason="TaskNotAllowed: start the worker with --tasks tasks", fields={"task": TASK})


def _probation(conn: redis.Redis) -> None:
    Queue("sms", conn).enqueue(TASK, job_id="a")
    _worker(conn)
    conn.delete("rq:queue:sms")
    conn.hset("rq:job:a", mapping={"status": "blocked", "waits_in": "probation:sms", "lost": "2"})


def _retried(conn: redis.Redis) -> None:
    _worker(conn)
    Queue("sms", conn).enqueue(TASK, job_id="a")
    hand = Hand(Broker(conn), "sms")
    hand.tell(hand.take(), "retry", reason="ConnectionError: no route", delay=120.0)


def _due(conn: redis.Redis) -> None:
    Queue("sms", conn).enqueue(TASK, job_id="a", enqueue_in=3600)
    conn.zadd("rq:scheduler:scheduled_jobs", {"a": 1.0})


def _deferred(conn: redis.Redis) -> None:
    _worker(conn)
    Queue("sms", conn).enqueue(TASK, job_id="parent")
    Queue("sms", conn).enqueue(TASK, job_id="a", depends_on="parent")


def _started(conn: redis.Redis) -> None:
    Queue("sms", conn).enqueue(TASK, job_id="a")
    Hand(Broker(conn), "sms").take()


def _newer(conn: redis.Redis) -> None:
    Queue("sms", conn).enqueue(TASK, job_id="a")
    conn.hset("rq:job:a", "status", "paralysed")


def _out_of_place(conn: redis.Redis) -> None:
    Queue("sms", conn).enqueue(TASK, job_id="a")
    conn.delete("rq:queue:sms")


def _ended(conn: redis.Redis) -> None:
    _queued(conn)
    Broker(conn).cancel("a")


def _in_inbox(conn: redis.Redis) -> None:
    _worker(conn, "scheduler")
    Queue("sms", conn).enqueue(TASK, job_id="a", enqueue_in=60)
    conn.zrem("rq:scheduler:scheduled_jobs", "a")
    conn.hset("rq:job:a", mapping={"status": "queued", "origin": "scheduler"})
    conn.rpush("rq:queue:scheduler", "other", "a")


#: What is done, the codes of its reasons, and words that people read.
STATES: list[tuple[Callable[[redis.Redis], None], list[str], list[str]]] = [
    (_queued, ["no_worker", "turn"], ["no live worker serves its queue sms", "1 comes before it, of 3 that wait"]),
    (_suspended_and_paused, ["suspended", "paused", "turn"], ["by ann@web1: the provider is down; it ends in 10 min"]),
    (lambda conn: (_queued(conn), _worker(conn, quiet="1"))[0], ["quiet", "turn"], ["all workers of its queue are quiet: web.1"]),
    (lambda conn: (_queued(conn), _worker(conn, throttled="RAM 92.1 %"))[0], ["throttled", "turn"], ["web.1 (RAM 92.1 %)"]),
    (lambda conn: (_queued(conn), _worker(conn, unloaded="shop: E"))[0], ["unloaded", "turn"], ["can't load their tasks: web.1 (shop: E)"]),
    (lambda conn: (_queued(conn), _worker(conn, probation="1"))[0], ["no_worker", "turn"], []),
    (_limited, ["queue_limit", "turn"], ["runs 1 jobs and may run 1 at once", "it is the next of its queue"]),
    (_keyed, ["key_slot"], ["the slot of its concurrency key smtp", "first (queued)", "1 comes before it, of 2 that wait"]),
    (_key_paused, ["key_paused", "key_turn"], ["its concurrency key smtp is paused by bob: too many"]),
    (_held, ["held", "held_since"], ["a worker that has its task tasks.sms.sendSMS"]),
    (_probation, ["probation"], ["it was lost 2 times, and runs alone"]),
    (_retried, ["retry"], ["its next try, in "]),
    (_due, ["due", "no_promoter", "no_worker"], ["due jobs do not reach their queues"]),
    (_deferred, ["parents"], ["parent (queued)"]),
    (_started, [], []),
    (_newer, ["unknown_state"], ["a state that only a newer version of Fusion knows"]),
    (_out_of_place, ["lost_place"], ["it stands in no place of sms"]),
    (_ended, [], []),
    (_in_inbox, ["turn"], ["1 comes before it, of 2 that wait"]),
]  # fmt: skip


def test_why_it_waits_state_by_state(conn: redis.Redis) -> None:
    for prepare, codes, words in STATES:
        conn.flushall()
        prepare(conn)
        found = read(conn)
        assert [wait.code for wait in found.waits] == codes, prepare.__name__
        text = "\n".join(wait.text for wait in found.waits)
        for word in words:
            assert word in text, (prepare.__name__, text)
            assert word in shown(conn)
        assert found.scope.all


def test_a_running_job_shows_where_and_how_long_it_runs(conn: redis.Redis) -> None:
    Queue("sms", conn).enqueue(TASK, job_id="a", job_timeout=100)
    Hand(Broker(conn), "sms", name="web.7").take()
    run = document(read(conn))["run"]
    assert (run["worker"], run["worker_alive"], run["timeout"], run["told"]) == ("web.7", True, 100.0, None)
    assert 0 <= run["used"] < 0.1
    assert 29 < run["lease_left"] <= 30
    conn.hset("rq:worker:web.7", "beat_ms", "1")
    conn.zadd("rq:wip:sms", {"a": 1_700_000_000_000})
    text = shown(conn)
    assert "which is dead" in text
    assert "Its lease ended" in text


# -- what happened to it


def test_the_way_of_a_job_with_a_retry(conn: redis.Redis) -> None:
    Queue("sms", conn).enqueue(TASK, {"to": SECRET}, job_id="a", retry=Retry(3, interval=[10, 60]))
    hand = Hand(Broker(conn), "sms")
    trace = f'Traceback (most recent call last):\n  File "/app/sms.py", line 44, in send\nConnectionError: to {SECRET}'
    died = {"signal": 11, "maxrss": 52_000}
    hand.tell(hand.take(), "retry", reason=f"ConnectionError: to {SECRET}", delay=10.0, fields={"exc_info": trace}, attempt=died)
    found = document(read(conn), details=True)
    assert [step["state"] for step in found["timeline"]["steps"]] == ["queued", "started", "scheduled"]
    assert found["timeline"]["complete"] is True
    (one,) = found["tries"]
    assert (one["outcome"], one["signal"], one["ending"]) == ("retry", 11, "SIGSEGV: it crashed: a bug in native code")
    assert one["peak_memory"] == 52_000 * 1024
    assert found["retry"]["policy"] == "3 retries, after 10 s, 1 min"
    assert found["retry"]["next_at"] == found["scheduled_at"]
    assert found["trace"]["lines"][1] == '  File "/app/sms.py", line 44, in send'
    # without the stream its record tells the same
    conn.delete("rq:events")
    again = document(read(conn))["timeline"]
    assert [step["state"] for step in again["steps"]] == ["queued", "started", "scheduled"]
    assert again["complete"] is False
    assert SECRET not in shown(conn)


def test_callbacks_of_a_job_and_their_outcomes(conn: redis.Redis) -> None:
    url = "https://hooks.example.com/x?token=abc"
    Queue("sms", conn).enqueue(TASK, job_id="a", callback_url=url, on_failure="tasks.sms.sorry")
    before = document(read(conn))["callbacks"]
    assert before == [
        {"on": "failure", "function": "tasks.sms.sorry", "url": None, "delivery": None},
        {"on": "end", "function": None, "url": "https://hooks.example.com/***", "delivery": None},
    ]
    Broker(conn).cancel("a")
    delivery = document(read(conn))["callbacks"][1]["delivery"]
    assert (delivery["status"], delivery["tries"]) == ("waiting", 0)
    assert "token" not in shown(conn)


def test_signatures(conn: redis.Redis) -> None:
    use_settings(Settings(secret_keys=("k1:" + secrets.token_urlsafe(32),)))
    Queue("sms", conn).enqueue(TASK, job_id="a")
    assert document(read(conn))["signature"] == {"state": "signed", "why": None}
    conn.hset("rq:job:a", "timeout", "9999")
    assert document(read(conn))["signature"]["state"] == "bad"
    conn.hdel("rq:job:a", "signature")
    assert document(read(conn))["signature"]["state"] == "unsigned"
    use_settings(None)
    Queue("sms", conn).enqueue(TASK, job_id="b")
    conn.hset("rq:job:b", "signature", "v1.k1.x")
    assert document(read(conn, "b"))["signature"]["state"] == "unchecked"


def test_a_missing_job_or_one_of_another_queue_is_an_error(conn: redis.Redis) -> None:
    Queue("sms", conn).enqueue(TASK, job_id="a")
    for job_id, scope in (("nobody", Scope(None)), ("a", Scope(("pn",)))):
        with pytest.raises(NoSuchJobError):
            sheet(sheet_inspector_of(conn), job_id, scope)


# -- what it costs


def test_three_round_trips_or_four_and_bounded(conn: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(50):
        Queue("sms", conn).enqueue(TASK, job_id=f"k{n}", concurrency_key="smtp", max_concurrent=1)
    for n in range(50):
        Queue("sms", conn).enqueue(TASK, job_id=f"c{n}", depends_on="k1")
    conn.hset("rq:job:k1", mapping={"exc_info": "x" * (LARGEST + 1), **{f"f{n}": "y" * LARGEST for n in range(2)}})
    conn.hset("rq:job:k1", mapping=dict.fromkeys(("reason", "meta", "result", "description", "error_bases"), "z" * LARGEST))
    trips: list[int] = []
    together = SheetInspector._batch
    monkeypatch.setattr(SheetInspector, "_batch", lambda self, ask, **more: trips.append(1) or together(self, ask, **more))
    read(conn, "c1")
    assert len(trips) == 3
    found = document(read(conn, "k1"), details=True)
    assert len(trips) == 7, "who has a slot of its key is read last"
    assert found["size"]["too_large"][0] == "exc_info"
    assert sum(len(value) for value in read(conn, "k1").facts.row.values()) <= ALL + 1000
    assert (found["children"]["total"], len(found["children"]["jobs"])) == (50, 20)
    assert found["trace"]["lines"] == [f"not shown: {LARGEST + 1} bytes"]


# -- whoever wrote its record

HOSTILE: list[Any] = [
    b"\x1b[2J\x1b]0;owned\x07", "\u202egnp.exe".encode(), b"\xff\xfe\x00", b"{", b"[" * 10_000, b"[[[]]]", b"{}", b"null", b"-1", b"1e999",
    b"9" * 400, b'{"a":' * 500, b"x" * 100_000, b'[1,null,{"x":[]}]', b"2026-99-99T00:00:00Z", b"9999-12-31T23:59:59.999999Z", b"\n\r\t", b"",
    b"0001-01-01T00:00:00Z", b'{"start":5,"end":[],"signal":"x","maxrss":1e400,"error":7}', b'{"max":"x"}', b'{"func":[1]}', b"limit:", b"inf",
    b"held:", b"nan", b"a b c d e f", b'"\\ud800"', b'{"done":1,"total":2,"note":"\\u001b[31m"}',
]  # fmt: skip


def _clean(text: str) -> bool:
    return all(char.isprintable() or char == "\n" for char in text)


def test_any_field_values_are_shown_cleanly(conn: redis.Redis) -> None:
    from fusion.cli.output import lines as cleaned

    chance = random.Random(4711)
    states = ["queued", "started", "scheduled", "failed", "finished", "canceled", "stopped", "blocked", "deferred", "zombie"]
    for nth in range(30):
        conn.delete("rq:job:a")
        fields = dict.fromkeys(FIELDS, b"")
        values = {name: chance.choice(HOSTILE) for name in fields if chance.random() < 0.6}
        status = chance.choice([*states, *HOSTILE[:3]])
        conn.hset("rq:job:a", mapping={**values, "status": status, "func" if nth % 2 else "data": TASK})
        if nth % 3:
            conn.zadd("rq:queue:sms", {"a": 1})
            conn.hset("rq:job:a", "origin", "sms")
        found = read(conn)
        text = "\n".join(cleaned(line) for line in lines(found, trace=True))
        assert _clean(click.unstyle(text)), nth
        told = json.dumps(document(found, details=True, trace=True), allow_nan=False)
        assert told.isascii()
        assert len(text) < 200_000


def test_an_error_of_a_megabyte(conn: redis.Redis) -> None:
    text = ("\x1b[31m" + "\u202e" + "x" * 50 + "\n") * 20_000
    Queue("sms", conn).enqueue(TASK, job_id="a")
    conn.hset("rq:job:a", mapping={"exc_info": text, "reason": text, "history": json.dumps({"outcome": "failed", "error": text})})
    assert len(shown(conn)) < 300_000
    assert "\x1b[31m" not in click.unstyle(shown(conn))


def test_a_pickle_is_never_looked_into(conn: redis.Redis) -> None:
    import pickle

    data = pickle.dumps((TASK, None, (SECRET,), {}))
    meta = pickle.dumps({"who": SECRET})
    conn.hset(
        "rq:job:a",
        mapping={"status": "failed", "origin": "sms", "serializer": "pickle", "data": data, "meta": meta, "result": data},
    )
    found = document(read(conn), details=True)
    assert (found["arguments"], found["meta"], found["returned"]) == ("not shown: pickled",) * 3
    assert found["function"] == TASK
    assert SECRET not in shown(conn)


def test_jobs_of_stock_rq_are_shown_as_such(conn: redis.Redis) -> None:
    conn.hset(
        "rq:job:a",
        mapping={
            "status": "finished",
            "origin": "sms",
            "data": b"x\x9cgarbage",
            "success_callback_name": "",
            "created_at": "2026-01-31T09:30:00Z",
        },
    )
    assert read(conn).is_foreign
    assert "another program's" in shown(conn)


def test_a_masked_value_is_nowhere(conn: redis.Redis) -> None:
    canary = f"S3CR3T-{secrets.token_hex(8)}"
    Queue("sms", conn).enqueue(TASK, canary, {"password": canary}, job_id="a", meta={"k": canary}, description=f"to {canary}")
    hand = Hand(Broker(conn), "sms")
    trace = f'Traceback (most recent call last):\n  send({canary!r})\nValueError: no {canary}\n  File "{canary}", line 1'
    for kind in ("retry", "failed"):
        conn.zadd("rq:scheduler:scheduled_jobs", {"a": 1.0}, xx=True)
        hand.broker.promote(10)
        hand.tell(
            hand.take(), kind, reason=f"ValueError: no {canary}", fields={"exc_info": trace, "callback_error": f"E: {canary}"}
        )
        conn.hset("rq:job:a", mapping={"cursor": json.dumps(canary), "result": json.dumps(canary), "quarantined": f"as {canary}"})
        assert canary not in shown(conn), kind


def test_a_traceback_is_readable_but_for_secrets_in_its_source(conn: redis.Redis) -> None:
    Queue("sms", conn).enqueue(TASK, job_id="a")
    trace = (
        "Traceback (most recent call last):\n"
        '  File "/app/sms.py", line 1044, in send_code\n'
        '    client.login(user, password="sword fish", retries=3)\n'
        "    ^^^^^^^^^^^^^^^^^^^\n"
        '  File "/app/sms.py", line 12, in __init__\n'
        '    if order["id"] % 2 == 0 and token != "swordfish":\n'
        "shop.errors.InvalidToken: HTTP 401 from api; code 482 of +49 151 1234"
    )
    hand = Hand(Broker(conn), "sms")
    hand.tell(hand.take(), "failed", reason=trace.splitlines()[-1], fields={"exc_info": trace})
    found = document(read(conn), details=True, trace=True)
    assert found["trace"]["lines"] == [
        "Traceback (most recent call last):",
        '  File "/app/sms.py", line 1044, in send_code',
        "    client.login(user, password=***, retries=*)",
        "    ^^^^^^^^^^^^^^^^^^^",
        '  File "/app/sms.py", line 12, in __init__',
        '    if order["id"] % 2 == 0 and token != ***:',
        "shop.errors.InvalidToken: HTTP 401 from api; code *** of +** *** ****",
    ]
    assert found["reason_text"] == found["trace"]["lines"][-1]
