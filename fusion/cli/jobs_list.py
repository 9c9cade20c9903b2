"""`jobs`: search jobs by a query."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from fusion.cli.context import Cli, prog, seconds, shared_options
from fusion.cli.control import tell_unknown
from fusion.cli.hints import Command
from fusion.cli.output import echo, echo_json, shown, styled
from fusion.cli.progress import progress
from fusion.cli.slips import tell_slips
from fusion.cli.tables import table_of
from fusion.cli.times import told, utc_option
from fusion.cli.watch import watchable
from fusion.exceptions import InvalidQuery

if TYPE_CHECKING:
    from fusion.store.query.grammar import Query
    from fusion.store.read.search_inspector import FoundPage, SearchInspector
    from fusion.views.job import FoundJobView, JobsView

SCHEMA = 1
#: Jobs of a table, and jobs read at a time for larger output.
_ROWS, _PAGE = 20, 500
#: A term that excludes jobs; it looks like an option.
_LEAVES_OUT = re.compile(r"-[A-Za-z_]+:")
#: Put before such a term until it is parsed: no argument contains it.
_SHIELD = "\0"
_COLOURS = {"failed": "red"}


class _Jobs(Command):
    """Reads `-queue:sms` as a term, not as an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep such terms from being parsed as options."""
        return super().parse_args(ctx, [_SHIELD + arg if _LEAVES_OUT.match(arg) else arg for arg in args])


def _joined(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> Query:
    from fusion.store.query.grammar import Query

    try:
        return Query.parse(" ".join(word.removeprefix(_SHIELD) for word in value))
    except InvalidQuery as error:
        raise click.UsageError(f"the query: {error}") from None


_EXAMPLES = """
  run_worker.py jobs state:failed error:Timeout newer:1h
  run_worker.py jobs state:queued queue:sms --limit 100
  run_worker.py jobs state:failed func:tasks.sms.* -queue:otp --count
  run_worker.py jobs 'error:"Read timed out"' --ids
