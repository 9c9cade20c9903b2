"""`schema`: show the layout of the data, and raise it to a newer one."""

from __future__ import annotations

import json
import os
import socket
import sys
from dataclasses import asdict

import click

from fusion import __version__
from fusion.cli.context import Cli, shared_options
from fusion.cli.hints import command
from fusion.cli.output import echo
from fusion.cli.recorded import recorded

#: Exit code if the program is too old, or the step can't be made yet; 1 means an error.
NOT_YET = 3


@command(example="run_worker.py schema\n  run_worker.py schema --raise")
@click.option("--raise", "up", is_flag=True, help="Raise the data to this program's layout.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@shared_options
@recorded("schema_raise", only="up")
def schema(cli: Cli, up: bool, as_json: bool) -> None:
    """Show the layout of the data in Redis, or raise it to this program's.

    --raise is the last step of an upgrade whose notes ask for it. Run it when this version runs everywhere, producers included. It is refused while
    an older worker, scheduler or relay is registered. After it there is no way back to the older version.

    Exit code 3: this program is too old for the data, or older processes are still there.
    """
    from fusion.exceptions import SchemaMismatch
    from fusion.store.access import schema_broker_of
    from fusion.store.layout.schema import VERSION

    broker = schema_broker_of(cli.connection)
    before = broker.stored().version
    older = broker.schema_raise(f"{socket.gethostname()}.{os.getpid()}") if up else []
    found = broker.stored()
    written = bool(found.at)
    needed = max(found.min_reader, found.min_writer)
    try:
        found.check_reader()
        told = ""
    except SchemaMismatch as error:
        told = str(error)
    if as_json:
        known = {"fusion": __version__, "version": VERSION}
        echo(
            json.dumps(
                {
                    "schema": 1,  # the version of this document
                    "data": {**asdict(found), "written": written},
                    "program": known,
                    "older": [one._asdict() for one in older],
                }
            )
        )
    else:
        who = (
            f"written by {found.by or '?'} (Fusion {found.fusion or '?'}) at {found.at or '?'}"
            if written
            else "nobody has written the key yet; where there are no data, the first to write begins with its own"
        )
        echo(f"Data: schema {found.version}, for processes that know {needed} or newer; {who}")
        echo(f"This program: schema {VERSION} (Fusion {__version__})")
        if up and not older:
            echo(f"Raised from schema {before}" if found.version > before else "Nothing to raise")
        for one in older:
            echo(f"{one.kind} {one.name} knows schema {one.knows} only", err=True)
        if older:
            echo("Not raised: upgrade or stop these first; one that died leaves its list within minutes", err=True)
        if told:
            echo(f"Too old: {told}", err=True)
    sys.exit(NOT_YET if older or told else 0)
