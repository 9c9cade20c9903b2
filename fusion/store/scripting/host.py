"""The common ground of all writers: the constants of a fleet and its scripts, bound to one connection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from redis import Redis

from fusion.settings import Settings
from fusion.store.layout import codec
from fusion.store.layout.keys import Keys
from fusion.store.layout.schema import Schema
from fusion.store.scripting.constants import FleetConstants
from fusion.store.scripting.scripts import Script, load

_DEFAULTS = FleetConstants()
#: Jobs that one call changes at most, however much each is bound to: about 10 ms of the server's one thread.
PER_CALL = 30


def to_ms(seconds: float) -> int:
    """Whole milliseconds, as the scripts count."""
    return int(seconds * 1000)


def to_texts(values: Iterable[bytes]) -> list[str]:
    """Each value as `codec.text` has it."""
    return [codec.text(value) for value in values]


def version_of(info: Any) -> tuple[int, ...]:
    """The version that a server's INFO tells."""
    return tuple(int(part) for part in str(info["redis_version"]).split("."))


class ScriptHost:
    """Runs scripts on one Redis, with one fleet's constants in them. `server_version`: asked for at need if it is not given."""

    def __init__(
        self,
        connection: Redis,
        constants: FleetConstants = _DEFAULTS,
        *,
        server_version: tuple[int, ...] | None = None,
    ) -> None:
        self.connection = connection
        self.keys = Keys(constants.prefix)
        self._constants = constants
        self.server_version = server_version
        self._scripts: dict[str, Script] = {}

    @classmethod
    def of(cls, connection: Redis, settings: Settings) -> Self:
        """A host with the constants that the settings name."""
        return cls(connection, FleetConstants.of(settings))

    def check_writer(self) -> None:
        """For changes that are no script. SchemaMismatch if this process is too old for the data."""
        found: Any = self.connection.hgetall(self.keys.schema)
        Schema.of(found).check_writer()

    def _to_each(self, name: str, keys: Mapping[str, str], args: Mapping[str, Any], ids: Sequence[str]) -> list[str]:
        """Make a script's calls for these jobs, some in each, and put the answers together."""
        script, answers = self._script(name), list[str]()
        for first in range(0, max(1, len(ids)), PER_CALL):
            part = ids[first : first + PER_CALL]
            answers += to_texts(script(keys, {**args, "n_jobs": len(part)}, part))
        return answers

    def _script(self, name: str) -> Script:
        script = self._scripts.get(name)
        if script is None:
            version = self._server_version() if load(name).allow_oom else ()
            script = self._scripts[name] = Script(name, self.connection, self._constants, version)
        return script

    def _server_version(self) -> tuple[int, ...]:
        if self.server_version is None:
            self.server_version = version_of(self.connection.info("server"))
        return self.server_version
