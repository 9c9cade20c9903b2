"""The one place that knows how Fusion connects to Redis: which server, and every option of redis-py.

Three roles. A *producer* retries a little by itself, since enqueueing is safe to repeat. A *worker* never does: it makes one bounded attempt,
and its loop decides when to try again. *blocking* is for a connection that waits inside Redis, so its socket may be silent for longer.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from importlib.util import find_spec
from types import TracebackType
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

import redis
from redis import exceptions as errors
from redis.backoff import FullJitterBackoff
from redis.connection import SSLConnection, UnixDomainSocketConnection, parse_url
from redis.credentials import CredentialProvider
from redis.retry import Retry

from fusion.exceptions import ConfigurationError, NoRedisError
from fusion.kernel import program
from fusion.settings import Settings, get_settings, mask_url
from fusion.store.client import maybe_executed
from fusion.store.client.classify import classify, is_moving, one_line
from fusion.store.client.cluster import ClusterConnection, ClusterSSLConnection, is_cluster_url, nodes_of, read_url, written
from fusion.store.client.sentinel import is_sentinel_url, sentinel_pool, sentinel_url
from fusion.store.client.server import ServerInfo, check_server, read_server
from fusion.store.client.sockets import CleanPool, NamedConnection, NamedSSLConnection, UnixConnection, check_options
from fusion.store.redis_server import instance

__all__ = [
    "Connection",
    "Role",
    "ServerInfo",
    "check_server",
    "classify",
    "connect",
    "describe",
    "get_current_connection",
    "node_of",
    "one_line",
    "pop_connection",
    "push_connection",
    "resolve_redis",
    "unreachable",
    "url_of",
]

Role = Literal["producer", "worker", "blocking"]
T = TypeVar("T")

#: Seconds that a producer waits for a reply: a chunk of `enqueue_many` is larger than anything a worker sends.
_PRODUCER_TIMEOUT = 5.0
_PRODUCER_RETRIES = 3
#: Seconds for which a producer tries again while a cluster moves its slot to another node. No such call is executed.
MOVING = 60.0
#: CLIENT SETINFO costs two round trips per connection. redis-py 8 deprecates the names that older versions know.
_NO_SETINFO: dict[str, Any] = {"driver_info": None} if find_spec("redis.driver_info") else {"lib_name": None, "lib_version": None}
#: Options that a url's query may have. Protocol, decoding and retries are not set in the url.
_URL_OPTIONS = frozenset(
    "db username password host port path client_name socket_timeout socket_connect_timeout max_connections".split()
)
_CERT_REQS = ("required", "optional", "none")
_LOCAL_PORT = 6379
#: Seconds of silence before the first probe, seconds between probes, and probes: notices within half a minute that a peer vanished.
_KEEPALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}


class BoundedRetry(Retry):
    """redis-py's retry loop with two differences: only what `classify` calls transient is tried again (redis-py counts a wrong password
    as a ConnectionError), and a connect inside a command's attempt does not multiply the attempts."""

    _inside = False

    def call_with_retry(
        self,
        do: Callable[[], T],
        fail: Callable[..., Any],
        is_retryable: Callable[[Exception], bool] | None = None,
        with_failure_count: bool = False,
    ) -> T:
        """Call `do` until it succeeds, and `fail` after each failure. Raises the last error; `maybe_executed` is noted on it."""
        if self._inside:
            return do()
        self._inside = True
        failures, doubtful, until = 0, False, 0.0
        try:
            while True:
                try:
                    return do()
                except (errors.RedisError, OSError) as error:
                    doubtful = maybe_executed.note(error, doubtful)
                    # A full server does not empty within a second: raise at once.
                    if classify(error) != "transient" or isinstance(error, errors.OutOfMemoryError):
                        raise
                    failures += 1
                    fail(*((error, failures) if with_failure_count else (error,)))
                    if failures > self._retries:
                        until = until or time.monotonic() + MOVING
                        if not (self._retries and is_moving(error) and time.monotonic() < until):
                            raise
                    time.sleep(self._backoff.compute(failures))
        finally:
            self._inside = False


