"""The bundled package `tasks`, a user's module of that name, and a default module that can't be imported."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

from fusion import Queue
from tests.kit.process import ROOT
from tests.kit.waiting import eventually
from tests.kit.witnesses import field, runs_of, status_of
from tests.kit.workers import WorkerProcess, Workers

NOTE = "from tests.jobs.basic import witness\n\ndef note(path):\n    witness(path, 'ran')\n"
#: As where the extra `tasks` is not installed.
NO_REQUESTS = "raise ModuleNotFoundError(\"No module named 'requests'\", name='requests')\n"


class Project:
    """A user's directory; workers run there as from the checkout's own program."""

    def __init__(self, directory: Path, workers: Workers) -> None:
        self.directory, self.seen = directory, directory / "seen"
        self._workers = workers

    def write(self, name: str, text: str = NOTE) -> None:
        file = self.directory / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)

    def worker(self, *args: str, ready: bool = True, **env: str) -> WorkerProcess:
        """`-P`: the current directory, which is the last to import from, as where Fusion is installed."""
        env = {"FUSION_TASKS": "", "PYTHONDONTWRITEBYTECODE": "1", **env}
        return self._workers.start(
            "w", "-P", str(self.directory), "--log-format", "%(levelname)s %(message)s", *args, env=env, ready=ready
        )

    def runs(self) -> int:
        return len(runs_of(self.seen, "ran"))


@pytest.fixture
def project(tmp_path: Path, workers: Workers) -> Project:
    return Project(tmp_path, workers)


def warnings(worker: WorkerProcess) -> list[str]:
    """But those about jobs."""
    return [line for line in worker.output.splitlines() if line.startswith(("WARNING", "ERROR")) and "job" not in line]


def test_a_default_module_that_can_not_be_imported_stops_no_worker_that_has_its_own(project: Project, conn: redis.Redis) -> None:
    project.write("shop.py")
    project.write("stub/requests.py", NO_REQUESTS)
    queue = Queue("w", conn)
    bundled = queue.enqueue("tasks.sms.sendSMS", {"to": "+491", "body": "x"}, priority="high")
    job = queue.enqueue("shop.note", str(project.seen))
    worker = project.worker("--tasks", "shop", PYTHONPATH=str(project.directory / "stub"))
    eventually(lambda: status_of(conn, job.id) == "finished")
    (warning,) = warnings(worker)
    assert "tasks can't be imported: ModuleNotFoundError: the bundled tasks need requests" in warning
    assert "the worker goes on without it" in warning
    assert status_of(conn, bundled.id) == "blocked", "a worker that has it may come"
    held = field(conn, bundled.id, "reason")
    assert "tasks.sms.sendSMS: module tasks can't be imported by this worker: ModuleNotFoundError" in held, held


@pytest.mark.long
def test_one_that_was_named_does_stop_it(project: Project, conn: redis.Redis) -> None:
    project.write("shop.py")
    project.write("stub/requests.py", NO_REQUESTS)
    stub = str(project.directory / "stub")
    for args, env in ((), {"FUSION_TASKS": "tasks,shop"}), (("--tasks", "tasks,shop"), {}):
        worker = project.worker(*args, ready=False, PYTHONPATH=stub, **env)
        worker.says("no job is claimed meanwhile", times=2)


@pytest.mark.parametrize("layout", ["tasks.py", "tasks/__init__.py", "tasks/own.py"])
def test_a_users_module_wins_and_the_bundled_names_stay_valid(layout: str, project: Project, conn: redis.Redis) -> None:
    project.write(layout)
    own = "tasks.own.note" if layout.endswith("own.py") else "tasks.note"
    queue = Queue("w", conn)
    jobs = [
        queue.enqueue(own, str(project.seen)),
        queue.enqueue("tasks.maintenance.run_maintenance_on_failed_queue"),
        queue.enqueue("tasks.sms.sendSMS", {}),
    ]
    worker = project.worker()
    eventually(lambda: [status_of(conn, job.id) for job in jobs] == ["finished", "finished", "failed"])
    assert project.runs() == 1
    assert field(conn, jobs[2].id, "error_class") == "tasks.providers.base.InvalidRecipient", (
        "it ran, and its errors have their names"
    )
    (warning,) = warnings(worker)
    where = project.directory / (layout if not layout.endswith("own.py") else "tasks")
    assert f"the module tasks is {where}, in place of Fusion's own in {ROOT / 'tasks'}" in warning


def test_modules_of_the_bundled_package_can_be_named_beside_a_users(project: Project, conn: redis.Redis) -> None:
    project.write("tasks.py")
    worker = project.worker(FUSION_TASKS="tasks.maintenance")
    queue = Queue("w", conn)
    job, refused = queue.enqueue("tasks.maintenance.run_maintenance_on_failed_queue"), queue.enqueue("tasks.sms.sendSMS", {})
    eventually(lambda: status_of(conn, job.id) == "finished")
    worker.says("tasks.sms.sendSMS is not among the tasks of this worker")
    eventually(lambda: status_of(conn, refused.id) == "blocked")


def test_a_bundled_name_beside_a_users_module_waits_for_a_worker_that_can_import_it(project: Project, conn: redis.Redis) -> None:
    project.write("tasks.py")
    project.write("stub/requests.py", NO_REQUESTS)
    queue = Queue("w", conn)
    bundled = queue.enqueue("tasks.maintenance.run_maintenance_on_failed_queue", priority="high")
    job = queue.enqueue("tasks.note", str(project.seen))
    project.worker(PYTHONPATH=str(project.directory / "stub"))
    eventually(lambda: (status_of(conn, bundled.id), status_of(conn, job.id)) == ("blocked", "finished"))
    assert "one of Fusion's bundled tasks, which can't be imported here: " in field(conn, bundled.id, "reason")
