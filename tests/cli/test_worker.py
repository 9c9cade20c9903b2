"""`worker`: what the flags become, and what is refused before anything starts."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import click
import pytest
import redis

from fusion import Queue
from fusion.cli.context import Cli
from fusion.cli.worker import WorkerFlags, pid_file, plan_worker, set_up_logging, worker
from fusion.exceptions import ConfigurationError
from fusion.kernel import defaults
from fusion.runtime.terminal_log import DATE_FORMAT, LOG_FORMAT
from fusion.settings import Settings, get_settings
from tests.cli.conftest import Invoke, run_worker
from tests.kit.length import long_case

ALL = ("sms", "email", "pn", "webhook", "whatsapp", "scheduler", "*")


def plan(*args: str) -> WorkerFlags:
    """From a command line, parsed by the real command, to what the worker is made of."""
    context = worker.make_context("worker", list(args))
    given: dict[str, Any] = dict(context.params)
    shared = {name: given.pop(name) for name in ("url", "config", "prefix", "path", "verbose")}
    for name in ("embedded", "pid", "logging_level", "quiet"):
        given.pop(name)
    with context:
        return plan_worker(Cli(**shared), **given)


@pytest.fixture
def instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A config module as the original documents have it."""
    (tmp_path / "instance.py").write_text("QUEUES = ['sms', 'otp']\nNAME = 'w1'\nTASKS = ['mytasks']\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "instance", raising=False)
    return "instance"


# -- queues


@pytest.mark.parametrize(
    ("line", "queues"),
    [
        ("--customq sms", ("sms",)),
        ("--customq all", ALL),
        ("--customq sms --customq email,pn", ("sms", "email", "pn")),
        ("--customq sms,all", ALL),
        ("sms email", ("sms", "email")),
        ("email --customq sms,email", ("email", "sms")),
        ("all", ALL),
        ("sms*", ("sms*",)),
        ("*", ("*",)),
        ("", ("default",)),
    ],
)
def test_queues(line: str, queues: tuple[str, ...]) -> None:
    assert plan(*line.split()).queues == queues


@pytest.mark.parametrize(
    ("line", "queues"),
    [
        ("", ("sms", "otp")),
        ("--customq all", ("sms", "otp", "*")),
        ("--customq email", ("email",)),
    ],
)
def test_queues_with_a_config_module(instance: str, line: str, queues: tuple[str, ...]) -> None:
    assert plan("-c", instance, *line.split()).queues == queues


def test_queues_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSION_QUEUES", "a,b")
    assert plan().queues == ("a", "b")


@pytest.mark.parametrize("name", ["a b", "failed", "_callbacks", "a/b", "sms*/x", "ö", "x" * 129])
def test_a_bad_queue_name_is_a_usage_error_with_the_rule(invoke: Invoke, name: str) -> None:
    for args in ([name], ["--customq", name]):
        output = invoke("worker", *args, code=2).stderr
        assert "use 1 to 128 of the characters" in output or "is reserved" in output


def test_customq_without_a_name(invoke: Invoke) -> None:
    assert "--customq names no queue" in invoke("worker", "--customq", ",", code=2).stderr


# -- settings


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("-n web1", "name", "web1"),
        ("--name web1", "name", "web1"),
        ("--results-ttl 60", "result_ttl", 60),
        ("--worker-ttl 100", "worker_ttl", 100),
        ("--maintenance-interval 5", "maintenance_interval", 5),
        ("--reap-interval 0.5", "reap_interval", 0.5),
        ("--lease 2m", "lease", 120),
        ("--slots 8", "slots", 8),
        ("--preload strict", "preload", "strict"),
        ("--tasks mine", "tasks", ("tasks", "mine")),
        ("--tasks a --tasks b,c", "tasks", ("tasks", "a", "b", "c")),
        ("-S pickle", "serializer", "pickle"),
        ("-S pickle", "allow_pickle", True),
        ("-S json", "allow_pickle", False),
        ("-u redis://localhost:7000/1", "redis_url", "redis://localhost:7000/1"),
        ("--prefix x:", "prefix", "x:"),
    ],
)
def test_flags_become_settings(line: str, name: str, value: object) -> None:
    made = plan(*line.split())
    assert getattr(made.settings, name) == value
    assert get_settings() is made.settings


