"""What the writers share: the constants of a fleet and its scripts, bound to one connection."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Self

from redis import Redis

from fusion.kernel import defaults
from fusion.settings import Settings
from fusion.store.layout import codec
from fusion.store.layout.keys import Keys
from fusion.store.layout.schema import Schema
from fusion.store.scripting.scripts import Constants, Script, load


def to_ms(seconds: float) -> int:
    return int(seconds * 1000)


def to_texts(values: Iterable[bytes]) -> list[str]:
    return [codec.text(value) for value in values]


class ScriptHost:
    """Runs scripts on one Redis. What they take for granted (prefix, caps, lifetimes in seconds) is set here once."""

    def __init__(
        self,
        connection: Redis,
        *,
        prefix: str = defaults.KEY_PREFIX,
        events_cap: int = defaults.EVENTS_CAP,
        result_ttl: float = defaults.RESULT_TTL,
        failure_ttl: float = defaults.FAILURE_TTL,
        max_lost: int = defaults.MAX_LOST,
        hold_timeout: float = defaults.HOLD_TIMEOUT,
        failed_max: int = defaults.FAILED_MAX,
        finished_max: int = defaults.FINISHED_MAX,
        canceled_max: int = defaults.CANCELED_MAX,
        adopt: Sequence[str] = (),
        server_version: tuple[int, ...] | None = None,
    ) -> None:
        self.connection = connection
        self.keys = Keys(prefix)
        self._constants = Constants(
            P=prefix,
            CAP=str(events_cap),
            MIN_TTL=defaults.MIN_TERMINAL_TTL,
            RESULT_TTL=int(result_ttl),
            FAILURE_TTL=int(failure_ttl),
            CANCELED_TTL=defaults.CANCELED_TTL,
            MAX_LOST=max_lost,
            PROBATION=min(defaults.PROBATION, max_lost),
            HOLD_MS=to_ms(hold_timeout),
            RUN_FIELDS=codec.RUN_FIELDS,
            FAILED_MAX=failed_max,
            FINISHED_MAX=finished_max,
            CANCELED_MAX=canceled_max,
            ADOPT=tuple(adopt),
        )
        self.server_version = server_version
        self._scripts: dict[str, Script] = {}

    @classmethod
    def of(cls, connection: Redis, settings: Settings) -> Self:
        """By the settings."""
        return cls(
            connection,
            prefix=settings.prefix,
            events_cap=settings.events_cap,
            result_ttl=settings.result_ttl,
            failure_ttl=settings.failure_ttl,
            max_lost=settings.max_lost,
            hold_timeout=settings.hold_timeout,
            failed_max=settings.failed_max,
            finished_max=settings.finished_max,
            canceled_max=settings.canceled_max,
            adopt=settings.adopt_rq or (),
        )

    def check_writer(self) -> None:
        """For changes that are no script. SchemaMismatch if this process is too old for the data."""
        found: Any = self.connection.hgetall(self.keys.schema)
        Schema.of(found).check_writer()

    def _script(self, name: str) -> Script:
        script = self._scripts.get(name)
        if script is None:
            version = self._server_version() if load(name).allow_oom else ()
            script = self._scripts[name] = Script(name, self.connection, self._constants, version)
        return script

    def _server_version(self) -> tuple[int, ...]:
        if self.server_version is None:
            info: Any = self.connection.info("server")
            self.server_version = tuple(int(part) for part in str(info["redis_version"]).split("."))
        return self.server_version
