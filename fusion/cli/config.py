"""`config show`: the settings of a process that is started here, and where each comes from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import click

from fusion.cli.context import Cli, prog, shared_options
from fusion.cli.hints import Command, Group
from fusion.cli.output import echo, styled
from fusion.cli.tables import table

if TYPE_CHECKING:
    from fusion.settings import Settings

SCHEMA = 1


@click.group(cls=Group, name="config")
def config_group() -> None:
    """Show the effective settings, and where each comes from."""


@config_group.command(
    "show",
    cls=Command,
    epilog="\b\nExamples:\n  run_worker.py config show -c instance\n  run_worker.py config show --given\n"
    "  run_worker.py config show redis_url lease --json",
)
@click.argument("names", nargs=-1, metavar="[SETTING]...")
@click.option("--given", is_flag=True, help="Only those that differ from their default.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@shared_options
def show(cli: Cli, names: tuple[str, ...], given: bool, as_json: bool) -> None:
    """Show the settings that a worker started here would have.

    FROM: the default; the -c module, with the name used there; the environment, with the variable, which may be one of RQ's; a flag. The last
    of these that has the setting wins. Secrets are masked. Redis is not read: `queue show` and `limit list` show what is set there for
    queues and keys.
    """
    settings = cli.settings
    known = settings.masked()
    chosen = [_known(name, known) for name in names]
    picked = {
        item.name: known[item.name]
        for _, group in _groups()
        for item in fields(group)
        if (not chosen or item.name in chosen) and not (given and settings.origin_of(item.name) == "default")
    }
    if as_json:
        echo(json.dumps({"schema": SCHEMA, "settings": {name: _document(settings, name, picked[name]) for name in picked}}))
        return
    blocks = [block for title, group in _groups() if (block := _block(title, group, settings, picked))]
    if len(picked) < len(known) and not chosen:
        blocks.append([f"{len(known) - len(picked)} more at their default; to see all: {prog()} config show"])
    echo("\n\n".join("\n".join(block) for block in blocks))


def _known(name: str, known: Mapping[str, Any]) -> str:
    """Return the setting of a typed name, which may also be that of its environment variable."""
    found = name.lower().removeprefix("fusion_").replace("-", "_")
    if found in known:
        return found
    from difflib import get_close_matches

    near = get_close_matches(found, known, n=1)
    raise click.UsageError(f"no setting {name!r}; " + (f"did you mean {near[0]!r}?" if near else "docs/settings.md lists them"))


def _groups() -> Iterator[tuple[str, Any]]:
    from fusion.settings.groups import JobSettings, RedisSettings, WorkerSettings
    from fusion.settings.reporting import ReportingSettings

    yield from (("Redis", RedisSettings), ("Workers", WorkerSettings))
    yield from (("Jobs", JobSettings), ("Reports and access", ReportingSettings))


def _block(title: str, group: Any, settings: Settings, picked: Mapping[str, Any]) -> list[str]:
    rows = []
    for item in fields(group):
        if item.name in picked:
            origin = settings.origin_of(item.name)
            rows.append((item.name, _text(picked[item.name]), origin if origin == "default" else styled(origin, "green")))
    return [title, *table(("SETTING", "VALUE", "FROM"), rows)] if rows else []


def _text(value: Any) -> str:
    """Return a value as it would be written in the environment."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (tuple, list)):
        return ",".join(map(str, value))
    return json.dumps(value, default=_kind, skipkeys=True) if isinstance(value, Mapping) else str(value)


def _document(settings: Settings, name: str, value: Any) -> dict[str, Any]:
    origin = settings.origin_of(name)
    # A module's dicts may hold anything. A value that JSON lacks is shown by its type, because its repr may contain a secret.
    plain = json.loads(json.dumps(value, default=_kind, skipkeys=True))
    return {"value": plain, "origin": origin.partition(" ")[0], "from": origin}


def _kind(value: object) -> Any:
    return dict(value) if isinstance(value, Mapping) else f"<{type(value).__name__}>"
