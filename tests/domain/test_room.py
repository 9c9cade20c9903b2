"""A queue that is full, and many jobs spread over a time, as programs see them: `Queue` and `AsyncQueue` alike."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
import redis

from fusion import AsyncQueue, Queue, QueueFull, chain, signature
from fusion.enqueue.build import JobData
from fusion.exceptions import OptionError
from fusion.kernel import defaults
from fusion.settings import Settings, use_settings
from fusion.store.access import broker_of
from tests.domain.conftest import Bench
from tests.faults.rig.conservation import check_conservation
from tests.faults.rig.proxy import LOSE, FaultProxy
from tests.jobs import basic
from tests.kit.hands import Hand, drain, everything, fields_of, now_ms, status_of, wire
from tests.store.kin_hands import settle


async def _asked(call: Callable[[AsyncQueue], Any]) -> Any:
    async with AsyncQueue("q") as queue:
        return await call(queue)


def _by_thread(call: Callable[[Any], Any]) -> Any:
    return call(Queue("q"))


def _by_loop(call: Callable[[Any], Any]) -> Any:
    return asyncio.run(_asked(call))


@pytest.fixture(params=[_by_thread, _by_loop], ids=["Queue", "AsyncQueue"])
def made(request: pytest.FixtureRequest, conn: redis.Redis) -> Callable[[Callable[[Any], Any]], Any]:
    """Makes a call of the queue `q` of either kind."""
    return request.param  # type: ignore[no-any-return]


Made = Callable[[Callable[[Any], Any]], Any]


def data(job_id: str, **options: Any) -> JobData:
    return Queue.prepare_data(basic.noop, job_id=job_id, **options)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(defaults, "ENQUEUE_CHUNK", 3)


# -- full


def test_one_too_many_raises(made: Made, conn: redis.Redis) -> None:
    made(lambda queue: queue.set_max_length(2))
    made(lambda queue: queue.enqueue(basic.noop))
    made(lambda queue: queue.options(priority="high").enqueue(basic.noop))
    before = everything(conn)
    with pytest.raises(QueueFull) as told:
        made(lambda queue: queue.enqueue(basic.noop))
    assert (told.value.queue, told.value.length, told.value.limit, told.value.accepted) == ("q", 2, 2, ())
    assert everything(conn) == before
    Queue("q").set_max_length(None)
    made(lambda queue: queue.enqueue(basic.noop))


def test_options_of_one_call_bound_a_queue(made: Made, conn: redis.Redis) -> None:
    made(lambda queue: queue.enqueue(basic.noop, max_queue_length=1))
    for call in (
        lambda queue: queue.enqueue(basic.noop, max_queue_length=1),
        lambda queue: queue.options(max_queue_length=1).enqueue(basic.noop),
        lambda queue: queue.enqueue_call(basic.noop, max_queue_length=1),
        lambda queue: queue.enqueue_many([data("a")], max_queue_length=1),
    ):
        with pytest.raises(QueueFull):
            made(call)
    made(lambda queue: queue.enqueue(basic.noop))


def test_settings_bound_a_queue(made: Made, conn: redis.Redis) -> None:
    use_settings(Settings.load(max_queue_length=1, queue_timeout=60))
    job = made(lambda queue: queue.enqueue(basic.noop))
    with pytest.raises(QueueFull):
        made(lambda queue: queue.enqueue(basic.noop))
    assert 0 < int(fields_of(conn, job.id)["expires_at"]) - now_ms(conn) <= 60_000


def _graph(roots: int) -> list[JobData]:
    """This many jobs, and one that waits for all of them: too many for one call."""
    return [*(data(f"r{nth}") for nth in range(roots)), data("c", depends_on=[f"r{nth}" for nth in range(roots)])]


def test_a_graph_asks_for_room_for_those_of_it_that_wait_for_no_others(made: Made, conn: redis.Redis) -> None:
    Queue("q").enqueue(basic.noop, job_id="before")
    with pytest.raises(QueueFull) as told:
        made(lambda queue: queue.enqueue_many(_graph(40), max_queue_length=40))
    assert (told.value.length, told.value.limit, told.value.wanted, told.value.accepted) == (1, 40, 40, ())
    settle(broker_of(conn))
    assert [key for key in everything(conn) if ":job:" in key] == ["rq:job:before"]
    Queue("q").set_max_length(41)
    graph = _graph(40)
    for _ in range(2):
        made(lambda queue: queue.enqueue_many(graph))
        settle(broker_of(conn))
    assert (Queue("q").count, status_of(conn, "c")) == (41, "deferred")
    with pytest.raises(QueueFull):
        made(lambda queue: queue.enqueue_many([data("more")]))


def test_a_chain_over_several_queues_asks_for_room_where_it_begins(conn: redis.Redis) -> None:
    Queue("a").enqueue(basic.noop, job_id="before")
    Queue("b").enqueue(basic.noop, job_id="after")
    for name in "ab":
        Queue(name).set_max_length(1)
    call = signature(basic.noop)
    with pytest.raises(QueueFull) as told:
        chain(call.set(queue="a"), call.set(queue="c")).enqueue(connection=conn)
    assert (told.value.queue, told.value.wanted) == ("a", 1)
    settle(broker_of(conn))
    assert {key for key in everything(conn) if ":job:" in key} == {"rq:job:before", "rq:job:after"}
    chain(call.set(queue="c"), call.set(queue="b")).enqueue(connection=conn)


def test_an_enqueue_whose_answer_is_lost_is_not_refused_for_itself(made: Made, conn: redis.Redis, redis_url: str) -> None:
    Queue("q").set_max_length(1)
    Queue("other").enqueue(basic.noop)  # the script is known: what is lost is an answer
    proxy = FaultProxy(redis_url, conn)
    try:
        use_settings(Settings.load(redis_url=proxy.url))
        proxy.on("enqueue", LOSE)
        job = made(lambda queue: queue.enqueue(basic.noop))
        proxy.on("enqueue", LOSE)
        with pytest.raises(QueueFull):
            made(lambda queue: queue.enqueue(basic.noop))
    finally:
        proxy.close()
    assert drain(Hand(broker_of(conn), "q")) == [job.id]


@pytest.mark.parametrize("wrong", [0, -1, True, "9", 1.5, 10**10])
def test_an_invalid_max_queue_length_is_refused(made: Made, conn: redis.Redis, wrong: Any) -> None:
    with pytest.raises(OptionError, match=r"max_queue_length=.*use a whole number from 1"):
        made(lambda queue: queue.enqueue(basic.noop, max_queue_length=wrong))
    with pytest.raises(OptionError, match=r"max_queue_length=.*use a whole number from 1"):
        made(lambda queue: queue.enqueue_many([], max_queue_length=wrong))
    with pytest.raises(OptionError, match=r"max_length=.*use a whole number from 1"):
        made(lambda queue: queue.set_max_length(wrong))
    assert not list(conn.scan_iter())


@pytest.mark.parametrize("wrong", [0, -1, "soon", "0s"])
def test_an_invalid_queue_timeout_is_refused(made: Made, conn: redis.Redis, wrong: Any) -> None:
    with pytest.raises(OptionError, match="timeout"):
        made(lambda queue: queue.set_timeout(wrong))


def test_the_setting_of_workers_takes_both(conn: redis.Redis) -> None:
    gates = Settings.load(queue_gates="q max_length=5 timeout=10m limit=2").queue_gates
    assert gates == {"q": {"max_length": 5, "timeout": 600_000, "limit": 2}}


def test_a_time_in_the_queue(made: Made, conn: redis.Redis) -> None:
    made(lambda queue: queue.set_timeout("10m"))
    job = made(lambda queue: queue.enqueue(basic.noop))
    assert 590_000 < int(fields_of(conn, job.id)["expires_at"]) - now_ms(conn) <= 600_000
    Queue("q").set_timeout(None)
    job = made(lambda queue: queue.enqueue(basic.noop))
    assert "expires_at" not in fields_of(conn, job.id)


def test_the_error_crosses_processes(conn: redis.Redis) -> None:
    error = QueueFull("q", 3, 3)
    error.accepted = (Queue("q").enqueue(basic.noop),)
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert (str(copy), copy.limit, copy.accepted) == (str(error), 3, ())


# -- many


@pytest.mark.usefixtures("small_chunks")
def test_many_ask_for_room_for_all_with_the_first_chunk(made: Made, conn: redis.Redis) -> None:
    Queue("q").set_max_length(7)
    with pytest.raises(QueueFull) as told:
        made(lambda queue: queue.enqueue_many([data(f"a{i}") for i in range(8)]))
    assert (told.value.length, told.value.wanted, told.value.accepted) == (0, 8, ())
    assert str(told.value).startswith("queue 'q' has no room for 8 more jobs: 0 of 7 wait (max_queue_length). Try again")
    assert conn.exists("rq:queue:q") == 0
    jobs = made(lambda queue: queue.enqueue_many(tuple(data(f"a{i}") for i in range(7))))
    assert len(jobs) == 7


@pytest.mark.usefixtures("small_chunks")
def test_jobs_for_a_time_need_no_room(made: Made, conn: redis.Redis) -> None:
    Queue("q").set_max_length(3)
    when = datetime.now(timezone.utc) + timedelta(days=1)
    later = [data(f"l{i}", enqueue_in=60) for i in range(4)] + [data("at", enqueue_at=when)]
    assert len(made(lambda queue: queue.enqueue_many([data("a0"), *later, data("a1"), data("a2", enqueue_in=0)]))) == 8


@pytest.mark.usefixtures("small_chunks")
def test_each_chunk_of_a_generator_needs_room_and_the_error_lists_accepted_jobs(made: Made, conn: redis.Redis) -> None:
    Queue("q").set_max_length(7)
    datas = [data(f"a{i}") for i in range(9)]
    with pytest.raises(QueueFull) as told:
        made(lambda queue: queue.enqueue_many(one for one in datas))
    assert [job.id for job in told.value.accepted] == [f"a{i}" for i in range(6)]
    assert (told.value.length, told.value.wanted) == (6, 3)
    check_conservation(conn, [job.id for job in told.value.accepted])
    Queue("q").set_max_length(9)
    assert len(made(lambda queue: queue.enqueue_many(datas))) == 9
    assert conn.zcard("rq:queue:q") == 9


@pytest.mark.usefixtures("small_chunks")
def test_a_later_chunk_finds_room_taken_by_another_producer(conn: redis.Redis) -> None:
    Queue("q").set_max_length(9)
    taken = []

    class Greedy(list[JobData]):
        """While its last chunk is read another producer comes."""

        looked_at = 0

        def __iter__(self) -> Iterator[JobData]:
            self.looked_at += 1  # first whether one of them waits for others
            for nth, one in enumerate(list.__iter__(self)):
                if nth == 7 and self.looked_at == 2:
                    taken.append(Queue("q").enqueue(basic.noop))
                yield one

    with pytest.raises(QueueFull) as told:
        Queue("q").enqueue_many(Greedy(data(f"a{i}") for i in range(9)))
    assert len(told.value.accepted) == 6
    assert conn.zcard("rq:queue:q") == 7


@pytest.mark.usefixtures("small_chunks")
def test_a_call_that_goes_on_does_not_ask_for_what_it_has_brought(conn: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    Queue("q").set_max_length(9)
    datas = [data(f"a{i}") for i in range(9)]
    Queue("q").enqueue_many(datas[:6])
    assert len(Queue("q").enqueue_many(datas)) == 9
    assert len(Queue("q").enqueue_many(datas)) == 9, "a resend of all, and the queue is full"


def test_no_round_trip_more(conn: redis.Redis) -> None:
    queue = Queue("q", conn)
    queue.set_max_length(9)
    queue.enqueue(basic.noop)
    with wire(conn) as sent:
        queue.enqueue(basic.noop, max_queue_length=5)
        queue.enqueue_many([data("a")], max_queue_length=5)
    assert sent == ["EVALSHA", "EVALSHA"]


# -- spread


def dues(conn: redis.Redis) -> dict[str, float]:
    return {job.decode(): due for job, due in conn.zrange("rq:scheduler:scheduled_jobs", 0, -1, withscores=True)}


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("spread", ["10m", 600, timedelta(minutes=10)])
def test_jobs_are_spread_evenly_in_their_order_over_chunks(made: Made, conn: redis.Redis, spread: Any) -> None:
    before = now_ms(conn) / 1000
    jobs = made(lambda queue: queue.enqueue_many((data(f"a{i:02}", priority=i % 3) for i in range(20)), spread=spread))
    after = now_ms(conn) / 1000
    assert [job.get_status(refresh=False) for job in jobs] == ["queued"] + ["scheduled"] * 19
    found = dues(conn)
    assert list(found) == [f"a{i:02}" for i in range(1, 20)]
    for i in range(1, 20):
        assert before + 30 * i - 0.01 <= found[f"a{i:02}"] <= after + 30 * i + 0.01
    assert [job.priority for job in jobs] == [i % 3 for i in range(20)]


def test_a_spread_wants_jobs_without_a_time(made: Made, conn: redis.Redis) -> None:
    for own in ({"enqueue_in": 5}, {"enqueue_in": 0}, {"enqueue_at": datetime.now(timezone.utc)}):
        with pytest.raises(OptionError, match=r"spread='10m': job b has a time of its own \(enqueue_at or enqueue_in\)"):
            made(lambda queue, own=own: queue.enqueue_many([data("a"), data("b", **own)], spread="10m"))  # type: ignore[misc]
    assert not list(conn.scan_iter())


@pytest.mark.parametrize("wrong", [0, -5, "often", "0s", 10**10])
def test_an_invalid_spread_is_refused(made: Made, conn: redis.Redis, wrong: Any) -> None:
    with pytest.raises(OptionError, match="spread"):
        made(lambda queue: queue.enqueue_many([data("a")], spread=wrong))


def test_nothing_spread_is_nothing(made: Made, conn: redis.Redis) -> None:
    assert made(lambda queue: queue.enqueue_many([], spread="10m")) == []


def test_the_same_spread_again_makes_no_second_job_and_leaves_the_times(made: Made, conn: redis.Redis) -> None:
    datas = [data(f"a{i}") for i in range(4)]
    made(lambda queue: queue.enqueue_many(datas, spread=60))
    found = dues(conn)
    made(lambda queue: queue.enqueue_many(datas, spread=60))
    assert dues(conn) == found
    assert conn.zcard("rq:queue:q") == 1


def test_spread_jobs_come_in_their_order(bench: Bench, conn: redis.Redis) -> None:
    bench.queue.enqueue_many([data(f"a{i}") for i in range(5)], spread=0.005)
    last = max(dues(conn).values(), default=0) * 1000
    while now_ms(conn) <= last:
        pass
    while bench.hand.broker.promote()[0]:
        pass
    assert drain(bench.hand) == [f"a{i}" for i in range(5)]


# -- pauses


def test_a_pause_for_a_while_with_a_reason(conn: redis.Redis) -> None:
    queue = Queue("q")
    queue.pause("10m", reason="the provider is down")
    stored = conn.get("rq:paused:q").decode()
    assert stored.endswith("\nthe provider is down")
    assert "@" in stored.partition("\n")[0].partition(" ")[2]
    assert 590 < conn.ttl("rq:paused:q") <= 600
    assert queue.resume() is True
    assert queue.resume() is False
    queue.pause(by="the on-call")
    assert conn.ttl("rq:paused:q") == -1
    assert conn.get("rq:paused:q").endswith(b" the on-call\n")


@pytest.mark.parametrize(
    "wrong", [{"duration": 0}, {"duration": "soon"}, {"reason": "a\nb"}, {"reason": "x" * 501}, {"by": "a\nb"}, {"reason": 5}]
)
def test_an_invalid_pause_is_refused(conn: redis.Redis, wrong: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        Queue("q").pause(**wrong)
    assert not conn.exists("rq:paused:q")
