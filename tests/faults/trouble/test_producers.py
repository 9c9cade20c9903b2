"""What a producer gets when Redis fails it, and that after any of these making the same call again makes no second job."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from fusion import FailedQueue, Job, Queue, ScheduledJobRegistry, StoreFull, StoreUnavailable
from fusion.cron.scheduler import Scheduler
from fusion.enqueue.build import JobData
from fusion.enqueue.call import PLAIN
from fusion.enqueue.sending import chunks
from fusion.exceptions import ConfigurationError, DuplicateJob
from fusion.settings import Settings, use_settings
from fusion.store.client.connections import connect
from fusion.store.write.broker import Broker
from tests.domain.conftest import Bench
from tests.faults.rig.conservation import check_conservation
from tests.faults.rig.proxy import CUT, LOSE, FaultProxy
from tests.jobs import basic
from tests.kit.hands import events_of, everything, fields_of, wire
from tests.kit.private_redis import PrivateRedis
from tests.kit.promises import claim
from tests.kit.waiting import eventually
from wrappers.task_queue import enqueue_bulk

#: As often as a producer's own client asks before it gives up.
ATTEMPTS = 4
#: `enqueue_many` sends once by itself before that.
MANY = ATTEMPTS + 1


def impatient(url: str) -> redis.Redis:
    """A client of the program's own: one attempt, and a short one."""
    return redis.Redis.from_url(url, protocol=2, socket_timeout=0.3, retry=Retry(NoBackoff(), 0))


@pytest.fixture
def bench(conn: redis.Redis) -> Bench:
    return Bench(conn)


@pytest.fixture
def queue(proxy: FaultProxy) -> Queue:
    """Behind `proxy`. Its connection and its script are known."""
    found = Queue("r", connect(proxy.url))
    found.enqueue(basic.noop, job_id="first")
    return found


def refused(call: Callable[[], Any]) -> StoreUnavailable:
    with pytest.raises(StoreUnavailable) as caught:
        call()
    assert "\n" not in str(caught.value)
    return caught.value


def ids(conn: redis.Redis, queue: str = "r") -> set[str]:
    return {raw.decode() for raw in conn.zrange(f"rq:queue:{queue}", 0, -1)}


# -- errors


def test_a_redis_that_can_not_be_reached() -> None:
    """No Redis is there for this test."""
    error = refused(lambda: Queue("r").enqueue(basic.noop, job_id="j"))
    assert "can't be reached" in str(error)
    assert "none.sock" in str(error)
    assert error.nothing_written
    assert (error.job_id, error.job_ids) == ("j", ("j",))
    assert isinstance(error.__cause__, redis.ConnectionError)
    assert refused(error.repeat).job_id == "j"


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1", "redis://nowhere.invalid:6379"])
def test_a_connection_that_never_came_about_wrote_nothing(url: str) -> None:
    assert refused(lambda: Queue("r", connect(url)).enqueue(basic.noop)).nothing_written


@pytest.mark.parametrize(
    "call",
    [
        lambda conn: Job.fetch("j", conn),
        lambda conn: Job.fetch_many(["j"], conn),
        lambda conn: Job("j", {}, conn).cancel(),
        lambda conn: Job("j", {}, conn).requeue(),
        lambda conn: Job("j", {}, conn).reschedule(5),
        lambda conn: Queue("r", conn).count,
        lambda conn: Queue("r", conn).pause(),
        lambda conn: FailedQueue(conn).requeue_all(),
        lambda conn: list(FailedQueue(conn).failures()),
        lambda conn: ScheduledJobRegistry(conn).get_job_ids(),
        lambda conn: Scheduler(conn).cron("* * * * *", basic.noop),
        lambda conn: Scheduler(conn).run("entry"),
    ],
    ids="fetch fetch_many cancel requeue reschedule count pause requeue_all failures scheduled cron run".split(),
)
def test_looking_and_changing_raise_the_same(call: Callable[[redis.Redis], Any]) -> None:
    error = refused(lambda: call(impatient("redis://127.0.0.1:1")))
    assert "redis://127.0.0.1:1" in str(error)
    assert error.job_ids == ()


def test_a_worker_goes_on_getting_what_redis_py_raises() -> None:
    with pytest.raises(redis.ConnectionError):
        Broker(connect("redis://127.0.0.1:1")).cancel("j")


