"""`server`: the HTTP service, and `server token`, which makes a token for it."""

from __future__ import annotations

import errno
import gc
import os
import socket
import stat
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import click

from fusion.cli import names
from fusion.cli.context import Cli, shared_options
from fusion.cli.hints import Command, Group
from fusion.cli.logs import long_running, set_up_logging
from fusion.cli.output import echo
from fusion.cli.setting_flags import given_settings, setting_flags
from fusion.cli.worker import level_of, pid_file
from fusion.exceptions import ConfigurationError, OptionError
from fusion.kernel import titles
from fusion.kernel.timeutil import now, parse_moment, parse_seconds, to_delay
from fusion.settings.flags import DASHBOARD, METRICS, SERVER

if TYPE_CHECKING:
    from redis import Redis

    from fusion.dashboard.app import DashboardApp
    from fusion.web.auth import Authenticator
    from fusion.web.cors import Cors
    from fusion.web.hosts import Hosts
    from fusion.web.waitress_server import WebServer


def serving_options(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the options of a command that serves HTTP."""
    no_auth = click.option(
        "--no-auth", is_flag=True, help="Anybody on this machine may do everything; only at a loopback address."
    )
    return lambda command: setting_flags(name)(no_auth(long_running(command)))


@click.group(
    cls=Group,
    invoke_without_command=True,
    epilog="\b\nExamples:\n  run_worker.py server token web --scope operate --file tokens.txt\n"
    "  run_worker.py server --tokens tokens.txt --host 0.0.0.0 --allowed-host fusion.example.com\n  run_worker.py server --no-auth",
)
@click.option("--dashboard", is_flag=True, help="Serve the dashboard too, at /; a token opens it for 12 hours.")
@serving_options(SERVER)
@shared_options
def server(cli: Cli, **given: Any) -> None:
    """Serve the HTTP API: enqueue and requeue jobs, show jobs and queues.

    Callers need a token, unless --no-auth is given. It serves plain HTTP; put a proxy with TLS in front of it. INT or TERM ends it when all open
    requests are answered. The tokens file is read again when it changes.
    """
    if click.get_current_context().invoked_subcommand is None:
        sys.exit(serve(cli, **given))


def serve(
    cli: Cli,
    *,
    no_auth: bool,
    pid: str | None,
    dashboard: bool,
    api: bool = True,
    read_only: bool = False,
    listen: tuple[str, int] | None = None,
    **given: Any,
) -> int:
    """Serve the API, the dashboard or both until INT or TERM; return the exit code. `read_only` applies to the dashboard. `listen`: serve
    only metrics, at this host and port."""
    level, log_format, date_format = level_of(cli, given), given.pop("log_format"), given.pop("date_format")
    settings = cli.load(**given_settings(METRICS if listen else SERVER if api else DASHBOARD, given))
    set_up_logging(settings, level, log_format, date_format)
    host, port = listen or (settings.server_host, settings.server_port)
    family, address = _resolve(host, port)
    authenticate = _authenticator(host, address[0], settings.server_tokens_file, no_auth)
    from fusion.web.cors import Cors

    try:
        import waitress  # type: ignore[import-untyped]  # noqa: F401
    except ModuleNotFoundError:
        raise ConfigurationError(
            "the HTTP service needs waitress; install it with: pip install 'fusion-queue[web]'", code="FUS-214"
        ) from None
    try:
        cors = Cors(settings.server_cors_origins or ())
    except ValueError as error:
        raise click.UsageError(f"--cors-origin: {error}") from None
    from fusion.kernel.linux import close_to_others
    from fusion.store.client.connections import connect
    from fusion.web.hosts import Hosts

    if not settings.debuggable:
        close_to_others()
    titles.show("HTTP server at", host, port)
    listener = _listen(family, address, host)
    connection = connect(settings, role="worker")  # one attempt with a timeout: a request during an outage gets an error at once
    try:
        with pid_file(pid):
            # A page cannot send a token of the service's, so metrics need no check of the name by which they are asked for.
            named = not (listen and settings.server_tokens_file)
            hosts = _hosts(host, settings.server_allowed_hosts or ()) if named else Hosts("*")
            pages = _dashboard(connection, settings.tasks, authenticate, hosts, read_only) if dashboard else None
            compat = settings.metrics_compat if api else None
            threads = settings.server_threads
            service = _make(
                connection, settings.tasks, authenticate, listener, threads, hosts, cors, pages, api, compat, bool(listen)
            )
            gc.collect()
            gc.freeze()  # else every few requests one waits while all that the modules made is searched for cycles
            return service.run()
    finally:
        connection.close()


def _hosts(host: str, allowed: Sequence[str]) -> Hosts:
    from fusion.web.hosts import LOOPBACK, Hosts

    return Hosts([*LOOPBACK, f"[{host}]" if ":" in host else host, *allowed])


def _dashboard(
    connection: Redis, tasks: Sequence[str], authenticate: Authenticator, hosts: Hosts, read_only: bool
) -> DashboardApp:
    from fusion.dashboard.access import Sessions
    from fusion.dashboard.app import DashboardApp
    from fusion.dashboard.frame import environment
    from fusion.web.auth import Bearer

    environment()  # says what is missing
    who = Sessions(connection, authenticate.tokens, authenticate.limiter) if isinstance(authenticate, Bearer) else authenticate
    return DashboardApp(connection, who, hosts=hosts, read_only=read_only, tasks=tasks)


def _make(
    connection: Redis,
    tasks: Sequence[str],
    authenticate: Authenticator,
    listener: socket.socket,
    threads: int,
    hosts: Hosts,
    cors: Cors,
    pages: DashboardApp | None,
    api: bool,
    compat: str | None,
    only_metrics: bool,
) -> WebServer:
    import logging

    from fusion.store.client.connections import url_of
    from fusion.web.api import Api
    from fusion.web.app import App
    from fusion.web.waitress_server import WebServer

    shown, port = listener.getsockname()[:2]
    of_api = Api(connection, tasks, lambda: made.stopping(), compat=compat)
    routes = of_api.probes() if only_metrics else of_api.routes()
    app = App([*routes, *of_api.metrics()], authenticate, hosts=hosts, cors=cors)
    if pages:
        from fusion.dashboard.mount import PROBES, Together

        app = Together(app, pages) if api else Together(app, pages, PROBES)
    made = WebServer(app, listener, threads=threads)
    made.install_signals()
    where = f"[{shown}]:{port}" if ":" in shown else f"{shown}:{port}"
    logging.getLogger("fusion.web.audit").setLevel(logging.INFO)  # --quiet does not silence the audit log
    logging.getLogger("fusion.web").info(
        "serving http://%s%s (pid %d); Redis: %s",
        where,
        "/metrics" if only_metrics else " with the dashboard" if pages and api else "",
        os.getpid(),
        url_of(connection),
    )
    return made


def _authenticator(host: str, address: str, tokens: str | None, no_auth: bool) -> Authenticator:
    """Return the check of tokens. Without tokens or --no-auth, a usage error shows how to make a token."""
    from ipaddress import ip_address

    from fusion.web.auth import Bearer, TokenFile
    from fusion.web.auth import no_auth as anybody

    make = "make one with `server token NAME --scope operate --file tokens.txt` and start with --tokens tokens.txt"
    if no_auth and tokens:
        raise click.UsageError("--no-auth and --tokens exclude each other; give one of them")
    if no_auth:
        if not ip_address(address.partition("%")[0]).is_loopback:
            raise click.UsageError(f"--no-auth would let anybody who reaches {host} in; callers need a token: {make}")
        return anybody
    if not tokens:
        near = ", or let anybody on this machine in with --no-auth" if ip_address(address.partition("%")[0]).is_loopback else ""
        raise click.UsageError(f"without a token nobody could use the service: {make}{near}")
    found = TokenFile(os.path.expanduser(tokens))
    if not len(found):
        raise click.UsageError(f"--tokens {tokens!r} holds no token: {make}")
    return Bearer(found)


def _resolve(host: str, port: int) -> tuple[int, tuple[str, int]]:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (OSError, UnicodeError):
        raise click.UsageError(
            f"--host {host!r} is not an address of this machine; use for example 127.0.0.1 or 0.0.0.0"
        ) from None
    return family, (str(address[0]), port)


def _listen(family: int, address: tuple[str, int], host: str) -> socket.socket:
    try:
        return socket.create_server(address, family=family, backlog=128)
    except OSError as error:
        raise ConfigurationError(
            f"can't listen at {host} port {address[1]}: {error.strerror}; choose another --port, or 0 for any", code="FUS-229"
        ) from None


@server.command(
    cls=Command,
    epilog="\b\nExample:\n  run_worker.py server token billing --scope operate --file tokens.txt\n"
    "  run_worker.py server token texts --scope operate --queue sms --queue 'sms-*' --expires 90d",
)
@click.argument("name")
@click.option(
    "--scope",
    multiple=True,
    required=True,
    type=click.Choice(["read", "operate", "admin"]),
    help="read: look; operate: also enqueue and put back; admin: everything.",
)
@click.option(
    "--queue", "within", multiple=True, metavar="NAME", help="Restrict it to this queue, or wildcard like 'sms-*'. Repeatable."
)
@click.option("--expires", metavar="WHEN", help="When it expires: 90d, 12h, or a time like 2030-01-31T00:00Z.  [default: never]")
@click.option("--file", "path", metavar="FILE", help="Append the line to FILE, instead of printing it.")
def token(name: str, scope: tuple[str, ...], within: tuple[str, ...], expires: str | None, path: str | None) -> None:
    """Make a token.

    It is printed once, on stdout, and can't be recovered, because only its hash is stored. A token that is restricted to some queues shows nothing
    of the others, and is refused by requests about all queues.
    """
    from fusion.web.auth import new_token, parse_tokens

    queues = [names.check(queue, patterns=True) for queue in names.split(within)]
    if within and not queues:
        raise click.UsageError("--queue: name a queue, or leave the option out for all of them")
    end = None if expires is None else _end(expires)
    try:
        made, line = new_token(name, scope, queues, end)
    except ValueError:
        raise click.UsageError(f"NAME {name[:80]!r}: use 1 to 64 of the characters A-Z a-z 0-9 _ . -") from None
    if path is None:
        echo("The token, shown this once; below it the line for the tokens file:", err=True)
        echo(made)
        echo(line)
        return
    path = os.path.expanduser(path)
    _append(path, line, lambda text: _check_name(path, name, [one.actor.name for one in parse_tokens(text, path)]))
    echo(f"Stored in {path} as {name!r}. The token, shown this once:", err=True)
    echo(made)


def _end(text: str) -> datetime:
    """Return a future time from a duration or a time. A usage error for anything else."""
    moment: datetime | None = None
    try:
        moment = now() + timedelta(seconds=to_delay(parse_seconds(text)))
    except OptionError:  # 31 years and more, or a negative one
        pass
    except ValueError:  # not a duration
        with suppress(ValueError, OverflowError):
            moment = parse_moment(text).astimezone(timezone.utc)
    if moment is None:
        raise click.UsageError(
            f"--expires {text[:80]!r}: use a duration like 90d or 12h, or a time with its zone like 2030-01-31T00:00Z"
        )
    if moment <= now():
        raise click.UsageError(f"--expires {text[:80]!r} is over already; use a time to come")
    return moment


def _check_name(path: str, name: str, known: Sequence[str]) -> None:
    if name in known:
        raise click.UsageError(f"{path} has a token of the name {name!r}; choose another name, or remove its line first")


def _append(path: str, line: str, check: Callable[[str], None]) -> None:
    """Append the line to a file that no other user can write to or replace, because anyone who adds a line there gets access to everything."""
    folder, name = os.path.split(os.path.abspath(path))
    try:
        at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            _check_writers(folder, os.fstat(at), "folder")
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK  # opening a FIFO would block
            fd = os.open(name, flags, 0o600, dir_fd=at)
        finally:
            os.close(at)
        with open(fd, "rb+", buffering=0) as file:
            _check_writers(path, os.fstat(fd), "file")
            before = file.readall().decode()
            check(before)
            file.write((("\n" if before and not before.endswith("\n") else "") + line + "\n").encode())
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        if getattr(error, "errno", 0) == errno.ELOOP:
            reason = "it is a link"
        raise ConfigurationError(f"--file {path!r} can't be written: {reason}; choose another file", code="FUS-219") from None


def _check_writers(path: str, found: os.stat_result, kind: str) -> None:
    """Raise ConfigurationError for a path that other users can write to. In a folder with the sticky bit, like /tmp, they can't replace our file."""
    if kind == "file" and not stat.S_ISREG(found.st_mode):
        raise ConfigurationError(f"--file {path!r} is not a regular file; choose another one", code="FUS-219")
    if found.st_uid not in (os.geteuid(), 0):
        what = f"belongs to another user (uid {found.st_uid}); choose another one, or run this as that user"
    elif _others_write(found) and not (kind == "folder" and found.st_mode & stat.S_ISVTX):
        what = f"may be written by others, who could add tokens of their own; run: chmod go-w {path}"
    else:
        return
    raise ConfigurationError(f"--file: the {kind} {path!r} {what}", code="FUS-219")


def _others_write(found: os.stat_result) -> bool:
    """Return True if anyone but its owner may write to it. A user's private group, with the same name as the user, does not count."""
    if not found.st_mode & stat.S_IWGRP:
        return bool(found.st_mode & stat.S_IWOTH)
    import grp
    import pwd

    try:
        owner, group = pwd.getpwuid(found.st_uid), grp.getgrgid(found.st_gid)
    except KeyError:
        return True
    alone = owner.pw_gid == group.gr_gid and owner.pw_name == group.gr_name and set(group.gr_mem) <= {owner.pw_name}
    return not alone or bool(found.st_mode & stat.S_IWOTH)
