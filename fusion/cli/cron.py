"""`cron list | next | history | run | pause | resume | remove | validate`: recurring jobs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import redirect_stdout
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import click

from fusion.cli import names
from fusion.cli.context import Cli, confirmed, prog, shared_options
from fusion.cli.hints import Command, Group
from fusion.cli.output import echo, echo_json, styled
from fusion.cli.recorded import recorded
from fusion.cli.times import utc_option
from fusion.cli.watch import watchable
from fusion.exceptions import InvalidJobOperation, NoSuchEntryError
from fusion.kernel.timeutil import now

if TYPE_CHECKING:
    from fusion.cron.declared import Declarations
    from fusion.cron.plan import Plan
    from fusion.cron.scheduler import Scheduler
    from fusion.store.read.cron_inspector import EntryInfo

SCHEMA = 1
_Function = Callable[..., Any]


class _CronGroup(Group):
    """A group that explains where options go, and what replaces `rq cron CONFIG`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            after = f"options come after the command: {ctx.command_path} list -v"
            raise click.UsageError(f"No such option {error.option_name}; {after}", ctx) from None

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        name, known = args[0], self.list_commands(ctx)
        if name not in known and not name.startswith("-"):
            near = get_close_matches(name, known, n=1)
            there = f"there are {', '.join(known)}; cron entries are run by `{prog()} scheduler --schedule MODULE`"
            raise click.UsageError(f"No such command {name!r}; {f'did you mean {near[0]!r}?' if near else there}", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=_CronGroup, name="cron")
def cron_group() -> None:
    """Show recurring jobs; run, pause, resume or remove them.

    `scheduler` runs them. Code declares them (`@recurring`), or a program adds them (`Scheduler.cron`).
    """


def _command(name: str, example: str) -> Callable[[_Function], click.Command]:
    title = "Examples" if "\n" in example else "Example"
    return cron_group.command(name, cls=Command, epilog=f"\b\n{title}:\n  {example}")


_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON document.")
_IDS = click.argument("ids", nargs=-1, required=True, metavar="ID...")


# -- looking


@_command(
    "list", example="run_worker.py cron list\n  run_worker.py cron list --json | jq '.entries[] | select(.state == \"error\")'"
)
@_JSON
@shared_options
@watchable
def list_entries(cli: Cli, as_json: bool) -> None:
    """Show all cron entries.

    NEXT is the first undecided tick; with `due` before its age, no scheduler has handled it yet. LAST is the last decided one, JOB the entry's
    newest job without the `cron-ID-` of its id. MISSED ticks were not run in time by any scheduler (misfire). OVERLAPPED ticks were skipped
    because a job had not ended.
    """
    from fusion.cli import cron_render as render
    from fusion.cron.state import last_jobs
    from fusion.store.access import cron_inspector_of

    inspector = cron_inspector_of(cli.looking)
    at, infos = cli.inspector.now(), inspector.entries()
    alive = [scheduler.name for scheduler in inspector.schedulers() if scheduler.alive]
    views = [render.EntryState.of(info, at.timestamp()) for info in infos]
    jobs = last_jobs(cli.inspector, [job for info in infos for job in (info.last_job, info.manual_job) if job])
    if as_json:
        from fusion.views.cron import CronEntriesView

        echo_json(CronEntriesView.of(alive, views, jobs))
        return
    if not views:
        cli.tell_broken()
        echo(f"No cron entries; code declares them (@recurring) and `{prog()} scheduler --schedule MODULE` takes them up")
        return
    echo("\n".join(render.listing(views, jobs, prog())))
    if not alive:
        echo(styled(f"\nNo scheduler is alive: no entry runs. Start one: {prog()} scheduler", fg="yellow"))


@_command(
    "next",
    example="run_worker.py cron next nightly-report -n 10\n"
    "  run_worker.py cron next '30 2 * * *' --timezone Europe/Berlin\n  run_worker.py cron next 'every 5m'",
)
@click.argument("what", nargs=-1, required=True, metavar="ID|EXPRESSION")
@click.option("-n", "--count", type=click.IntRange(1, 1000), default=5, show_default=True, metavar="N", help="How many.")
@click.option("--timezone", metavar="ZONE", help="The zone of an expression: Europe/Berlin.  [default: UTC]")
@_JSON
@shared_options
def next_ticks(cli: Cli, what: tuple[str, ...], count: int, timezone: str | None, as_json: bool) -> None:
    """Show when an entry, or a cron expression, is due next.

    An argument with a space in it, or with @ at its start, is an expression and needs no Redis. Each tick is shown in its own zone and in UTC, with
    the effect of a clock change on it.
    """
    if len(what) > 1:
        raise click.UsageError(f"put an expression in quotes: {prog()} cron next '*/5 * * * *'")
    from fusion.cli import cron_render as render

    text = what[0]
    info, at = None, now()
    if " " in text or text.startswith("@"):
        plan = _plan(text, timezone)
    elif timezone:
        raise click.UsageError("--timezone goes with an expression; an entry has a zone of its own")
    else:
        info = _find(_scheduler(cli), text)
        plan, at = _plan_of(info), cli.inspector.now()
    found, remarks = render.ticks(plan, at.timestamp(), count), [text for text in (plan.fault, *plan.remarks()) if text]
    if as_json:
        about = {"id": info.id if info else None, "when": plan.text, "paused": bool(info and info.paused)}
        from fusion.views.base import to_json
        from fusion.views.cron import TickView

        rows = [to_json(TickView.of(plan, tick)) for tick in found]
        echo(json.dumps({"schema": SCHEMA, **about, "ticks": rows, "remarks": remarks}))
        return
    echo("\n".join(render.coming(plan, found, at.timestamp())) if found else f"{plan.text}: it has ended, no tick is left")
    if remarks:
        echo("\n".join(["", *remarks]))
    if info and info.paused:
        echo(styled(f"\n{info.id} is paused: none of them runs until {prog()} cron resume {info.id}", fg="yellow"))


