"""Moves the data from one layout to the next."""

from __future__ import annotations

from typing import Any, NamedTuple

from fusion.store.layout import codec, schema
from fusion.store.layout.schema import Schema
from fusion.store.scripting.host import ScriptHost

#: The layout that this code requires.
THIS = Schema(schema.VERSION, schema.MIN_READER, schema.MIN_WRITER)


class Older(NamedTuple):
    """A registered process that would be too old: `kind` is worker, scheduler or relay, `knows` the layout it knows."""

    kind: str
    name: str
    knows: int


class SchemaBroker(ScriptHost):
    """Reads and changes the schema key. Only the first worker, scheduler or relay that finds none writes it otherwise."""

    def stored(self) -> Schema:
        """Read the key; without it, return the layout of data from before the key existed. Changes nothing."""
        found: Any = self.connection.hgetall(self.keys.schema)
        return Schema.of(found)

    def schema_raise(self, by: str, to: Schema = THIS) -> list[Older]:
        """Set the layout of the data to this code's, unless it is a newer one. Returns the processes that would be too old: if there are any,
        nothing was changed. SchemaMismatch if this process is too old itself."""
        keys = {
            "schema": self.keys.schema,
            "workers": self.keys.workers,
            "schedulers": self.keys.schedulers,
            "relays": self.keys.relays,
        }
        args = {"version": to.version, "min_reader": to.min_reader, "min_writer": to.min_writer, "by": by}
        _, *rest = self._script("schema_raise")(keys, args)
        return [Older(codec.text(rest[i]), codec.text(rest[i + 1]), int(rest[i + 2])) for i in range(0, len(rest), 3)]