@pytest.mark.parametrize("reply", ["READONLY You can't write", "LOADING it is", "NOREPLICAS too few"])
def test_a_refusal_is_an_answer_nothing_was_written(queue: Queue, proxy: FaultProxy, conn: redis.Redis, reply: str) -> None:
    before = everything(conn)
    rule = proxy.on("enqueue", reply, times=ATTEMPTS)
    error = refused(lambda: queue.enqueue(basic.noop))
    assert rule.struck == ATTEMPTS
    assert error.nothing_written
    assert everything(conn) == before
    assert error.repeat().id == error.job_id


@pytest.mark.parametrize("what", [LOSE, CUT])
def test_after_an_attempt_without_an_answer_a_later_refusal_says_nothing(queue: Queue, proxy: FaultProxy, what: str) -> None:
    proxy.on("enqueue", what)
    proxy.on("enqueue", "READONLY You can't write", nth=1, times=ATTEMPTS)
    assert not refused(lambda: queue.enqueue(basic.noop)).nothing_written


def test_a_full_server_raises_store_full(private_redis: PrivateRedis) -> None:
    queue = Queue("r", private_redis.conn)
    queue.enqueue(basic.noop)
    private_redis.conn.config_set("maxmemory", 1)
    error = refused(lambda: queue.enqueue(basic.noop))
    assert isinstance(error, StoreFull)
    assert error.nothing_written
    assert "maxmemory" in str(error)
    others = refused(lambda: Queue("r", impatient(private_redis.url)).enqueue(basic.noop))
    assert isinstance(others, StoreFull)
    assert not others.nothing_written, "who knows what a client of somebody else's tried before"
    private_redis.conn.config_set("maxmemory", 0)
    assert error.repeat().id == error.job_id
    assert queue.count == 2


def test_missing_rights_are_a_configuration_error(proxy: FaultProxy, queue: Queue) -> None:
    proxy.on("enqueue", "NOPERM this user has no permissions to run the 'evalsha' command")
    with pytest.raises(ConfigurationError, match="grant the ACL user") as caught:
        queue.enqueue(basic.noop)
    assert isinstance(caught.value.__cause__, redis.RedisError)
    assert "\n" not in str(caught.value)


def test_an_error_nobody_foresaw_stays_what_it_is(proxy: FaultProxy, queue: Queue) -> None:
    proxy.on("enqueue", "ERR user_script:7: attempt to index a nil value")
    with pytest.raises(redis.ResponseError, match="attempt to index a nil value"):
        queue.enqueue(basic.noop)


def test_a_key_of_another_program_is_a_configuration_error(conn: redis.Redis) -> None:
    conn.set("rq:queue:r", "no queue")
    with pytest.raises(ConfigurationError, match=r"another program's data.*WRONGTYPE"):
        Queue("r").enqueue(basic.noop)


def test_a_client_of_the_programs_own_is_used_by_its_own_methods(redis_url: str, conn: redis.Redis) -> None:
    """What it adds to them must see every call."""

    class Counting(redis.Redis):
        calls = 0

        def execute_command(self, *args: Any, **options: Any) -> Any:
            self.calls += 1
            return super().execute_command(*args, **options)

    conn.script_flush()
    with Counting.from_url(redis_url) as client:
        Queue("r", client).enqueue_many([Queue.prepare_data(basic.noop) for _ in range(1001)])
        assert client.calls == 7 + 1
    assert Queue("r", conn).count == 1001


# -- again


@claim("P3")
@pytest.mark.parametrize("what", [LOSE, CUT])
def test_repeat_makes_no_second_job(queue: Queue, proxy: FaultProxy, conn: redis.Redis, what: str) -> None:
    rule = proxy.on("enqueue", what, times=ATTEMPTS)
    error = refused(lambda: queue.enqueue(basic.add, 1, b=2, priority=2))
    assert rule.struck == ATTEMPTS
    assert not error.nothing_written
    accepted = what == LOSE
    assert ids(conn) == {"first", *([error.job_id] if accepted else [])}, "executed, as often as it was sent, or never"
    job = error.repeat()
    assert (job.id, job.args, job.kwargs, job.priority) == (error.job_id, (1,), {"b": 2}, 2)
    again = error.repeat()
    assert again.created_at == job.created_at == Job.fetch(job.id, conn).created_at
    assert ids(conn) == {"first", job.id}
    assert [event["event"] for event in events_of(conn, job.id)] == ["queued"]
    check_conservation(conn, ["first", job.id])


