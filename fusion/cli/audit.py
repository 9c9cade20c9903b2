"""`audit`: who changed what."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import click

from fusion.cli.context import Cli, shared_options
from fusion.cli.failed import age
from fusion.cli.hints import command
from fusion.cli.output import echo, echo_json
from fusion.cli.tables import table_of
from fusion.cli.times import utc_option
from fusion.cli.watch import watchable

if TYPE_CHECKING:
    pass

SCHEMA = 1


@command(
    example="run_worker.py audit --since 2h\n  run_worker.py audit --who 'token:*' --action pause\n"
    "  run_worker.py audit --json | jq '.entries[] | select(.outcome == null)'"
)
@click.option("--since", callback=age, metavar="AGE", help="Only changes of this last time: 90s, 5m, 2h, 1d.")
@click.option(
    "--who", default="", metavar="NAME", help="Only changes by these callers: deploy@web1, token:billing; a wildcard will do."
)
@click.option("--action", default="", metavar="NAME", help="Only such changes: requeue, limit_set; a wildcard will do.")
@click.option("--limit", type=click.IntRange(1, 20_000), default=50, show_default=True, help="That many at most.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@utc_option
@shared_options
@watchable
def audit(cli: Cli, since: float | None, who: str, action: str, limit: int, as_json: bool) -> None:
    """Show who changed what, the newest first.

    Every command and every HTTP request that changes something is listed, except enqueues and /retryTask, which are in the events of jobs. An
    entry is written before the change, and its outcome after it. OUTCOME is `no answer` while the change goes on, or if its process was killed.
    The last 10,000 changes are kept.
    """
    from fusion.store.access import audit_inspector_of
    from fusion.store.read.audit_inspector import NO_ANSWER, AuditFilter

    begin = None if since is None else cli.inspector.now() - timedelta(seconds=since)
    inspector = audit_inspector_of(cli.looking)
    found, missing = inspector.entries(AuditFilter(who, action, begin), limit), inspector.missing()
    if missing:
        echo(f"{missing:,} entries are missing: they were removed from the audit, which keeps 20,000", err=True)
    from fusion.views.audit import AuditView, ChangeView

    entries = [ChangeView.of(entry) for entry in found]
    if as_json:
        after = found[-1].id if len(found) == limit else None
        echo_json(AuditView(entries=entries, after=after, missing=missing))
    elif found:
        echo("\n".join(table_of(ChangeView, entries, cells={"outcome": lambda one: one.outcome or NO_ANSWER})))
    else:
        cli.tell_broken()
        echo("Nobody changed anything" + " of that kind" * bool(who or action or since is not None))
