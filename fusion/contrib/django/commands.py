"""`manage.py fusion ...`: Fusion's command line, in a process that reads the project's settings and has loaded none of its apps."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from argparse import Namespace
from collections.abc import Iterator, Sequence
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser, SystemCheckError
from django.db import DEFAULT_DB_ALIAS, connections

from fusion.cli.main import COMMANDS
from fusion.contrib.django.conf import outbox_alias
from fusion.exceptions import ConfigurationError

#: Django's own flags of every command, which `manage.py` has handled before; True: a value follows.
_OBEYED = {"--settings": True, "--pythonpath": True, "--skip-checks": False}
#: Commands that load the project's code.
_RUNNING = ("start", "worker", "scheduler")


class FusionCommand(BaseCommand):
    """A command of Fusion's command line, with the same flags and help. A subclass names the command; without a name the first argument does."""

    name = ""
    requires_system_checks: Any = ()

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.help = COMMANDS[self.name][1] if self.name else "The command line of Fusion: manage.py fusion COMMAND."

    def create_parser(self, prog_name: str, subcommand: str, **options: Any) -> CommandParser:
        """Make a parser that leaves all parsing to Fusion's own."""
        return _Verbatim(prog=f"{prog_name} {subcommand}")

    def print_help(self, prog_name: str, subcommand: str) -> None:
        """Print the help of Fusion's command."""
        subprocess.run(_line(self.words_of(["--help"])), env=_environment(), check=False)

    def run_from_argv(self, argv: list[str]) -> None:
        """Replace this process by that command: supervisors and workers need none of the project's apps in their own memory."""
        words, obeyed = _without_obeyed(argv[2:])
        words = self.words_of(words)
        if words[:1] and words[0] in _RUNNING and not {"-h", "--help", "--skip-checks"} & {*words, *obeyed}:
            self._look()
        sys.stdout.flush()
        sys.stderr.flush()
        line = _line(words)
        os.execve(line[0], line, _environment(words))

    def handle(self, *args: str, **options: Any) -> None:
        """Run the command beside this process: `call_command("fusion_info", "--json")`. CommandError if it fails."""
        told: dict[str, Any] = {"stdout": subprocess.PIPE, "text": True} if options.get("stdout") else {}
        words = self.words_of(args)
        done = subprocess.run(_line(words), env=_environment(words), check=False, **told)
        if told:
            self.stdout.write(done.stdout, ending="")
        if done.returncode:
            raise CommandError(f"fusion {' '.join(words[:1])} ended with {done.returncode}", returncode=done.returncode)

    def words_of(self, given: Sequence[str]) -> list[str]:
        """Return the arguments for the command line."""
        return [self.name, *given] if self.name else [*given]

    def _look(self) -> None:
        """Report problems that a worker of this project would have. Ends the process if a system check fails."""
        try:
            self.check()
        except SystemCheckError as error:
            self.stderr.write(str(error), lambda text: text)
            sys.exit(1)
        try:
            self.check_migrations()
        except Exception:  # no database answers: tasks report that themselves, if they need one
            pass
        finally:
            connections.close_all()


class _Verbatim(CommandParser):
    """Passes all words on unchanged."""

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:
        given = {
            "verbosity": 1,
            "settings": None,
            "pythonpath": None,
            "traceback": False,
            "no_color": False,
            "force_color": False,
        }
        return Namespace(args=tuple(args or ()), skip_checks=True, **given)


def _without_obeyed(words: Sequence[str]) -> tuple[list[str], set[str]]:
    """Return the words for Fusion, and the flags among the others that were Django's."""
    kept: list[str] = []
    found: set[str] = set()
    rest = iter(words)
    for word in rest:
        flag, equals, _ = word.partition("=")
        if word == "--":
            return [*kept, word, *rest], found
        if flag not in _OBEYED:
            kept.append(word)
            continue
        found.add(flag)
        if _OBEYED[flag] and not equals:
            next(rest, None)
    return kept, found


def _line(words: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "fusion.contrib.django", *words]


def _environment(words: Sequence[str] = ()) -> dict[str, str]:
    """Return the environment of a process that imports from the same places as this one: the directory of manage.py, and the paths of
    --pythonpath. The outbox of a project is in the database that its settings name."""
    outbox = {"FUSION_OUTBOX_DATABASE": _database()} if [*words][:1] == ["outbox"] else {}
    return {**outbox, **os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(_own_paths()))}


def _database() -> str:
    try:
        alias = outbox_alias()
    except (ConfigurationError, AttributeError):  # the process that is started reports the error
        alias = None
    return f"django:{alias or DEFAULT_DB_ALIAS}"


def _own_paths() -> Iterator[str]:
    paths = sysconfig.get_paths()
    known = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    for entry in sys.path:
        path = os.path.abspath(entry or ".")
        if os.path.isdir(path) and path not in known and os.path.dirname(path) not in known:
            yield path