def test_executed_after_the_client_gave_up(private_redis: PrivateRedis) -> None:
    conn = private_redis.conn
    queue = Queue("r", impatient(private_redis.url))
    queue.enqueue(basic.noop, job_id="first")
    private_redis.pause()
    error = refused(lambda: queue.enqueue(basic.noop))
    again = refused(error.repeat)
    assert again.job_id == error.job_id
    private_redis.resume()
    eventually(lambda: conn.zscore("rq:queue:r", error.job_id) is not None, why="what was sent is executed, twice")
    assert error.repeat().id == again.repeat().id == error.job_id
    assert ids(conn) == {"first", error.job_id}
    assert len(events_of(conn, error.job_id)) == 1


def test_repeat_starts_no_job_anew_that_has_ended_meanwhile(
    queue: Queue, proxy: FaultProxy, bench: Bench, conn: redis.Redis
) -> None:
    proxy.on("enqueue", LOSE, times=ATTEMPTS)
    error = refused(lambda: Queue("sms", queue.connection).enqueue(basic.noop))
    bench.bring(Job.fetch(error.job_id), "finished")
    before = everything(conn)
    error.repeat()
    assert everything(conn) == before


def test_times_are_those_of_the_first_call(queue: Queue, proxy: FaultProxy, conn: redis.Redis) -> None:
    soon = datetime.now(timezone.utc) + timedelta(hours=1)
    for call in (lambda: queue.enqueue_at(soon, basic.noop), lambda: queue.enqueue_in("1h", basic.noop)):
        proxy.on("enqueue", LOSE, times=ATTEMPTS)
        error = refused(call)
        due = Job.fetch(error.job_id).scheduled_at()
        job = error.repeat()
        assert job.get_status(refresh=False) == "scheduled"
        assert job.scheduled_at() == due
    assert len(ScheduledJobRegistry(conn)) == 2


def test_many_by_count_and_by_bytes(conn: redis.Redis) -> None:
    sizes = [*[10] * 600, 300_000, 300_000, 300_000, 300_000, 10, 500_000, 500_000, 10]
    datas = [Queue.prepare_data(basic.noop, ("x" * size,)) for size in sizes]
    Queue("r", conn).enqueue(basic.noop, job_id="first")
    use_settings(Settings.load(max_payload="4m"))
    datas.append(Queue.prepare_data(basic.noop, ("x" * 2_000_000,)))
    datas.append(Queue.prepare_data(basic.noop, meta={"x": "y" * 900_000}))
    datas.append(Queue.prepare_data(basic.noop, meta={"x": "y" * 900_000}))
    made = [len(batch.jobs) for batch in chunks("r", datas, PLAIN)]
    assert made == [150, 150, 150, 150, 3, 3, 2, 1, 1, 1]
    with wire(conn) as sent:
        jobs = Queue("r", conn).enqueue_many(datas)
    assert sent == ["EVALSHA"] * len(made)
    assert [job.id for job in jobs] == [data.new.id for data in datas]


def test_the_next_ones_are_made_ready_while_redis_works_and_not_sent(conn: redis.Redis) -> None:
    """Of a chunk that is refused, and of one that could not be made, nothing after it is there."""
    queue = Queue("r", conn)
    queue.enqueue(basic.noop, job_id="j0700")

    def datas(upto: int) -> Iterator[JobData]:
        for n in range(upto):
            yield Queue.prepare_data(basic.noop, job_id=f"j{n:04}")
        raise ZeroDivisionError

    with pytest.raises(DuplicateJob, match="j0700"):
        queue.enqueue_many(datas(1600))
    assert queue.count == 601
    with pytest.raises(ZeroDivisionError):
        queue.enqueue_many(datas(20))
    assert queue.count == 601, "a chunk that was not complete was not sent"
    assert len(conn.connection_pool._available_connections) == conn.connection_pool._created_connections == 1


def test_a_forgotten_script_between_two_chunks(conn: redis.Redis) -> None:
    def datas() -> Iterator[JobData]:
        for n in range(1500):
            if n in (0, 750):
                conn.script_flush()
            yield Queue.prepare_data(basic.noop, (n,))

    Queue("r", conn).enqueue_many(datas())
    assert [job.args[0] for job in Queue("r", conn).get_jobs(0, 2000)] == list(range(1500))


