"""Shared by all commands: settings, the connection, and error messages. Redis is imported on use."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cached_property, update_wrapper
from typing import TYPE_CHECKING, Any

import click

from fusion.cli.output import echo, shown
from fusion.exceptions import ConfigurationError, FusionError
from fusion.kernel import program

if TYPE_CHECKING:
    from redis import Redis

    from fusion.audit import AuditedChange
    from fusion.settings import Settings
    from fusion.store.read.inspector import Inspector
    from fusion.store.write.broker import Broker

_META = "fusion.cli"
#: Flags whose setting has another name: messages must name the typed flag.
_SPELLED = {
    "flag --redis-url": "flag --url",
    "flag --result-ttl": "flag --results-ttl",
    "flag --server-tokens-file": "flag --tokens",
    "flag --server-allowed-hosts": "flag --allowed-host",
    "flag --server-": "flag --",
}


class Cli:
    """One run of one command."""

    def __init__(
        self,
        *,
        url: str | None,
        config: str | None,
        prefix: str | None,
        path: tuple[str, ...],
        verbose: bool = False,
        utc: bool = False,
    ) -> None:
        self.url, self.config, self.prefix, self.verbose = url, config, prefix, verbose
        #: Show times in UTC (`fusion.cli.times`).
        self.utc = utc
        #: Called with the connection once it is made, for the audit (`fusion.cli.recorded`).
        self.on_connect: Callable[[Redis], None] | None = None
        #: The audit entry of a command that changes something, once the connection is made.
        self.entry: AuditedChange | None = None
        self._settings: Settings | None = None
        self._told = False
        # At the end, like RQ: modules in the current directory must not shadow installed ones.
        for entry in map(os.path.abspath, path):
            if entry not in sys.path:
                sys.path.append(entry)

    @property
    def settings(self) -> Settings:
        """The settings that `load` last made; loaded without further flags if it was not called."""
        return self._settings or self.load()

    def load(self, **flags: Any) -> Settings:
        """Load the settings with these flags, and make them the settings of this process.

        A wrong flag is a usage error; a wrong module or variable is a ConfigurationError.
        """
        from fusion.settings import Settings, use_settings

        flags = {"redis_url": self.url, "prefix": self.prefix, **flags}
        try:
            settings = Settings.load(self.config, **flags)
        except ConfigurationError as error:
            if "(from flag " not in str(error):
                raise
            raise click.UsageError(_spelled(str(error))) from None
        use_settings(settings)
        self._settings = settings
        return settings

    def config_files(self) -> list[str]:
        """Return the file of the loaded -c module, if there is one."""
        name = self.config or os.environ.get("FUSION_CONFIG") or os.environ.get("RQ_CONFIG")
        found = (sys.modules.get(name) or sys.modules.get(f"wrappers.{name}")) if name else None
        path = getattr(found, "__file__", None)
        return [path] if path else []

    @cached_property
    def connection(self) -> Redis:
        """A client of the chosen Redis; made on first use, closed when the command ends."""
        from fusion.store.client.connections import connect, push_connection

        connection = connect(self.settings)
        push_connection(connection)
        click.get_current_context().call_on_close(self._close)
        if self.on_connect:
            self.on_connect(connection)
        return connection

    def changed(self, count: int) -> None:
        """Note in the audit entry how many things were changed."""
        if self.entry:
            self.entry.changed(count)

    @cached_property
    def _looking(self) -> tuple[Redis, dict[str, str]]:
        from fusion.store.read.tolerant import forgiving

        return forgiving(self.connection)

    @property
    def looking(self) -> Redis:
        """The connection for commands that only show: a key of a wrong type reads as empty instead of raising an error."""
        return self._looking[0]

    def broken(self) -> list[str]:
        """Return a sentence for each key of a wrong type that was met, for a command that prints them itself."""
        self._told = True
        return self._broken()

    def _broken(self) -> list[str]:
        from fusion.store.read.tolerant import in_words

        advice = "its content is not shown. Find out what else writes to this Redis, and rename or delete the key"
        return [f"{sentence}: {advice}" for sentence in in_words(self._looking[1])]

    def tell_broken(self) -> None:
        """Print these sentences and end with exit code 1, if there are any. Also called at the end of every command."""
        if self._told or "_looking" not in vars(self) or not (lines := self._broken()):
            return
        for line in lines:
            echo(f"Error: {line}", err=True)
        sys.exit(1)

    def _close(self) -> None:
        from fusion.store.client.connections import pop_connection

        pop_connection().close()

    @property
    def broker(self) -> Broker:
        """The Broker of `connection`."""
        from fusion.store.access import broker_of

        return broker_of(self.connection)

    @property
    def inspector(self) -> Inspector:
        """The Inspector of `connection`."""
        from fusion.store.access import inspector_of

        return inspector_of(self.connection)

    @property
    def onlooker(self) -> Inspector:
        """The Inspector of `looking`."""
        from fusion.store.access import inspector_of

        return inspector_of(self.looking)


def explain(error: BaseException) -> str | None:
    """Return one line about an error for a person; None for a bug, whose traceback is shown."""
    if isinstance(error, FusionError):
        text = _spelled(str(error))
        return shown(text, len(text))  # the error may quote data of Redis, in which a line end would start a new line
    if not any(kind.__module__.partition(".")[0] == "redis" for kind in type(error).__mro__):
        return None
    from fusion.store.client.connections import one_line

    return one_line(error, _where())


def _where() -> str | None:
    """Return the Redis that an error concerns, without connecting to it."""
    from fusion.settings import get_settings
    from fusion.store.client.connections import url_of

    cli = current()
    if cli and "connection" in vars(cli):
        return url_of(cli.connection)
    named = get_settings().named_url
    return named[0] if named else None


def _spelled(text: str) -> str:
    for wrong, right in _SPELLED.items():
        text = text.replace(wrong, right)
    return text


def current() -> Cli | None:
    """Return the running command's Cli; None before there is one."""
    context = click.get_current_context(silent=True)
    found = context.meta.get(_META) if context else None
    return found if isinstance(found, Cli) else None


