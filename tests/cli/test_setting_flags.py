"""Settings declare their flags; commands have them from there."""

from __future__ import annotations

from dataclasses import fields

import click
import pytest

from fusion.cli import setting_flags
from fusion.cli.dashboard import dashboard
from fusion.cli.metrics import metrics
from fusion.cli.relay import relay
from fusion.cli.scheduler import scheduler
from fusion.cli.server import server
from fusion.cli.start import start
from fusion.cli.worker import _PROBATION, worker
from fusion.settings import Settings
from fusion.settings.flags import DASHBOARD, METRICS, RELAY, SCHEDULER, SERVER, START, WORKER, Flag

COMMANDS = {
    WORKER: worker,
    SCHEDULER: scheduler,
    RELAY: relay,
    SERVER: server,
    DASHBOARD: dashboard,
    METRICS: metrics,
    START: start,
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_the_flags_that_settings_declare_for_it(name: str) -> None:
    params = {param.name: param for param in COMMANDS[name].params if isinstance(param, click.Option)}
    declared = list(setting_flags.declared(name))
    assert declared
    for item, flag in declared:
        assert f"--{flag.name or item.name.replace('_', '-')}" in params[item.name].opts
        assert flag.help in str(params[item.name].help)


def test_a_flag_is_for_commands_that_there_are_and_each_has_one_of_a_setting() -> None:
    for item in fields(Settings):
        commands = [command for flag in item.metadata.get("flags", ()) for command in flag.of]
        assert set(commands) <= set(COMMANDS), item.name
        assert len(commands) == len(set(commands)), item.name


def test_a_new_flag_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    (item,) = [item for item in fields(Settings) if item.name == "forkserver_growth"]
    flag = Flag("How much it may grow.", "MIB")
    monkeypatch.setattr(setting_flags, "declared", lambda command: iter([(item, flag)] if command in flag.of else []))

    @click.command()
    @setting_flags.setting_flags(WORKER)
    def command(**given: object) -> None:
        """A command."""

    (option,) = command.params
    assert isinstance(option, click.Option)
    assert (option.opts, option.metavar) == (["--forkserver-growth"], "MIB")
    assert str(option.help) == f"How much it may grow.  [default: {item.default}]"
    context = command.make_context("command", ["--forkserver-growth", "80"])
    assert setting_flags.given_settings(WORKER, dict(context.params)) == {"forkserver_growth": "80"}


def test_a_value_that_does_not_fit_names_the_flag_as_it_is_typed() -> None:
    with pytest.raises(Exception, match="flag --results-ttl"):
        Settings.load(env={}, result_ttl="soon")


def test_the_worker_for_jobs_on_probation_has_settings_that_there_are() -> None:
    assert set(_PROBATION) <= {item.name for item in fields(Settings)}
