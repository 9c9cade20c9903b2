"""`events stats | tail | replay | forget | setup`: the progress of sinks, and the newest events."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from fusion.cli.context import Cli, prog, shared_options
from fusion.cli.hints import Command, Group
from fusion.cli.output import echo, echo_json
from fusion.cli.progress import progress
from fusion.cli.recorded import recorded
from fusion.cli.times import utc_option
from fusion.cli.watch import watchable
from fusion.exceptions import ConfigurationError
from fusion.kernel.redaction import printable

if TYPE_CHECKING:
    from fusion.events.sink import Sink
    from fusion.store.read.event_inspector import EventInspector, Parked

_Function = Callable[..., Any]
#: Parked events that are sent together.
_PAGE = 100


@click.group(cls=Group, name="events")
def events_group() -> None:
    """Show sinks and events; deliver parked events again.

    `relay` delivers them; its help explains how to configure sinks.
    """


def _command(name: str, example: str) -> Callable[[_Function], click.Command]:
    title = "Examples" if "\n" in example else "Example"
    return events_group.command(name, cls=Command, epilog=f"\b\n{title}:\n  {example}")


@_command("stats", "run_worker.py events stats\n  run_worker.py events stats --json | jq '.sinks[].behind'")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@shared_options
@watchable
def stats(cli: Cli, as_json: bool) -> None:
    """Show the progress of each sink.

    BEHIND: events that it has not received yet, and how long ago the first of them happened. PARKED: events that it refused for good; `events
    replay` delivers them again. DROPPED: events that it will never receive, since the stream was full while the sink was behind.
    """
    from fusion.cli import events_render as render
    from fusion.store.access import event_inspector_of

    inspector = event_inspector_of(cli.looking)
    snapshot = render.EventsSnapshot(
        inspector.stream(), tuple(inspector.sinks()), tuple(inspector.relays()), cli.settings.sinks, cli.settings.events_cap
    )
    if as_json:
        from fusion.views.events import SinksView

        echo_json(SinksView.of(snapshot, configured=True))
    else:
        echo(render.text(snapshot, prog()))


@_command("tail", "run_worker.py events tail -n 50\n  run_worker.py events tail --follow --job 4f1c")
@click.option("-n", "--lines", "count", type=click.IntRange(0), default=20, show_default=True, help="How many of the newest.")
@click.option("-f", "--follow", is_flag=True, help="Go on with new events; Ctrl-C ends.")
@click.option("--job", "job_id", default="", metavar="ID", help="Only this job's.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line: the entry's id and its fields.")
@utc_option
@shared_options
def tail(cli: Cli, count: int, follow: bool, job_id: str, as_json: bool) -> None:
    """Show the newest events of the stream.

    It reads the stream itself, which has no arguments or results. This does not affect sinks.
    """
    from fusion.cli import events_render as render

    inspector = _inspector(cli)
    show = render.raw_line if as_json else render.line
    last = inspector.last_entry() if follow else ""
    if last or not follow:
        with progress("reading the stream", quiet=as_json) as advance:
            found = inspector.tail(count, job_id, upto=last or "+", progress=advance)
        for entry in found:
            echo(show(entry))
    if follow:
        try:
            for entry in _blocking_inspector(cli).follow(last or "0-0", min(1.0, cli.settings.idle_wait), job_id):
                echo(show(entry))
        except KeyboardInterrupt:
            pass


@_command("replay", "run_worker.py events replay -c instance\n  run_worker.py events replay --sink elasticsearch --limit 100")
@click.option("--sink", "name", metavar="NAME", help="Only events that this sink refused.  [default: all configured sinks]")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="At most this many, the oldest first.  [default: all]")
@shared_options
@recorded("events_replay", of="name", says=("limit",))
def replay(cli: Cli, name: str | None, limit: int | None) -> None:
    """Deliver parked events again, from this process.

    It needs the same settings as the relay. Events that the sink accepts now are no longer parked; refused ones stay, with the reason.
    """
    from fusion.sinks.configured import sinks_of

    sinks = {sink.name: sink for sink in sinks_of(cli.settings)}
    if name is not None and name not in sinks:
        raise click.UsageError(f"no sink {name!r} is configured; there is {', '.join(sinks)}")
    for sink in [sinks[name]] if name else list(sinks.values()):
        try:
            _replay(cli, sink, limit)
        finally:
            sink.close()


@_command("forget", "run_worker.py events forget elasticsearch")
@click.argument("sink", metavar="SINK")
@click.option("-y", "--yes", is_flag=True, help="Don't ask.")
@shared_options
@recorded("events_forget", of="sink")
def forget(cli: Cli, sink: str, yes: bool) -> None:
    """Forget a sink, and keep no more events for it.

    For a sink that is no longer configured. The events that it has not received are lost to it, and so are its parked events and its figures. A
    relay that still serves it begins with the oldest event in the stream.
    """
    from fusion.store.access import event_broker_of

    known = _inspector(cli).sink_names()
    if sink not in known:
        there = f"there is {', '.join(known)}" if known else "there is none"
        raise click.UsageError(f"no sink {sink!r} has ever been served; {there}")
    if not yes:
        click.confirm(f"Forget how far {sink} is, and what is parked for it?", abort=True)
    cli.broker.check_writer()
    event_broker_of(cli.connection).forget(sink)
    echo(f"{sink} is forgotten")


@_command("setup", "run_worker.py events setup -c instance")
@shared_options
def setup(cli: Cli) -> None:
    """Prepare Elasticsearch: templates, lifecycle policy, index or data stream. May be repeated."""
    from fusion.sinks.configured import elasticsearch_options

    if not cli.settings.elasticsearch_url:
        raise ConfigurationError(
            "no Elasticsearch is configured; set FUSION_ELASTICSEARCH_URL, or ELASTICSEARCH_URL in the -c module", code="FUS-215"
        )
    options = elasticsearch_options(cli.settings)
    from fusion.sinks.es_setup import setup

    for line in setup(options):
        echo(line)


def _inspector(cli: Cli) -> EventInspector:
    from fusion.store.access import event_inspector_of

    return event_inspector_of(cli.connection)


def _blocking_inspector(cli: Cli) -> EventInspector:
    from fusion.store.access import event_inspector_of
    from fusion.store.client.connections import connect

    connection = connect(cli.settings, role="blocking")
    click.get_current_context().call_on_close(connection.close)
    return event_inspector_of(connection)


def _replay(cli: Cli, sink: Sink, limit: int | None) -> None:
    from fusion.store.access import event_broker_of

    cli.broker.check_writer()
    inspector, admin = _inspector(cli), event_broker_of(cli.connection)
    delivered, refused, after = 0, list[str](), "0-0"
    left = limit if limit is not None else inspector.parked_count(sink.name)
    with progress(f"delivering to {sink.name}", left) as advance:
        while left > 0 and (page := inspector.parked(sink.name, min(left, _PAGE), after)):
            left, after = left - len(page), page[-1].entry
            again = _write(sink, page)
            admin.unpark(sink.name, [parked.entry for parked in page if parked.entry not in again])
            delivered += len(page) - len(again)
            refused += again.values()
            advance(len(page))
    echo(f"{sink.name}: {delivered} delivered" + (f", {len(refused)} refused again" if refused else ""))
    for why in dict.fromkeys(refused):
        echo(f"  {refused.count(why)} x {why}")


def _write(sink: Sink, page: Sequence[Parked]) -> dict[str, str]:
    """Return the entries that are refused again, and why. SinkUnavailable ends the replay; events delivered until then are no longer parked."""
    from fusion.events.document import from_document

    refused: dict[str, str] = {}
    events = {}
    for parked in page:
        try:
            events[parked.entry] = from_document(json.loads(parked.document))
        except (ValueError, RecursionError):
            refused[parked.entry] = "it can't be read"
    whys = {rejected.event.id: printable(rejected.why) for rejected in sink.write(list(events.values()))}
    return refused | {entry: whys[event.id] for entry, event in events.items() if event.id in whys}
