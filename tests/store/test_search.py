"""Jobs found by a query on a real Redis: pages that meet everybody once while jobs come and go, and counts."""

from __future__ import annotations

import random
import re
import string
from collections.abc import Iterable
from typing import Any

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from fusion.exceptions import InvalidQuery
from fusion.kernel.scope import Scope
from fusion.settings import Settings
from fusion.store.access import search_inspector_of
from fusion.store.client.connections import connect
from fusion.store.client.wire import is_ours
from fusion.store.layout.compact import meant, sources
from fusion.store.query.grammar import STATES, Query
from fusion.store.query.sources import KeySource
from fusion.store.read import search_inspector
from fusion.store.read.cursor import Cursor
from fusion.store.read.found_jobs import FIELDS
from fusion.store.read.job_rows import _fills, _meant
from fusion.store.read.search_inspector import SearchInspector, in_words
from fusion.store.read.tolerant import forgiving
from fusion.store.write.broker import Broker
from fusion.views.job import FoundJobView
from tests.kit.hands import Hand, everything, outcome, put
from tests.store.search_hands import SETS, find, pages, store


@pytest.fixture
def search(conn: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> SearchInspector:
    """For which no time passes, however slow the machine is: test_search_time.py is about that."""
    monkeypatch.setattr(SearchInspector, "clock", staticmethod(lambda: 0.0))
    return SearchInspector(conn)


def test_states_come_in_their_order_and_each_by_its_score(search: SearchInspector, conn: redis.Redis) -> None:
    for state in STATES:
        store(conn, state, {f"{state}-a": 1, f"{state}-b": 2, f"{state}-c": 3})
    for at, job_id in enumerate(("b", "c", "a")):
        conn.hset(f"rq:job:started-{job_id}", "started_at", f"2026-01-31T09:00:0{at}.000000Z")
    first_least = {"blocked", "scheduled", "deferred"}
    expected = [
        f"{state}-{letter}"
        for state in STATES
        for letter in ("bca" if state == "started" else "abc" if state in first_least else "cba")
    ]
    before = everything(conn)
    for limit in (1, 2, 4, 50):
        assert find(search, limit=limit) == expected
    assert find(search, "state:queued,failed") == ["failed-c", "failed-b", "failed-a", "queued-c", "queued-b", "queued-a"]
    assert find(search, "-state:finished,queued", limit=5) == [one for one in expected if one[:3] not in ("fin", "que")]
    assert search.count(Query.parse("")).matched == 3 * len(STATES)
    assert everything(conn) == before


def test_real_jobs_in_every_state(search: SearchInspector, broker: Broker, conn: redis.Redis) -> None:
    put(broker, "sms", "runs", "fails", "ends")
    put(broker, "otp", "waits", priority=2)
    put(broker, "otp", "later", delay=60.0)
    hand = Hand(broker, "sms")
    jobs = {claimed.id: claimed for claimed in hand.claim(3)}
    failed = {"exc_info": "trace", "error_class": "requests.exceptions.ReadTimeout", "error_frame": "tasks.sms:sendSMS:7"}
    hand.turn(outcome(jobs["fails"], "failed", fields=failed), outcome(jobs["ends"]))
    assert find(search) == ["runs", "fails", "waits", "later", "ends"]
    assert find(search, "queue:otp") == ["waits", "later"]
    assert find(search, "error:timeout") == ["fails"]
    assert find(search, "worker:host.1 state:started") == ["runs"]
    assert find(search, "func:sendSMS priority:high") == ["waits"]
    assert find(search, "id:later") == ["later"]
    (job,) = search.page(Query.parse("state:scheduled")).jobs
    assert job.due is not None and FoundJobView.of(job).scheduled_at == job.due
    (job,) = search.page(Query.parse("state:failed")).jobs
    assert (job.error, job.frame, job.worker, job.queue) == (failed["error_class"], failed["error_frame"], "host.1", "sms")


@pytest.mark.parametrize("scores", ["inf", "one", "few", "own"])
@pytest.mark.parametrize("text", ["state:failed", "state:failed id:*"])
def test_each_that_stays_is_met_once_while_others_come_and_go(
    search: SearchInspector, conn: redis.Redis, scores: str, text: str
) -> None:
    """Also where all have the same score, and those leave at which a page ended."""
    dice = random.Random(f"{scores}{text}")

    def score() -> float:
        return {"inf": float("inf"), "one": 1.5e9, "few": dice.choice([1.0, 2.0, float("inf")]), "own": dice.random()}[scores]

    def name() -> str:
        return "".join(dice.choices(string.ascii_letters + "-_", k=6))

    stay = {f"stay-{name()}" if dice.random() < 0.2 else name(): score() for _ in range(900)}
    goers = {f"{name()}-x": score() for _ in range(900)}
    store(conn, "failed", stay | goers)
    left = sorted(goers)
    met: list[str] = []
    for page in pages(search, text, limit=37):
        met += [job.id for job in page.jobs]
        gone = dice.sample(left, min(len(left), 25)) + [job.id for job in page.jobs[-3:] if job.id in goers]
        left = [one for one in left if one not in gone]
        conn.zrem("rq:queue:failed", *gone, "nobody")
        conn.delete("rq:nobody", *(f"rq:job:{one}" for one in gone[::2]))
        store(conn, "failed", {f"{name()}-new": score() for _ in range(12)})
    assert sorted(one for one in met if one in stay) == sorted(stay)
    assert len(met) == len(set(met))


def test_many_queues_are_one_line(search: SearchInspector, conn: redis.Redis) -> None:
    """More than are asked in one round trip, and with ties between them."""
    dice = random.Random(7)
    expected = []
    for n in range(230):
        scores = {f"job-{n}-{i}": float(dice.choice([1, 2, dice.random()])) for i in range(dice.choice([0, 1, 1, 30]))}
        if scores:
            store(conn, "queued", scores, f"q{n}")
            expected += [(score, job_id) for job_id, score in scores.items()]
    wanted = [job_id for _, job_id in sorted(expected, reverse=True)]
    assert find(search, "state:queued", limit=400) == wanted
    assert find(search, "state:queued id:job-*", limit=1000) == wanted
    assert find(search, "state:queued queue:q1*", limit=200) == [one for one in wanted if one.startswith("job-1")]
    assert search.count(Query.parse("state:queued")) == search.count(Query.parse("state:queued id:*"))


@pytest.mark.long
def test_five_thousand_queues(search: SearchInspector, conn: redis.Redis) -> None:
    pipe = conn.pipeline(transaction=False)
    for n in range(5000):
        pipe.hset(f"rq:job:job-{n}", mapping={"status": "queued", "origin": f"q{n}", "func": "t.f"})
        pipe.zadd(f"rq:queue:q{n}", {f"job-{n}": n})
        pipe.sadd("rq:queues", f"rq:queue:q{n}")
    pipe.execute()
    assert find(search, limit=1000) == [f"job-{n}" for n in reversed(range(5000))]
    assert find(search, "queue:q499?") == [f"job-{n}" for n in reversed(range(4990, 5000))]
    assert search.count(Query.parse("")).matched == 5000


def test_a_search_without_an_index_reads_the_newest_jobs(
    search: SearchInspector, conn: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_inspector, "LOOKED", 300)
    store(conn, "failed", {f"old-{n}": n for n in range(700)}, error_class="KeyError")
    store(conn, "failed", {f"new-{n}": 1000 + n for n in range(200)}, error_class="ValueError")
    store(conn, "queued", {"waits": 1}, func="tasks.old.f")
    page = search.page(Query.parse("error:KeyError"), limit=60)
    assert (len(page.jobs), page.complete) == (60, True)
    rest = search.page(Query.parse("error:KeyError"), limit=60, after=page.after)
    assert (len(rest.jobs), rest.after, rest.complete) == (40, "", False)
    assert in_words(rest.searched) == "searched the newest 300 of 900 failed jobs"
    page = search.page(Query.parse("old"))
    assert (page.jobs[0].id, page.complete) == ("old-699", True)
    assert find(search, "state:failed,queued func:old.f") == ["waits"]
    narrow = search.page(Query.parse("-error:ValueError"), Scope(("sms",)))
    assert find(search, "state:failed", limit=500) == find(search, "state:failed", limit=1000)
    assert len(narrow.jobs) == 50
    counted = search.count(Query.parse("error:KeyError"))
    assert (counted.matched, counted.looked, counted.complete) == (700, 901, True)
    assert search.count(Query.parse("error:KeyError"), most=100).matched == 100


def test_a_search_tells_nothing_of_queues_outside_its_scope(
    search: SearchInspector, conn: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_inspector, "LOOKED", 150)
    store(conn, "failed", {f"otp-{n}": 1000 + n for n in range(100)}, "otp")
    store(conn, "failed", {f"sms-{n}": n for n in range(100)}, "sms")
    store(conn, "queued", {"otp-waits": 1}, "otp")
    store(conn, "queued", {"sms-waits": 1}, "sms")
    scope = Scope(("s*",))
    page = search.page(Query.parse(""), scope, limit=20)
    assert {job.queue for job in page.jobs} == {"sms"}
    assert (page.looked, page.total) == (50, 50), "those of its own that were looked at"
    assert "otp" not in repr(page) + Cursor.read(page.after).__repr__()
    assert find(search, "", scope, limit=1000)[-1] == "sms-waits"
    assert find(search, "queue:otp", scope) == find(search, "id:otp-1", scope) == []
    assert search.count(Query.parse("state:queued"), scope).matched == 1
    assert search.count(Query.parse("state:failed"), scope).matched == 100
    last = list(pages(search, "", scope, 1000))[-1]
    assert not last.complete
    assert in_words(last.searched) == "searched only the newest failed jobs"
    assert all("otp" not in source.key for source in search.sources(Query.parse(""), scope))


def test_an_indexed_search_finds_jobs_behind_any_number(
    search: SearchInspector, conn: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_inspector, "LOOKED", 10)
    store(conn, "failed", {f"failed-{n}": 100 + n for n in range(50)})
    store(conn, "queued", {f"queued-{n}": 100 + n for n in range(50)})
    store(conn, "failed", {"mine": 1, "other": 2}, failure_group="3f1d9c2ab86e", batch="b1", unique_key="u 1")
    store(conn, "queued", {"tied": 1}, concurrency_key="k1", batch="b1")
    conn.zadd("rq:failure:3f1d9c2ab86e:jobs", {"mine": 7, "other": 5})
    conn.zadd("rq:batch:b1:members", {"tied": 1, "mine": 2, "#inner": 3, "other": 4})
    conn.set("rq:unique:u 1", "mine")
    conn.zadd("rq:limits:held:k1", {"tied": 1})
    assert find(search, "group:3f1d9c2ab86e") == ["mine", "other"]
    assert find(search, "batch:b1", limit=1) == ["tied", "mine", "other"]
    assert find(search, "batch:b1 state:failed") == ["mine", "other"]
    assert find(search, "key:k1") == ["tied"]
    assert find(search, 'unique:"u 1"', limit=1) == ["mine"]
    assert find(search, "id:tied,other,gone", limit=1) == ["tied", "other"]
    assert len(find(search, "state:failed", limit=7)) == 52
    assert len(find(search, "state:queued queue:sms", limit=7)) == 51


def test_blocked_ones_tell_what_they_wait_for(search: SearchInspector, conn: redis.Redis) -> None:
    store(conn, "blocked", {"held-1": float("inf")}, waits_in="held:sms:tasks.new.f")
    store(conn, "blocked", {"slot-1": float("inf")}, waits_in="limit:tenant 7", concurrency_key="tenant 7")
    store(conn, "deferred", {"child": 1}, parents='["a","b"]')
    store(conn, "deferred", {"odd": 2}, parents="{")
    conn.zadd("rq:waits:held:sms:tasks.new.f", {"held-1": 1})
    conn.hset(
        "rq:waits",
        mapping={"held:sms:tasks.new.f": "1700000000000 no worker has it: start one with -m tasks.new", "version": "1"},
    )
    conn.zadd("rq:limits:waiting:tenant 7", {"slot-1": 1})
    assert {job.id: job.waits_for for job in search.page(Query.parse("")).jobs} == {
        "held-1": "a worker that has tasks.new.f: start one with -m tasks.new",
        "slot-1": "a slot of its key tenant 7",
        "child": "2 other jobs",
        "odd": "other jobs",
    }
    assert find(search, "is:held") == ["held-1"]
    assert find(search, 'key:"tenant 7"') == ["slot-1"]


def test_a_search_reads_the_inbox_of_the_list_queue_last(search: SearchInspector, conn: redis.Redis) -> None:
    store(conn, "queued", {"first": 1}, "x")
    for n in range(1200):
        conn.hset(f"rq:job:in-{n}", mapping={"status": "queued", "origin": "scheduler"})
    conn.rpush("rq:queue:scheduler", *(f"in-{n}" for n in range(1200)), "gone")
    conn.sadd("rq:queues", "rq:queue:scheduler")
    conn.hset("rq:job:taken", mapping={"status": "queued", "origin": "scheduler"})
    conn.zadd("rq:fifo:scheduler", {"taken": 5})
    expected = ["taken", *(f"in-{n}" for n in range(1200))]
    met = []
    for page in pages(search, "queue:scheduler", limit=100):
        met += [job.id for job in page.jobs]
        conn.lpop("rq:queue:scheduler", 5)  # a worker takes some over
    assert met == expected
    assert search.count(Query.parse("queue:scheduler id:in-*")).matched == 1200 - 5 * 13


def test_a_search_survives_records_of_other_programs(search: SearchInspector, conn: redis.Redis) -> None:
    store(conn, "failed", {"sound": 5})
    conn.set("rq:job:string", "no hash")
    conn.hset(
        "rq:job:stock", mapping={"status": "failed", "origin": "sms", "data": b"\x78\x9c garbage", "description": "x.y('a')"}
    )
    conn.hset("rq:job:newer", mapping={"status": "dormant", "origin": "sms"})
    conn.hset(b"rq:job:\xff\xfe", mapping={"status": "failed"})
    conn.hset("rq:job:wild", mapping=dict.fromkeys(["status", *search_inspector.FIELDS], b"\xff\x00\x1b[31m"))
    conn.zadd("rq:queue:failed", {"string": 1, "stock": 2, "newer": 3, "nowhere": 4, b"\xff\xfe": 6, "wild": 7, "": 8})
    conn.set("rq:queues:idle", "x")
    conn.sadd("rq:queues", "rq:queue:broken", b"rq:queue:\xff", "rq:queue:q*[")
    for state, key in SETS.items():
        if "{}" in key:
            conn.set("rq:" + key.format("broken"), state)
    assert find(search) == ["wild", "sound", "newer", "stock"]
    assert find(search, "id:string,stock,newer,nowhere") == ["stock", "newer"]
    assert search.count(Query.parse("id:*")).matched == 4
    for text in (
        "error:x",
        "func:f",
        "older:1s",
        "is:held",
        "word",
        "key:broken",
        "worker:none",
        "batch:none",
        "unique:none",
        "group:none",
    ):
        assert find(search, text) == [] or text == "word"
    conn.set("rq:worker:w:jobs", "x")
    conn.set("rq:unique:u", "gone")
    conn.lpush("rq:unique:l", "x")
    conn.set("rq:failure:g:jobs", "x")
    conn.set("rq:limits:held:k", "x")
    conn.delete("rq:queues", "rq:waits", "rq:fifos")
    conn.set("rq:queues", "x"), conn.set("rq:waits", "x"), conn.set("rq:fifos", "x")
    for key, kind in (("worker:w:jobs", "hash"), ("unique:l", "string"), ("limits:held:k", "zset"), ("waits", "list")):
        assert search.scan(KeySource(f"rq:{key}", kind)) == (0, [])
    assert find(search, "worker:w") == find(search, "unique:u,l") == find(search, "group:g") == find(search, "key:k") == []


@pytest.mark.parametrize(
    "after",
    [
        "x",
        "e30",
        "W10",
        "WzEsMiwzLDQsNSw2XQ",
        "a" * 30_000,
        Cursor("nowhere").text(),
        Cursor("failed", (float("nan"), b"")).text(),
    ],
)
def test_an_end_that_no_page_gave_is_refused(search: SearchInspector, after: str) -> None:
    with pytest.raises(InvalidQuery, match="after: this is not a cursor") as error:
        search.page(Query.parse(""), after=after)
    assert error.value.field == "after"


def test_jobs_that_leave_between_two_reads_are_left_out(
    search: SearchInspector, conn: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(conn, "failed", {"gone": 3, "moved": 2, "sound": 1})
    rows = SearchInspector.rows

    def late(self: SearchInspector, ids: Any, fields: Iterable[str]) -> Any:
        found = rows(self, ids, fields)
        conn.delete("rq:job:gone")
        conn.hset("rq:job:moved", mapping={"status": "queued"})
        return found

    monkeypatch.setattr(SearchInspector, "rows", late)
    assert [(job.id, job.state) for job in search.page(Query.parse("state:failed")).jobs] == [
        ("moved", "queued"),
        ("sound", "failed"),
    ]


def test_no_read_takes_a_whole_set(search: SearchInspector, conn: redis.Redis) -> None:
    store(conn, "failed", {f"job-{n}": float("inf") for n in range(1300)})
    sent: list[list[str]] = []
    with getattr(conn, "admin", conn).monitor() as monitor:
        assert len(find(search, "state:failed", limit=1000)) == 1300
        search.count(Query.parse("error:x"))
        conn.echo("over")
        for line in monitor.listen():
            sent.append(line["command"].split())
            if sent[-1][0] == "ECHO":
                break
    for name, *rest in sent:
        if name in ("AUTH", "CLIENT"):  # a connection's own
            continue
        assert name in "ZRANGE ZREVRANGE ZSCAN ZCARD ZSCORE ZREVRANK ZCOUNT HMGET SMEMBERS HKEYS TIME ECHO".split(), name
        if name in ("ZRANGE", "ZREVRANGE"):
            assert "LIMIT" in rest or int(rest[2]) - int(rest[1]) < 500
            assert not re.search(r"LIMIT 0 (\d{4,}|[6-9]\d\d)", " ".join(rest))


@given(st.dictionaries(st.sampled_from([*FIELDS, "description", "timeout", "result_ttl"]), st.binary(max_size=4)), st.booleans())
def test_fields_mean_what_the_layout_says(stored: dict[str, bytes], compact: bool) -> None:
    full = stored | ({"func": b"t.f"} if compact else {})
    names = sorted({*FIELDS, "description"})
    read = sources(names)
    row = [full.get(name) for name in read]
    found = _meant(read, row, _fills(names))
    assert {name: found[name] for name in names} == meant(names, read, row)


@pytest.mark.parametrize("ours", [True, False], ids=["our client", "another's"])
def test_jobs_are_read_by_any_client(redis_url: str, conn: redis.Redis, ours: bool) -> None:
    store(conn, "failed", {f"job-{n}": n for n in range(700)}, description="a long text " * 250)
    client = connect(Settings(redis_url=redis_url)) if ours else redis.Redis.from_url(redis_url, decode_responses=True)
    assert is_ours(client) == ours
    looking, broken = forgiving(client)
    search = search_inspector_of(looking)
    expected = [f"job-{n}" for n in reversed(range(700))]
    assert find(search, "text", limit=600) == expected
    conn.delete("rq:job:job-300", "rq:job:job-600")
    conn.set("rq:job:job-300", "no hash")
    assert find(search, "text", limit=600) == [one for one in expected if one not in ("job-300", "job-600")]
    assert broken == {"rq:job:job-300": "a hash"}
    client.close()
