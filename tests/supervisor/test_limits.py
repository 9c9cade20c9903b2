"""Concurrency keys under a supervisor whose workers and jobs' processes are killed: never more at once than the limit, as the tasks themselves
see it, in the order of each key, and no slot is lost."""

from __future__ import annotations

import random
import signal
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import redis

from fusion import Queue, Retry
from fusion.enqueue.build import JobData
from fusion.store.read.limit_inspector import LimitInspector
from fusion.store.write.broker import Broker
from tests.faults.rig.conservation import check_conservation
from tests.jobs import keyed
from tests.kit.length import soak_case, soaked
from tests.kit.promises import promise
from tests.kit.waiting import eventually
from tests.store.limits_hands import faults
from tests.supervisor.harness import Service, Services


def enqueue(directory: Path, keys: int, jobs: int, limit: int, seconds: float) -> list[str]:
    datas = [
        Queue.prepare_data(
            keyed.among,
            (str(directory), f"k{n % keys}", n // keys, limit, seconds),
            concurrency_key=f"k{n % keys}",
            max_concurrent=limit,
            result_ttl=-1,
        )
        for n in range(jobs)
    ]
    return [job.id for job in Queue("s").enqueue_many(datas)]


def kill_some(service: Service, chance: random.Random) -> None:
    """A worker, or one of the processes below it."""
    workers = service.workers()
    if not workers:
        return
    victim = chance.choice(workers)
    with suppress(psutil.NoSuchProcess):
        below = [one for one in victim.children(recursive=True) if one.parent() != victim]
        if below and chance.random() < 0.7:
            victim = chance.choice(below)
        victim.send_signal(signal.SIGKILL)


def ended(conn: redis.Redis) -> int:
    return conn.zcard("rq:finished:s") + conn.zcard("rq:queue:failed")


def check(
    services: Services,
    conn: redis.Redis,
    directory: Path,
    *,
    keys: int,
    jobs: int,
    limit: int,
    kills: int,
    args: tuple[str, ...],
    seconds: float = 0.01,
    claim_ahead: str = "4",
) -> list[str]:
    """`kills` spread over the run, of jobs that take this many `seconds`. Returns their ids."""
    chance = random.Random(keys)
    ids = enqueue(directory, keys, jobs, limit, seconds)
    service = services.start(*args, env={"FUSION_TASKS": "tests.jobs.keyed", "FUSION_CLAIM_AHEAD": claim_ahead})
    for nth in range(kills):
        eventually(lambda: ended(conn) >= jobs * (nth + 1) // (kills + 2), 60, why="jobs go on")  # noqa: B023
        kill_some(service, chance)
    eventually(lambda: ended(conn) == jobs, 300, why="all end")
    service.signal(signal.SIGTERM)
    service.wait(30)
    with promise("P5", "P10"):
        assert not (directory / "too-many").exists(), (directory / "too-many").read_text()
        assert faults(conn) == []
    assert conn.keys("rq:limits:held:*") + conn.keys("rq:limits:waiting:*") == []
    Broker(conn).clean()
    assert LimitInspector(conn).limits_audit() == 0
    check_conservation(conn, ids)
    alone = {fields[b"job_id"].decode() for _, fields in conn.xrange("rq:events") if fields.get(b"reason") == b"probation"}
    stepped_aside = {f"k{ids.index(one) % keys}" for one in alone}
    for key in ({f"k{n}" for n in range(keys)} - stepped_aside) if limit == 1 else ():
        order = [int(line) for line in (directory / f"{key}.order").read_text().split()]
        with promise("P10"):
            assert order == sorted(order), f"{key}: {order}"
    return ids


@pytest.mark.long
def test_keys_with_one_slot_through_kills(services: Services, conn: redis.Redis, tmp_path: Path) -> None:
    check(services, conn, tmp_path, keys=5, jobs=60, limit=1, kills=3, args=(2, "s", "--slots", "2"))


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("limit", [1, soak_case(3)])
def test_many_keys_through_many_kills(services: Services, conn: redis.Redis, tmp_path: Path, limit: int) -> None:
    check(
        services,
        conn,
        tmp_path,
        keys=1000 // limit,
        jobs=soaked(6_000, 20_000),
        limit=limit,
        kills=soaked(18, 60),
        args=(4, "s", "--slots", "4", "--horses", "4"),
    )


def starts_out_of_order(conn: redis.Redis, key_of: dict[str, str], rank_of: dict[str, tuple[int, int]]) -> list[str]:
    """Read the event log: whenever a job of a key starts, no better one of that key waits.

    A job that was lost and waits for a time is not counted until it is back in its queue.
    """
    waiting: dict[str, set[str]] = {}
    wrong = []
    for _, fields in conn.xrange("rq:events"):
        job_id, event = fields[b"job_id"].decode(), fields[b"event"]
        if job_id not in key_of:
            continue
        line = waiting.setdefault(key_of[job_id], set())
        if event == b"processing":
            better = [other for other in line if rank_of[other] < rank_of[job_id]]
            if better:
                wrong.append(f"{key_of[job_id]}: {job_id} {rank_of[job_id]} started before {[rank_of[one] for one in better]}")
            line.discard(job_id)
        elif event in (b"queued", b"released", b"displaced") or (event == b"blocked" and fields.get(b"reason") == b"limit"):
            line.add(job_id)
        else:
            line.discard(job_id)
    return wrong


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("keys", "limit"), [(100, 1), (100, 3), (2, 1), (2, 2)])
def test_jobs_of_a_key_start_in_their_order_while_some_are_claimed_ahead(
    services: Services, conn: redis.Redis, tmp_path: Path, keys: int, limit: int
) -> None:
    """Short jobs with long ones in front, urgent newcomers, jobs that fail and are tried again, and kills.

    Of few keys most jobs run behind the one before, in its process and its slot; of many with three slots most wait with a slot of their own.
    """
    jobs, chance = soaked(2_000, 10_000), random.Random(limit)
    key_of: dict[str, str] = {}
    rank_of: dict[str, tuple[int, int]] = {}

    def add(number: int, priority: int, seconds: float) -> JobData:
        key, job_id = f"k{number % keys}", f"j{number}"
        key_of[job_id], rank_of[job_id] = key, (-priority, number)
        fails = number % 50 == 7
        return Queue.prepare_data(
            keyed.among_failing if fails else keyed.among,
            (str(tmp_path), key, number, limit, seconds),
            concurrency_key=key,
            max_concurrent=limit,
            priority=priority,
            job_id=job_id,
            retry=Retry(max=1) if fails else None,
            result_ttl=-1,
        )

    queue = Queue("s")
    queue.enqueue_many([add(n, 1, 1.0 if n < 2 else 0.001) for n in range(jobs)])
    args = (2, "s", "--slots", "2", "--horses", "2")
    service = services.start(*args, env={"FUSION_TASKS": "tests.jobs.keyed", "FUSION_CLAIM_AHEAD": "100"})
    rounds = soaked(8, 40)
    for nth in range(rounds):
        eventually(lambda: ended(conn) >= jobs * (nth + 1) // (rounds + 2), 120, why="jobs go on")  # noqa: B023
        queue.enqueue_many([add(jobs + nth * 20 + n, 2, 0.001) for n in range(20)])
        if nth % 2:
            kill_some(service, chance)
    eventually(lambda: ended(conn) == len(key_of), 300, why="all end")
    service.signal(signal.SIGTERM)
    service.wait(30)
    ahead = sum((conn.hget(f"rq:job:{one}", "execution_id") or b"")[-1:] == b"a" for one in key_of)
    behind = sum(conn.hexists(f"rq:job:{one}", "follows") for one in key_of)
    print(f"{ahead} of {len(key_of)} were claimed ahead, {behind} behind another of their key")
    with promise("P5", "P10"):
        assert not (tmp_path / "too-many").exists(), (tmp_path / "too-many").read_text()
        assert faults(conn) == []
    with promise("P10"):
        assert starts_out_of_order(conn, key_of, rank_of) == []
    check_conservation(conn, key_of)
    assert ahead > 0 or (keys, limit) == (100, 1)
    assert behind > 0 or keys == 100


@pytest.mark.long
@pytest.mark.timeout(900)
def test_short_jobs_of_keys_with_slots_to_spare_wait_in_processes_through_kills(
    services: Services, conn: redis.Redis, tmp_path: Path
) -> None:
    ids = check(
        services,
        conn,
        tmp_path,
        keys=20,
        jobs=soaked(2_000, 10_000),
        limit=6,
        kills=soaked(6, 30),
        args=(2, "s", "--slots", "2", "--horses", "2"),
        seconds=0.001,
        claim_ahead="100",
    )
    ahead = sum(conn.hget(f"rq:job:{one}", "execution_id")[-1:] == b"a" for one in ids)
    print(f"{ahead} of {len(ids)} were claimed ahead")
    assert ahead > 0
