"""The one step from a layout of the data to the next."""

from __future__ import annotations

from typing import Any, NamedTuple

from fusion.store.layout import codec, schema
from fusion.store.layout.schema import Schema
from fusion.store.scripting.host import ScriptHost

#: What this code asks for.
THIS = Schema(schema.VERSION, schema.MIN_READER, schema.MIN_WRITER)


class Older(NamedTuple):
    """A process that is in its list and would be too old: `kind` is worker, scheduler or relay, `knows` the layout it knows."""

    kind: str
    name: str
    knows: int


class SchemaBroker(ScriptHost):
    """Reads the schema key and moves it. Nothing else ever does, but the first worker, scheduler or relay that finds none."""

    def stored(self) -> Schema:
        """Read the key as it stands; without it, the layout of data from before there was one. Changes nothing."""
        found: Any = self.connection.hgetall(self.keys.schema)
        return Schema.of(found)

    def schema_raise(self, by: str, to: Schema = THIS) -> list[Older]:
        """Have the data be of this code's layout from now on, unless they are of a newer one. Returns the processes that would be too old: if
        there are any, nothing was changed. SchemaMismatch if this process is too old itself."""
        keys = {
            "schema": self.keys.schema,
            "workers": self.keys.workers,
            "schedulers": self.keys.schedulers,
            "relays": self.keys.relays,
        }
        args = {"version": to.version, "min_reader": to.min_reader, "min_writer": to.min_writer, "by": by}
        _, *rest = self._script("schema_raise")(keys, args)
        return [Older(codec.text(rest[i]), codec.text(rest[i + 1]), int(rest[i + 2])) for i in range(0, len(rest), 3)]
