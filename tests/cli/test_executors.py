"""Queues with an executor of their own: what is read, and what is refused as ambiguous."""

from __future__ import annotations

import sysconfig
from typing import Any

import click
import pytest
from click.testing import CliRunner

from fusion.cli.executors import OF_SIZE, check_interpreter, fitting, groups, of_some, read
from fusion.cli.main import cli
from fusion.exceptions import ConfigurationError
from fusion.settings import Settings

NONE: dict[str, Any] = dict.fromkeys(OF_SIZE)


def test_one_word_is_for_all_and_others_for_their_queues() -> None:
    typed = read(["pool", "sms=asyncio", "mail=Thread"])
    assert (typed.all, typed.queues) == ("pool", {"sms": "asyncio", "mail": "thread"})


@pytest.mark.parametrize("values", [["pool", "thread"], ["green"], ["sms=green"], ["s*=asyncio"]])
def test_an_invalid_executor_is_refused(values: list[str]) -> None:
    with pytest.raises(click.UsageError, match="--executor"):
        read(values)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        (["green"], "--executor green: use one of process, "),
        (["sms=green"], "--executor sms=green: use one of process, "),
        (["sms=pool", "sms=asyncio"], "--executor sms=asyncio: the jobs of sms run in pool already"),
    ],
)
def test_the_value_that_is_wrong_is_named(values: list[str], named: str) -> None:
    with pytest.raises(click.UsageError, match=named):
        read(values)


def test_a_word_of_the_setting_that_names_no_queue_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSION_QUEUE_EXECUTORS", "sms=asyncio mail")
    with pytest.raises(ConfigurationError, match="'mail': use QUEUE=asyncio QUEUE=thread"):
        Settings.load()


def test_queues_stand_with_those_of_their_executor() -> None:
    settings = Settings(queue_executors={"push": "asyncio", "elsewhere": "thread"})
    found = groups(read(["sms=asyncio", "mail=process"]), settings, ["sms", "mail", "push", "other"])
    assert found == {"asyncio": ["sms", "push"], "process": ["mail", "other"]}


@pytest.mark.parametrize(
    ("served", "fix"),
    [(["mail"], "add --customq sms"), (["sms", "s*"], "s[*] stands for it too"), (["sms", "*"], "run another worker for sms")],
)
def test_an_ambiguous_queue_is_refused(served: list[str], fix: str) -> None:
    with pytest.raises(click.UsageError, match=fix):
        groups(read(["sms=asyncio"]), Settings(), served)


def test_numbers_go_to_those_that_know_them() -> None:
    typed, flags = read(["sms=asyncio"]), {**NONE, "slots": "3", "concurrency": "50"}
    assert of_some(typed, flags) == {**NONE, "slots": "3", "executor": "process"}
    assert fitting("asyncio", flags) == {**NONE, "concurrency": "50", "executor": "asyncio"}
    with pytest.raises(click.UsageError, match="--threads is for none of these"):
        of_some(typed, {**NONE, "threads": "5"})
    assert of_some(read([]), flags) == flags, "the settings report contradictions"


@pytest.fixture
def free_threaded(monkeypatch: pytest.MonkeyPatch) -> None:
    told = sysconfig.get_config_var
    monkeypatch.setattr(sysconfig, "get_config_var", lambda name: 1 if name == "Py_GIL_DISABLED" else told(name))
    monkeypatch.delenv("PYTHON_GIL", raising=False)


@pytest.mark.usefixtures("free_threaded")
def test_threads_need_the_global_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    check_interpreter(["process", "pool"])
    for kind in ("thread", "asyncio"):
        with pytest.raises(
            ConfigurationError, match=rf"executor {kind} .* set PYTHON_GIL=1, or use executor process or pool \[FUS-223\]$"
        ):
            check_interpreter(["process", kind])
    monkeypatch.setenv("PYTHON_GIL", "1")
    check_interpreter(["thread", "asyncio"])


@pytest.mark.usefixtures("free_threaded")
@pytest.mark.parametrize("arguments", ["worker --executor thread", "start --customq sms --executor sms=thread"])
def test_an_executor_that_cannot_run_is_one_error_line(arguments: str) -> None:
    ended = CliRunner().invoke(cli, arguments.split())
    assert (ended.exit_code, ended.output.count("\n")) == (1, 1), ended.output
    assert "set PYTHON_GIL=1" in ended.output


def test_a_worker_whose_queues_need_several_says_which() -> None:
    ended = CliRunner().invoke(cli, ["worker", "sms", "mail", "--executor", "sms=asyncio", "--url", "redis://127.0.0.1:1"])
    assert ended.exit_code == 2, ended.output
    assert "would need asyncio for sms; process for mail: `start` in its place runs workers for each" in ended.output