def test_without_flags_the_defaults_hold() -> None:
    made = plan()
    assert (made.burst, made.job_lines) == (False, True)
    assert made.settings == Settings.load()
    assert made.settings.lease == defaults.LEASE


def test_burst_and_quiet_job_lines() -> None:
    assert plan("-b").burst
    assert plan("--burst").burst
    assert not plan("--disable-job-desc-logging").job_lines


def test_flags_win_over_the_config_module_and_tasks_are_added_to_its(instance: str) -> None:
    made = plan("-c", instance, "-n", "w2", "--tasks", "more")
    assert made.settings.name == "w2"
    assert made.settings.tasks == ("mytasks", "more")
    assert plan("-c", instance).settings.name == "w1"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--lease", "x"], "(from flag --lease)"),
        (["--slots", "0"], "(from flag --slots)"),
        (["--name", "a b"], "(from flag --name)"),
        (["--results-ttl", "-7"], "(from flag --results-ttl)"),
        (["--preload", "maybe"], "--preload"),
        (["-S", "yaml"], "--serializer"),
        (["--logging_level", "LOUD"], "--logging_level"),
        (["-q", "-v"], "--verbose and --quiet exclude each other"),
        (["--embedded", "-u", "redis://localhost"], "--embedded and --url name two Redis"),
        (["--log-format", "%(nope"], "--log-format '%(nope'"),
        (["--log-format", "%(nope)s"], "not found in record: 'nope'"),
        (["--pid"], "--pid"),
    ],
)
def test_wrong_flags_are_usage_errors(invoke: Invoke, args: list[str], message: str) -> None:
    assert message in invoke("worker", *args, code=2).stderr


# -- the command lines of the original documents


@pytest.mark.parametrize(
    ("line", "queues"),
    [
        ("--customq sms", ("sms",)),
        ("-c instance --customq all", ("sms", "otp", "*")),
        ("-c instance --customq sms", ("sms",)),
        ("-c instance --customq email", ("email",)),
        ("-c instance --customq pn", ("pn",)),
        ("-c instance --customq webhook", ("webhook",)),
        ("-c instance --customq whatsapp", ("whatsapp",)),
    ],
)
def test_verbatim(instance: str, line: str, queues: tuple[str, ...]) -> None:
    assert plan(*line.split()).queues == queues