@_command("history", example="run_worker.py cron history nightly-report -n 50")
@click.argument("id", metavar="ID")
@click.option("-n", "--count", type=click.IntRange(1, 50), default=20, show_default=True, metavar="N", help="How many.")
@_JSON
@utc_option
@shared_options
@watchable
def history(cli: Cli, id: str, count: int, as_json: bool) -> None:
    """Show the outcomes of an entry's last ticks.

    The newest first; 50 are kept. OUTCOME: enqueued; overlap (JOB had not ended); missed; exists (JOB was
    there already); taken (JOB is not this entry's: the tick did not run); manual.
    """
    from fusion.cli import cron_render as render
    from fusion.cron.state import last_jobs

    scheduler = _scheduler(cli)
    view = render.EntryState.of(_find(scheduler, id), now().timestamp())
    found = scheduler.history(id, count)
    jobs = last_jobs(cli.inspector, [one.what for one in found if one.outcome != "missed"])
    if as_json:
        from fusion.views.base import to_json
        from fusion.views.cron import DecisionView

        rows = [to_json(DecisionView.of(one, jobs)) for one in found]
        echo(json.dumps({"schema": SCHEMA, "id": id, "decisions": rows}))
    elif not found:
        echo(f"Nothing yet: no tick of {id} was due")
    else:
        echo("\n".join(render.decisions(view.entry.plan if view.entry else None, found, jobs)))


# -- changing


@_command("run", example="run_worker.py cron run nightly-report")
@click.argument("id", metavar="ID")
@click.option("--force", is_flag=True, help="Even if a job of it has not ended.")
@shared_options
@recorded("cron_run", of="id", says=("force",))
def run(cli: Cli, id: str, force: bool) -> None:
    """Enqueue a job of an entry now and print its id.

    It works for a paused entry too; its ticks go on as planned.
    """
    scheduler = _scheduler(cli)
    _find(scheduler, id)
    try:
        echo(scheduler.run(id, force=force).id)
    except InvalidJobOperation as error:
        raise InvalidJobOperation(str(error).replace("; use force", "; to run it anyway: --force")) from None
    except ValueError as error:
        raise InvalidJobOperation(f"cron entry {id!r}: {error}") from None


@_command("pause", example="run_worker.py cron pause nightly-report")
@_IDS
@shared_options
@recorded("cron_pause", of="ids")
def pause(cli: Cli, ids: tuple[str, ...]) -> None:
    """Pause entries: none of their ticks runs until `resume`.

    Ticks of that time are not made up later. Jobs that were enqueued before stay. Exit code 1 if there is no such entry.
    """

    def one(scheduler: Scheduler, entry: str) -> str:
        scheduler.pause(entry)
        return f"{entry} is paused"

    _each(cli, ids, one)


@_command("resume", example="run_worker.py cron resume nightly-report")
@_IDS
@shared_options
@recorded("cron_resume", of="ids")
def resume(cli: Cli, ids: tuple[str, ...]) -> None:
    """Resume paused entries: their ticks run again from now on.

    Exit code 1 if there is no such entry.
    """
    _each(cli, ids, lambda scheduler, entry: f"{entry} goes on" if scheduler.resume(entry) else f"{entry} was not paused")


@_command("remove", example="run_worker.py cron remove nightly-report --yes")
@_IDS
@click.option("-y", "--yes", is_flag=True, help="Don't ask; needed where there is no terminal.")
@shared_options
@recorded("cron_remove", of="ids")
def remove(cli: Cli, ids: tuple[str, ...], yes: bool) -> None:
    """Remove cron entries.

    Their jobs stay. An entry that code declares comes back when its scheduler starts again: remove it from the code, or pause it. Exit code 1 if
    there is no such entry.
    """
    from fusion.store.access import cron_inspector_of

    known = {info.id: info for info in cron_inspector_of(cli.connection).entries([*dict.fromkeys(ids)])}
    if known and not confirmed(f"Forget {', '.join(known)}?", yes):
        echo("Nothing was removed", err=True)
        sys.exit(1)

    def one(scheduler: Scheduler, entry: str) -> str:
        scheduler.remove(entry)
        app = known[entry].app if entry in known else ""
        back = f"; app {app} declares it: it comes back when its scheduler starts, unless it leaves the code" if app else ""
        return f"{entry} is removed{back}"

    _each(cli, ids, one)


