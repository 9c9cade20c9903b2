"""One long job among kills and deploys: it ends once, and every step was done."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from pathlib import Path

import pytest
import redis

from fusion import Queue
from tests.faults.rig.conservation import check_conservation
from tests.jobs import long
from tests.kit.hands import events_of
from tests.kit.length import soak_case, soaked
from tests.kit.waiting import eventually
from tests.kit.workers import WorkerProcess, Workers

ENV = {"FUSION_TASKS": "tests.jobs", "FUSION_LEASE": "2", "FUSION_REAP_INTERVAL": "0.5"}
STEPS, STRIKES = soaked((3_000, 8), (10_000, 24))
#: Steps that may be done again for each kill: those since the last cursor that was stored, two seconds' worth at most.
AGAIN = 600


def noted(seen: Path) -> list[tuple[int, int]]:
    """The steps that were done and in which process; the last line may be half written."""
    return [(int(step), int(pid)) for step, _, pid in (line.partition(" ") for line in seen.read_text().split("\n")[:-1])]


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("mode", [pytest.param((), id="fork"), soak_case(("--horses", "2"), id="pool")])
def test_all_its_steps_among_kills_and_deploys(
    workers: Workers, conn: redis.Redis, tmp_path: Path, mode: tuple[str, ...]
) -> None:
    (seen := tmp_path / "seen").touch()
    (allowed := tmp_path / "seen.allowed").write_text("1")
    job = Queue("sms").enqueue(long.allowed_steps, str(seen), STEPS, 0.003, job_timeout=600)
    fleet: list[WorkerProcess] = [workers.start("sms", *mode, env=ENV) for _ in range(2)]
    strikes: Counter[str] = Counter()
    last = -1

    def moved() -> tuple[int, int] | None:
        steps = noted(seen)
        return steps[-1] if steps and steps[-1][0] > last else None

    chance = random.Random(20)
    for number in range(STRIKES):
        reached, _ = eventually(moved, timeout=40, why="\n".join(worker.output[-2000:] for worker in fleet))
        last = max(last, reached) + chance.randrange(20, 200)
        # On a slow machine the job would get far ahead of its test.
        allowed.write_text(str(last + 50))
        eventually(lambda: moved() or job.get_status() == "finished", timeout=40)
        if job.get_status() == "finished":
            break
        kind = ("horse", "worker", "stop", "reload")[number % 4]
        strikes[kind] += 1
        if kind == "horse":
            os.kill(noted(seen)[-1][1], signal.SIGKILL)
        elif kind == "reload":
            for worker in fleet:
                os.kill(worker.pid, signal.SIGHUP)
        else:
            job.refresh()
            name = job.worker_name
            holder = next((worker for worker in fleet if name.endswith(f".{worker.pid}")), fleet[0])
            fleet.remove(holder)
            os.kill(holder.pid, signal.SIGKILL if kind == "worker" else signal.SIGTERM)
            if kind == "stop":
                allowed.write_text(str(last + 150))  # it gives way at its next step, so it needs one
                assert holder.wait(15) == 0, holder.output
            fleet.append(workers.start("sms", *mode, env=ENV))
    allowed.write_text(str(STEPS))
    assert job.wait(200) == "finished", fleet[0].output
    assert job.result == STEPS
    done = Counter(step for step, _ in noted(seen))
    assert set(done) == set(range(STEPS)), "every step"
    kills = strikes["horse"] + strikes["worker"]
    assert strikes.total() >= STRIKES * 5 // 6
    assert sum(done.values()) - STEPS <= AGAIN * kills
    told = Counter(event["event"] for event in events_of(conn) if event["job_id"] == job.id)
    assert told["completed"] == 1
    assert not told["failed"] and not told["retry"]
    assert job.attempts == 0
    assert job.progress is not None and job.progress.done == STEPS
    check_conservation(conn, [job.id])
