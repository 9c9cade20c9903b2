"""durability="replicated": what returned is on a replica too, and what is not was said. Without the wish nothing changes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator

import pytest
import redis

from fusion import AsyncQueue, Job, NotReplicated, Queue, StoreUnavailable
from fusion.enqueue.build import JobData
from fusion.enqueue.graph import Graph, write
from fusion.settings import Settings, use_settings
from fusion.store.client.async_connections import twin
from fusion.store.client.connections import connect
from fusion.store.layout.records import Replicas
from fusion.store.redis_server.binary import ServerBinary
from fusion.store.scripting.host import run
from fusion.store.write.broker import Broker
from tests.faults.rig.conservation import check_conservation
from tests.faults.rig.replicas import Pair
from tests.jobs import basic
from tests.kit.hands import everything, wire
from tests.kit.promises import claim
from tests.kit.waiting import eventually


@pytest.fixture
def pair(server_binary: ServerBinary, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    monkeypatch.setenv("FUSION_REPLICAS_TIMEOUT", "20")  # where all is well a busy machine has time
    found = Pair(server_binary.path)
    yield found
    found.release_replica()
    found.close()


@pytest.fixture
def conn(pair: Pair) -> Iterator[redis.Redis]:
    """A producer's client of the primary."""
    found = pair.client(0)
    yield found
    found.close()


def missed(call: Callable[[], object]) -> NotReplicated:
    with pytest.raises(NotReplicated) as caught:
        call()
    assert isinstance(caught.value, StoreUnavailable)
    assert not caught.value.nothing_written
    return caught.value


def in_the_end(error: NotReplicated) -> Job:
    """What `repeat` returns once there is somebody who acknowledges."""

    def repeated() -> Job | None:
        try:
            found = error.repeat()
        except NotReplicated:
            return None
        assert isinstance(found, Job)
        return found

    job = eventually(repeated, timeout=30)
    assert job is not None
    return job


def test_an_enqueue_that_returned_is_on_the_replica(pair: Pair, conn: redis.Redis) -> None:
    queue, there = Queue("q", conn), pair.replica.client()
    for n in range(50):
        job = queue.enqueue(basic.noop, n, durability="replicated")
        assert there.exists(f"rq:job:{job.id}")
    jobs = queue.enqueue_many([Queue.prepare_data(basic.noop) for _ in range(1200)], durability="replicated")
    assert there.zcard("rq:queue:q") == 1250
    assert there.exists(*(f"rq:job:{job.id}" for job in jobs)) == 1200
    later = queue.enqueue_in("1h", basic.noop, durability="replicated")
    assert there.zscore("rq:scheduler:scheduled_jobs", later.id) is not None
    assert queue.enqueue_call(basic.noop, durability="replicated", replicas=1, replicas_timeout="2s").get_status() == "queued"


def test_the_wish_costs_no_round_trip_more_and_survives_a_forgotten_script(conn: redis.Redis) -> None:
    queue = Queue("q", conn)
    queue.enqueue(basic.noop)
    with wire(conn) as sent:
        queue.enqueue(basic.noop)
        queue.enqueue(basic.noop, durability="replicated")
    assert sent == ["EVALSHA", "EVALSHA"], "WAIT goes in the same packet"
    conn.script_flush()
    with wire(conn) as sent:
        job = queue.enqueue(basic.noop, durability="replicated")
    assert sent == ["EVALSHA", "EVAL"]
    assert Job.fetch(job.id, conn).get_status() == "queued"


def test_without_the_wish_nobody_waits(pair: Pair, conn: redis.Redis) -> None:
    pair.halt_replica()
    queue = Queue("q", conn)
    calls = conn.info("commandstats").get("cmdstat_wait", {}).get("calls", 0)
    queue.enqueue(basic.noop)
    queue.enqueue_many([Queue.prepare_data(basic.noop)])
    assert conn.info("commandstats").get("cmdstat_wait", {}).get("calls", 0) == calls


def test_a_replica_that_is_behind(pair: Pair, conn: redis.Redis) -> None:
    pair.halt_replica()
    queue = Queue("q", conn)
    error = missed(lambda: queue.enqueue(basic.noop, job_id="j", durability="replicated", replicas_timeout=0.1))
    assert (error.job_id, error.acknowledged) == ("j", 0)
    assert "job j is on the primary, but 0 of 1 replicas acknowledged within 0.1 s" in str(error)
    before = everything(conn)
    assert missed(error.repeat).job_id == "j"
    pair.release_replica()
    pair.wait_in_step()
    assert in_the_end(error).id == "j"
    assert everything(conn) == before == everything(pair.replica.client())


