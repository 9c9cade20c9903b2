"""Executors of queues: `--executor sms=asyncio`. One worker has one executor; `start` runs workers for each."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import click

from fusion.exceptions import ConfigurationError
from fusion.settings import readers
from fusion.settings.groups import CROWDED
from fusion.store.layout.names import is_pattern

if TYPE_CHECKING:
    from fusion.settings import Settings

#: For each executor, its flags for the number of jobs at once.
_SIZES = {
    "process": {"slots"},
    "pool": {"slots", "horses"},
    "thread": {"horses", "threads"},
    "asyncio": {"horses", "concurrency"},
}
OF_SIZE = frozenset[str]().union(*_SIZES.values())


@dataclass(frozen=True)
class Typed:
    """The values of --executor. `all`: the executor of every queue, None if not given; `queues`: those of single queues."""

    all: str | None
    queues: Mapping[str, str]


def read(values: Sequence[str]) -> Typed:
    """Read the values of the flag. A usage error if one is invalid."""
    plain = [value for value in values if "=" not in value]
    if len(plain) > 1:
        raise click.UsageError(
            f"--executor {plain[1]}: all jobs run in {plain[0]} already; say QUEUE={plain[1]} for those of some queues"
        )
    try:
        named = readers.queue_executors(" ".join(value for value in values if "=" in value))
    except readers.Invalid as rule:
        raise click.UsageError(f"--executor {rule}") from None
    try:
        return Typed(readers.executor(plain[0]) if plain else None, named)
    except readers.Invalid as rule:
        raise click.UsageError(f"--executor {plain[0]}: {rule}") from None


def of_some(typed: Typed, flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flags for the queues without an executor of their own. A usage error for a size flag that none of the executors has."""
    if not typed.queues:
        return dict(flags)
    kind = typed.all or ("process" if flags["horses"] is None else "pool")
    known = frozenset[str]().union(*(_SIZES[one] for one in (kind, *typed.queues.values())))
    for name in sorted(OF_SIZE - known):
        if flags[name] is not None:
            raise click.UsageError(f"--{name} is for none of these executors; leave it out")
    return fitting(kind, flags)


def groups(typed: Typed, settings: Settings, served: Sequence[str]) -> dict[str, list[str]]:
    """Return the served queues by their executor. A usage error for a queue that can't be separated from the others."""
    wanted, rest = {**(settings.queue_executors or {}), **typed.queues}, str(settings.executor)
    for queue, kind in typed.queues.items():
        if queue not in served:
            raise click.UsageError(
                f"--executor {queue}={kind}: this worker does not serve {queue} by its name; add --customq {queue}"
            )
    found: dict[str, list[str]] = {}
    for name in served:
        found.setdefault(wanted.get(name, rest), []).append(name)
    for queue in (name for name in served if wanted.get(name, rest) != rest):
        for pattern in filter(is_pattern, served):
            if fnmatchcase(queue, pattern):
                raise click.UsageError(
                    f"{queue} has an executor of its own, and {pattern} stands for it too; name the other queues, or run another worker "
                    f"for {queue}"
                )
    return found


def check_interpreter(kinds: Iterable[str]) -> None:
    """Raise ConfigurationError for executors that run jobs in threads in a free-threaded Python. Ending a task there relies on its thread
    standing still meanwhile. Such a Python may enable the GIL in one process for a library and not in the next, so only the environment
    variable counts, which all processes inherit."""
    if not sysconfig.get_config_var("Py_GIL_DISABLED") or os.environ.get("PYTHON_GIL") == "1":
        return
    for kind in kinds:
        if kind in CROWDED:
            raise ConfigurationError(
                f"executor {kind} ends tasks in threads, which is not safe in a free-threaded Python; set PYTHON_GIL=1, "
                "or use executor process or pool",
                code="FUS-223",
            )


def unknown_to(kind: str) -> frozenset[str]:
    """Return the flags for the number of jobs at once that only other executors have."""
    return OF_SIZE - _SIZES[kind]


def fitting(kind: str, flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flags without those that only other executors have."""
    return {name: None if name in unknown_to(kind) else value for name, value in flags.items()} | {"executor": kind}
