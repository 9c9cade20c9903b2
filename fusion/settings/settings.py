"""All settings of Fusion, and where each one came from.

Four layers, the last one that names a setting wins: the defaults, the `-c` module, the environment, the flags. `Settings.load()`
reads them; `get_settings()` is what producers use, loaded once per process from the environment.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from fusion.exceptions import ConfigurationError
from fusion.kernel import defaults
from fusion.settings import readers
from fusion.settings.groups import ReportingSettings
from fusion.settings.readers import setting as _setting

if TYPE_CHECKING:
    from fusion.kernel.signing import Keyring

_MASK = "***"
_USER = re.compile(r"://[^:@/]*(?=:)")
_SECRET_OPTION = re.compile(r"passw|secret|token", re.IGNORECASE)
_SECRET_NAME = re.compile(r"passw|secret|token|api_?key", re.IGNORECASE)


def default_home(env: Mapping[str, str] | None = None) -> str:
    """Directory of the built-in Redis when FUSION_HOME is not set: the user's state directory."""
    env = os.environ if env is None else env
    state = env.get("XDG_STATE_HOME") or ""
    if not os.path.isabs(state):
        state = os.path.join(env.get("HOME") or os.path.expanduser("~"), ".local", "state")
    return os.path.join(state, "fusion")


def mask_url(url: str) -> str:
    """`url` without its password, fit for logs. Masks too much rather than too little when the url is malformed."""
    # Searched for piece by piece: one expression for all would look through the rest of a long text at each place where it may begin.
    parts: list[str] = []
    at = bare = 0
    for user in _USER.finditer(url):
        end = user.end() + 1
        if end <= max(at, bare):
            continue  # inside of what is masked, or on a line without @
        line_end = url.find("\n", end) % (len(url) + 1)
        if (sign := url.rfind("@", end, line_end)) < 0:
            bare = line_end
            continue
        parts += (url[at:end], _MASK)
        at = sign
    return "&".join(map(_mask_option, "".join([*parts, url[at:]]).split("&")))


def _mask_option(text: str) -> str:
    found = _SECRET_OPTION.search(text)
    sign = text.find("=", found.end()) if found else -1
    return text if sign < 0 else f"{text[: sign + 1]}{_MASK}"


def _mask(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _mask(name if _SECRET_NAME.search(name) else str(key), item) for key, item in value.items()}
    if value and not name.endswith("_file") and (_SECRET_NAME.search(name) or (name == "sentinel" and isinstance(value, str))):
        return _MASK
    if isinstance(value, (tuple, list)):
        return type(value)(_mask("", item) for item in value)
    return mask_url(value) if isinstance(value, str) else value


