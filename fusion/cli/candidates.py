"""Shell completion of queues, jobs and workers from Redis; nothing is offered if Redis does not answer."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from threading import Thread
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from fusion.store.read.glance import Glance

#: Seconds to wait for Redis, because the user is waiting too. What arrives later is not offered.
BUDGET = 0.2
#: Most candidates that are offered.
_OFFERED = 200
#: Shells insert candidates unquoted, so a name with other characters could run a command.
_SAFE = re.compile(r"[A-Za-z0-9_.-]{1,128}\Z")

Look = Callable[["Glance"], list[str]]


class _Candidates(type(click.STRING)):  # type: ignore[misc]
    """A text for which Redis knows likely values."""

    def __init__(self, look: Look) -> None:
        self._look = look

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        """Return the candidates that begin with `incomplete`, or with its part after the last comma."""
        from click.shell_completion import CompletionItem

        before, comma, begun = incomplete.rpartition(",")
        typed = ctx.params.get(str(param.name))
        there = {*before.split(","), *(typed if isinstance(typed, (tuple, list)) else ())}
        found = [one for one in ask(ctx, self._look) if one.startswith(begun) and one not in there and _SAFE.match(one)]
        return [CompletionItem(before + comma + one) for one in found[:_OFFERED]]


def ask(ctx: click.Context, look: Look) -> list[str]:
    """Return what `look` finds, within the budget, in the Redis that the command line names. Empty, without any message, if it fails."""
    found: list[str] = []
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere), suppress(BaseException):
        # Output of a -c module would be taken for candidates.
        from fusion.cli.context import Cli
        from fusion.store.access import glance_of
        from fusion.store.client.connections import connect

        given = ctx.params
        path = given.get("path") or (".",)
        cli = Cli(url=given.get("url"), config=given.get("config"), prefix=given.get("prefix"), path=tuple(path))
        settings = cli.load(socket_timeout=BUDGET)

        def work() -> None:
            with suppress(Exception):
                found.extend(look(glance_of(connect(settings))))

        # The client has no timeout for DNS lookups and retries.
        thread = Thread(target=work, daemon=True)
        thread.start()
        thread.join(BUDGET)
        return list(found)
    return []


QUEUE = _Candidates(lambda glance: glance.queues())
JOB = _Candidates(lambda glance: glance.jobs())
WORKER = _Candidates(lambda glance: glance.workers())


class _Terms(type(click.STRING)):  # type: ignore[misc]
    """A term of a query. Offers fields, and the values of fields that have few values or whose values Redis knows."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        """Return the candidates that begin with `incomplete`; after a comma, with the values before it."""
        from click.shell_completion import CompletionItem

        from fusion.kernel.states import STATES
        from fusion.store.query.fields import FIELDS, IS, PRIORITIES

        field, colon, begun = incomplete.partition(":")
        name, known = field.removeprefix("-"), {"state": STATES, "is": IS, "priority": tuple(PRIORITIES)}
        if not colon:
            sign = "-" * field.startswith("-")
            return [CompletionItem(f"{sign}{one}:") for one in FIELDS if one.startswith(name)]
        before, comma, begun = begun.rpartition(",")
        values = (
            [one for one in ask(ctx, lambda glance: glance.queues()) if _SAFE.match(one)]
            if name == "queue"
            else known.get(name, ())
        )
        return [CompletionItem(f"{field}:{before}{comma}{one}") for one in values if one.startswith(begun)][:_OFFERED]


QUERY = _Terms()
#: Parameter of a command -> its candidates.
BY_NAME: dict[str, Any] = {
    **dict.fromkeys(("queue", "queues", "customq"), QUEUE),
    **dict.fromkeys(("job_id", "job_ids", "depends_on"), JOB),
    **dict.fromkeys(("worker", "workers"), WORKER),
    "query": QUERY,
}


def attach(command: click.Command) -> None:
    """Give the command's parameters completion by their names."""
    for param in command.params:
        if param.type is click.STRING and (kind := BY_NAME.get(str(param.name))):
            param.type = kind
