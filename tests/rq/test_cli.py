"""`frq`: RQ's flags and output."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redis
from click.testing import CliRunner, Result

from fusion.rq import Queue
from fusion.rq.cli import main
from fusion.rq.job import Job
from fusion.settings import get_settings, use_settings
from tests.rq import tasks_of_rq as tasks
from tests.rq.conftest import TASKS


@pytest.fixture
def frq(client: redis.Redis, redis_url: str) -> Any:
    """Call the command with the url of the test's Redis."""

    def call(command: str, *arguments: str, url: bool = True) -> Result:
        return CliRunner().invoke(main, [command, *(["-u", redis_url] if url else []), *arguments])

    return call


@pytest.mark.parametrize(
    ("arguments", "stored"),
    [
        (["abc"], (("abc",), {})),
        (["abc=def"], ((), {"abc": "def"})),
        ([':{"json": "abc"}'], (({"json": "abc"},), {})),
        (["abc:=true"], ((), {"abc": True})),
        (["%1, 2"], (((1, 2),), {})),
        (["abc%=None", "x"], (("x",), {"abc": None})),
        (["=a"], (("=a",), {})),
    ],
)
def test_arguments_of_a_call(frq: Any, client: redis.Redis, arguments: list[str], stored: Any) -> None:
    done = frq("enqueue", "--job-id", "one", "tests.rq.tasks_of_rq.given", *arguments)
    assert done.exit_code == 0 and re.match(
        r"^Enqueued .*tests\.rq\.tasks_of_rq\.given\(.*\).* with job-id 'one'\.$", done.output
    ), done.output
    job = Job.fetch("one", connection=client)
    assert (job.args, job.kwargs) == stored and job.origin == "default"


def test_an_argument_from_a_file_and_options(frq: Any, client: redis.Redis, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("[1]")
    path = f":@{tmp_path / 'text'}"
    done = frq(
        "enqueue",
        "-q",
        "work",
        "--job-id",
        "one",
        "--timeout",
        "30",
        "--retry-max",
        "2",
        "--retry-interval",
        "5",
        "--quiet",
        f"{TASKS}.given",
        path,
    )
    assert (done.exit_code, done.output) == (0, "")
    job = Job.fetch("one", connection=client)
    assert (job.origin, job.args, job.timeout, job.retries_left) == ("work", ([1],), 30, 2)
    later = frq("enqueue", "--schedule-in", "10s", "--job-id", "two", f"{TASKS}.add", ":1")
    assert later.exit_code == 0 and Job.fetch("two", connection=client).is_scheduled


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([f"{TASKS}.add", ":x"], "Unable to parse 1. non keyword argument as JSON."),
        ([f"{TASKS}.add", "%x y"], "Unable to eval 1. non keyword argument as Python object."),
        ([f"{TASKS}.add", "a=1", "a=1"], "You can't specify multiple values for the same keyword."),
        ([f"{TASKS}.add", "@/no/such"], "Not found"),
        (
            ["--schedule-in", "1s", "--schedule-at", "2030-01-01T00:00:00", f"{TASKS}.add"],
            "You can't specify both --schedule-in and --schedule-at",
        ),
        (["--schedule-at", "tomorrow", f"{TASKS}.add"], "tomorrow"),
        (["-S", "shop.serializers.Own", f"{TASKS}.add"], "a serializer of one's own is not supported"),
    ],
)
def test_what_is_wrong_with_a_call_is_named(frq: Any, arguments: list[str], told: str) -> None:
    done = frq("enqueue", *arguments)
    assert done.exit_code and told in done.output


def test_a_worker_runs_what_waits_and_tells_what_is_not_needed(frq: Any, queue: Queue, tmp_path: Path) -> None:
    job, pid = queue.enqueue(tasks.add, 1, b=2), tmp_path / "pid"
    done = frq("worker", "work", "-b", "--with-scheduler", "--maintenance-interval", "9", "--pid", str(pid), "-ds", "random")
    assert done.exit_code == 0, (done.output, done.exception)
    assert job.is_finished and pid.read_text() == str(os.getpid())
    assert "--with-scheduler is not needed: every worker enqueues what is due" in done.output
    assert "--maintenance-interval is not needed" in done.output


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--results-ttl", "10"], "give result_ttl= where it is enqueued"),
        (["-d"], "a job that failed is always kept as failed"),
        (["--connection-class", "shop.Redis"], "the settings say how Redis is reached"),
        (["--worker-class", "shop.Worker"], "can't be imported"),
        (["-v", "-q"], "exclude one another"),
        (["-ds", "wrong"], "Dequeue Strategy can only be one of"),
    ],
)
def test_a_flag_that_would_mean_something_else_is_refused(frq: Any, arguments: list[str], told: str) -> None:
    done = frq("worker", "-b", *arguments)
    assert done.exit_code and told in done.output