@dataclass(frozen=True, repr=False)
class Settings(ReportingSettings):
    """Every setting. Times are seconds, sizes bytes; ConfigurationError if a value does not fit."""

    # -- which Redis (docs: "Which Redis"); host, port and the like are RQ's other way to say redis_url
    redis_url: str | None = _setting(None, readers.redis_url, env=("REDIS_URL", "RQ_REDIS_URL"))
    #: RQ's dict: INSTANCES, MASTER_NAME, DB, USERNAME, PASSWORD, SOCKET_TIMEOUT, SSL, CONNECTION_KWARGS, SENTINEL_KWARGS.
    sentinel: Mapping[str, Any] | None = _setting(None, readers.mapping)
    redis_host: str | None = _setting(None, readers.text, env=("REDIS_HOST",))
    redis_port: int | None = _setting(None, readers.whole(1, 65535), env=("REDIS_PORT",))
    redis_db: int | None = _setting(None, readers.whole(0), env=("REDIS_DB",))
    redis_username: str | None = _setting(None, readers.text, env=("REDIS_USERNAME",))
    redis_password: str | None = _setting(None, readers.text, env=("REDIS_PASSWORD",))
    #: File that holds the password (a mounted secret); read at each connect, so it may be rotated.
    redis_password_file: str | None = _setting(None, readers.path)
    redis_ssl: bool = _setting(False, readers.flag, env=("REDIS_SSL",))
    redis_ssl_ca_certs: str | None = _setting(None, readers.path, env=("REDIS_SSL_CA_CERTS",))
    redis_ssl_ca_data: str | None = _setting(None, readers.text, env=("REDIS_SSL_CA_DATA",))
    redis_ssl_certfile: str | None = _setting(None, readers.path, env=("REDIS_SSL_CERTFILE",))
    redis_ssl_keyfile: str | None = _setting(None, readers.path, env=("REDIS_SSL_KEYFILE",))
    redis_ssl_cert_reqs: str = _setting("required", readers.choice("required", "optional", "none"), env=("REDIS_SSL_CERT_REQS",))
    redis_ssl_check_hostname: bool = _setting(True, readers.flag, env=("REDIS_SSL_CHECK_HOSTNAME",))
    #: Bound of one attempt at Redis in a worker; the lease must survive a few of them.
    socket_timeout: float = _setting(defaults.SOCKET_TIMEOUT, readers.seconds(0.05, readers.ATTEMPT))
    #: Accept a server that may evict keys, i.e. lose jobs.
    allow_eviction: bool = _setting(False, readers.flag)
    prefix: str = _setting(
        defaults.KEY_PREFIX, readers.matching(r"[A-Za-z0-9_.:-]{1,64}", "use 1 to 64 of the characters A-Z a-z 0-9 _ . : -")
    )
    #: State directory of the built-in Redis.
    home: str = _setting(default_home, readers.path, factory=True)

    # -- workers
    queues: tuple[str, ...] = _setting(defaults.QUEUES, readers.names)
    name: str | None = _setting(
        None, readers.matching(r"[A-Za-z0-9_.-]{1,128}", "use 1 to 128 of the characters A-Z a-z 0-9 _ . -")
    )
    #: Jobs one worker runs at a time.
    slots: int = _setting(1, readers.whole(1, 1024))
    #: Warm processes that run one job after another, and so the slots; `auto`: a process per CPU. None = a process for each job.
    horses: int | None = _setting(None, readers.horses)
    #: After so many jobs, 0 = any number, or with so much memory at its peak, a warm process is replaced.
    max_jobs_per_horse: int = _setting(defaults.MAX_JOBS_PER_HORSE, readers.whole(0))
    max_horse_rss: int | None = _setting(None, readers.size)
    #: Milliseconds of work that may wait in a warm process behind the job it runs, and that telling and asking Redis may take with it; 0 = none.
    claim_ahead: int = _setting(defaults.CLAIM_AHEAD, readers.whole(0, 1000))
    #: Queues, wildcards too, whose jobs get a process of their own with warm processes as well.
    isolate_queues: tuple[str, ...] | None = _setting(None, readers.names)
    #: Queues whose key is a LIST of stock RQ's, on a Redis shared with it, and whose jobs this worker takes out of it all the same.
    adopt_rq: tuple[str, ...] | None = _setting(None, readers.names)
    #: Among queues whose best jobs are of one class: `listed` serves the first named, `round-robin` lets them take turns.
    order: str = _setting("round-robin", readers.choice("listed", "round-robin"))
    #: Slots kept free for HIGH and above.
    reserve_high: int = _setting(0, readers.whole(0, 1024))
    lease: float = _setting(defaults.LEASE, readers.seconds(0.1))
    reap_interval: float = _setting(defaults.REAP_INTERVAL, readers.seconds(0.01))
    idle_wait: float = _setting(defaults.IDLE_WAIT, readers.seconds(0.01, readers.ATTEMPT))
    maintenance_interval: float = _setting(defaults.MAINTENANCE_INTERVAL, readers.seconds(0.01))
    import_timeout: float = _setting(defaults.IMPORT_TIMEOUT, readers.seconds(0.1))
    #: Limits after which a worker ends warm; None = none. Jobs, seconds, seconds, MiB of the worker and its fork server.
    max_jobs: int | None = _setting(None, readers.whole(1))
    max_idle_time: float | None = _setting(None, readers.seconds(0.1))
    max_age: float | None = _setting(None, readers.seconds(0.1))
    max_memory: int | None = _setting(None, readers.whole(1))
    #: MiB a fork server may grow before a new one takes over.
    forkserver_growth: int = _setting(defaults.FORKSERVER_GROWTH, readers.whole(1))
    #: What the supervisor grants its processes: seconds for a warm end, and of silence.
    shutdown_timeout: float = _setting(defaults.SHUTDOWN_TIMEOUT, readers.seconds(0))
    hang_timeout: float = _setting(defaults.HANG_TIMEOUT, readers.seconds(2))
    worker_ttl: int = _setting(defaults.WORKER_TTL, readers.seconds(1, whole=True))
    max_lost: int = _setting(defaults.MAX_LOST, readers.whole(1))
    hold_timeout: float = _setting(defaults.HOLD_TIMEOUT, readers.seconds(0))
    #: Modules whose functions may run: `tasks` allows tasks and everything below it, `*` anything. `tasks` itself need not exist.
    tasks: tuple[str, ...] = _setting(("tasks",), readers.names)
    #: Modules that declare cron entries, by `@recurring` or a function `register(scheduler)`; `tasks` may, too.
    schedule: tuple[str, ...] | None = _setting(None, readers.names)
    #: Whose entries those are, and which version of it says so: a higher one removes what it no longer declares.
    app: str = _setting("default", readers.matching(r"[A-Za-z0-9_.-]{1,64}", "use 1 to 64 of the characters A-Z a-z 0-9 _ . -"))
    app_version: str = _setting(
        "0", readers.matching(r"\d{1,15}(\.\d{1,15})*", "use whole numbers joined by dots, like 12 or 1.10.2")
    )
    preload: str = _setting("auto", readers.choice("auto", "strict", "off"))
    #: Functions, by dotted path: called in the fork server before each fork, and in each process once it is forked (docs/tasks.md).
    before_fork: str | None = _setting(None, readers.dotted)
    after_fork: str | None = _setting(None, readers.dotted)
    #: Port of the health probes, 0 for any free one; None = none.
    probe_port: int | None = _setting(None, readers.whole(0, 65535))
    probe_host: str = _setting(defaults.PROBE_HOST, readers.host)

    # -- memory
    #: MiB that one job's processes may hold together before they are killed; None = any amount.
    max_job_memory: int | None = _setting(None, readers.whole(1))
    #: Take no jobs while memory is scarce. The figures are percentages.
    memory_throttle: bool = _setting(False, readers.flag)
    memory_throttle_threshold: float = _setting(defaults.MEMORY_THROTTLE, readers.percent, env=("MEMORY_THROTTLE_THRESHOLD",))
    memory_resume_threshold: float = _setting(defaults.MEMORY_RESUME, readers.percent, env=("MEMORY_RESUME_THRESHOLD",))
    gpu_throttle_threshold: float = _setting(defaults.GPU_THROTTLE, readers.percent, env=("GPU_THROTTLE_THRESHOLD",))
    gpu_resume_threshold: float = _setting(defaults.GPU_RESUME, readers.percent, env=("GPU_RESUME_THRESHOLD",))
    swap_threshold: float = _setting(defaults.SWAP_THROTTLE, readers.percent, env=("SWAP_THRESHOLD",))
    memory_check_interval: float = _setting(defaults.MEMORY_CHECK_INTERVAL, readers.seconds(0.01), env=("MEMORY_CHECK_INTERVAL",))

    # -- jobs
    job_timeout: float = _setting(defaults.JOB_TIMEOUT, readers.seconds(0.001, endless=True))
    timeout_grace: float = _setting(defaults.TIMEOUT_GRACE, readers.seconds(0))
    result_ttl: int = _setting(defaults.RESULT_TTL, readers.seconds(0, whole=True, endless=True))
    failure_ttl: int = _setting(defaults.FAILURE_TTL, readers.seconds(0, whole=True, endless=True))
    #: Jobs kept once they have failed, and per queue once they have finished or were canceled; those to expire first make room.
    failed_max: int = _setting(defaults.FAILED_MAX, readers.whole(1))
    finished_max: int = _setting(defaults.FINISHED_MAX, readers.whole(1))
    canceled_max: int = _setting(defaults.CANCELED_MAX, readers.whole(1))
    #: What an enqueue waits for: `primary`, nothing more; or `replicated`, that so many replicas have it too.
    durability: str = _setting("primary", readers.choice("primary", "replicated"))
    replicas: int = _setting(defaults.REPLICAS, readers.whole(1))
    replicas_timeout: float = _setting(defaults.REPLICAS_TIMEOUT, readers.seconds(0.001))
    max_payload: int = _setting(defaults.MAX_PAYLOAD, readers.size)
    max_result: int = _setting(defaults.MAX_RESULT, readers.size)
    serializer: str = _setting("json", readers.choice("json", "pickle"))
    #: Let workers read pickled jobs. Whoever can write to Redis can then run any code here.
    allow_pickle: bool = _setting(False, readers.flag)

    # -- logs
    #: One JSON object per line instead of text.
    log_json: bool = _setting(False, readers.flag)
    #: What log lines tell of an error: `class`, and where it was raised; or `full`, with its text, which may hold anything a task was given.
    log_errors: str = _setting("class", readers.choice("class", "full"))
    #: Argument of `logging.config.dictConfig`, from the `-c` module.
    dict_config: Mapping[str, Any] | None = _setting(None, readers.mapping)

    #: Setting name -> where its value came from; absent = the default. Filled by `load`.
    origins: Mapping[str, str] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        for item in _settings():
            value = getattr(self, item.name)
            if value is not None:
                object.__setattr__(
                    self, item.name, _read(item.name, value, self.origins.get(item.name, "an argument"), item.metadata["read"])
                )
        if self.horses is not None:
            if self.slots != self.horses and (self.slots != 1 or "slots" in self.origins):
                self._refuse("horses", f"slots is {self.slots} (from {self.origin_of('slots')}); give one of the two")
            object.__setattr__(self, "slots", self.horses)
        if self.reserve_high > self.slots:
            self._refuse("reserve_high", f"there are {self.slots} slots; reserve that many or fewer, or raise slots")
        if self.secret_keys and self.secret_keys_file:
            self._refuse(
                "secret_keys_file", f"secret_keys is given too (from {self.origin_of('secret_keys')}); give one of the two"
            )
        for kind in ("memory", "gpu"):
            limit = getattr(self, f"{kind}_throttle_threshold")
            if getattr(self, f"{kind}_resume_threshold") > limit:
                self._refuse(f"{kind}_resume_threshold", f"use at most {kind}_throttle_threshold, which is {limit:g}")

    def _refuse(self, name: str, rule: str) -> None:
        origin = self.origins.get(name, "an argument")
        raise ConfigurationError(f"setting {name} = {getattr(self, name)!r} (from {origin}) is not valid: {rule}")

    @classmethod
    def load(cls, config_module: str | None = None, env: Mapping[str, str] | None = None, **flags: Any) -> Settings:
        """The effective settings. A flag that is None was not given. ConfigurationError names setting, origin and fix.

        `config_module` (else FUSION_CONFIG, RQ_CONFIG) is imported by that name, or as `wrappers.<name>`.
        """
        env = os.environ if env is None else env
        unknown = sorted(set(flags) - {item.name for item in _settings()})
        if unknown:
            raise TypeError(f"no such settings: {', '.join(unknown)}")
        layers: list[dict[str, tuple[Any, str]]] = [{"home": (default_home(env), "default")}]
        module = config_module or env.get("FUSION_CONFIG") or env.get("RQ_CONFIG")
        if module:
            layers.append(dict(_from_module(_import(module))))
        layers.append(dict(_from_env(env)))
        layers.append({name: (value, f"flag --{name.replace('_', '-')}") for name, value in flags.items() if value is not None})
        chosen: dict[str, tuple[Any, str]] = {}
        for layer in layers:
            _forget_other_redis(chosen, layer)
            chosen.update(layer)
        origins = {name: origin for name, (_, origin) in chosen.items() if origin != "default"}
        return cls(**{name: value for name, (value, _) in chosen.items()}, origins=origins)

    def origin_of(self, name: str) -> str:
        """`default`, `module instance (LEASE)`, `environment FUSION_LEASE` or `flag --lease`."""
        return self.origins.get(name, "default")

    @property
    def named_url(self) -> tuple[str, str] | None:
        """The Redis that was named by url or host, and where; None if none was (a Sentinel is in `sentinel`)."""
        if self.redis_url:
            return self.redis_url, self.origin_of("redis_url")
        if self.redis_host is None and self.redis_port is None:
            return None
        host = self.redis_host or "localhost"
        scheme = "rediss" if self.redis_ssl else "redis"
        shown = f"[{host}]" if ":" in host else quote(host)
        origin = self.origin_of("redis_host" if self.redis_host else "redis_port")
        return f"{scheme}://{shown}:{self.redis_port or 6379}/{self.redis_db or 0}", origin

    def password(self) -> str | None:
        """The password that goes with a Redis whose url has none. ConfigurationError if its file can't be read."""
        return self.secret("redis_password")

    def secret(self, name: str) -> str | None:
        """The value of `name`, or what is in the file that `<name>_file` names. ConfigurationError if that can't be read."""
        path: str | None = getattr(self, f"{name}_file")
        if not path:
            value: str | None = getattr(self, name)
            return value
        try:
            with open(path, encoding="utf-8") as file:
                return file.read().strip() or None
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not UTF-8 text"
            origin = self.origin_of(f"{name}_file")
            raise ConfigurationError(f"{path!r} (from {origin}) can't be read: {reason}; correct it") from None

    @cached_property
    def keyring(self) -> Keyring | None:
        """What signs and checks jobs, as of its first use; None without keys. ConfigurationError if their file is not as it should be."""
        if not (self.secret_keys or self.secret_keys_file):
            return None
        from fusion.kernel.signing import Keyring
        from fusion.settings.key_files import read_keys

        return Keyring(read_keys(self))

    @property
    def sinks(self) -> tuple[str, ...]:
        """Names of the sinks that are configured."""
        on = {"elasticsearch": self.elasticsearch_url, "file": self.events_file, "log": self.events_log}
        return tuple(name for name, value in on.items() if value)

    def masked(self) -> dict[str, Any]:
        """Every setting by name, passwords hidden."""
        return {item.name: _mask(item.name, getattr(self, item.name)) for item in _settings()}

    def __repr__(self) -> str:
        given = {name: value for name, value in self.masked().items() if name in self.origins}
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in given.items())})"


