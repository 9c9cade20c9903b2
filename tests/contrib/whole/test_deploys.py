"""New code, and tables that are not there yet."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from fusion import Job, Queue, Retry
from tests.contrib.databases import ShopDatabase
from tests.contrib.harness import Manages, manage
from tests.contrib.whole.on import ON_SQLITE
from tests.kit.waiting import eventually, unhurried
from tests.kit.witnesses import field, status_of

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]

SHIP = "tests.contrib.shop.orders.tasks.ship"


@ON_SQLITE
def test_jobs_of_a_deploy_without_its_migration_pass_after_it(
    manages: Manages, conn: redis.Redis, database: ShopDatabase, tmp_path: Path
) -> None:
    env = database.another(tmp_path)
    later = Queue("mail").enqueue(SHIP, 1, retry=Retry(99, interval=1))
    job = Queue("mail").enqueue(SHIP, 2)
    worker = manages.start("fusion_worker", **env).ready()
    assert "unapplied migration(s)" in worker.output
    worker.until(lambda: status_of(conn, job.id) == "failed", unhurried(20), "it fails")
    worker.until(lambda: int(field(conn, later.id, "attempts") or 0) > 1, unhurried(20), "it is tried again")
    missing = "no such table: orders_order" if database.server is None else 'relation "orders_order" does not exist'
    for one in (job, later):
        assert missing in (Job.fetch(one.id, conn).exc_info or "")
    made = (
        "from django.core.management import call_command; from tests.contrib.shop.orders.models import Order;"
        "call_command('migrate'); [Order.objects.create(pk=pk, number=pk) for pk in (1, 2)]"
    )
    assert manage("shell", "-c", made, **env).returncode == 0
    worker.until(lambda: status_of(conn, later.id) == "finished", unhurried(20), "its next try passes, in the same worker")
    assert status_of(conn, job.id) == "failed"
    assert manage("fusion", "requeue", "--all").returncode == 0
    worker.until(lambda: status_of(conn, job.id) == "finished", unhurried(20), "what is put back passes, too")
    worker.stop()
    worker = manages.start("fusion_worker", "--burst", **env)
    assert worker.wait(unhurried(30)) == 0
    assert "unapplied" not in worker.output


@pytest.fixture
def parcels(tmp_path: Path) -> Callable[[int], dict[str, str]]:
    """An app whose task weighs so much. Returns what processes need to have it in the shop."""

    def write(weight: int) -> dict[str, str]:
        app = tmp_path / "parcels"
        app.mkdir(exist_ok=True)
        (app / "__init__.py").touch()
        text = f"def weigh():\n    return {weight}\n"
        file = app / "tasks.py"
        file.write_text(text)
        # a time that differs, however coarse the clock of the file system is
        os.utime(file, (file.stat().st_atime, file.stat().st_mtime + 5 * weight))
        return {"SHOP_APPS": "parcels", "PYTHONPATH": f"{tmp_path}{os.pathsep}.", "TMPDIR": str(tmp_path)}

    return write


def weighed(conn: redis.Redis) -> object:
    job = Queue("default").enqueue("parcels.tasks.weigh")
    eventually(lambda: status_of(conn, job.id) in ("finished", "failed"), unhurried(30))
    return Job.fetch(job.id, conn).return_value()


@ON_SQLITE
def test_a_worker_that_reloads_runs_what_is_written_now(
    manages: Manages, conn: redis.Redis, parcels: Callable[[int], dict[str, str]]
) -> None:
    worker = manages.start("fusion_worker", "--reload", **parcels(1)).ready()
    assert weighed(conn) == 1, worker.output
    parcels(2)
    worker.says("ready for jobs", times=2, timeout=unhurried(30))
    assert weighed(conn) == 2, worker.output


@ON_SQLITE
def test_the_worker_beside_runserver_runs_what_is_written_now(
    manages: Manages, conn: redis.Redis, parcels: Callable[[int], dict[str, str]]
) -> None:
    site = manages.serve(reload=True, SHOP_WORKER="1", **parcels(1))
    site.says("ready for jobs", timeout=unhurried(30))
    assert weighed(conn) == 1, site.output
    parcels(2)
    eventually(lambda: weighed(conn) == 2, unhurried(60), 0.5, why=site.output)
    os.killpg(site.pid, signal.SIGINT)
    site.wait(unhurried(30))
