"""Commands that know RQ's flags: a flag without a function here is refused with a hint."""

from __future__ import annotations

from collections.abc import Callable
from shlex import quote
from typing import Any

import click

from fusion.cli.candidates import attach

_NO_CLASSES = "Fusion has no classes to exchange; remove the flag"
_EVERYWHERE = {
    "--worker-class": _NO_CLASSES,
    "-w": _NO_CLASSES,
    "--job-class": _NO_CLASSES,
    "-j": _NO_CLASSES,
    "--queue-class": _NO_CLASSES,
    "--connection-class": _NO_CLASSES,
    "--death-penalty-class": _NO_CLASSES,
    "--serializer": "only `worker` and `enqueue` have it: each job says how it is stored; remove the flag",
    "-S": "only `worker` and `enqueue` have it: each job says how it is stored; remove the flag",
}
_STRATEGY = "the highest priority always goes first; inside one, use --order listed (RQ's default) or --order round-robin"
_HANDLER = "use an on_failure callback (Queue.enqueue(..., on_failure=...)); remove the flag"
_SCHEDULER = "every worker moves due jobs to their queues by itself; remove the flag"
_BY_COMMAND = {
    "worker": {
        "--dequeue-strategy": _STRATEGY,
        "-ds": _STRATEGY,
        "--exception-handler": _HANDLER,
        "--disable-default-exception-handler": _HANDLER,
        # click reads RQ's -ds as -d -s.
        "-d": f"as RQ's -ds: {_STRATEGY}; as RQ's -d: {_HANDLER}",
        "--job-monitoring-interval": "leases replace it; use --lease SECONDS",
        "--with-scheduler": _SCHEDULER,
        "-s": _SCHEDULER,
        "--num-workers": "`start -n N` runs N workers; one worker runs several jobs at a time with --slots N",
    },
}
_MANY = {"--all": "select jobs by `--query 'queue:sms state:failed'`"}
_BY_COMMAND |= {
    name: {**_MANY, "--query": f"`{name} --query QUERY`, without `job`, takes all that match"}
    for name in ("cancel", "stop", "delete")
}
_BY_COMMAND["requeue"] = {"--query": _BY_COMMAND["stop"]["--query"].replace("stop", "requeue")}
_BY_COMMAND["start"] = {flag: hint for flag, hint in _BY_COMMAND["worker"].items() if flag != "--num-workers"}


#: By the command's path after the program's name.
_BY_PATH = {
    "limit set": {
        "--max-concurrent": "name the limit alone, as in `limit set KEY 5`",
        "--limit": "name the limit alone, as in `limit set KEY 5`",
    },
    "queue set": {"--max-concurrent": "use --limit N"},
}


class Command(click.Command):
    """A command that explains what replaces RQ's flags, and completes names that Redis knows."""

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        attach(self)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse RQ's flags that have no function here, with a hint what to use."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            path = ctx.command_path.partition(" ")[2]
            tables = (_BY_PATH.get(path, {}), _BY_COMMAND.get(self.name or "", {}), _EVERYWHERE)
            hint = next((table[error.option_name] for table in tables if error.option_name in table), None)
            if self.name == "jobs":
                hint = hint or _word_of_query(error.option_name)
            if hint is None:
                raise
            raise click.UsageError(f"{error.option_name}: {hint}.", ctx) from None


def _word_of_query(option: str) -> str | None:
    """Return a hint how an option like `jobs --state failed` is written in a query."""
    from fusion.store.query.fields import FIELDS

    field = {"status": "state", "function": "func", "older-than": "older", "newer-than": "newer"}.get(option[2:], option[2:])
    return f"write it as a word of the query, as in `jobs {FIELDS[field]}`" if field in FIELDS else None


class Group(Command, click.Group):
    """A command with subcommands."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """For a name that is no command, but may be an argument of `show`, print the command to use."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            if args[0].startswith("-") or "Did you mean" in error.format_message():
                raise
            there = self.list_commands(ctx)
            shows = (
                f"; to look at it: {ctx.command_path} show {quote(args[0])}" if "show" in there and self.name != "config" else ""
            )
            raise click.UsageError(
                f"No such command {args[0]!r}{shows}; there {'is' if len(there) == 1 else 'are'} {', '.join(there)}", ctx
            ) from None


def command(example: str) -> Callable[[Callable[..., Any]], Command]:
    """Return `click.command` with examples below the help, one a line."""
    title = "Examples" if "\n" in example else "Example"
    return click.command(cls=Command, epilog=f"\b\n{title}:\n  {example}")
