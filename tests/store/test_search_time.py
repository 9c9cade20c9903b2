"""A page of a search that ends because its time is over: the next one goes on, and nothing is missed, met twice, or told to who may not know."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import count

import pytest
import redis

from fusion.kernel.scope import EVERYTHING, Scope
from fusion.store.query.grammar import Query
from fusion.store.read import search_inspector
from fusion.store.read.cursor import Cursor
from fusion.store.read.search_inspector import LOOKING, SearchInspector, in_words
from tests.store.search_hands import find, pages, store

Slow = Callable[[float], SearchInspector]


@pytest.fixture
def slow(conn: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> Slow:
    """Makes an inspector for which this many seconds pass from one look at the clock to the next."""

    def with_looks(seconds: float) -> SearchInspector:
        monkeypatch.setattr(SearchInspector, "clock", staticmethod(count(0, seconds).__next__))
        return SearchInspector(conn)

    return with_looks


def test_a_page_looks_for_its_time_and_the_next_one_goes_on(slow: Slow, conn: redis.Redis) -> None:
    store(conn, "failed", {f"job-{n}": n for n in range(3000)}, error_class="ValueError")
    store(conn, "failed", {"old": -1}, error_class="KeyError")
    query = Query.parse("state:failed error:KeyError")
    search = slow(LOOKING * 0.6)
    page = search.page(query)
    assert (page.jobs, page.looked, page.total, page.complete) == ((), 602, 3001, True), "until its second look at the clock"
    assert in_words(page.searched) == "looked at the newest 602 of 3,001 failed jobs; the next page goes on"
    met = list(pages(search, query.text))
    assert [page.looked for page in met] == [602, 1204, 1806, 2408, 3001]
    assert [job.id for job in met[-1].jobs] == ["old"]
    assert (met[-1].after, met[-1].complete, in_words(met[-1].searched)) == ("", True, "")
    quick = slow(0)
    assert [job.id for job in quick.page(query).jobs] == ["old"]
    assert quick.count(query) == slow(1).count(query), "counts are of all"


def test_with_wildcards_the_clock_is_looked_at_after_each_job(slow: Slow, conn: redis.Redis) -> None:
    """One job may take a millisecond then, and many are read at once."""
    store(conn, "failed", {f"job-{n}": n for n in range(90)}, error_class="ValueError")
    search = slow(LOOKING * 0.2)
    page = search.page(Query.parse("state:failed tag:*x"))
    assert (page.jobs, page.looked, page.total) == ((), 5, 90)
    assert page.looked < search.page(Query.parse("state:failed tag:*x"), after=page.after).looked < 20
    assert len([job for page in pages(search, "state:failed error:*Error") for job in page.jobs]) == 90


def test_a_full_page_says_nothing_of_its_time(slow: Slow, conn: redis.Redis) -> None:
    store(conn, "failed", {f"job-{n}": n for n in range(300)})
    for limit in (9, 102, 300):
        page = slow(1).page(Query.parse("func:sendSMS"), limit=limit)
        assert (len(page.jobs), in_words(page.searched)) == (limit, "")
        assert bool(page.after) == (limit < 300)


def test_a_search_without_an_index_is_bounded_over_all_pages(
    slow: Slow, conn: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_inspector, "LOOKED", 250)
    store(conn, "failed", {f"failed-{n}": n for n in range(300)}, error_class="ValueError")
    store(conn, "queued", {f"queued-{n}": n for n in range(110)})
    met = list(pages(slow(1), "nobody"))
    cut = "searched the newest 250 of 300 failed jobs"
    assert [in_words(page.searched) for page in met] == [
        "looked at the newest 102 of 300 failed jobs; the next page goes on",
        "looked at the newest 204 of 300 failed jobs; the next page goes on",
        f"{cut}; the next page goes on with queued jobs",
        f"{cut}; looked at the first 102 of 110 queued jobs; the next page goes on",
        cut,
    ]
    assert (met[-1].looked, met[-1].total, met[-1].complete) == (360, 410, False)


@pytest.mark.parametrize("scores", ["one", "few", "own"])
@pytest.mark.parametrize(("text", "scope"), [("state:failed queue:sms", EVERYTHING), ("state:failed", Scope(("s*",)))])
def test_each_that_stays_is_met_once_while_others_come_and_go(
    slow: Slow, conn: redis.Redis, text: str, scope: Scope, scores: str
) -> None:
    dice = random.Random(f"{scores}{text}")
    names = count()

    def some(how_many: int, kind: str) -> dict[str, float]:
        each = {"one": lambda: 1.5e9, "few": lambda: dice.choice([1.0, 2.0, float("inf")]), "own": dice.random}[scores]
        return {f"{dice.random():.3f}-{next(names)}-{kind}": each() for _ in range(how_many)}

    stay, goers = some(300, "stays"), some(300, "goes")
    store(conn, "failed", stay | goers, "sms")
    store(conn, "failed", some(900, "theirs"), "otp")
    left, met, short = sorted(goers), list[str](), 0
    for page in pages(slow(1), text, scope, limit=100):
        met += [job.id for job in page.jobs]
        short += len(page.jobs) < 100
        assert "theirs" not in repr(Cursor.read(page.after)) or scope.all
        gone = dice.sample(left, min(len(left), 20)) + [job.id for job in page.jobs[-3:] if job.id in goers]
        left = [one for one in left if one not in gone]
        conn.zrem("rq:queue:failed", *gone, "nobody")
        conn.delete("rq:nobody", *(f"rq:job:{one}" for one in gone[::2]))
        store(conn, "failed", some(12, "new"), "sms")
    assert sorted(one for one in met if one in stay) == sorted(stay)
    assert len(met) == len(set(met))
    assert not any("theirs" in one for one in met)
    assert short > 1


def test_every_state_is_gone_through(slow: Slow, conn: redis.Redis) -> None:
    for state in ("started", "blocked", "scheduled", "finished"):
        store(conn, state, {f"{state}-{n:03}": n for n in range(130)}, description="wanted")
        store(conn, state, {f"{state}-x": 200}, description="other")
    for n in range(130):
        conn.hset(f"rq:job:started-{n:03}", "started_at", f"2026-01-31T09:{n // 60:02}:{n % 60:02}.000000Z")
    conn.hdel("rq:job:started-005", "started_at")
    expected = find(slow(0), "wanted", limit=1000)
    assert len(expected) == 520
    assert expected[:3] == ["started-005", "started-000", "started-001"]
    for limit in (20, 400):
        assert find(slow(1), "wanted", limit=limit) == expected
        assert find(slow(LOOKING / 3), "", limit=limit) == find(slow(0), "", limit=limit)
    said = [in_words(page.searched) for page in pages(slow(1), "nobody")]
    assert "the next page goes on with blocked jobs" in said[0] or "longest running" in said[0]
    assert said[-1] == ""


def test_an_indexed_search_continues_past_missing_jobs(slow: Slow, conn: redis.Redis) -> None:
    """Of jobs that are gone a set may have any number."""
    store(conn, "queued", {"last": 1})
    conn.zadd("rq:queue:sms", {f"gone-{n}": 2 + n for n in range(150)})
    met = list(pages(slow(1), "state:queued", limit=10))
    assert [job.id for page in met for job in page.jobs] == ["last"]
    assert len(met) == 14
    assert "looked at the first 11 of 151 queued jobs" in in_words(met[0].searched)


def test_the_next_page_tells_nothing_of_jobs_outside_the_scope(slow: Slow, conn: redis.Redis) -> None:
    store(conn, "failed", {f"otp-{n}": 2000 + n for n in range(700)}, "otp")
    store(conn, "failed", {f"sms-{n}": 1000 + n for n in range(90)}, "sms")
    store(conn, "failed", {f"otp-{n}": n for n in range(700, 1400)}, "otp")
    store(conn, "failed", {"sms-last": -1}, "sms")
    store(conn, "scheduled", {"otp-due": 1}, "otp")
    scope, query = Scope(("s*",)), "error:KeyError"
    met = list(pages(slow(1), query, scope))
    assert len(met) > 1
    for page in met:
        assert "otp" not in repr(page) + repr(Cursor.read(page.after))
        assert page.looked == page.total <= 91, "its own alone"
    assert in_words(met[0].searched) == "looked at only the newest failed jobs; the next page goes on"
    assert find(slow(1), "", scope, limit=40) == find(slow(0), "", scope, limit=1000)
    assert find(slow(1), "id:sms-last", scope) == find(slow(1), "last", scope) == ["sms-last"]
