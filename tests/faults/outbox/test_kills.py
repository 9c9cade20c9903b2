"""Writers, a forwarder that is killed again and again, a Redis that is, and jobs of which nothing is known once they have come: each row is one
job, in the order of its batch's number and its id."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
import sqlalchemy

from fusion import Queue
from fusion.contrib.outbox.database import SENT
from fusion.contrib.outbox.row import rows_of
from fusion.enqueue.call import PLAIN
from fusion.enqueue.sending import Chunk
from tests.contrib.outbox.forwarding import PRELOAD, run
from tests.contrib.outbox.hands import TASK, Base, a_server, postgres, sqlite
from tests.faults.crash.test_outbox import PLACES
from tests.faults.crash.zygote import Zygote
from tests.inprocess.databases import PostgresServer
from tests.kit import guarded
from tests.kit.length import soak_case, soaked
from tests.kit.private_redis import PrivateRedis
from tests.kit.promises import claim, promise
from tests.kit.waiting import eventually

QUEUES = ("mail", "sms", "push")
ROWS, KILLS, RESTARTS, PAUSES = soaked(600, 5000), soaked(8, 50), soaked(1, 4), soaked(1, 3)
WRITERS = 4
#: Takes what waits in a queue, in its order, and leaves none of it: the jobs have run, and their result_ttl is over.
_TAKE = """
local ids = redis.call('ZREVRANGE', KEYS[1], 0, -1)
for _, id in ipairs(ids) do
  redis.call('RPUSH', KEYS[2], id)
  redis.call('DEL', 'rq:job:' .. id)
end
redis.call('DEL', KEYS[1])
return #ids
"""


@pytest.fixture(scope="module", params=["SQLite", soak_case("PostgreSQL")])
def server(request: pytest.FixtureRequest) -> Iterator[PostgresServer | None]:
    """None for SQLite, which needs none."""
    if request.param == "SQLite":
        yield None
        return
    with a_server() as found:
        postgres(found).engine.dispose()  # it answers: all its processes are there
        yield found


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    found = Zygote(PRELOAD)
    yield found
    found.close()


class _Writer(threading.Thread):
    """Writes its share of the rows in transactions of up to twenty, of which every tenth is rolled back."""

    #: How many forwarders were killed: the rows are written over that time.
    killed = 0

    def __init__(self, base: Base, nth: int, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._engine = sqlalchemy.create_engine(base.url, connect_args={"timeout": 30} if "sqlite" in base.url else {})
        self._rows, self._nth, self._halt = base.tables.rows, nth, stop
        self.written: list[tuple[str, str]] = []

    def run(self) -> None:
        chance = random.Random(self._nth)
        while len(self.written) < ROWS // WRITERS and not self._halt.is_set():
            given = [
                (chance.choice(QUEUES), f"w{self._nth}-{len(self.written) + nth}")
                for nth in range(min(chance.randint(1, 20), ROWS // WRITERS - len(self.written)))
            ]
            with self._engine.connect() as connection:
                for queue, job_id in given:
                    chunk = Chunk.of(queue, [Queue.prepare_data(TASK, job_id=job_id, result_ttl=1)], PLAIN)
                    connection.execute(sqlalchemy.insert(self._rows), rows_of([chunk]))
                if chance.random() < 0.1:
                    connection.rollback()
                else:
                    connection.commit()
                    self.written += given
            while len(self.written) >= (self.killed + 1) * ROWS // WRITERS // KILLS and not self._halt.wait(0.01):
                if self.killed == KILLS:
                    break
        self._engine.dispose()


class _Taker(threading.Thread):
    """Takes jobs as they come, while Redis comes and goes."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._url, self.halt = url, threading.Event()

    def run(self) -> None:
        while not self.halt.wait(0.02):
            client = guarded.admin_client(self._url)
            try:
                while not self.halt.wait(0.02):
                    take(client)
            except redis.RedisError:
                continue
            finally:
                client.close()


def take(client: redis.Redis) -> None:
    for queue in QUEUES:
        client.eval(_TAKE, 2, f"rq:queue:{queue}", f"taken:{queue}")


def _kills(zygote: Zygote, base: Base, server: PrivateRedis, writers: list[_Writer]) -> int:
    """Kill forwarders at places and at moments by chance, Redis now and then, and pause now and then; how many forwarders were killed."""
    chance, killed = random.Random(7), 0
    restarts = {KILLS * (one + 1) // (RESTARTS + 1) for one in range(RESTARTS)}
    pauses = {KILLS * (one + 1) // (PAUSES + 1) + 1 for one in range(PAUSES)}
    while killed < KILLS:
        place = f"{chance.choice(PLACES[:5])}=kill@{chance.randint(1, 2)}" if chance.random() < 0.7 else ""
        trouble = threading.Timer(chance.uniform(0.1, 1.0), _restart, (server,))
        if killed + 1 in restarts:
            trouble.start()
        ended = run(zygote, base, server.url, place, burst=False, kill_after=10.0 if place else chance.uniform(0.0, 0.5))
        if trouble.ident:
            trouble.join()
        if ended.code == 1 and trouble.ident and "can't be reached" in ended.output:
            continue  # it began while there was no Redis
        assert ended.code == -signal.SIGKILL, ended.output
        killed += 1
        for writer in writers:
            writer.killed = killed
        if killed in pauses:
            time.sleep(1.2)  # over result_ttl
    return killed


def _restart(server: PrivateRedis) -> None:
    server.kill()
    server.revive()


@claim("P15")
@pytest.mark.timeout(900)
def test_each_row_is_one_job_in_order_whoever_is_killed(
    private_redis: PrivateRedis, tmp_path: Path, zygote: Zygote, server: PostgresServer | None
) -> None:
    base = sqlite(tmp_path) if server is None else postgres(server)
    base.ledger.identity()
    stop, begun = threading.Event(), time.monotonic()
    writers = [_Writer(base, nth, stop) for nth in range(WRITERS)]
    taker = _Taker(private_redis.url)
    for thread in (*writers, taker):
        thread.start()
    try:
        killed = _kills(zygote, base, private_redis, writers)
        for writer in writers:
            writer.join(300)
        ended = run(zygote, base, private_redis.url, kill_after=60)  # if it never ends
        assert ended.code == 0, ended.output
    finally:
        stop.set()
        taker.halt.set()
        taker.join(30)
    admin = guarded.admin_client(private_redis.url)
    take(admin)
    written = [pair for writer in writers for pair in writer.written]
    assert len(written) == ROWS
    seconds = time.monotonic() - begun
    for queue in QUEUES:
        found = [job_id.decode() for job_id in admin.lrange(f"taken:{queue}", 0, -1)]
        where = {"state": SENT, "queue": queue}
        ordered = [row[0] for row in base.database.select("rows", where, ("job_id",), order=("batch", "id"))]
        with promise("P15"):
            assert found == ordered
        with promise("P15"):
            assert sorted(found) == sorted(job_id for name, job_id in written if name == queue)
    eventually(lambda: base.ledger.counts()["waiting"] == 0)
    assert base.ledger.parked() == []
    numbers = base.ledger.last_numbers()
    told = f"{ROWS} rows of {WRITERS} writers, {killed} kills, {RESTARTS} restarts of Redis, {PAUSES} pauses"
    print(f"{base.engine.dialect.name}: {told}; {sum(numbers.values())} batches, {seconds:.0f} s")
    admin.close()
    base.engine.dispose()