"""


@click.command("jobs", cls=_Jobs, epilog=f"\b\nExamples:\n  {_EXAMPLES.strip()}")
@click.argument("query", nargs=-1, metavar="[QUERY]...", callback=_joined)
@click.option("--limit", type=click.IntRange(1, 1_000_000), metavar="N", help="That many at most; 20, with --ids and --csv all.")
@click.option("--after", default="", metavar="PLACE", help="Continue after a page, with the value that it printed.")
@click.option("--count", is_flag=True, help="Only show how many, exactly: all jobs are read.")
@click.option("--ids", is_flag=True, help="One id per line, for other commands.")
@click.option("--csv", "as_csv", is_flag=True, help="For a spreadsheet.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@utc_option
@shared_options
@watchable
def jobs(cli: Cli, query: Query, limit: int | None, after: str, count: bool, ids: bool, as_csv: bool, as_json: bool) -> None:
    """Show the jobs that a query matches.

    A query is words that must all hold: state:failed queue:sms error:Timeout group: id: func: tag: key: unique: batch: worker: cron: priority:
    older:2h newer:30m is:quarantined is:held. Commas separate alternatives, -queue:otp excludes, * and ? are wildcards, a word alone is searched
    in id, function, description and error. Without a query all jobs are shown: first running jobs, the longest-running at the top, then failed
    jobs, the newest at the top. See docs/queries.md for more. Arguments are never shown.
    """
    if ids + as_csv + (count or as_json) > 1:
        raise click.UsageError("of --ids, --csv, --json and --count only --json and --count go together")
    if count and (after or limit):
        raise click.UsageError("--count counts all: leave out --limit and --after")
    from fusion.store.access import search_inspector_of

    search = search_inspector_of(cli.looking)
    if count:
        _count(search, query, as_json)
    elif ids or as_csv:
        _written(search, query, limit, after, as_csv)
    else:
        with progress("looking at jobs", quiet=as_json) as advance:
            page = _page(search, query, limit or _ROWS, after, advance)
        if as_json:
            echo_json(_view(query, page))
        else:
            _show(cli, query, page, limit)


def _page(search: SearchInspector, query: Query, limit: int, after: str, advance: Callable[[int], None]) -> FoundPage:
    """Return a page of this length, however many jobs must be read for it."""
    from dataclasses import replace

    from fusion.store.read.search_inspector import LARGEST_PAGE

    found = _asked(search, query, min(limit, LARGEST_PAGE), after)
    tell = _looked(advance)
    tell(found)
    while found.after and len(found.jobs) < limit:
        more = _asked(search, query, min(limit - len(found.jobs), LARGEST_PAGE), found.after)
        searched = tuple(({one.state: one for one in found.searched} | {one.state: one for one in more.searched}).values())
        found = replace(
            more,
            jobs=(*found.jobs, *more.jobs),
            looked=sum(one.looked for one in searched),
            total=sum(one.total for one in searched),
            complete=found.complete and more.complete,
            searched=searched,
        )
        tell(found)
    return found


def _looked(advance: Callable[[int], None]) -> Callable[[FoundPage], None]:
    """Return a function that takes each page and tells how many more jobs were examined for it."""
    states = dict[str, int]()

    def tell(page: FoundPage) -> None:
        before = sum(states.values())
        states.update({one.state: one.looked for one in page.searched})
        advance(sum(states.values()) - before)

    return tell


def _asked(search: SearchInspector, query: Query, limit: int, after: str) -> FoundPage:
    try:
        return search.page(query, limit=limit, after=after)
    except InvalidQuery as error:
        raise click.BadParameter(error.message, param_hint="--after") from None


def _count(search: SearchInspector, query: Query, as_json: bool) -> None:
    with progress("looking at jobs", quiet=as_json) as advance:
        found = search.count(query, progress=advance)
    if as_json:
        echo(json.dumps({"schema": SCHEMA, "query": query.text, "count": found.matched, "looked": found.looked}))
    else:
        echo(str(found.matched))


# -- for programs


def _view(query: Query, page: FoundPage) -> JobsView:
    from fusion.store.read.search_inspector import in_words
    from fusion.views.job import FoundJobView, JobsView

    return JobsView(
        query=query.text,
        jobs=[FoundJobView.of(job) for job in page.jobs],
        after=page.after or None,
        looked=page.looked,
        total=page.total,
        complete=page.complete,
        note=in_words(page.searched) or None,
        broken=[],
    )


def _written(search: SearchInspector, query: Query, limit: int | None, after: str, as_csv: bool) -> None:
    """Yield row after row while reading, so that a pipe gets the first rows at once."""
    from fusion.store.read.search_inspector import in_words
    from fusion.views.job import row_of

    note = ""
    head = as_csv
    for page in _pages(search, query, limit, after):
        if as_csv:
            rows = [row_of(job) for job in page.jobs]
            for cells in [[*rows[0]] for _ in range(head and bool(rows))] + [[*row.values()] for row in rows]:
                echo(_line(cells))
            head = head and not rows
        elif page.jobs:
            echo("\n".join(shown(job.id) for job in page.jobs))
        note = in_words(page.searched)
    if note:
        echo(f"Note: {note}{_FURTHER}", err=True)


def _pages(search: SearchInspector, query: Query, limit: int | None, after: str) -> Iterator[FoundPage]:
    left = limit
    with progress("looking at jobs", quiet=sys.stdout.isatty()) as advance:
        tell = _looked(advance)
        while True:
            page = _asked(search, query, min(_PAGE, left or _PAGE), after)
            yield page
            tell(page)
            left = None if left is None else left - len(page.jobs)
            after = page.after
            if not after or left == 0:
                return


def _line(cells: list[Any]) -> str:
    import csv
    import io

    from fusion.web.export import cell

    written = io.StringIO()
    csv.writer(written, lineterminator="").writerow(map(cell, cells))
    return written.getvalue()


# -- for people

_FURTHER = "; name a queue, for failed jobs a failure group, to search further, or use --count, which reads all"


def _show(cli: Cli, query: Query, page: FoundPage, limit: int | None) -> None:
    from fusion.store.read.search_inspector import in_words

    at = cli.inspector.now()
    note = in_words(page.searched)
    if not page.jobs:
        _nothing(cli, query, page, note)
        return
    from fusion.views.job import FoundJobView

    cells: dict[str, Callable[[FoundJobView], str]] = {
        "status": _state,
        "since": lambda job: "-" if job.since is None else seconds(max(0.0, (at - job.since).total_seconds())),
        "error": lambda job: _about(job, at),
    }
    order = ("status", "function", "id", "queue", "since", "error")
    jobs = [FoundJobView.of(job) for job in page.jobs]
    echo("\n".join(table_of(FoundJobView, jobs, order=order, cells=cells, right=("since",))))
    if note:
        echo(f"\nNote: {note}{_FURTHER}")
    if page.after:
        asked = " ".join(filter(None, (_typed(query.text), f"--limit {limit}" if limit else "")))
        echo(f"\nMore: {prog()} jobs {asked}{' ' * bool(asked)}--after {page.after}")


def _typed(text: str) -> str:
    """Return a query as it is typed in a shell."""
    import shlex

    return shlex.quote(text) if text else ""


def _nothing(cli: Cli, query: Query, page: FoundPage, note: str) -> None:
    cli.tell_broken()
    if queues := query.values("queue"):
        tell_unknown(cli, [name for name in queues if not name.startswith("_") and name != "failed"])
    looked = ", ".join(f"{one.looked:,} {one.state}" for one in page.searched if one.looked)
    if note or looked or query.text:
        why = f"{note}{_FURTHER}" if note else f"looked at {looked}" if looked else "no job is in these states"
        echo(f"No jobs match {query.text or 'an empty query'}: {why}")
    else:
        echo("There are no jobs")
    tell_slips(cli, query)


def _state(job: FoundJobView) -> str:
    held = (job.waits_for or "").startswith("a worker")
    return styled(job.status or "?", "yellow" if held else None if job.quarantined else _COLOURS.get(job.status))


def _about(job: FoundJobView, at: datetime) -> str:
    """Return what a job waits for, or its error."""
    error = job.error.kind.removeprefix("builtins.") if job.error else ""
    if job.status == "failed":
        where = f" in {job.error.at}" if job.error and job.error.at else ""
        return ("quarantined: " if job.quarantined else "") + (error or "unknown") + where
    if job.status == "scheduled" and job.scheduled_at is not None:
        left = (job.scheduled_at - at).total_seconds()
        due = f"due {told(job.scheduled_at)} (in {seconds(left)})" if left > 0 else "due now"
        return f"{due}, after {error}" if error else due
    if job.status == "started":
        done = "" if job.progress_percent is None else f", {job.progress_percent:.0f} % done"
        return f"on {job.worker or '?'}{done}"
    return job.waits_for or ("HIGH" if job.priority > 1 else "-" if job.priority else "LOW")
