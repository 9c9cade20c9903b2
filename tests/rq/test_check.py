"""`python -m fusion.rq.check` reads projects without importing them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusion.rq.check.__main__ import main

FLASK = {
    "app/web.py": """
from redis import Redis
from rq import Queue, Retry
from rq.job import Job
from app import tasks

raise AssertionError("nothing imports this")
queue = Queue("high", connection=Redis(), default_timeout=600)
job = queue.enqueue(tasks.pay, 1, priority=2, retry=Retry(max=3))
queue.enqueue("app.reports.Nightly.run")
found = Job.fetch(job.id, connection=Redis())
found.meta["a"] = 1
found.save_meta()
""",
    "app/tasks.py": "from rq import get_current_job\n\ndef pay(n):\n    job = get_current_job()\n    job.meta['n'] = n\n    job.save_meta()\n",
    "Procfile": "web: gunicorn app.web\nworker: rq worker high default --with-scheduler\n",
}
WATCHING = {
    "watch.py": """
import rq
from rq import Connection, Queue, Worker

q = Queue("q")
job = q.enqueue("mail.send", pipeline=None)
job.set_status("failed")
q.push_job_id("x")
print(q.jobs, job.nothing, rq.Worker.count())
with Connection():
    Worker(["q"]).work(burst=True)
""",
    "deploy/rq.service": "[Service]\n# rq worker is started here\nExecStart=/srv/venv/bin/rq worker q --results-ttl 10\n",
    "docker-compose.yml": 'services:\n  w:\n    image: rq\n    command: ["rq", "worker", "-d"]\n  i:\n    command: rqinfo -Q\n',
}
BESIDE = {
    "jobs.py": "import django_rq\nfrom django_rq import job\n\n@job('low')\ndef clean():\n    return 1\n",
    "run.sh": "pip install rq\nrqscheduler --host x\nrq frobnicate\nrq worker --frobnicate\n",
    "broken.py": "import rq\nprint 'old'\n",
    "node_modules/x.py": "import rq\n",
}
SCHEDULED = {
    "plan.py": """
from datetime import datetime
from redis import Redis
from rq_scheduler import Scheduler
from shop import reports

scheduler = Scheduler("low", connection=Redis())
scheduler.cron("0 9 * * *", reports.daily, repeat=3)
job = scheduler.schedule(datetime.utcnow(), "shop.mail.send", interval=60)
scheduler.cancel(job)
scheduler.acquire_lock()
print(job in scheduler, job.meta)
"""
}
EMPTY = {"main.py": "print('rq')\n"}


def _check(files: dict[str, str], folder: Path, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, list[str]]:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    code = main([str(folder), *more])
    return code, capsys.readouterr().out.splitlines()


def test_a_web_application_whose_calls_all_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = _check(FLASK, tmp_path, capsys)
    assert lines[0].startswith(
        "Procfile:2: rq worker high default --with-scheduler: change to frq worker high default --with-scheduler; "
    )
    assert "--with-scheduler is not needed: every worker enqueues what is due" in lines[0]
    assert lines[-1] == "FUSION_TASKS=app.reports,app.tasks"
    assert code == 0 and "0 are missing" in lines[-2]
    _, all_of_them = _check(FLASK, tmp_path, capsys, "--all")
    assert "app/web.py:10: Queue.enqueue: works" in all_of_them and "app/tasks.py:5: Job.meta: works" in all_of_them


@pytest.mark.parametrize(
    "start",
    [
        "watch.py:2: import rq: change to import fusion.rq as rq",
        "watch.py:3: from rq import Connection: change to give connection= to Queue",
        "watch.py:6: Queue.enqueue(pipeline=): change to pipeline=: leave it out",
        "watch.py:7: Job.set_status: change to ",
        "watch.py:8: Queue.push_job_id: missing fusion.rq's Queue has no push_job_id",
        "watch.py:9: Job.nothing: missing fusion.rq's Job has no nothing",
        "deploy/rq.service:3: /srv/venv/bin/rq worker q --results-ttl 10: missing --results-ttl: a job has its result_ttl from its producer",
        "docker-compose.yml:4: rq worker -d: missing -d: a job that failed is always kept as failed",
        "docker-compose.yml:6: rqinfo -Q: change to frq info -Q",
    ],
)
def test_what_has_to_change_or_is_missing_is_named_with_its_line(
    start: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, lines = _check(WATCHING, tmp_path, capsys)
    assert code == 1 and sum(line.startswith(start) for line in lines) == 1, lines


def test_nothing_else_of_that_program_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, lines = _check(WATCHING, tmp_path, capsys)
    assert lines.index("") == 9, lines


def test_packages_on_top_of_rq_tools_and_files_that_are_no_python(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = _check(BESIDE, tmp_path, capsys)
    assert code == 1
    assert [line.partition(": ")[0] for line in lines[:6]] == [
        "broken.py:2",
        "jobs.py:1",
        "jobs.py:2",
        "run.sh:2",
        "run.sh:3",
        "run.sh:4",
    ]
    assert "can't be read" in lines[0] and "use fusion.contrib.django" in lines[1]
    assert "change to fusion scheduler, for recurring jobs" in lines[3]
    assert lines[4].endswith("missing frq has no command 'frobnicate'") and lines[5].endswith(
        "missing frq worker has no --frobnicate"
    )
    assert lines[-1] == "FUSION_TASKS=jobs"


def test_a_project_with_rq_scheduler(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = _check(SCHEDULED, tmp_path, capsys)
    assert lines[:2] == ["plan.py:11: Scheduler.acquire_lock: missing fusion.rq's Scheduler has no acquire_lock", ""]
    assert lines[-1] == "FUSION_TASKS=shop.mail,shop.reports" and code == 1


def test_a_project_without_rq(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = _check(EMPTY, tmp_path, capsys)
    assert code == 0 and lines[1] == "This project does not use RQ."
