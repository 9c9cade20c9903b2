"""Round trips and connections of producers, of busy workers and of idle ones."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import pytest
import redis

from fusion import Queue
from fusion.async_queue import AsyncQueue
from fusion.store.write.broker import Broker
from tests.budgets import figures
from tests.jobs import basic
from tests.kit.monitor import Monitor
from tests.kit.waiting import eventually
from tests.kit.workers import Workers, process_per_job

JOBS = 300
#: Seconds between two looks of the test itself.
LOOK = 0.2


def connections_made(conn: redis.Redis) -> int:
    return int(conn.info("stats")["total_connections_received"])


def at_doorbell(conn: redis.Redis) -> bool:
    return any(client["cmd"] == "blpop" for client in conn.client_list())


def test_an_enqueue_is_one_command(conn: redis.Redis, monitor: Monitor) -> None:
    queue = Queue("sms")
    queue.enqueue(basic.noop)  # from here on the server knows the script
    before = connections_made(conn)
    monitor.commands()
    for n in range(20):
        queue.enqueue(basic.noop, n, priority=n % 3, ttl=60, meta={"n": n}, enqueue_in=n % 2 * 60 or None)
    assert monitor.commands() == ["EVALSHA"] * 20 * figures.ENQUEUE
    queue.enqueue_many([Queue.prepare_data(basic.noop, (n,)) for n in range(2 * figures.CHUNK + 1)])
    assert monitor.commands() == ["EVALSHA"] * 3
    assert connections_made(conn) - before == figures.NEW_CONNECTIONS


def test_an_enqueue_under_asyncio_is_one_command_too(conn: redis.Redis, monitor: Monitor) -> None:
    async def produce() -> int:
        async with AsyncQueue("sms") as queue:
            await queue.enqueue(basic.noop)
            before = connections_made(conn)
            monitor.commands()
            for n in range(20):
                await queue.enqueue(basic.noop, n, priority=n % 3)
            await queue.enqueue_many([AsyncQueue.prepare_data(basic.noop, (n,)) for n in range(2 * figures.CHUNK + 1)])
            return connections_made(conn) - before

    assert asyncio.run(produce()) == figures.NEW_CONNECTIONS
    assert Counter(monitor.commands())["EVALSHA"] == 20 * figures.ENQUEUE + 3


@pytest.mark.long
@pytest.mark.parametrize(
    ("flags", "per_job"),
    [
        pytest.param((), figures.PER_JOB, id="process per job", marks=process_per_job("the other case")),
        pytest.param(("--horses", "2"), figures.PER_JOB_POOL, id="warm processes"),
    ],
)
def test_round_trips_of_a_busy_worker(
    workers: Workers, conn: redis.Redis, monitor: Monitor, flags: tuple[str, ...], per_job: float
) -> None:
    queue = Queue("sms")
    datas = [Queue.prepare_data(basic.noop) for _ in range(JOBS)]
    made = 40
    queue.enqueue_many([Queue.prepare_data(basic.noop) for _ in range(20)])
    before = connections_made(conn)
    worker = workers.start("sms", "--disable-job-desc-logging", *flags)
    eventually(lambda: at_doorbell(conn))
    # from this second time on a bell rang, and all scripts are loaded
    queue.enqueue_many([Queue.prepare_data(basic.noop) for _ in range(20)])
    eventually(lambda: conn.zcard("rq:finished:sms") == made)
    eventually(lambda: at_doorbell(conn))
    # turns have the connection of the start for themselves; the next call of another kind, within some seconds, makes one more
    eventually(lambda: connections_made(conn) - before >= figures.WORKER_CONNECTIONS)
    assert connections_made(conn) - before == figures.WORKER_CONNECTIONS
    monitor.commands()
    queue.enqueue_many(datas)
    eventually(lambda: conn.zcard("rq:finished:sms") == JOBS + made, timeout=60, interval=LOOK, why=worker.output)
    sent = Counter(monitor.commands())
    looks = sent.pop("ZCARD")
    total = sum(sent.values()) - 1  # the enqueue
    print(f"{total / JOBS:.3f} round trips a job, {dict(sent)}")
    # by the test's own looks: how long it took, at least
    assert total <= JOBS * per_job + figures.BURST + figures.DUTIES_PER_SECOND * looks * LOOK
    assert total >= JOBS * 0.01, "they did run here"
    assert connections_made(conn) - before == figures.WORKER_CONNECTIONS + figures.NEW_CONNECTIONS


@pytest.mark.long
@pytest.mark.timeout(300)
@process_per_job("all do the same")
def test_idle_workers_share_what_is_done_for_the_fleet(workers: Workers, conn: redis.Redis, monitor: Monitor) -> None:
    count, window = 8, 12.0
    started = [workers.start("sms", ready=False) for _ in range(count)]
    eventually(lambda: conn.scard("rq:workers") == count, timeout=120)
    channel = Broker(conn).duties
    try:
        eventually(lambda: conn.pubsub_numsub(channel)[0][1] == count, timeout=60, why="all subscribe")
    except AssertionError as error:
        raise AssertionError(
            f"{error}; {conn.pubsub_numsub(channel)} {conn.client_list()}\n" + "\n".join(one.output for one in started)
        ) from None
    eventually(lambda: sum(client["cmd"] == "blpop" for client in conn.client_list()) == count, 60, why="all wait")
    for _ in range(5):  # on a busy machine, the work at their start may take several windows
        monitor.commands()
        began = time.monotonic()
        time.sleep(window)  # not a wait for anything: the window of the measurement
        sent, seconds = Counter(monitor.commands()), time.monotonic() - began
        scripts, total = sent["EVALSHA"], sum(sent.values()) - 1
        print(
            f"{scripts / seconds / count:.2f} scripts and {total / seconds / count:.2f} commands a worker and second, {dict(sent)}"
        )
        most_scripts, most = (each * seconds * count + figures.BURST for each in (figures.IDLE_SCRIPTS, figures.IDLE_COMMANDS))
        if scripts <= most_scripts and total <= most:
            break
    assert scripts <= most_scripts
    assert total <= most
    assert sent["EVALSHA"] >= seconds, "each second somebody looks what is due"
