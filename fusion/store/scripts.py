"""Lua scripts as source files: headers, named keys and arguments, includes, and a call that survives SCRIPT FLUSH.

A header line `-- KEYS: worker suspended` makes `K_worker` and `K_suspended` in the script and lets Python pass keys by name; `-- ARGV:` does
the same for arguments (`A_<name>`), what follows them starts at `ARGV[REST]`. `-- FLAGS: allow-oom` marks what must go through on a full
server; `-- INCLUDE:` names shared pieces. A `Constants` gives what is the same in every call of a fleet: it is written into the script's
text, since each argument of a call costs time on the server.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from importlib import resources
from typing import Any

from redis import Redis
from redis.exceptions import NoScriptError

_HEADER = re.compile(r"^-- (KEYS|ARGV|FLAGS|INCLUDE): (.*)$", re.MULTILINE)
_LUA = resources.files("fusion.store") / "lua"



@dataclass(frozen=True, slots=True)
class Constants:
    """What scripts know by these names. Times in seconds, HOLD_MS in milliseconds; CAP: events kept; RUN_FIELDS: see `codec`."""

    P: str
    CAP: int
    MIN_TTL: int
    RESULT_TTL: int
    FAILURE_TTL: int
    CANCELED_TTL: int
    MAX_LOST: int
    HOLD_MS: int
    RUN_FIELDS: tuple[str, ...]

    def used_in(self, body: str) -> str:
        """A line of Lua that defines those of them that occur in `body`."""
        used = [item.name for item in fields(self) if re.search(rf"\b{item.name}\b", body)]
        return f"local {', '.join(used)} = {', '.join(_literal(getattr(self, name)) for name in used)}\n" if used else ""


def _literal(value: str | int | tuple[str, ...]) -> str:
    if isinstance(value, tuple):
        return "{" + ",".join(map(_literal, value)) + "}"
    if isinstance(value, int):
        return str(value)
    return '"' + "".join(chr(b) if chr(b).isalnum() and b < 128 or b in b":_-." else f"\\{b:03d}" for b in value.encode()) + '"'


@dataclass(frozen=True, slots=True)
class Source:
    """One script as written: its header and its Lua, includes in place."""

    name: str
    keys: tuple[str, ...]
    args: tuple[str, ...]
    allow_oom: bool
    body: str

    def text(self, constants: Constants, server: tuple[int, ...]) -> str:
        """The script for a server of this version. Before Redis 7 no flag exists; there a first write that frees lifts the ban for the rest."""
        text = constants.used_in(self.body) + self.body
        if not self.allow_oom:
            return text
        if server >= (7,):
            return f"#!lua flags=allow-oom\n{text}"
        return f"redis.call('DEL', {_literal(constants.P + 'oom')})\n{text}"


@cache
def load(name: str) -> Source:
    """Read `lua/<name>.lua` with its includes."""
    own = (_LUA / f"{name}.lua").read_text()
    header = {kind: tuple(words.split()) for kind, words in _HEADER.findall(own)}
    keys, args = header.get("KEYS", ()), header.get("ARGV", ())
    names = [*(f"K_{key}" for key in keys), *(f"A_{arg}" for arg in args), "REST"]
    values = [*(f"KEYS[{i + 1}]" for i in range(len(keys))), *(f"ARGV[{i + 1}]" for i in range(len(args))), str(len(args) + 1)]
    parts = [f"local {', '.join(names)} = {', '.join(values)}"]
    parts += [(_LUA / "include" / f"{piece}.lua").read_text() for piece in header.get("INCLUDE", ())]
    body = "\n".join(_strip(part) for part in (*parts, own))
    return Source(name, keys, args, "allow-oom" in header.get("FLAGS", ()), body)


def _strip(text: str) -> str:
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("--"))


class Script:
    """One script bound to a connection. A call is one round trip once the server knows the script."""

    def __init__(self, name: str, connection: Redis, constants: Constants, server: tuple[int, ...]) -> None:
        source = load(name)
        self._text = source.text(constants, server)
        self._sha = hashlib.sha1(self._text.encode()).hexdigest()  # noqa: S324 - the server's own naming of scripts
        self._keys, self._args = source.keys, source.args
        self._connection = connection

    def __call__(self, keys: Mapping[str, str], args: Mapping[str, Any], rest: Sequence[Any] = ()) -> Any:
        command = (
            len(self._keys),
            *(keys[name] for name in self._keys),
            *(args[name] for name in self._args),
            *rest,
        )
        try:
            return self._connection.execute_command("EVALSHA", self._sha, *command)
        except NoScriptError:
            return self._connection.execute_command("EVAL", self._text, *command)