class _PasswordFile(CredentialProvider):
    """Reads the password from its file at each connect, so that it can be rotated."""

    def __init__(self, settings: Settings, username: str | None) -> None:
        self._settings = settings
        self._username = username

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        """Read the login, for redis-py. AuthenticationError if the file can't be read."""
        try:
            password = self._settings.password() or ""
        except ConfigurationError as error:
            # Anything but a RedisError would leave redis-py with a connection that never logged in.
            raise errors.AuthenticationError(str(error)) from error
        return (self._username, password) if self._username else (password,)

    async def get_credentials_async(self) -> tuple[str] | tuple[str, str]:
        """Read the login, for redis.asyncio."""
        return self.get_credentials()


def connect(target: str | Settings | None = None, role: Role = "producer", settings: Settings | None = None) -> redis.Redis:
    """Make a client for one Redis; nothing is sent yet. `target` is a url, or settings that name a Redis (None: the current ones).

    ConfigurationError if the url or its options are wrong; NoRedisError if none was named and none found.
    """
    settings = target if isinstance(target, Settings) else settings or get_settings()
    url = target if isinstance(target, str) else resolve_redis(settings)[0]
    options = _options(settings, role)
    if is_sentinel_url(url):
        described = None if isinstance(target, str) or settings.redis_url else settings.sentinel
        return redis.Redis.from_pool(
            sentinel_pool(url, described, {**options, "redis_connect_func": _greet, **_tls(settings)}, _login(settings))
        )
    seeds, plain = read_url(url) if is_cluster_url(url) else ([], url)
    given = _parse(plain, url)
    kind = given.pop("connection_class", NamedConnection)
    if kind is SSLConnection:
        kind = NamedSSLConnection
        options |= {"redis_connect_func": _greet, **_tls(settings)}
    if seeds:
        kind = ClusterSSLConnection if kind is NamedSSLConnection else ClusterConnection
        options["nodes"] = nodes_of(seeds, settings.prefix, settings.cluster_nat)
        if given.pop("db", 0):
            raise ConfigurationError(
                f"Redis url {mask_url(url)!r}: a cluster has the database 0 only; leave the number out", code="FUS-205"
            )
    if kind is UnixDomainSocketConnection:
        kind = UnixConnection
        del options["socket_keepalive"], options["socket_keepalive_options"]
    if "password" not in given and url != instance.url_of(settings.home):
        options |= _login(settings, given.pop("username", None))
    return redis.Redis.from_pool(CleanPool(connection_class=kind, **{**options, **given}))


def resolve_redis(settings: Settings) -> tuple[str, str]:
    """Find the url to use and where it came from. Never starts a server: two hosts without a url would each start one of their own."""
    if settings.redis_url:
        return settings.redis_url, settings.origin_of("redis_url")
    if settings.sentinel:
        return sentinel_url(settings.sentinel), settings.origin_of("sentinel")
    if named := settings.named_url:
        return named
    if running := instance.running(settings.home):
        return running, f"the built-in Redis in {settings.home}"
    if _answers("localhost", _LOCAL_PORT):
        return f"redis://localhost:{_LOCAL_PORT}/0", "nothing named a Redis, and this one answered"
    raise NoRedisError(
        "no Redis was named and none answers on localhost:6379; set FUSION_REDIS_URL (or --url redis://host:6379/0),"
        f" or start the built-in one: {program.name()} redis start"
    )


def url_of(conn: redis.Redis) -> str:
    """Write the server of a client as a url without password, for people."""
    pool = conn.connection_pool
    service = getattr(pool, "service_name", None)
    options = pool.connection_kwargs
    secure = "SSL" in pool.connection_class.__name__  # of either kind of client
    if nodes := options.get("nodes"):
        return f"{'rediss' if secure else 'redis'}+cluster://{','.join(map(written, nodes.seeds))}"
    if service:
        return f"redis+sentinel://{service}/{options.get('db') or 0}"
    if "path" in options:
        return f"unix://{options['path']}" + (f"?db={options['db']}" if options.get("db") else "")
    scheme = "rediss" if secure else "redis"
    host = str(options.get("host", "localhost"))
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}://{shown}:{options.get('port', 6379)}/{options.get('db') or 0}"


