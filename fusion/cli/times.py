"""Times as people read them: by the clocks of this machine, or with --utc in UTC. What programs read is UTC throughout."""

from __future__ import annotations

from datetime import datetime, timezone

import click

from fusion.cli.context import current

utc_option = click.option("--utc", is_flag=True, help="Times in UTC, in place of this machine's zone.")


def here(moment: datetime) -> datetime:
    """The same moment by the clocks that are wanted."""
    cli = current()
    try:
        return moment.astimezone(timezone.utc if cli is not None and cli.utc else None)
    except (OverflowError, OSError, ValueError):  # of the year 9999: a zone east of here has no such
        return moment.astimezone(timezone.utc)


def told(moment: datetime | None, none: str = "-") -> str:
    """`2026-01-31 10:30:00 +0100`, with --utc `2026-01-31 09:30:00Z`; `none` for no time."""
    if moment is None:
        return none
    shown = here(moment)
    return f"{shown:%Y-%m-%d %H:%M:%S}" + ("Z" if shown.tzinfo is timezone.utc else f" {shown:%z}")