def test_a_config_module_below_wrappers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wrappers").mkdir()
    (tmp_path / "wrappers" / "__init__.py").touch()
    (tmp_path / "wrappers" / "elsewhere.py").write_text("QUEUES = ['below']\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.partition(".")[0] == "wrappers"]:
        monkeypatch.delitem(sys.modules, name)
    try:
        assert plan("-c", "elsewhere").queues == ("below",)
    finally:
        for name in ("wrappers.elsewhere", "wrappers"):
            sys.modules.pop(name, None)


# -- the log


@pytest.mark.parametrize(("level", "effective"), [(None, "INFO"), ("DEBUG", "DEBUG"), ("warning", "WARNING")])
def test_the_level(invoke: Invoke, level: str | None, effective: str) -> None:
    set_up_logging(Settings(), level and level.upper(), LOG_FORMAT, DATE_FORMAT)
    assert logging.getLevelName(logging.getLogger("fusion").level) == effective


def test_the_config_modules_own_logging_stays(invoke: Invoke, tmp_path: Path) -> None:
    target = tmp_path / "w.log"
    config = {
        "version": 1,
        "disable_existing_loggers": False,
        "handlers": {"file": {"class": "logging.FileHandler", "filename": str(target)}},
        "loggers": {"fusion": {"handlers": ["file"], "level": "WARNING"}},
    }
    set_up_logging(Settings(dict_config=config), None, LOG_FORMAT, DATE_FORMAT)
    logger = logging.getLogger("fusion.worker")
    logger.info("no")
    logger.warning("yes")
    for handler in logging.getLogger("fusion").handlers:
        handler.close()
    assert target.read_text() == "yes\n"


def test_a_broken_dict_config(invoke: Invoke) -> None:
    with pytest.raises(ConfigurationError, match="dict_config"):
        set_up_logging(Settings(dict_config={"version": 9}), None, LOG_FORMAT, DATE_FORMAT)


# -- a whole run


def test_a_burst_in_a_real_process(conn: redis.Redis, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def note(path):\n    open(path, 'w').close()\n")
    job = Queue("sms", conn).enqueue("mine.note", str(tmp_path / "ran"))
    pid = tmp_path / "worker.pid"
    ended = run_worker("worker", "--customq", "sms", "--burst", "--tasks", "mine", "-P", str(tmp_path), "--pid", str(pid))
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == ""
    assert f"({job.id})" in ended.stderr
    assert job.is_finished
    assert (tmp_path / "ran").exists()
    assert not pid.exists()


@pytest.mark.parametrize(
    "more", [long_case([]), ["--horses", "2"], long_case(["--log-format", "%(asctime)s %(levelname)s %(message)s"])]
)
def test_each_job_has_its_lines_in_their_order(conn: redis.Redis, tmp_path: Path, more: list[str]) -> None:
    (tmp_path / "mine.py").write_text("def note(n):\n    if n % 10 == 9:\n        raise ValueError(n)\n")
    jobs = [Queue("sms", conn).enqueue("mine.note", n, retry=None) for n in range(40)]
    # None is claimed ahead: on a busy machine one may go back unbegun, and then its line comes once more.
    ended = run_worker(
        *("worker", "--customq", "sms", "--burst", "--no-relay", "--tasks", "mine", "-P", str(tmp_path), *more),
        FUSION_CLAIM_AHEAD="0",
    )
    assert ended.returncode == 0, ended.stderr
    lines = ended.stderr.splitlines()
    for number, job in enumerate(jobs):
        began, *rest = [line.split(" ", 1 + bool(more[1:] and "%" in more[1]))[-1] for line in lines if job.id in line]
        assert began == f"sms: mine.note ({job.id})"
        assert len(rest) == 1
        assert rest[0].startswith(f"sms: job {job.id} " if number % 10 == 9 else f"sms: Job OK ({job.id})"), rest
    assert lines[-1].endswith(" ended")


@pytest.mark.long
def test_verbose_and_quiet(conn: redis.Redis) -> None:
    assert run_worker("worker", "sms", "-b", "-q").stderr == ""
    formatted = run_worker("worker", "sms", "-b", "--log-format", "%(levelname)s|%(message)s").stderr
    assert formatted.startswith("INFO|worker ")


def test_a_pid_file_that_cannot_be_written(invoke: Invoke, redis_url: str) -> None:
    message = invoke("worker", "sms", "-b", "--pid", "/no/such/dir/x.pid", code=1).stderr
    assert "--pid '/no/such/dir/x.pid' can't be written: No such file or directory" in message


def test_a_pid_file_that_another_worker_wrote_meanwhile_stays(tmp_path: Path) -> None:
    path = tmp_path / "x.pid"
    with pid_file(str(path)):
        assert path.read_text() == str(os.getpid())
        path.write_text("1")
    assert path.read_text() == "1"


@pytest.mark.long
def test_embedded_uses_the_home_of_the_settings(tmp_path_factory: pytest.TempPathFactory, server_binary: object) -> None:
    home = tempfile.mkdtemp(prefix="fus", dir="/tmp")
    try:
        ended = run_worker("worker", "sms", "-b", "--embedded", FUSION_HOME=home)
        assert ended.returncode == 0, ended.stderr
        assert f"Built-in Redis at unix://{home}/redis.sock" in ended.stderr
        assert f"Redis: unix://{home}/redis.sock" in ended.stderr
    finally:
        assert run_worker("redis", "stop", FUSION_HOME=home).returncode == 0
        shutil.rmtree(home, ignore_errors=True)


def test_usage_errors_are_clicks(instance: str) -> None:
    for name in ("failed", "_x"):
        with pytest.raises(click.UsageError, match=f"queue name '{name}' is reserved"):
            plan(name)


def test_a_worker_for_jobs_on_probation_has_the_gates_of_its_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSION_QUEUE_GATES", "sms rate=10/2s max_wait=5m")
    settings = plan("sms", "--probation").settings
    assert (settings.slots, settings.queue_gates) == (1, {"sms": {"rate": "10/2000/5", "max_wait": 300_000}})