def node_of(conn: redis.Redis) -> str:
    """Return the address of the node that a client of a cluster tries first; empty for another client."""
    nodes = conn.connection_pool.connection_kwargs.get("nodes")
    return written(nodes.known[0]) if nodes else ""


def unreachable(conn: redis.Redis) -> dict[str, str] | None:
    """Connect once to each node of a cluster. Return the nodes that can't be reached, with the reasons; None for another client."""
    options = conn.connection_pool.connection_kwargs
    if not (nodes := options.get("nodes")):
        return None
    conn.ping()  # so the nodes are known
    kind = NamedSSLConnection if issubclass(conn.connection_pool.connection_class, SSLConnection) else NamedConnection
    plain = {name: value for name, value in options.items() if name not in ("nodes", "retry", "host", "port")}
    found = dict[str, str]()
    for host, port in nodes.known:
        try:
            one = kind(host=host, port=port, retry=BoundedRetry(FullJitterBackoff(cap=1.0, base=0.05), 0), **plain)
            one.connect()  # type: ignore[no-untyped-call]
            one.disconnect()  # type: ignore[no-untyped-call]
        except (errors.RedisError, OSError) as error:
            found[written((host, port))] = one_line(error)
    return found


def describe(conn: redis.Redis, server: ServerInfo | None = None) -> str:
    """Name the server in one line for the log. Reads INFO once, unless `server` is given."""
    return f"{url_of(conn)} ({server or read_server(conn)})"


# -- the connection stack, as in RQ

_stack: ContextVar[tuple[redis.Redis, ...]] = ContextVar("fusion_connections", default=())
_default: dict[int, tuple[Settings, redis.Redis]] = {}


def push_connection(conn: redis.Redis) -> None:
    """Use `conn` from here on, in this thread or asyncio task, until `pop_connection`."""
    _stack.set((*_stack.get(), conn))


def pop_connection() -> redis.Redis:
    """Undo the last `push_connection` and return its client. ConfigurationError if there was none."""
    stack = _stack.get()
    if not stack:
        raise ConfigurationError(
            "pop_connection() without push_connection(); `with Connection(conn):` keeps the two together", code="FUS-209"
        )
    _stack.set(stack[:-1])
    return stack[-1]


def get_current_connection() -> redis.Redis:
    """Return the pushed client, else this process's own, made once from the current settings. NoRedisError if there is no Redis."""
    stack = _stack.get()
    if stack:
        return stack[-1]
    settings = get_settings()
    # By pid: a forked child must not share its parent's sockets. Two threads that get here together at worst make one client too many.
    held = _default.get(os.getpid())
    if held is None or held[0] is not settings:
        held = _default[os.getpid()] = (settings, connect(settings))
    return held[1]


class Connection:
    """`with Connection(conn):` makes `conn` the current client inside the block. A url is accepted, too; None means the current settings."""

    def __init__(self, connection: redis.Redis | str | None = None) -> None:
        self._connection = connection if isinstance(connection, redis.Redis) else connect(connection)

    def __enter__(self) -> redis.Redis:
        push_connection(self._connection)
        return self._connection

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if pop_connection() is not self._connection:
            raise ConfigurationError(
                "a connection was pushed inside `with Connection(...)` and not popped; pair push with pop", code="FUS-209"
            )


# -- options


def _options(settings: Settings, role: Role) -> dict[str, Any]:
    timeouts = {
        "producer": max(_PRODUCER_TIMEOUT, settings.socket_timeout),
        "worker": settings.socket_timeout,
        "blocking": settings.idle_wait + settings.socket_timeout,
    }
    retries = _PRODUCER_RETRIES if role == "producer" else 0
    return {
        "protocol": 2,
        "decode_responses": False,
        "socket_timeout": timeouts[role],
        "socket_connect_timeout": settings.socket_timeout,
        "socket_keepalive": True,
        "socket_keepalive_options": {getattr(socket, name): n for name, n in _KEEPALIVE.items() if hasattr(socket, name)},
        "retry": BoundedRetry(FullJitterBackoff(cap=1.0, base=0.05), retries),
        "retry_on_error": [errors.RedisError],
        **_NO_SETINFO,
    }


