"""Flags of settings on the command line. A setting declares its flag beside its default: `setting(..., flags=flag(...))`."""

from __future__ import annotations

from dataclasses import dataclass

#: The commands that take settings as flags.
WORKER, SCHEDULER, RELAY, SERVER, DASHBOARD, START = "worker", "scheduler", "relay", "server", "dashboard", "start"
METRICS = "metrics"


@dataclass(frozen=True, slots=True)
class Flag:
    """The flag of a setting, for some commands.

    - `help`: one sentence; the default is added to it, as `default` says it, or as the setting has it;
    - `of`: the commands that have it. `start` has those of its workers, too;
    - `name`: its long name, if that is not the setting's own; `short`: like `-n`;
    - `choices`: its values, if there are few; `repeated`: it may come several times; `switch`: it takes no value;
    - `raw`: the command itself reads what was given;
    - `own`: it is about this process alone. A process that this one starts with the same command line does not get it.
    """

    help: str
    metavar: str = "N"
    of: tuple[str, ...] = (WORKER,)
    name: str = ""
    short: str = ""
    choices: tuple[str, ...] = ()
    repeated: bool = False
    switch: bool = False
    raw: bool = False
    default: str | None = None
    own: bool = False
    hidden: bool = False


def switch(help: str, *of: str) -> Flag:
    """Return a flag without a value that turns a setting on."""
    return Flag(help, of=of or (WORKER,), switch=True, default="")
