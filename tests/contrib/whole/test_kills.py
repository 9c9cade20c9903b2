"""SIGKILL where a transaction is open, or has just been committed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import redis

from fusion import Job, Queue
from tests.contrib.harness import Manages, manage
from tests.contrib.whole.on import ON_POSTGRESQL, ON_SQLITE
from tests.kit.length import soak_case
from tests.kit.waiting import eventually, unhurried
from tests.kit.witnesses import alive, status_of

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]

FAST = {"FUSION_LEASE": "2", "FUSION_REAP_INTERVAL": "0.5"}


def order(number: str) -> tuple[str, int]:
    from tests.contrib.shop.orders.models import Order

    found = Order.objects.get(number=number)
    return found.state, found.runs


@ON_POSTGRESQL
@pytest.mark.parametrize("struck", ["worker", soak_case("job")])
def test_writes_of_a_killed_job_are_rolled_back_and_its_next_run_commits(
    manages: Manages, conn: redis.Redis, shop: Path, tmp_path: Path, struck: str
) -> None:
    from tests.contrib.shop.orders.models import Order

    seen = tmp_path / "seen"
    pk = Order.objects.create(number="1").pk
    job = Queue("default").enqueue("tests.contrib.shop.orders.tasks.ship_or_hang", pk, str(seen))
    worker = manages.start("fusion_worker", "--skip-checks", **FAST)
    worker.until(lambda: seen.exists() and seen.read_text().endswith("\n"), unhurried(30), "it has a transaction open")
    (first,) = map(int, seen.read_text().split())
    assert order("1") == ("new", 0)
    os.kill(worker.pid if struck == "worker" else first, signal.SIGKILL)
    if struck == "worker":
        worker.wait()
        eventually(lambda: not alive(first), why="its job ends with it")
        worker = manages.start("fusion_worker", "--skip-checks", **FAST)
    worker.until(lambda: status_of(conn, job.id) == "finished", unhurried(30), "it has run again")
    assert order("1") == ("shipped", 1)
    assert len(set(seen.read_text().split())) == 2
    assert job.get_status() == "finished"


@ON_SQLITE
def test_a_web_process_that_is_killed_as_it_has_committed_loses_the_job_unless_there_is_an_outbox(
    manages: Manages, conn: redis.Redis
) -> None:
    for number, env in {"sent": {}, "row": {"SHOP_OUTBOX": "1"}}.items():
        site = manages.serve(**env)
        with pytest.raises(OSError):  # noqa: PT011 - nobody answers
            site.post(f"/orders/killed/{number}")
        assert site.wait() == -signal.SIGKILL, site.output
        assert order(number) == ("new", 0) and not Job.exists(f"ship-{number}")
    forwarded = manage("fusion_outbox", "run", "--burst")
    assert forwarded.returncode == 0, forwarded.stderr
    assert (Job.exists("ship-sent"), Job.exists("ship-row")) == (False, True)
    worker = manages.start("fusion_worker", "--burst", "--skip-checks")
    assert worker.wait(unhurried(30)) == 0, worker.output
    assert (order("sent"), order("row")) == (("new", 0), ("shipped", 1))
