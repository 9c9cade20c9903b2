"""Times for people, in this machine's zone, or with --utc in UTC. Output for programs is always in UTC."""

from __future__ import annotations

from datetime import datetime, timezone

import click

from fusion.cli.context import current

utc_option = click.option("--utc", is_flag=True, help="Times in UTC, in place of this machine's zone.")


def here(moment: datetime) -> datetime:
    """Return the moment in the chosen zone."""
    cli = current()
    try:
        return moment.astimezone(timezone.utc if cli is not None and cli.utc else None)
    except (OverflowError, OSError, ValueError):  # at the end of the year 9999 the local time would be out of range
        return moment.astimezone(timezone.utc)


def told(moment: datetime | None, none: str = "-") -> str:
    """Return a time like `2026-01-31 10:30:00 +0100`, with --utc `2026-01-31 09:30:00Z`; `none` if there is none."""
    if moment is None:
        return none
    shown = here(moment)
    return f"{shown:%Y-%m-%d %H:%M:%S}" + ("Z" if shown.tzinfo is timezone.utc else f" {shown:%z}")