def _each(cli: Cli, ids: Iterable[str], action: Callable[[Scheduler, str], str]) -> None:
    """Call `action` for every entry. Unknown entries are reported, and the others are done."""
    scheduler = _scheduler(cli)
    missing = []
    for entry in dict.fromkeys(ids):
        try:
            echo(action(scheduler, entry))
        except NoSuchEntryError:
            missing.append(entry)
    there = scheduler.ids() if missing else []
    for entry in missing:
        echo(_no_entry(entry, there), err=True)
    if missing:
        sys.exit(1)


# -- checking


@_command("validate", example="run_worker.py cron validate -c instance\n  run_worker.py cron validate shop.schedule --json")
@click.argument("modules", nargs=-1, metavar="[MODULE]...")
@_JSON
@shared_options
def validate(cli: Cli, modules: tuple[str, ...], as_json: bool) -> None:
    """Check the declared cron entries as a scheduler would load them.

    It imports MODULES, or those of the setting `schedule`, and the task modules; Redis is not needed. Exit code 1 if an entry is wrong or a module
    can't be loaded: run it before a deployment. If you name modules, the default module `tasks` may be missing. Valid entries that may surprise
    get a note (`*/45` is not every 45 minutes).
    """
    from fusion.cli import cron_render as render
    from fusion.cron.declared import collect
    from fusion.cron.state import instant
    from fusion.kernel.importing import task_modules
    from fusion.kernel.timeutil import to_iso

    settings, at = cli.settings, now().timestamp()
    declaring = names.split(modules) or settings.schedule or ()
    with redirect_stdout(sys.stderr):  # the output of imported modules
        found = collect(declaring, task_modules(settings.tasks), settings.setup or ())
    entries = sorted(found.entries.values(), key=lambda entry: entry.id)
    if as_json:
        rows = [
            {
                "id": entry.id,
                "when": entry.plan.text,
                "next": None if (tick := entry.plan.after(int(at))) is None else to_iso(instant(tick)),
                "queue": entry.queue,
                "function": entry.func_name,
                "remarks": entry.remarks(int(at)),
            }
            for entry in entries
        ]
        echo(json.dumps({"schema": SCHEMA, "entries": rows, "faults": found.faults, "broken": found.broken}))
    else:
        _tell_declared(render.declared(entries, at) if entries else [], found)
    tolerated = set(settings.unnamed_tasks) if declaring else set()
    if found.faults or found.broken.keys() - tolerated:
        sys.exit(1)


def _tell_declared(lines: Sequence[str], found: Declarations) -> None:
    if lines:
        echo("\n".join(lines))
    for entry, why in found.faults.items():
        echo(f"Entry {entry}: {why}", err=True)
    for module, why in found.broken.items():
        trace = found.traces.get(module)
        echo((f"{trace}\n" if trace else "") + f"Module {module} can't be loaded: {why}", err=True)
    if not lines and not found.faults and not found.broken:
        echo("No cron entries declared; name the modules that declare them, here or in the setting `schedule`")


# -- what they share


def _scheduler(cli: Cli) -> Scheduler:
    from fusion.cron.scheduler import Scheduler

    return Scheduler(cli.connection)


def _find(scheduler: Scheduler, entry: str) -> EntryInfo:
    try:
        return scheduler.get(entry)
    except NoSuchEntryError:
        raise NoSuchEntryError(_no_entry(entry, scheduler.ids())) from None


def _no_entry(entry: str, there: Sequence[str]) -> str:
    near = get_close_matches(entry, there, n=1)
    if near:
        return f"no cron entry {entry!r}; did you mean {near[0]!r}?"
    more = ", ..." if len(there) > 8 else ""
    return f"no cron entry {entry!r}; there are {', '.join(there[:8]) or 'none'}{more}"


def _plan(text: str, timezone: str | None) -> Plan:
    from fusion.cron.plan import Plan

    try:
        if text.startswith("every "):
            if timezone:
                raise ValueError("an interval has no time zone: leave --timezone out")
            return Plan.interval(text.removeprefix("every ").strip())
        return Plan.cron(text, timezone or "UTC")
    except ValueError as error:
        raise click.UsageError(str(error).replace("timezone=", "--timezone ")) from None


def _plan_of(info: EntryInfo) -> Plan:
    from fusion.cron.plan import Plan

    try:
        if not info.rev:
            raise ValueError(f"it was declared with a mistake: {info.declared_error}")
        return Plan.from_json(info.plan)
    except ValueError as error:
        raise InvalidJobOperation(f"cron entry {info.id!r}: {error}") from None