@pytest.mark.parametrize("what", [LOSE, CUT])
def test_many_go_on_where_they_stopped(queue: Queue, proxy: FaultProxy, conn: redis.Redis, what: str) -> None:
    datas = [Queue.prepare_data(basic.noop, (n,), job_id=f"j{n:04}") for n in range(1700)]
    expected = [data.new.id for data in datas]
    proxy.on("enqueue", what, nth=2, times=MANY)
    taken = iter(datas)
    error = refused(lambda: queue.enqueue_many(taken))
    assert list(error.job_ids) == expected[150:300]
    proxy.on("enqueue", what, nth=2, times=MANY)
    later = refused(error.repeat)
    assert list(later.job_ids) == expected[300:450]
    jobs = later.repeat()
    assert [job.id for job in jobs] == expected
    assert [raw.decode() for raw in conn.zrevrange("rq:queue:r", 0, -1)] == ["first", *expected], "in their order"
    assert [job.id for job in queue.enqueue_many(datas)] == expected, "the same data again"
    assert queue.count == 1701
    assert len(events_of(conn)) == 1701


def test_a_bulk_for_several_queues_goes_on_too(queue: Queue, proxy: FaultProxy, conn: redis.Redis) -> None:
    messages = [(kind, {"to": str(n)}) for n in range(700) for kind in ("SMS_NOTICE", "EMAIL_NOTICE")]
    proxy.on("enqueue", LOSE, nth=2, times=MANY)
    error = refused(lambda: enqueue_bulk(iter(messages), connection=queue.connection, ttl="1h", durability="primary"))
    assert (Queue("sms", conn).count, Queue("email", conn).count) == (150, 150)
    proxy.on("enqueue", CUT, nth=2, times=MANY)
    jobs = refused(error.repeat).repeat()
    assert len({job.id for job in jobs}) == len(jobs) == 1400
    for name in ("sms", "email"):
        assert [job.args[0]["to"] for job in Queue(name, conn).get_jobs(0, 1000)] == [str(n) for n in range(700)]


def test_prepared_data_is_one_job_in_whatever_process(queue: Queue, proxy: FaultProxy, conn: redis.Redis) -> None:
    data = Queue.prepare_data(basic.noop)
    kept = pickle.dumps(data)
    proxy.on("enqueue", LOSE, times=MANY)
    refused(lambda: queue.enqueue_many([data]))
    (job,) = Queue("r", conn).enqueue_many([pickle.loads(kept)])
    assert ids(conn) == {"first", job.id}
    Job.fetch(job.id).cancel()
    before = everything(conn)
    Queue("r", conn).enqueue_many([data])
    assert everything(conn) == before


def test_requeue_and_a_cron_entry_run_by_hand(queue: Queue, proxy: FaultProxy, bench: Bench, conn: redis.Redis) -> None:
    failed = bench.job("failed")
    proxy.on("requeue", LOSE, times=ATTEMPTS)
    error = refused(Job(failed.id, {}, queue.connection).requeue)
    error.repeat()
    assert fields_of(conn, failed.id)["status"] == "queued"
    scheduler = Scheduler(queue.connection)
    entry = scheduler.cron("0 0 1 1 *", basic.noop, queue="r")
    proxy.on("cron_run", LOSE, times=ATTEMPTS)
    error = refused(lambda: scheduler.run(entry))
    assert error.repeat() == error.repeat()
    assert len(ids(conn)) == 2


def test_a_repeated_enqueue_is_answered_by_a_full_server(private_redis: PrivateRedis) -> None:
    """It is an answer to what was written long ago; to refuse it now would say that nothing was."""
    queue = Queue("r", private_redis.conn)
    data = Queue.prepare_data(basic.noop)
    (job,) = queue.enqueue_many([data])
    private_redis.conn.config_set("maxmemory", 1)
    assert queue.enqueue_many([data]) == [job]
    private_redis.conn.config_set("maxmemory", 0)


def test_the_error_in_another_process(queue: Queue, proxy: FaultProxy) -> None:
    proxy.on("enqueue", CUT, times=ATTEMPTS)
    error = refused(lambda: queue.enqueue(basic.noop))
    there = pickle.loads(pickle.dumps(error))
    assert (type(there), str(there), there.job_ids, there.nothing_written) == (StoreUnavailable, str(error), error.job_ids, False)
    with pytest.raises(RuntimeError, match="make the call itself again"):
        there.repeat()
