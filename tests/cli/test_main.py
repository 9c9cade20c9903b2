"""The group: what `--help` costs and says, names that don't exist, RQ's flags, interrupts, colours."""

from __future__ import annotations

import click
import pytest

from fusion import __version__
from fusion.cli.main import COMMANDS, cli
from tests.cli.conftest import Invoke, run_worker

#: Those that take a connection; `redis` has its own.
CONNECTED = [name for name in COMMANDS if name != "redis"]


def load(name: str) -> click.Command:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    return command


def test_help_lists_every_command(invoke: Invoke) -> None:
    output = invoke("--help").stdout
    assert [line.split()[0] for line in output.splitlines() if line.startswith("  ") and line.split()[0] in COMMANDS] == list(
        COMMANDS
    )
    assert invoke("-h").stdout == output


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "redis"])
def test_the_list_of_commands_shows_the_first_line_of_each_help(name: str) -> None:
    assert (load(name).help or "").split("\n")[0] == COMMANDS[name][1]


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_has_an_example(name: str) -> None:
    command = load(name)
    for one in command.commands.values() if isinstance(command, click.Group) else [command]:
        assert one.epilog
        assert f"run_worker.py {name}" in one.epilog


def test_version(invoke: Invoke) -> None:
    assert invoke("--version").stdout == f"fusion, version {__version__}\n"


@pytest.mark.parametrize(
    ("typed", "meant"), [("infoo", "did you mean 'info'?"), ("wroker", "did you mean 'worker'?"), ("worker-pool", "`start -n N`")]
)
def test_an_unknown_command_names_the_nearest(invoke: Invoke, typed: str, meant: str) -> None:
    output = invoke(typed, code=2).stderr
    assert f"No such command '{typed}'" in output
    assert meant in output


def test_a_command_like_no_other_gets_the_list(invoke: Invoke) -> None:
    assert (
        "there are worker, start, scheduler, server, dashboard, relay, info, top, stats, enqueue"
        in invoke("xyzzy", code=2).stderr
    )


def test_an_option_before_the_command_gets_a_hint(invoke: Invoke) -> None:
    assert "options come after the command" in invoke("-u", "redis://localhost", "info", code=2).stderr


@pytest.mark.parametrize("name", CONNECTED)
@pytest.mark.parametrize("flag", ["--worker-class", "--job-class", "--queue-class", "--connection-class"])
def test_flags_that_rq_has_everywhere_are_refused_with_a_hint(invoke: Invoke, name: str, flag: str) -> None:
    output = invoke(name, flag, "x.Y", code=2).stderr
    assert f"{flag}: Fusion has no classes to exchange; remove the flag" in output


@pytest.mark.parametrize(
    ("name", "flag", "hint"),
    [
        ("worker", "--dequeue-strategy", "use --order listed (RQ's default) or --order round-robin"),
        ("worker", "-ds", "the highest priority always goes first"),
        ("worker", "--exception-handler", "on_failure"),
        ("worker", "-d", "on_failure"),
        ("worker", "--job-monitoring-interval", "--lease"),
        ("worker", "--with-scheduler", "every worker moves due jobs"),
        ("worker", "-s", "every worker moves due jobs"),
        ("worker", "--num-workers", "start -n N"),
        ("info", "-S", "remove the flag"),
    ],
)
def test_rq_flags_without_a_function_here_say_what_to_do(invoke: Invoke, name: str, flag: str, hint: str) -> None:
    output = " ".join(invoke(name, flag, "3", code=2).stderr.split())
    assert hint in output


def test_any_other_flag_gets_the_usual_message(invoke: Invoke) -> None:
    assert "No such option" in invoke("info", "--intervall", "3", code=2).stderr


@pytest.mark.parametrize("error", [KeyboardInterrupt, click.Abort])
def test_interrupted_is_130(invoke: Invoke, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]) -> None:
    command = load("resume")

    def interrupted(**given: object) -> None:
        raise error

    monkeypatch.setattr(command, "callback", interrupted)
    assert invoke("resume", code=130).stderr == "Interrupted\n"


def test_a_bug_is_shown_whole(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(**given: object) -> None:
        raise LookupError("a bug")

    monkeypatch.setattr(load("resume"), "callback", broken)
    with pytest.raises(LookupError, match="a bug"):
        invoke("resume")


def test_without_arguments_it_prints_the_help() -> None:
    ended = run_worker()
    assert ended.returncode in (0, 2)  # click changed its mind in 8.2
    assert "Commands:" in ended.stdout + ended.stderr