def _tls(settings: Settings) -> dict[str, Any]:
    options = {
        "ssl_ca_certs": settings.redis_ssl_ca_certs,
        "ssl_ca_data": settings.redis_ssl_ca_data,
        "ssl_certfile": settings.redis_ssl_certfile,
        "ssl_keyfile": settings.redis_ssl_keyfile,
        "ssl_cert_reqs": settings.redis_ssl_cert_reqs,
        "ssl_check_hostname": settings.redis_ssl_check_hostname and settings.redis_ssl_cert_reqs != "none",
    }
    for name in ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile"):
        path = options[name]
        if path and not os.access(str(path), os.R_OK):
            raise ConfigurationError(
                f"redis_{name} {path!r} (from {settings.origin_of('redis_' + name)}) can't be read; correct it", code="FUS-205"
            )
    return {name: value for name, value in options.items() if value is not None}


def _greet(connection: Any) -> None:
    """Log in; over TLS, make sure that one reply was read. A TLS 1.3 server sends session tickets unasked, and redis-py takes a new
    connection for a dirty one until it has read them."""
    connection.on_connect()
    if not (connection.username or connection.password or connection.credential_provider or connection.db):
        connection.send_command("PING", check_health=False)
        connection.read_response()


def _login(settings: Settings, username: str | None = None) -> dict[str, Any]:
    username = username or settings.redis_username
    password = settings.password()
    if password is None:
        return {"username": username} if username else {}
    if settings.redis_password_file:
        return {"credential_provider": _PasswordFile(settings, username)}
    return {"username": username, "password": password} if username else {"password": password}


def _parse(url: str, named: str) -> dict[str, Any]:
    """Return the options that a url gives. `named`: the url for messages."""
    where, problem = f"Redis url {mask_url(named)!r}", "it can't be parsed"
    given: Any = None
    with suppress(ValueError):  # redis-py's text would quote parts of the url, perhaps of the password
        given = parse_url(url)  # type: ignore[no-untyped-call]
        path = urlsplit(url).path.strip("/")
        if not url.startswith("unix:") and path and not path.isdigit():
            problem = f"{path!r} is not a database number"
            given = None
    if given is None:
        raise ConfigurationError(
            f"{where}: {problem}; use redis://[[user]:password@]host:6379/0, with % codes in the password",
            code="FUS-205",
        )
    unknown = [name for name in given if name not in _URL_OPTIONS and not name.startswith("ssl_") and name != "connection_class"]
    if unknown:
        raise ConfigurationError(f"{where}: option {unknown[0]!r} is not known here; remove it", code="FUS-205")
    _check_tls(url, given, where)
    return check_options(dict(given), where)


def _check_tls(url: str, given: dict[str, Any], where: str) -> None:
    """Check options that redis-py would check only when it connects: those of TLS, and a missing socket path."""
    if url.startswith("unix:") and not str(given.get("path") or "").strip("/"):
        raise ConfigurationError(f"{where}: it names no socket; use unix:///path/to/redis.sock", code="FUS-205")
    tls = [name for name in given if name.startswith("ssl_")]
    if tls and not url.startswith("rediss:"):
        raise ConfigurationError(f"{where}: option {tls[0]!r} is one of TLS; use rediss://, or remove it", code="FUS-205")
    if (wanted := given.get("ssl_cert_reqs")) is None:
        return
    if wanted not in _CERT_REQS:
        near = str(wanted).lower().removeprefix("cert_")
        meant = f"; did you mean {near}?" if near in _CERT_REQS else ""
        raise ConfigurationError(
            f"{where}: ssl_cert_reqs is {str(wanted)[:40]!r}; use {', '.join(_CERT_REQS)}{meant}", code="FUS-205"
        )
    if wanted == "none":
        given.setdefault("ssl_check_hostname", False)


def _answers(host: str, port: int) -> bool:
    """Return True if the address speaks the Redis protocol; an error reply (it requires a password) counts."""
    try:
        with socket.create_connection((host, port), timeout=0.3) as sock:
            sock.sendall(b"PING\r\n")
            return sock.recv(1) in (b"+", b"-")
    except OSError:
        return False