def prog() -> str:
    """Return the name of the called program: `run_worker.py`, `fusion`, or that of a program that includes our commands."""
    context = click.get_current_context(silent=True)
    return (context and context.find_root().info_name) or program.name()


_SHARED = (
    click.option("-u", "--url", metavar="URL", help="The Redis to use, e.g. redis://host:6379/0  [env: FUSION_REDIS_URL]"),
    click.option(
        "-c", "--config", metavar="MODULE", help="Module with settings: MODULE, else wrappers.MODULE  [env: FUSION_CONFIG]"
    ),
    click.option("--prefix", metavar="TEXT", help="Prefix of all Redis keys  [env: FUSION_PREFIX; default: RQ's]"),
    click.option(
        "-P", "--path", metavar="DIR", multiple=True, default=(".",), help="Where to import from; repeatable  [default: .]"
    ),
    click.option("-v", "--verbose", is_flag=True, help="Print more; show an error's traceback."),
)


def shared_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add -u -c --prefix -P -v; the command gets a Cli in their place."""

    def command(**given: Any) -> Any:
        shared = {name: given.pop(name) for name in ("url", "config", "prefix", "path", "verbose")}
        cli = Cli(**shared, utc=given.pop("utc", False))
        click.get_current_context().meta[_META] = cli
        answer = function(cli, **given)
        cli.tell_broken()
        return answer

    wrapped: Callable[..., Any] = update_wrapper(command, function)
    for option in reversed(_SHARED):
        wrapped = option(wrapped)
    return wrapped


def confirmed(question: str, yes: bool, *, undone: bool = False) -> bool:
    """Return True if `--yes` was given, or the user confirms at a terminal. Without a terminal the flag is required, unless the change can be
    `undone`."""
    if yes:
        return True
    if not sys.stdin.isatty():
        if undone:
            return True
        echo(f"Error: {question} There is no terminal to ask on: give --yes", err=True)
        return False
    return click.confirm(shown(question), err=True)


def seconds(value: float) -> str:
    """Return a duration in words: `0.4 s`, `12 s`, `3 min`, `2 h`, `5 d`."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if value >= 2 * size:
            return f"{value / size:.0f} {unit}"
    return f"{value:.0f} s" if value >= 10 else f"{max(value, 0.0):.1f} s"
