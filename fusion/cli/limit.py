"""The commands `limit list | show | set | release | pause | resume` about concurrency keys."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from fusion.cli.context import Cli, prog, shared_options
from fusion.cli.control import duration_option, line_option
from fusion.cli.hints import Command, Group
from fusion.cli.output import echo, echo_json
from fusion.cli.recorded import recorded
from fusion.cli.watch import watchable
from fusion.exceptions import OptionError

if TYPE_CHECKING:
    from fusion.kernel.rates import Rate
    from fusion.store.read.limit_inspector import LimitInfo
    from fusion.store.write.limit_broker import LimitBroker

SCHEMA = 1
_Function = Callable[..., Any]
_CHUNK = 100


@click.group(cls=Group, name="limit")
def limit_group() -> None:
    """Show concurrency keys; set their limits, pause them, release a slot.

    Jobs declare keys (`enqueue --concurrency-key`, `@job`). A limit that is set here overrides that of the jobs, in the whole fleet, at once.
    """


def _command(name: str, example: str) -> Callable[[_Function], click.Command]:
    title = "Examples" if "\n" in example else "Example"
    return limit_group.command(name, cls=Command, epilog=f"\b\n{title}:\n  {example}")


def _key(ctx: click.Context, param: click.Parameter, given: Any) -> Any:
    from fusion.enqueue.kinds import key

    try:
        return key("", given) if isinstance(given, str) else tuple(dict.fromkeys(key("", one) for one in given))
    except OptionError as error:
        raise click.BadParameter(f"{error.value[0]!r}: {error.rule}") from None


def _rate(ctx: click.Context, param: click.Parameter, given: str | None) -> Rate | None:
    from fusion.kernel.rates import Rate

    try:
        return None if given is None else Rate.parse(given)
    except OptionError as error:
        raise click.BadParameter(f"{given!r}: {error.rule}") from None


_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON document.")
_KEY = click.argument("key", callback=_key, metavar="KEY")
_KEYS = click.argument("keys", nargs=-1, required=True, callback=_key, metavar="KEY...")


def _broker(cli: Cli) -> LimitBroker:
    from fusion.store.access import limit_broker_of

    return limit_broker_of(cli.connection)


def _found(cli: Cli, keys: Sequence[str]) -> list[LimitInfo]:
    """Read these keys. If some are unknown, print a line for each and end with exit code 1."""
    from fusion.store.access import limit_inspector_of

    found = dict(zip(keys, limit_inspector_of(cli.looking).limits(keys), strict=True))
    unknown = [key for key, info in found.items() if info is None]
    for key in unknown:
        echo(
            f"Error: no job has the concurrency key {key}, and nothing is set for it; `{prog()} limit list` lists all keys",
            err=True,
        )
    if unknown:
        sys.exit(1)
    return [info for info in found.values() if info is not None]


# -- looking


@_command("list", "run_worker.py limit list\n  run_worker.py limit list --stuck\n  run_worker.py limit list --json | jq .keys")
@click.option("--stuck", is_flag=True, help="Only keys whose jobs wait while none has started for ten minutes.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="That many at most.")
@click.option("--offset", type=click.IntRange(0), default=0, show_default=True, help="Skip this many of the most recently used.")
@_JSON
@shared_options
@watchable
def list_limits(cli: Cli, stuck: bool, limit: int, offset: int, as_json: bool) -> None:
    """Show concurrency keys, the most recently used first.

    ACTIVE jobs run. HELD slots include those of jobs that wait in their queues. BLOCKED jobs wait for a slot. A key disappears a day after its last
    job, unless something is set for it.
    """
    from fusion.cli import limit_render as render
    from fusion.store.access import limit_inspector_of

    inspector, at = limit_inspector_of(cli.looking), cli.inspector.now()
    if stuck:
        infos = inspector.stuck_limits()[offset : offset + limit]
    else:
        keys = inspector.limit_keys(offset, limit)
        parts = [keys[start : start + _CHUNK] for start in range(0, len(keys), _CHUNK)]
        infos = [info for part in parts for info in inspector.limits(part) if info is not None]
    from fusion.views.limit import KeysView, KeyView

    shown = [KeyView.of(info) for info in infos]
    if as_json:
        echo_json(KeysView(keys=shown, offset=offset))
    elif infos:
        echo("\n".join(render.listing(shown, at)))
        if len(infos) == limit:
            echo(f"More: {prog()} limit list --offset {offset + limit}")
    else:
        cli.tell_broken()
        echo("No key is stuck" if stuck else "No concurrency keys")


@_command("show", "run_worker.py limit show user:42\n  run_worker.py limit show user:42 --json | jq '.keys[0].holders'")
@_KEYS
@_JSON
@shared_options
@watchable
def show(cli: Cli, keys: tuple[str, ...], as_json: bool) -> None:
    """Show single keys, with the jobs that hold their slots.

    Exit code 1 if one is unknown: no job had it within a day, and nothing is set for it.
    """
    from fusion.cli import limit_render as render

    infos, at = _found(cli, keys), cli.inspector.now()
    if as_json:
        from fusion.views.base import to_json
        from fusion.views.limit import KeyView

        echo(json.dumps({"schema": SCHEMA, "keys": [to_json(KeyView.of(info)) for info in infos]}))
    else:
        echo("\n\n".join("\n".join(render.account(info, at, prog())) for info in infos))


# -- setting


@_command(
    "set",
    "run_worker.py limit set user:42 5\n  run_worker.py limit set smtp --rate 100/60s\n  run_worker.py limit set user:42 --no-limit",
)
@_KEY
@click.argument("limit", type=click.IntRange(1, 1_000_000), required=False, metavar="[N]")
@click.option("--rate", callback=_rate, metavar="RATE", help="The most jobs that start in a time: 100/60s, 10/s, 5/2m.")
@click.option("--no-limit", is_flag=True, help="Remove N: the jobs' own limit applies.")
@click.option("--no-rate", is_flag=True, help="Remove the rate: the jobs' own rate applies.")
@shared_options
@recorded("limit_set", of="key", says=("limit", "rate", "no_limit", "no_rate"))
def set_limit(cli: Cli, key: str, limit: int | None, rate: Rate | None, no_limit: bool, no_rate: bool) -> None:
    """Set how many jobs of a key may run at once, or start in a time.

    It overrides the jobs' own limit until it is removed. Jobs that may start now are started; running jobs go on.
    """
    if (limit is not None and no_limit) or (rate is not None and no_rate):
        raise click.UsageError("N and --no-limit, and --rate and --no-rate, exclude each other")
    if limit is None and rate is None and not (no_limit or no_rate):
        raise click.UsageError("give N or --rate; or --no-limit, --no-rate to apply the jobs' own limits")
    from fusion.cli import limit_render as render
    from fusion.store.access import limit_inspector_of

    unknown = limit_inspector_of(cli.looking).limits([key]) == [None]
    if limit is not None or no_limit:
        _broker(cli).pin_limit(key, limit)
    if rate is not None or no_rate:
        _broker(cli).pin_rate(key, rate)
    (info,) = _found(cli, [key])
    echo(f"{key}: {render.bounds(info.limit)}")
    if unknown:
        echo(f"No job has the concurrency key {key}: this binds only jobs that are enqueued with it", err=True)


@_command("pause", 'run_worker.py limit pause smtp --duration 10m --reason "the provider is down"')
@_KEYS
@duration_option("Resume by itself after this time.  [default: never]")
@line_option("--reason", "The reason; it is shown with the key and the name of who paused it.")
@shared_options
@recorded("limit_pause", of="keys", says=("duration", "reason"))
def pause(cli: Cli, keys: tuple[str, ...], duration: float | None, reason: str) -> None:
    """Pause keys: none of their jobs is started.

    Running jobs are completed, and jobs can still be enqueued. Other keys go on.
    """
    from fusion.store.layout.pauses import this_user

    for key in keys:
        _broker(cli).pause_limit(key, duration, by=this_user(), reason=reason)
        echo(f"{key} is paused" + (f" for {duration:g} seconds" if duration else ""))


@_command("resume", "run_worker.py limit resume smtp")
@_KEYS
@shared_options
@recorded("limit_resume", of="keys")
def resume(cli: Cli, keys: tuple[str, ...]) -> None:
    """Resume keys that are paused, or that a task holds back."""
    at = cli.inspector.now().timestamp()
    for key in keys:
        was = _broker(cli).resume_limit(key)
        echo(f"{key} goes on" if max(was.paused_until, was.held_back_until) > at else f"{key} was not paused")


@_command("release", "run_worker.py limit release user:42 sync-4711")
@_KEY
@click.argument("job_ids", nargs=-1, required=True, metavar="JOB_ID...")
@shared_options
@recorded("limit_release", of="key", jobs="job_ids", says=("job_ids",))
def release(cli: Cli, key: str, job_ids: tuple[str, ...]) -> None:
    """Release the slots of running jobs: others of the key may start.

    The jobs run on, so more jobs of the key than its limit may run at once. Exit code 1 if one has no slot, or has not started.
    """
    from fusion.store.layout.pauses import this_user

    failed = False
    for job_id in dict.fromkeys(job_ids):
        if _broker(cli).release_slot(key, job_id, by=this_user()):
            echo(f"{job_id} no longer holds a slot of {key}")
        else:
            echo(
                f"Unable to release {job_id}: it runs with no slot of {key}; `{prog()} limit show {key}` lists those that do",
                err=True,
            )
            failed = True
    if failed:
        sys.exit(1)
