"""Unique jobs as programs see them: `Queue`, `AsyncQueue`, `@job`, cron entries."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import redis

from fusion import Job, Queue, job
from fusion.cron.scheduler import Scheduler
from fusion.enqueue.build import build
from fusion.enqueue.options import EnqueueOptions
from fusion.enqueue.ties import key_of
from fusion.exceptions import DuplicateJob, InvalidJobOperation, NoSuchJobError, OptionError
from fusion.kernel import defaults
from fusion.settings import Settings, use_settings
from fusion.store.layout.records import NewJob
from fusion.store.write.broker import Broker
from tests.domain.cron_hands import Hourly, hourly, look, scheduler
from tests.domain.test_room import Made, made
from tests.faults.rig.proxy import LOSE, FaultProxy
from tests.jobs import basic
from tests.kit.hands import Hand, everything, status_of
from tests.store.unique_hands import flaws, owner, window

__all__ = ("hourly", "made", "scheduler")


def of(**options: Any) -> NewJob:
    return build(basic.add, (1,), {"b": 2}, EnqueueOptions(**options), Settings()).new


# -- what a call says


def test_a_duplicate_is_the_job_that_is_there(made: Made, conn: redis.Redis) -> None:
    first = made(lambda queue: queue.enqueue(basic.add, 1, b=2, unique_key="k", description="the first", meta={"n": 1}))
    assert first.duplicate_of is None
    again = made(lambda queue: queue.enqueue(basic.add, 3, b=4, unique_key="k"))
    assert (again.id, again.duplicate_of) == (first.id, first.id)
    assert (again.args, again.kwargs, again.description, again.meta) == ((1,), {"b": 2}, "the first", {"n": 1})
    assert (again.last_status, again.origin, again.unique_key, again.timeout) == ("queued", "q", "k", 180)
    assert again.created_at == first.created_at
    assert conn.zcard("rq:queue:q") == 1


def test_raise_names_the_other_job(made: Made, conn: redis.Redis) -> None:
    first = made(lambda queue: queue.enqueue(basic.noop, unique_key="k"))
    before = everything(conn)
    with pytest.raises(DuplicateJob, match="has the unique key 'k' and is queued") as caught:
        made(lambda queue: queue.enqueue(basic.noop, unique_key="k", on_duplicate="raise"))
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.duplicate_of, again.unique_key, str(again)) == (first.id, "k", str(caught.value))
    assert everything(conn) == before


def test_replace_says_whose_place_it_took(made: Made, conn: redis.Redis) -> None:
    first = made(lambda queue: queue.enqueue_in("1m", basic.add, 1, b=2, unique_key="k", on_duplicate="replace", max_delay="5m"))
    second = made(lambda queue: queue.enqueue_in("1m", basic.add, 3, b=4, unique_key="k", on_duplicate="replace", max_delay="5m"))
    assert (second.duplicate_of, second.last_status) == (first.id, "scheduled")
    assert second.id != first.id
    assert (Job.fetch(first.id, conn).get_status(), Job.fetch(first.id, conn).reason) == ("canceled", "replaced")
    conn.hset(f"rq:job:{second.id}", "unique_since", 1)
    third = made(lambda queue: queue.enqueue_in("1m", basic.add, 5, b=6, unique_key="k", on_duplicate="replace", max_delay="5m"))
    assert third.last_status == "queued", "the first has waited for long enough"


def test_a_window_that_outlives_its_job(made: Made, conn: redis.Redis) -> None:
    first = made(lambda queue: queue.enqueue(basic.noop, unique_key="k", unique_until="accept", unique_window="1m"))
    Job.fetch(first.id, conn).delete()
    found = made(lambda queue: queue.enqueue(basic.noop, unique_key="k"))
    assert (found.id, found.duplicate_of, found.last_status) == (first.id, first.id, "")
    with pytest.raises(NoSuchJobError):
        Job.fetch(found.id, conn)


def test_many_at_once(made: Made, conn: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(defaults, "ENQUEUE_CHUNK", 3)
    datas = [Queue.prepare_data(basic.noop, job_id=f"j{n}", unique_key=f"k{n % 4}") for n in range(10)]
    jobs = made(lambda queue: queue.enqueue_many(datas))
    assert [one.id for one in jobs] == [f"j{n % 4}" for n in range(10)]
    assert [one.duplicate_of for one in jobs] == [None] * 4 + [f"j{n % 4}" for n in range(4, 10)]
    assert conn.zcard("rq:queue:q") == 4
    assert flaws(conn) == []


def test_a_duplicate_within_one_call_returns_the_first_job(made: Made) -> None:
    datas = [Queue.prepare_data(basic.add, (n,), {"b": n}, job_id=f"j{n}", unique_key="k") for n in range(2)]
    _, second = made(lambda queue: queue.enqueue_many(datas))
    assert (second.id, second.args, second.last_status) == ("j0", (0,), "queued")


def test_a_call_whose_answer_is_lost_is_sent_again_and_is_no_duplicate(made: Made, conn: redis.Redis, redis_url: str) -> None:
    proxy = FaultProxy(redis_url, conn)
    try:
        use_settings(Settings.load(redis_url=proxy.url))
        proxy.on("enqueue", LOSE)
        found = made(lambda queue: queue.enqueue(basic.noop, unique_key="k"))
    finally:
        proxy.close()
    assert (found.duplicate_of, conn.zcard("rq:queue:q")) == (None, 1)


def test_requeue_says_who_has_its_key(conn: redis.Redis) -> None:
    queue = Queue("q", conn)
    first = queue.enqueue(basic.noop, unique_key="k")
    first.cancel()
    second = queue.enqueue(basic.noop, unique_key="k")
    with pytest.raises(DuplicateJob, match=f"job '{second.id}' has the unique key 'k'"):
        Job.fetch(first.id, conn).requeue()
    second.cancel()
    Job.fetch(first.id, conn).requeue()
    assert owner(conn) == first.id


# -- options


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"unique_until": "start"}, "unique_until: needs unique_key, or unique=True"),
        ({"on_duplicate": "raise"}, "on_duplicate: needs unique_key"),
        ({"unique_window": 5}, "unique_window: needs unique_key"),
        ({"unique_key": "k", "unique_until": "accept"}, "'accept' needs unique_window"),
        ({"unique_key": "k", "unique_until": "later"}, "use 'end' or 'accept' or 'start'"),
        ({"unique_key": "k", "on_duplicate": "wait"}, "use 'skip' or 'raise' or 'replace'"),
        ({"unique_key": "k", "max_delay": 5}, "max_delay: needs on_duplicate='replace'"),
        ({"unique_key": "a key"}, "without spaces"),
        ({"unique_key": "k", "unique_window": 0}, "a duration over 0"),
    ],
)
def test_options_that_are_none(options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError) as caught:
        of(**options)
    assert said in str(caught.value)


def test_what_is_stored() -> None:
    found = of(unique_key="k", unique_window="10m", unique_until="end", on_duplicate="skip").fields
    assert {name: value for name, value in found.items() if name.startswith(("unique", "ties", "on_"))} == {
        "unique_key": "k",
        "unique_window": 600_000,
        "ties": "u",
    }
    assert "ties" not in of(unique_key="k", unique_until="accept", unique_window=5).fields
    assert of(unique_key="k", max_concurrent=1).fields["ties"] == "ku"
    assert not {"unique_key", "ties"} & of(priority=2).fields.keys()


def test_a_key_of_the_function_and_its_arguments() -> None:
    name = "tests.jobs.basic.add"
    key = key_of(name, (1, {"a": 1, "b": [2]}), {"x": 1, "y": None})
    assert key.startswith(f"{name}:")
    assert (
        key
        == key_of(name, (1, {"b": [2], "a": 1}), {"y": None, "x": 1})
        == of(unique=True).fields["unique_key"].replace(of(unique=True).fields["unique_key"], key)
    )
    different = [((1,), {}), ((1.5,), {}), (("1",), {}), ((), {"x": 1}), ((1, 2), {}), ((1,), {"y": 2}), ((), {})]
    keys = {key_of(name, *one) for one in different} | {key_of("tests.jobs.basic.noop", (1,), {})}
    assert len(keys) == len(different) + 1
    assert len(key_of("m." + "f" * 300, (), {})) <= 200
    assert of(unique=True, unique_key="k").fields["unique_key"] == "k"
    with pytest.raises(OptionError, match="give unique_key"):
        key_of(name, (object(),), {})


def test_a_task_may_declare_it_for_every_call(conn: redis.Redis) -> None:
    @job("q", conn, unique_key=lambda user, **_: f"sync:{user}", on_duplicate="raise")
    def sync(user: int, full: bool = False) -> None: ...

    sync.__module__, sync.__qualname__ = "tests.jobs.basic", "noop"  # type: ignore[attr-defined]
    sync.delay(1)
    sync.delay(2)
    with pytest.raises(DuplicateJob):
        sync.delay(1, full=True)
    again = Queue("p", conn).enqueue(sync, 1, on_duplicate="skip")
    assert again.duplicate_of == owner(conn, "sync:1")


def test_the_function_and_arguments_of_every_call(conn: redis.Redis) -> None:
    queue = Queue("q", conn).options(unique=True)
    first = queue.enqueue(basic.add, 1, b=2)
    assert queue.enqueue(basic.add, 1, b=2).duplicate_of == first.id
    assert queue.enqueue(basic.add, 1, b=3).duplicate_of is None
    assert Queue("p", conn).enqueue("tests.jobs.basic.add", 1, b=2, unique=True).duplicate_of == first.id


# -- cron


def test_a_tick_that_meets_another_of_its_key_is_skipped(conn: redis.Redis, scheduler: Scheduler, hourly: Hourly) -> None:
    hourly(unique_key="k", queue="sms", on_duplicate="raise")
    first = Queue("sms", conn).enqueue(basic.noop, unique_key="k")
    assert look(conn, "e", ticks=1) == ("ok", 0, 1)
    (line,) = conn.lrange("rq:cron:history:e", -1, -1)
    assert (line.split()[1], line.split()[3]) == (b"duplicate", first.id.encode())
    with pytest.raises(InvalidJobOperation, match=f"job {first.id} has the unique key"):
        scheduler.run("e")
    first.cancel()
    assert look(conn, "e", ticks=1) == ("ok", 1, 0)
    assert flaws(conn) == []
    assert (owner(conn) or "").startswith("cron-e-")


def test_the_ticks_of_an_entry_with_replace_leave_the_newest(conn: redis.Redis, hourly: Hourly) -> None:
    hourly(unique=True, on_duplicate="replace", queue="sms", misfire="all")
    assert look(conn, "e", ticks=3) == ("ok", 3, 0)
    (left,) = conn.zrange("rq:queue:sms", 0, -1)
    assert conn.zcard("rq:canceled:sms") == 2
    assert left.decode() == max(key.decode().removeprefix("rq:job:") for key in conn.keys("rq:job:*"))
    assert flaws(conn) == []


def test_a_run_by_hand_takes_the_place_of_the_one_that_waits(conn: redis.Redis, scheduler: Scheduler, hourly: Hourly) -> None:
    hourly(unique_key="k", on_duplicate="replace", unique_window="1m")
    first, second = scheduler.run("e"), scheduler.run("e")
    assert (status_of(conn, first.id), owner(conn)) == ("canceled", second.id)
    hand = Hand(Broker(conn), "default")
    hand.tell(hand.take())
    assert window(conn) is not None


def test_no_entry_has_a_max_delay(scheduler: Scheduler) -> None:
    with pytest.raises(OptionError, match="max_delay= is not an option of a cron entry"):
        scheduler.every("1h", basic.noop, unique_key="k", on_duplicate="replace", max_delay=5)