def _settings() -> Iterator[Any]:
    return (item for item in fields(Settings) if "read" in item.metadata)


def _read(name: str, value: Any, origin: str, read: Callable[[Any], Any]) -> Any:
    try:
        return read(value)
    except readers.Invalid as rule:
        raise ConfigurationError(f"setting {name} = {_mask(name, value)!r} (from {origin}) is not valid: {rule}") from None


def _import(name: str) -> ModuleType:
    for candidate in (name, f"wrappers.{name}"):
        try:
            return importlib.import_module(candidate)
        except ModuleNotFoundError as error:
            # Only "there is no such module" moves on; a module that itself lacks an import is an error to show.
            if error.name is None or not (candidate == error.name or candidate.startswith(error.name + ".")):
                raise ConfigurationError(
                    f"config module {candidate!r} can't be imported: {error}; install what it needs"
                ) from error
        except Exception as error:
            raise ConfigurationError(
                f"config module {candidate!r} can't be imported: {type(error).__name__}: {error}; correct it"
            ) from error
    raise ConfigurationError(
        f"config module {name!r} not found, nor wrappers.{name}; give -c a module name that can be imported from here"
    )


def _from_module(module: ModuleType) -> Iterator[tuple[str, tuple[Any, str]]]:
    names = vars(module)
    for item in _settings():
        for written in (item.name.upper(), f"FUSION_{item.name.upper()}", item.name):
            value = names.get(written)
            # `import tasks` in the module is no setting of that name.
            if value is not None and not isinstance(value, ModuleType) and not callable(value):
                yield item.name, (value, f"module {module.__name__} ({written})")
                break


