"""The command line. Commands load on use: `--help` imports neither Redis nor any command."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

import click

from fusion import __version__
from fusion.cli.context import current, explain, prog
from fusion.cli.output import echo, lines, shown
from fusion.exceptions import InvalidName
from fusion.kernel import program

#: name -> (import path, the text in `--help`: the first sentence of the command's own help)
COMMANDS = {
    "worker": ("fusion.cli.worker:worker", "Run jobs of these queues, each in a process of its own."),
    "start": ("fusion.cli.start:start", "Run several workers and a scheduler unattended: what dies is replaced."),
    "scheduler": ("fusion.cli.scheduler:scheduler", "Enqueue what is due: jobs enqueued for a time, retries, cron entries."),
    "server": ("fusion.cli.server:server", "Serve the HTTP API: enqueue and requeue jobs, show jobs and queues."),
    "dashboard": ("fusion.cli.dashboard:dashboard", "Serve the dashboard."),
    "relay": ("fusion.cli.relay:relay", "Deliver the events of all jobs to Elasticsearch, a file or the log; deliver callbacks."),
    "info": ("fusion.cli.info:info", "Show queues and workers."),
    "top": ("fusion.cli.top:top", "Watch queues, workers and the slowest running jobs."),
    "stats": ("fusion.cli.stats:stats", "Show the outcomes of jobs, and how long they waited and ran."),
    "enqueue": ("fusion.cli.enqueue:enqueue", "Enqueue one call of a function."),
    "jobs": ("fusion.cli.jobs_list:jobs", "Show the jobs that a query matches."),
    "requeue": ("fusion.cli.jobs:requeue", "Put failed jobs back to the queues they came from."),
    "failures": ("fusion.cli.failed:failures", "Show failures, grouped by error and place."),
    "quarantine": ("fusion.cli.failed:quarantine", "Quarantine failed jobs."),
    "empty": ("fusion.cli.jobs:empty", "Delete all waiting jobs of these queues."),
    "scheduled": ("fusion.cli.scheduled:scheduled", "Show the jobs that wait for a time, the soonest first."),
    "cancel": ("fusion.cli.cancel:cancel", "Cancel jobs, so that they do not run, or not run again."),
    "stop": ("fusion.cli.cancel:stop", "Stop jobs, running ones included."),
    "delete": ("fusion.cli.operations:delete", "Delete jobs, whatever they wait for or however they ended."),
    "reprioritise": ("fusion.cli.operations:reprioritise", "Give waiting jobs another priority."),
    "operations": (
        "fusion.cli.operations:operations_group",
        "Show operations on the jobs of a query; cancel or run them.",
    ),
    "job": ("fusion.cli.job:job_group", "Show one job; copy, cancel, stop, requeue or delete it."),
    "tree": ("fusion.cli.tree:tree", "Show what a job waits for, and what waits for it."),
    "reschedule": ("fusion.cli.scheduled:reschedule", "Give a scheduled job another time."),
    "suspend": ("fusion.cli.control:suspend", "Suspend all workers: none starts another job."),
    "resume": ("fusion.cli.control:resume", "Resume suspended workers."),
    "pause": ("fusion.cli.control:pause", "Pause queues: none of their jobs is started."),
    "unpause": ("fusion.cli.control:unpause", "Unpause queues."),
    "queue": ("fusion.cli.queue:queue_group", "Show and set limits of queues."),
    "batches": ("fusion.cli.batches:batches", "Show batches, the newest first."),
    "batch": ("fusion.cli.batches:batch_group", "Show, draw or cancel a batch."),
    "limit": ("fusion.cli.limit:limit_group", "Show concurrency keys; set their limits, pause them, release a slot."),
    "quiet": ("fusion.cli.control:quiet", "Quiet workers: they finish their running jobs and take no more."),
    "unquiet": ("fusion.cli.control:unquiet", "Unquiet workers: they take jobs again."),
    "trash": ("fusion.cli.trash:trash_group", "Show deleted jobs, and restore them."),
    "audit": ("fusion.cli.audit:audit", "Show who changed what, the newest first."),
    "config": ("fusion.cli.config:config_group", "Show the effective settings, and where each comes from."),
    "doctor": ("fusion.cli.doctor:doctor", "Show what is wrong and how to fix it."),
    "health": ("fusion.cli.health:health", "Check that a worker is alive and has loaded its tasks."),
    "metrics": ("fusion.cli.metrics:metrics", "Print metrics of the fleet for Prometheus, or serve them."),
    "schema": ("fusion.cli.schema:schema", "Show the layout of the data in Redis, or raise it to this program's."),
    "cron": ("fusion.cli.cron:cron_group", "Show recurring jobs; run, pause, resume or remove them."),
    "events": ("fusion.cli.events:events_group", "Show sinks and events; deliver parked events again."),
    "outbox": (
        "fusion.cli.outbox:outbox_group",
        "Enqueue the jobs that transactions wrote as rows; show refused ones.",
    ),
    "callbacks": (
        "fusion.cli.callbacks:callbacks_group",
        "Show callbacks to URLs when jobs end; retry those that failed.",
    ),
    "completion": ("fusion.cli.completion:completion", "Print the script for shell completion."),
    "redis": ("fusion.cli.redis_commands:redis_group", "The built-in Redis: start, stop, status."),
    "debug": ("fusion.cli.debug:debug_group", "Show what Fusion sends to Redis."),
}
#: Commands that are elsewhere: RQ's that have another name here, and those of a checkout.
_ELSEWHERE = {
    "worker-pool": "use `start -n N`, which also replaces what dies",
    "demo": "it runs from a checkout of Fusion: make demo",
}


def add_command(name: str, place: str, text: str) -> None:
    """Add a command that is not in the package: `place` is `module:attribute`, `text` what `--help` says of it."""
    COMMANDS[name] = (place, text)


class _Formatter(click.HelpFormatter):
    """Writes help with the name under which the program was called."""

    def getvalue(self) -> str:
        """Return the help text."""
        return super().getvalue().replace(program.WRITTEN, prog())


class _Context(click.Context):
    formatter_class = _Formatter


def _let_be_called(command: click.Command) -> None:
    command.context_class = _Context
    for inner in getattr(command, "commands", {}).values():
        _let_be_called(inner)


class LazyGroup(click.Group):
    """Imports a command when it is called, suggests the nearest name, and turns errors into one line and an exit code."""

    context_class = _Context

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command; None if there is none with this name."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        found = getattr(import_module(module), name)
        assert isinstance(found, click.Command)
        _let_be_called(found)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """Offer the commands without importing them."""
        from click.shell_completion import CompletionItem

        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return [CompletionItem(name, help=text) for name, (_, text) in COMMANDS.items() if name.startswith(incomplete)]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse an option before the command, with a hint where options go."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise click.UsageError(
                f"No such option {error.option_name}; options come after the command: {ctx.info_name} info -v", ctx
            ) from None

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggest the nearest name for an unknown command."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(name, COMMANDS, n=1)
            hint = _ELSEWHERE.get(name) or (f"did you mean {near[0]!r}?" if near else f"there are {', '.join(COMMANDS)}")
            raise click.UsageError(f"No such command {name!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. An error that a person can have caused becomes one line, with exit code 1, 2 or 130."""
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            own = not isinstance(error, click.MissingParameter)  # the message lists the allowed values, one a line
            vars(error)["message"] = shown(error.message, len(error.message)) if own else lines(error.message)
            raise
        except click.exceptions.Exit:
            raise
        except (KeyboardInterrupt, click.Abort):
            echo("Interrupted", err=True)
            ctx.exit(130)
        except InvalidName as error:
            raise click.UsageError(shown(str(error), 2000)) from None
        except UnicodeEncodeError as error:
            # from a command line that is not UTF-8; data of Redis can't cause it
            raise click.UsageError(lines(f"{error.object[:100]!r}: write it in UTF-8")) from None
        except Exception as error:
            _tell(ctx, error)


def _tell(ctx: click.Context, error: Exception) -> None:
    line = explain(error)
    if line is None:
        raise error
    cli = current()
    if cli and cli.verbose:
        import traceback

        echo("".join(traceback.format_exception(error)), err=True, nl=False)
    echo(f"Error: {line}", err=True)
    ctx.exit(1)


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="\b\nExamples:\n  run_worker.py worker --customq all\n  run_worker.py info\n  run_worker.py COMMAND --help",
)
@click.version_option(__version__, prog_name="fusion")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Fusion: a Redis-backed priority task queue."""
    if os.environ.get("NO_COLOR"):
        ctx.color = False


def main() -> None:
    """Run the command line of `fusion` and `run_worker.py`; end the process with its exit code."""
    cli()


if __name__ == "__main__":
    main()