def test_results_ttl_of_rqs_default_is_taken(frq: Any) -> None:
    assert frq("worker", "-b", "--results-ttl", "500").exit_code == 0


def test_a_worker_without_an_allow_list_does_not_start(frq: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FUSION_TASKS")
    use_settings(None)
    done = frq("worker", "-b")
    assert done.exit_code == 1 and "FUSION_TASKS=" in done.output


def test_classes_by_their_path_rqs_own_among_them(frq: Any) -> None:
    done = frq(
        "worker",
        "-b",
        "-w",
        "rq.worker.Worker",
        "-j",
        "rq.job.Job",
        "--queue-class",
        "rq.Queue",
        "-S",
        "rq.serializers.JSONSerializer",
    )
    assert done.exit_code == 0, (done.output, done.exception)


def test_suspended_workers_do_not_start(frq: Any) -> None:
    assert frq("suspend", "--duration", "0").exit_code == 1
    assert "for 30 seconds" in frq("suspend", "--duration", "30").output
    done = frq("worker", "-b")
    assert (done.exit_code, done.output.strip()) == (1, 'RQ is currently suspended, to resume job execution run "rq resume"')
    assert frq("resume").output == "Resuming workers.\n"
    assert frq("worker", "-b").exit_code == 0


def test_queues_are_shown_emptied_and_failed_jobs_put_back(frq: Any, queue: Queue) -> None:
    assert "0 queues, 0 jobs total" in frq("info").output
    queue.enqueue(tasks.fail, job_id="bad")
    frq("worker", "work", "-b")
    queue.enqueue(tasks.add, 1)
    shown = frq("info").output
    assert re.search(r"work +\|█ 1, 0 executing, 0 finished, 1 failed\n1 queues, 1 jobs total\n\n0 workers, 1 queues", shown), (
        shown
    )
    assert frq("info", "-r", "-Q").output == "queue work 1, 0 executing, 0 finished, 1 failed\n"
    assert frq("info", "-R", "-W", "work").output == "work: \u2013\n0 workers, 1 queues\n"
    assert (
        frq("requeue", "--queue", "work", "none").output.splitlines()[-1] == "Unable to requeue 1 jobs from failed job registry"
    )
    assert frq("requeue", "--queue", "work", "--all").output == "Requeueing 1 jobs from failed queue\n"
    assert frq("requeue", "--queue", "work", "--all").output == "Nothing to do\n"
    assert frq("empty").output == "Nothing to do\n"
    assert frq("empty", "--all").output == "2 jobs removed from work queue\n"


def test_settings_of_a_module_and_of_the_environment(
    frq: Any, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, queue: Queue
) -> None:
    (tmp_path / "of_this_test.py").write_text(f"REDIS_URL = {redis_url!r}\nQUEUES = ['work']\nNAME = 'me'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    job = queue.enqueue(tasks.add, 1)
    done = frq("worker", "-b", "-c", "of_this_test", url=False)
    assert done.exit_code == 0 and job.is_finished, (done.output, done.exception)
    monkeypatch.setenv("REDIS_URL", redis_url)
    assert "1 queues, 0 jobs total" in frq("info", url=False).output
    assert "can't be imported" in frq("info", "-c", "no_such_module").output


def test_the_prefix_of_rq_is_read(redis_url: str, conn: redis.Redis) -> None:
    before = get_settings()
    env = {**os.environ, "RQ_KEY_PREFIX": "shop", "FUSION_TASKS": TASKS}
    done = subprocess.run(
        [sys.executable, "-m", "fusion.rq", "enqueue", "-u", redis_url, f"{TASKS}.add", ":1"],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert conn.smembers("shop:queues") and not conn.exists("rq:queues")
    assert get_settings() == before