def _from_env(env: Mapping[str, str]) -> Iterator[tuple[str, tuple[Any, str]]]:
    for item in _settings():
        for name in (f"FUSION_{item.name.upper()}", *item.metadata["env"]):
            value = env.get(name)
            # Kubernetes sets REDIS_PORT=tcp://10.0.0.1:6379 in every pod beside a service called redis.
            if value and not (name == "REDIS_PORT" and value.startswith("tcp://")):
                yield item.name, (value, f"environment {name}")
                break


_WAYS = (("redis_url",), ("sentinel",), ("redis_host", "redis_port", "redis_db", "redis_ssl"))


def _forget_other_redis(chosen: dict[str, tuple[Any, str]], layer: dict[str, tuple[Any, str]]) -> None:
    """Three ways name a Redis: a later layer that uses one overrides all. Within a layer, RQ's order: url, Sentinel, host."""
    way = next((way for way in _WAYS if way[0] in layer), None)
    for other in _WAYS if way else ():
        for name in other:
            chosen.pop(name, None)
            if other is not way:
                layer.pop(name, None)


_current: Settings | None = None


def get_settings() -> Settings:
    """The settings of this process: what `use_settings` was given, else loaded from the environment once."""
    global _current
    if _current is None:
        _current = Settings.load()
    return _current


def use_settings(settings: Settings | None) -> Settings | None:
    """Make `settings` those of this process; None = load them again when next asked for. Returns the previous ones."""
    global _current
    previous, _current = _current, settings
    return previous
