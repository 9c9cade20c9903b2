"""All settings of Fusion, and where each one came from.

Four layers; a later one overrides an earlier one: the defaults, the `-c` module, the environment, the flags. `Settings.load()` reads them.
Producers use `get_settings()`, loaded once per process from the environment.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from fusion.exceptions import ConfigurationError
from fusion.kernel import defaults
from fusion.settings import readers
from fusion.settings.groups import CROWDED, JobSettings, RedisSettings, WorkerSettings, default_home
from fusion.settings.masking import mask
from fusion.settings.reporting import ReportingSettings

if TYPE_CHECKING:
    from fusion.kernel.signing import Keyring


_BESIDE_DEFAULT = "flag --tasks, beside the default"


@dataclass(frozen=True, repr=False)
class Settings(RedisSettings, WorkerSettings, JobSettings, ReportingSettings):
    """Every setting: docs/settings.md. Times are seconds, sizes bytes; ConfigurationError for an invalid value."""

    #: Setting name -> where its value came from; absent = the default. Filled by `load`.
    origins: Mapping[str, str] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        for item in _settings():
            value = getattr(self, item.name)
            if value is not None:
                object.__setattr__(
                    self, item.name, _read(item.name, value, self.origins.get(item.name, "an argument"), item.metadata["read"])
                )
        if self.prefix == defaults.KEY_PREFIX and "prefix" not in self.origins and _of_cluster(self.redis_url):
            object.__setattr__(self, "prefix", defaults.CLUSTER_PREFIX)
        self._settle_executor()
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

    def _settle_executor(self) -> None:
        """Fill in `executor`, `horses`, `slots` and how many jobs a process runs; refuse what contradicts."""
        kind = self.executor or ("process" if self.horses is None else "pool")

        def put(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        for other, (name, _) in CROWDED.items():
            if other != kind and self.origin_of(name).startswith(("environment", "module")):
                put(name, None)  # said for a fleet, of which this process is one of another kind
            elif other != kind and getattr(self, name) is not None:
                self._refuse(
                    name, f"it is for the executor {other}, and executor is {kind}; say executor {other}, or leave {name} out"
                )
        places = 1
        if kind in CROWDED:
            name, number = CROWDED[kind]
            places = getattr(self, name) or number
            put(name, places)
            if self.max_job_memory is not None:
                self._refuse(
                    "max_job_memory",
                    f"jobs that share a process can't be measured one by one; use max_horse_rss with executor {kind}",
                )
        if kind == "process" and self.horses is not None:
            self._refuse("horses", "executor is process, which has none; say executor pool, or leave horses out")
        if kind != "process":
            horses = self.horses or (readers.cpus() if kind == "pool" else 1)
            slots = horses * places
            if self.slots != slots and (self.slots != 1 or "slots" in self.origins):
                if kind in CROWDED:
                    name = CROWDED[kind][0]
                    self._refuse(
                        "slots",
                        f"executor {kind} has horses times {name}, {horses} times {places}; leave slots out, or say {name} in its place",
                    )
                self._refuse("horses", f"slots is {self.slots} (from {self.origin_of('slots')}); give one of the two")
            put("horses", horses)
            put("slots", slots)
        elif self.slots > readers.PROCESSES:
            self._refuse("slots", f"use at most {readers.PROCESSES} processes, or executor thread or asyncio")
        put("executor", kind)

    @property
    def unnamed_tasks(self) -> tuple[str, ...]:
        """The default task modules, which nobody named. If others are named, a default one that can't be imported is ignored."""
        return WorkerSettings.tasks if self.origin_of("tasks") in ("default", _BESIDE_DEFAULT) else ()

    @property
    def places(self) -> int:
        """Number of jobs that one warm process runs at once."""
        return self.threads or self.concurrency or 1

    def _refuse(self, name: str, rule: str) -> None:
        origin = self.origins.get(name, "an argument")
        raise ConfigurationError(f"setting {name} = {getattr(self, name)!r} (from {origin}) is not valid: {rule}", code="FUS-202")

    @classmethod
    def load(
        cls,
        config_module: str | None = None,
        env: Mapping[str, str] | None = None,
        *,
        more_tasks: tuple[str, ...] = (),
        **flags: Any,
    ) -> Settings:
        """Load the effective settings. A flag that is None was not given. ConfigurationError names setting, origin and fix.

        `config_module` (else FUSION_CONFIG, RQ_CONFIG) is imported by that name, or as `wrappers.<name>`. `more_tasks`: the values of the
        flag --tasks, which are added to the setting.
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
        layers.append({name: (value, f"flag --{_flag_of(name)}") for name, value in flags.items() if value is not None})
        chosen: dict[str, tuple[Any, str]] = {}
        for layer in layers:
            _forget_other_redis(chosen, layer)
            chosen.update(layer)
        if more_tasks:
            before = chosen.get("tasks")
            named = readers.names(before[0]) if before else cls.tasks
            origin = "flag --tasks" if before or named[0] in more_tasks else _BESIDE_DEFAULT
            chosen["tasks"] = (*named, *more_tasks), origin
        origins = {name: origin for name, (_, origin) in chosen.items() if origin != "default"}
        return cls(**{name: value for name, (value, _) in chosen.items()}, origins=origins)

    def origin_of(self, name: str) -> str:
        """Return where a setting comes from: `default`, `module instance (LEASE)`, `environment FUSION_LEASE` or `flag --lease`."""
        return self.origins.get(name, "default")

    @property
    def named_url(self) -> tuple[str, str] | None:
        """Return the Redis that was named by url or host, and where; None if none was (a Sentinel is in `sentinel`)."""
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
        """Return the password for a Redis whose url has none. ConfigurationError if its file can't be read."""
        return self.secret("redis_password")

    def secret(self, name: str) -> str | None:
        """Return the value of `name`, or the content of the file that `<name>_file` names. ConfigurationError if that can't be read."""
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
            raise ConfigurationError(f"{path!r} (from {origin}) can't be read: {reason}; correct it", code="FUS-204") from None

    @cached_property
    def keyring(self) -> Keyring | None:
        """Return the keys that sign and check jobs, as of the first use; None without keys. ConfigurationError if their file is invalid."""
        if not (self.secret_keys or self.secret_keys_file):
            return None
        from fusion.kernel.signing import Keyring

        return Keyring(self.read_secret_keys())

    def read_secret_keys(self) -> tuple[str, ...]:
        """Return `secret_keys`, or what is in `secret_keys_file` by now; none without both. ConfigurationError if that can't be read or is not
        valid."""
        if not self.secret_keys_file:
            return self.secret_keys or ()
        try:
            return readers.secret_keys(self.secret("secret_keys") or "")
        except readers.Invalid as rule:
            origin = self.origin_of("secret_keys_file")
            raise ConfigurationError(f"{self.secret_keys_file!r} (from {origin}) is not valid: {rule}", code="FUS-204") from None

    @property
    def sinks(self) -> tuple[str, ...]:
        """Return the names of the configured sinks."""
        on = {"elasticsearch": self.elasticsearch_url, "file": self.events_file, "log": self.events_log}
        return tuple(name for name, value in on.items() if value)

    def masked(self) -> dict[str, Any]:
        """Return every setting by name, passwords hidden."""
        return {item.name: mask(item.name, getattr(self, item.name)) for item in _settings()}

    def __repr__(self) -> str:
        given = {name: value for name, value in self.masked().items() if name in self.origins}
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in given.items())})"


