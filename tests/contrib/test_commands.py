"""`manage.py fusion_...`: the command line of Fusion in a project, and what its workers find."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
import redis

from fusion import Queue
from fusion.cli.main import COMMANDS
from tests.architecture.source import ROOT
from tests.contrib.harness import Manages, manage
from tests.kit.length import long_case
from tests.kit.waiting import eventually, unhurried
from tests.kit.witnesses import status_of

SHIP = "tests.contrib.shop.orders.tasks.ship"
LOOK = "tests.contrib.shop.orders.tasks.look"
SHORTCUTS = ROOT / "fusion" / "contrib" / "django" / "management" / "commands"


pytestmark = pytest.mark.timeout(240)  # Django is loaded twice for each process


def order(number: str) -> int:
    from tests.contrib.shop.orders.models import Order

    return Order.objects.create(number=number).pk


def state(pk: int) -> str:
    from tests.contrib.shop.orders.models import Order

    return Order.objects.get(pk=pk).state


def test_each_shortcut_is_a_command_of_the_command_line() -> None:
    names = {path.stem.removeprefix("fusion_") for path in SHORTCUTS.glob("fusion_*.py")}
    assert {"start", "worker", "scheduler", "info", "doctor"} <= names <= set(COMMANDS)


@pytest.mark.parametrize(
    "executor",
    ["process", *(long_case(kind) for kind in ("pool", "thread", "asyncio"))],
)
def test_a_worker_has_the_tasks_of_all_apps_and_connections_of_its_own(
    manages: Manages, conn: redis.Redis, tmp_path: Path, executor: str
) -> None:
    pk, seen = order("7"), tmp_path / "seen"
    jobs = [Queue("mail").enqueue(SHIP, pk), *(Queue("default").enqueue(LOOK, str(seen)) for _ in range(3))]
    worker = manages.start("fusion_worker", "--burst", "--executor", executor)
    assert worker.wait(unhurried(30)) == 0
    assert [status_of(conn, job.id) for job in jobs] == ["finished"] * 4, worker.output
    assert state(pk) == "shipped"
    looks = seen.read_text().splitlines()
    assert len(looks) == 3
    assert "unapplied" not in worker.output


def test_manage_commands_have_the_flags_of_the_command_line(redis_url: str, shop: Path) -> None:
    Queue("mail").enqueue(SHIP, 1)
    shown = manage("fusion_info", "--json")
    assert [queue["name"] for queue in json.loads(shown.stdout)["queues"]] == ["mail"], shown.stderr
    wrong = manage("fusion", "infos")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "did you mean 'info'?" in wrong.stderr


def test_a_command_is_called_from_code(redis_url: str, shop: Path) -> None:
    from django.core.management import CommandError, call_command

    Queue("mail").enqueue(SHIP, 1)
    out = StringIO()
    call_command("fusion_info", "--json", stdout=out)
    assert json.loads(out.getvalue())["queues"][0]["name"] == "mail"
    with pytest.raises(CommandError):
        call_command("fusion", "infos", stdout=out)


MANAGE = """
import os, sys
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "nowhere.settings")
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
"""
SETTINGS = """
SECRET_KEY = "of tests"
INSTALLED_APPS = ["fusion.contrib.django", "parcels"]
FUSION = {"QUEUES": "parcels"}
"""
TASKS = """
import os
from parcels.rates import RATE
def weigh():
    return RATE
"""


@pytest.mark.long
def test_settings_and_pythonpath_reach_every_process(manages: Manages, conn: redis.Redis, tmp_path: Path) -> None:
    project, apps = tmp_path / "project", tmp_path / "apps"
    for name, text in {
        "project/manage.py": MANAGE,
        "project/site_settings.py": SETTINGS,
        "apps/parcels/__init__.py": "",
        "apps/parcels/rates.py": "from django.apps import apps\nRATE = len(list(apps.get_app_configs()))\n",
        "apps/parcels/tasks.py": TASKS,
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    job = Queue("parcels").enqueue("parcels.tasks.weigh")
    program = (str(project / "manage.py"),)
    # not DJANGO_SETTINGS_MODULE of this test: the flag alone says so
    started = manages.start(
        "fusion_start", f"--pythonpath={apps}", "--settings", "site_settings", program=program, DJANGO_SETTINGS_MODULE="wrong"
    )
    eventually(lambda: status_of(conn, job.id) == "finished", unhurried(20), why=started.output)
    assert job.return_value() == 2


@pytest.mark.long
def test_apps_that_start_threads_are_set_up_by_each_process(manages: Manages, conn: redis.Redis) -> None:
    pk = order("9")
    job = Queue("mail").enqueue(SHIP, pk)
    worker = manages.start("fusion_worker", "--burst", SHOP_THREAD="1")
    assert worker.wait(unhurried(30)) == 0
    assert status_of(conn, job.id) == "finished", worker.output
    assert "fusion.contrib.django.setup starts 1 thread(s)" in worker.output
