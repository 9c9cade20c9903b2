"""`callbacks`: deliveries of callbacks to URLs, and retries of failed ones."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from fusion.callbacks import retry_deliveries
from fusion.cli.context import Cli, prog, shared_options
from fusion.cli.hints import Command, Group
from fusion.cli.output import echo, echo_json, styled
from fusion.cli.progress import progress
from fusion.cli.recorded import recorded
from fusion.cli.tables import table_of, when
from fusion.cli.watch import watchable
from fusion.kernel import defaults

if TYPE_CHECKING:
    from fusion.store.read.callback_inspector import CallbackInspector, DeliveryInfo

SCHEMA = 1
_Function = Callable[..., Any]
_COLOURS = {"waiting": None, "retrying": "yellow", "failed": "red", "delivered": "green"}


@click.group(cls=Group, name="callbacks")
def callbacks_group() -> None:
    """Show callbacks to URLs when jobs end; retry those that failed.

    A delivery is tried for three to four days. Relays deliver: a worker starts one if there is a callback and no relay.
    """


def _command(name: str, example: str) -> Callable[[_Function], click.Command]:
    title = "Examples" if "\n" in example else "Example"
    return callbacks_group.command(name, cls=Command, epilog=f"\b\n{title}:\n  {example}")


def _inspector(cli: Cli) -> CallbackInspector:
    from fusion.store.read.callback_inspector import CallbackInspector

    return CallbackInspector(cli.connection, prefix=cli.settings.prefix)


# -- list


@_command("list", "run_worker.py callbacks list --status failed\n  run_worker.py callbacks list --json | jq .callbacks")
@click.option(
    "--status",
    type=click.Choice(["waiting", "retrying", "failed", "delivered", "canceled", "all"]),
    default="all",
    show_default=True,
    help="Only those.",
)
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="That many at most.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@shared_options
@watchable
def list_callbacks(cli: Cli, status: str, limit: int, as_json: bool) -> None:
    """Show deliveries: their jobs, hosts, number of tries and last answers.

    Open ones come first by their next try; ended ones by their end, the newest first. Only the host of a URL is shown, because the rest may hold
    a token. Delivered ones are kept for a day, failed ones for a week.
    """
    from fusion.store.read.callback_inspector import CallbackInspector

    inspector = CallbackInspector(cli.looking, prefix=cli.settings.prefix)
    at = cli.inspector.now()
    found = list(islice(inspector.find(None if status == "all" else status), limit + 1))
    shown, more = found[:limit], len(found) > limit
    dropped, refused, gone = inspector.dropped(), inspector.refused(), inspector.gone()
    from fusion.views.delivery import CallbacksView, CallbackView

    rows = [CallbackView.of(one) for one in shown]
    if as_json:
        echo_json(CallbacksView(callbacks=rows, offset=0, more=more, dropped=dropped, refused=refused, gone=gone))
        return
    if shown:
        cells: dict[str, Callable[[CallbackView], str]] = {
            "status": lambda one: styled(one.status, fg=_COLOURS.get(one.status)),
            "next_at": lambda one: "due" if one.next_at is not None and one.next_at <= at else when(one.next_at, at),
        }
        order = ("id", "status", "created_at", "to", "job_id", "job_status", "tries", "answer", "next_at")
        echo("\n".join(table_of(CallbackView, rows, at, order=order, cells=cells)))
    else:
        echo("No callbacks" if status == "all" else f"No callbacks are {status}")
    for line in _remarks(shown, more, limit, dropped, refused, gone):
        echo(line)


def _remarks(shown: list[DeliveryInfo], more: bool, limit: int, dropped: int, refused: int, gone: int) -> list[str]:
    lines = []
    if more:
        lines.append(f"There are more: --limit {min(limit * 10, 10_000)}, or --status")
    if any(one.status == "failed" for one in shown):
        lines.append(f"To send failed ones again: {prog()} callbacks retry --all, or their ids")
    if gone:
        lines.append(
            f"{gone} endpoints answered 410 and get no more callbacks; to send to one again: {prog()} callbacks retry --to URL"
        )
    if refused:
        lines.append(styled(f"{refused} were refused, as {defaults.CALLBACKS_MAX:,} waited", fg="red"))
    if dropped:
        lines.append(styled(f"{dropped} could not be accepted, as a key of the queue _callbacks is broken", fg="red"))
    return lines


# -- retry


@_command("retry", "run_worker.py callbacks retry --all\n  run_worker.py callbacks retry --to https://hooks.example.com/fusion")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--all", "everything", is_flag=True, help="All that have failed.")
@click.option(
    "--to",
    metavar="URL",
    help="All to this URL, or to that of the callback with this id; after a 410, it also gets future ones again.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document with the counts.")
@shared_options
@recorded("callbacks_retry", of="ids", says=("everything", "to"))
def retry_callbacks(cli: Cli, ids: tuple[str, ...], everything: bool, to: str | None, as_json: bool) -> None:
    """Retry failed deliveries under the same id.

    One that waits for its next try is tried now. Exit code 1 if one could not be retried.
    """
    if bool(ids) + everything + (to is not None) != 1:
        raise click.UsageError("give ids, --all or --to; one of them (`callbacks list` shows the ids)")
    inspector = _inspector(cli)
    if to is not None and (same := inspector.one(to)):
        to = same.url
    readmitted = to is not None and cli.broker.readmit_endpoint(to)
    refused: dict[str, str] = {}
    if ids:
        chosen = _named(inspector, ids, refused)
    elif everything:
        chosen = list(inspector.find("failed"))
    else:
        chosen = [one for status in ("failed", "retrying") for one in inspector.find(status) if one.url == to]
    with progress("retrying", len(chosen), quiet=as_json) as advance:
        count = retry_deliveries(cli.broker, cli.inspector.now().timestamp(), chosen, refused, advance)
    cli.changed(count)
    if as_json:
        echo(json.dumps({"schema": SCHEMA, "retried": count, "readmitted": readmitted, "refused": refused}))
    else:
        if readmitted:
            echo("The endpoint had answered 410 and gets callbacks again")
        echo(f"{count} callbacks are tried again" if count or refused or not readmitted else "None had failed")
    for delivery, why in refused.items():
        echo(f"Unable to retry {delivery}: {why}", err=True)
    if refused:
        sys.exit(1)


def _named(inspector: CallbackInspector, ids: Iterable[str], refused: dict[str, str]) -> list[DeliveryInfo]:
    chosen = []
    for delivery in dict.fromkeys(ids):
        found = inspector.one(delivery)
        if found is not None and found.status != "delivered":
            chosen.append(found)
        else:
            refused[delivery] = "no such callback" if found is None else "it was delivered"
    return chosen