def _of_cluster(url: str | None) -> bool:
    return (url or "").startswith(("redis+cluster:", "rediss+cluster:"))


def _settings() -> Iterator[Any]:
    return (item for item in fields(Settings) if "read" in item.metadata)


def _flag_of(name: str) -> str:
    """Return the long name of a setting's flag."""
    flags = Settings.__dataclass_fields__[name].metadata.get("flags", ())
    return next((flag.name for flag in flags if flag.name), name.replace("_", "-"))


def _read(name: str, value: Any, origin: str, read: Callable[[Any], Any]) -> Any:
    try:
        return read(value)
    except readers.Invalid as rule:
        raise ConfigurationError(
            f"setting {name} = {mask(name, value)!r} (from {origin}) is not valid: {rule}", code="FUS-202"
        ) from None


def _import(name: str) -> ModuleType:
    for candidate in (name, f"wrappers.{name}"):
        try:
            return importlib.import_module(candidate)
        except ModuleNotFoundError as error:
            # Only a missing module moves on to the next name; a module that itself lacks an import is an error to show.
            if error.name is None or not (candidate == error.name or candidate.startswith(error.name + ".")):
                raise ConfigurationError(
                    f"config module {candidate!r} can't be imported: {error}; install what it needs", code="FUS-203"
                ) from error
        except ConfigurationError:
            raise
        except Exception as error:
            raise ConfigurationError(
                f"config module {candidate!r} can't be imported: {type(error).__name__}: {error}; correct it", code="FUS-203"
            ) from error
    raise ConfigurationError(
        f"config module {name!r} not found, nor wrappers.{name}; give -c a module name that can be imported from here",
        code="FUS-203",
    )


def _from_module(module: ModuleType) -> Iterator[tuple[str, tuple[Any, str]]]:
    names = vars(module)
    # A module that reads them elsewhere names the origin.
    origin: str = names.get("__origin__", f"module {module.__name__} (%s)")
    for item in _settings():
        for written in (item.name.upper(), f"FUSION_{item.name.upper()}", item.name):
            value = names.get(written)
            # `import tasks` in the module is no setting of that name.
            if value is not None and not isinstance(value, ModuleType) and not callable(value):
                yield item.name, (value, origin % written)
                break


def _from_env(env: Mapping[str, str]) -> Iterator[tuple[str, tuple[Any, str]]]:
    for item in _settings():
        for name in (f"FUSION_{item.name.upper()}", *item.metadata["env"]):
            value = env.get(name)
            # Kubernetes sets REDIS_PORT=tcp://10.0.0.1:6379 in every pod beside a service called redis, and FUSION_SERVER_PORT alike.
            if value and not (name.endswith("_PORT") and value.startswith(("tcp://", "udp://", "sctp://"))):
                yield item.name, (value, f"environment {name}")
                break


_WAYS = (("redis_url",), ("sentinel",), ("redis_host", "redis_port", "redis_db", "redis_ssl"))


def _forget_other_redis(chosen: dict[str, tuple[Any, str]], layer: dict[str, tuple[Any, str]]) -> None:
    """Drop settings of a Redis from earlier layers if this one names a Redis, in any of three ways. Within a layer, RQ's order: url,
    Sentinel, host."""
    way = next((way for way in _WAYS if way[0] in layer), None)
    for other in _WAYS if way else ():
        for name in other:
            chosen.pop(name, None)
            if other is not way:
                layer.pop(name, None)


_current: Settings | None = None


def get_settings() -> Settings:
    """Return the settings of this process: those given to `use_settings`, else loaded from the environment once."""
    global _current
    if _current is None:
        _current = Settings.load()
    return _current


def use_settings(settings: Settings | None) -> Settings | None:
    """Make `settings` those of this process; None = load them again at the next use. Returns the previous ones."""
    global _current
    previous, _current = _current, settings
    return previous