def test_more_replicas_than_there_are(conn: redis.Redis) -> None:
    error = missed(lambda: Queue("q", conn).enqueue(basic.noop, durability="replicated", replicas=2, replicas_timeout=0.1))
    eventually(lambda: missed(error.repeat).acknowledged == 1, why="the one there is has it")
    datas = [Queue.prepare_data(basic.noop, job_id=f"j{n}") for n in range(600)]
    error = missed(lambda: Queue("q", conn).enqueue_many(datas, durability="replicated", replicas=2, replicas_timeout=0.1))
    assert len(error.job_ids) == 150
    assert "jobs j0, j1, j2 and 147 more are on the primary" in str(error)
    assert Queue("q", conn).count == 151, "no further than that"


def test_a_repetition_waits_on_a_connection_that_wrote_nothing_before(pair: Pair, conn: redis.Redis) -> None:
    """WAIT counts who has what its own connection wrote last: on a new one, that is nothing, and everybody has it."""
    pair.halt_replica()
    data = Queue.prepare_data(basic.noop)
    missed(lambda: Queue("q", conn).enqueue_many([data], durability="replicated", replicas_timeout=0.1))
    with pair.client(0) as other:
        missed(lambda: Queue("q", other).enqueue_many([data], durability="replicated", replicas_timeout=0.1))
    Job.fetch(data.new.id, conn).cancel()
    with pair.client(0) as other:
        missed(lambda: Queue("q", other).enqueue_many([data], durability="replicated", replicas_timeout=0.1))
    assert -1 < conn.ttl(f"rq:job:{data.new.id}") <= 86400 + 3600, "an ended job goes on expiring"


def test_a_patience_beyond_the_clients_own(pair: Pair) -> None:
    """It learns in time how many acknowledged, instead of giving up on the connection."""
    client = redis.Redis.from_url(pair.url(0), protocol=2, socket_timeout=1.0)
    pair.halt_replica()
    error = missed(lambda: Queue("q", client).enqueue(basic.noop, durability="replicated", replicas_timeout=1.5))
    assert "within 1.5 s" in str(error)
    assert Queue("q", client).count == 1


def test_the_setting_is_for_all_and_a_call_may_differ(pair: Pair, conn: redis.Redis) -> None:
    use_settings(Settings.load(durability="replicated", replicas=1, replicas_timeout=0.1))
    pair.halt_replica()
    missed(lambda: Queue("q", conn).enqueue(basic.noop))
    missed(lambda: Queue("q", conn).enqueue_many([Queue.prepare_data(basic.noop)]))
    assert Queue("q", conn).enqueue(basic.noop, durability="primary").get_status() == "queued"
    pair.release_replica()
    pair.wait_in_step()
    use_settings(Settings.load(durability="replicated", replicas_timeout=10))
    assert pair.replica.client().exists(f"rq:job:{Queue('q', conn).enqueue(basic.noop).id}")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"durability": "disk"}, "durability='disk': use 'primary' or 'replicated'"),
        ({"durability": "replicated", "replicas": 0}, "replicas=0"),
        ({"durability": "replicated", "replicas": True}, "replicas=True"),
        ({"durability": "replicated", "replicas_timeout": 0}, "replicas_timeout=0"),
        ({"replicas": 2}, "replicas=2: needs durability='replicated'; to pass it to the task use enqueue_call"),
        ({"durability": "primary", "replicas_timeout": 2}, "replicas_timeout=2: needs durability"),
    ],
    ids=str,
)
def test_a_wrong_wish_is_named_and_nothing_is_written(conn: redis.Redis, wrong: dict[str, object], said: str) -> None:
    for call in (lambda: Queue("q", conn).enqueue(basic.noop, **wrong), lambda: Queue("q", conn).enqueue_many([], **wrong)):
        with pytest.raises(ValueError, match=r".") as caught:
            call()
        assert said in str(caught.value)
    with pytest.raises(ValueError, match="give it to enqueue_many"):
        Queue.prepare_data(basic.noop, **wrong)
    assert conn.dbsize() == 0


def test_a_user_without_the_wait_command_gets_an_error_and_the_job_is_enqueued(conn: redis.Redis, pair: Pair) -> None:
    conn.execute_command("ACL", "SETUSER", "deaf", "on", "nopass", "~*", "&*", "+@all", "-wait")
    other = connect(pair.url(0).replace("://", "://deaf:x@"))
    error = missed(lambda: Queue("q", other).enqueue(basic.noop, job_id="j", durability="replicated"))
    assert "refused a command" in str(error)
    assert Job.fetch("j", conn).get_status() == "queued"


@claim("P3")
@pytest.mark.gate
def test_the_link_cut_the_primary_killed_the_replica_promoted(pair: Pair, conn: redis.Redis) -> None:
    """Each job that is lost had raised; each that had been acknowledged is there."""
    queue = Queue("q", conn)
    kept = [queue.enqueue(basic.noop, n, durability="replicated").id for n in range(20)]
    pair.cut()
    warned = [missed(lambda: queue.enqueue(basic.noop, durability="replicated", replicas_timeout=0.01)) for _ in range(20)]
    assert queue.count == 40, "all are on the primary"
    pair.primary.process.kill()
    there = pair.client(1)
    left = {raw.decode() for raw in there.zrange("rq:queue:q", 0, -1)}
    assert left == set(kept)
    check_conservation(there, kept)
    with pytest.raises(StoreUnavailable, match="can't be reached"):
        warned[0].repeat()


@pytest.mark.parametrize("kind", ["threads", "asyncio"])
def test_jobs_that_come_in_several_calls(pair: Pair, conn: redis.Redis, kind: str) -> None:
    """A graph returns when all of it is on the replica."""

    def graph(name: str) -> list[JobData]:
        first = Queue.prepare_data(basic.noop, job_id=name)
        return [first, *(Queue.prepare_data(basic.noop, job_id=f"{name}-{n}", depends_on=first) for n in range(70))]

    async def awaited(datas: list[JobData]) -> list[Job]:
        client = twin(conn)
        try:
            return await AsyncQueue("q", client).enqueue_many(datas, durability="replicated", replicas_timeout=2)
        finally:
            await client.aclose()

    def enqueue(datas: list[JobData]) -> list[Job]:
        if kind == "asyncio":
            return asyncio.run(awaited(datas))
        return Queue("q", conn).enqueue_many(datas, durability="replicated", replicas_timeout=2)

    jobs = enqueue(graph("a"))
    assert pair.replica.client().exists(*(f"rq:job:{job.id}" for job in jobs)) == 71
    pair.halt_replica()
    datas = graph("b")
    assert missed(lambda: enqueue(datas)).job_ids == tuple(data.new.id for data in datas)
    sent = Graph.of([data.new for data in graph("c")])
    run(write(sent, "q", Broker(conn)))
    with pair.client(0) as other, pytest.raises(NotReplicated):  # on a connection that wrote nothing before
        run(write(sent, "q", Broker(other), Replicas(1, 0.1)))


def test_a_demoted_primary_vouches_for_nothing(pair: Pair, conn: redis.Redis) -> None:
    """A repetition that it could answer from what it has, and is about to lose, is refused as any other enqueue."""
    queue = Queue("q", conn)
    data = Queue.prepare_data(basic.noop)
    pair.cut()
    queue.enqueue_many([data])
    conn.replicaof("127.0.0.1", pair.ports[1])
    with pytest.raises(StoreUnavailable, match="read only replica"):
        queue.enqueue_many([data])
    assert Queue("q", pair.client(1)).enqueue_many([data])[0].id == data.new.id


def test_asyncio_the_same(pair: Pair, conn: redis.Redis) -> None:
    async def both() -> NotReplicated:
        client = twin(conn)
        try:
            queue = AsyncQueue("q", client)
            job = await queue.enqueue(basic.noop, durability="replicated")
            assert pair.replica.client().exists(f"rq:job:{job.id}")
            await client.script_flush()
            await queue.enqueue(basic.noop, durability="replicated")
            pair.halt_replica()
            with pytest.raises(NotReplicated) as caught:
                await queue.enqueue(basic.noop, job_id="j", durability="replicated", replicas_timeout=0.1)
            with pytest.raises(NotReplicated):
                await caught.value.repeat()
            pair.release_replica()
            pair.wait_in_step()
            for _ in range(100):
                with contextlib.suppress(NotReplicated):
                    assert (await caught.value.repeat()).id == "j"
                    return caught.value
            raise AssertionError("nobody acknowledged")
        finally:
            await client.aclose()

    error = asyncio.run(both())
    assert (error.job_id, error.acknowledged) == ("j", 0)
    assert Queue("q", conn).count == 3
