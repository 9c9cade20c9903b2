"""Lua scripts as source files: headers, named keys and arguments, includes, and a call that survives SCRIPT FLUSH.

A header line `-- KEYS: worker suspended` gives the script `K_worker` and `K_suspended` and lets Python pass keys by name; `-- ARGV:` does
the same for arguments (`A_<name>`), what follows them starts at `ARGV[REST]`. `-- FLAGS: allow-oom` marks what must go through on a full
server; `-- INCLUDE:` names shared pieces. Every script knows the names of `FleetConstants`. All these names are replaced in the text: an
argument that never changes, and a local that a dozen functions capture, cost more at each call than the work of some scripts. For the same
reason `lean` leaves out functions and constants that a call needs not make.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

from redis import Redis
from redis.exceptions import NoScriptError, ResponseError

from fusion.kernel.failpoints import failpoint
from fusion.store.client.wire import sender
from fusion.store.layout import schema
from fusion.store.scripting.constants import FleetConstants, literal
from fusion.store.scripting.kept import kept

_HEADER = re.compile(r"^-- (KEYS|ARGV|FLAGS|INCLUDE|RARER?|Uses|Exports|Acts): (.*)$", re.MULTILINE)
_LUA = resources.files("fusion.store") / "lua"
_JOINED = re.compile(r'"([^"\n]*)" \.\. \'([^\'"\n]*)\'')
# Behind their first letter these two look whether it begins a word: what begins with letters is found five times as fast as what begins with \b.
_NAME = re.compile(r"[A-Z](?<!\w[A-Z])(?:(?<=[KA])_\w+|[A-Z_]*)\b")
_CONSTANT = re.compile(r"[A-Z](?<!\w[A-Z])[A-Z_]+\b")
_CONSTANTS = re.compile(r"^local ([A-Z].*?) = (.*?)( --.*)?\n", re.MULTILINE)
_LITERAL = re.compile(r"""'[^']*'|"[^"]*"|[\d.e^ *-]+""")


@dataclass(frozen=True, slots=True)
class Source:
    """One script as written: its header and its Lua, includes in place."""

    name: str
    keys: tuple[str, ...]
    args: tuple[str, ...]
    allow_oom: bool
    body: str

    def text(self, constants: FleetConstants, server: tuple[int, ...]) -> str:
        """The script for a server of this version. Before Redis 7 no flag exists; there a first write that frees lifts the ban for the rest."""
        known = constants.literals()
        known |= {f"K_{key}": f"KEYS[{i}]" for i, key in enumerate(self.keys, 1)}
        known |= {f"A_{arg}": f"ARGV[{i}]" for i, arg in enumerate(self.args, 1)}
        known["REST"] = str(len(self.args) + 1)
        text = _NAME.sub(lambda match: known.get(match[0], match[0]), self.inlined())
        text = folded(_JOINED.sub(r'"\1\2"', text))
        if not self.allow_oom:
            return text
        if server >= (7,):
            return f"#!lua flags=allow-oom\n{text}"
        return f"redis.call('DEL', {literal(constants.prefix + 'oom')})\n{text}"

    def inlined(self) -> str:
        """The body, with what its small functions return in the places of their calls."""
        return kept(f"{self.name}-inlined", (self.body,), lambda: _inlined(self.body))


@cache
def load(name: str) -> Source:
    """Read `lua/<name>.lua` with its includes and theirs, each once. ValueError for includes that include each other."""
    own = (_LUA / f"{name}.lua").read_text()
    header = header_of(own)
    keys, args = header.get("KEYS", ()), header.get("ARGV", ())
    texts = [*map(include, included(header.get("INCLUDE", ()), include)), own]
    body = kept(name, texts, lambda: _body(texts))
    return Source(name, keys, args, "allow-oom" in header.get("FLAGS", ()), body)


def _body(texts: Sequence[str]) -> str:
    from fusion.store.scripting.lean import made_when_called, without_empty, without_unused  # for who makes it, and that is rare

    body = without_unused(without_empty("".join(map(_uncommented, texts))))
    named = [{word for text in texts for word in header_of(text).get(kind, ())} for kind in ("RARE", "RARER")]
    body = made_when_called(body, named)
    return "\n".join(line.strip() for line in body.splitlines())


def _inlined(body: str) -> str:
    from fusion.store.scripting.lean import inlined

    return inlined(body)


def folded(text: str) -> str:
    """With constants in the places of their names: a local that a function uses is looked for at each call, one after another."""
    known = dict[str, str]()

    def note(match: re.Match[str]) -> str:
        names, values = match[1].split(", "), match[2].split(", ")
        if len(names) != len(values):
            return match[0]
        pairs = list(zip(names, values, strict=True))
        constant = {name: value for name, value in pairs if _CONSTANT.fullmatch(name) and _LITERAL.fullmatch(value)}
        known.update(
            {name: value if value[0] in "'\"" or value.isdecimal() else f"({value})" for name, value in constant.items()}
        )
        rest = [pair for pair in pairs if pair[0] not in constant]
        return f"local {', '.join(name for name, _ in rest)} = {', '.join(value for _, value in rest)}\n" if rest else ""

    text = _CONSTANTS.sub(note, text)
    return _CONSTANT.sub(lambda match: known.get(match[0], match[0]), text)


def included(names: Sequence[str], read: Callable[[str], str]) -> list[str]:
    """These includes in the order in which they stand in a script: each once, behind those that it includes itself. `read`: text by name."""
    order = dict[str, None]()

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            raise ValueError(f"includes that include each other: {' -> '.join((*path, name))}")
        if name not in order:
            for other in header_of(read(name)).get("INCLUDE", ()):
                visit(other, (*path, name))
            order[name] = None

    for name in names:
        visit(name, ())
    return list(order)


@cache
def header_of(text: str) -> dict[str, tuple[str, ...]]:
    """The words of a file's header lines, by kind; of a kind that has several lines, those of all. Kept: most scripts share their includes."""
    found = dict[str, tuple[str, ...]]()
    for kind, words in _HEADER.findall(text):
        found[kind] = found.get(kind, ()) + tuple(words.split())
    return found


@cache
def _rooms() -> dict[str, Traversable]:
    """Name -> file of each include; the folders are for people."""
    files = (file for room in (_LUA / "include").iterdir() if room.is_dir() for file in room.iterdir())
    return {file.name.removesuffix(".lua"): file for file in files}


@cache
def include(name: str) -> str:
    """The text of `lua/include/*/<name>.lua`."""
    if name not in _rooms():
        raise ValueError(f"no file of lua/include is called {name}.lua")
    return _rooms()[name].read_text()


@cache
def _uncommented(text: str) -> str:
    return "".join(f"{line}\n" for line in text.splitlines() if line and not line.lstrip().startswith("--"))


class Script:
    """One script bound to a connection. A call is one round trip once the server knows the script."""

    def __init__(self, name: str, connection: Redis, constants: FleetConstants, server: tuple[int, ...]) -> None:
        source = load(name)
        self.text = source.text(constants, server)
        self.sha = hashlib.sha1(self.text.encode()).hexdigest()  # noqa: S324 - the server's own naming of scripts
        self._keys, self._args = source.keys, source.args
        self._count = str(len(source.keys))
        #: Failpoints on either side of a call.
        self.before, self.after = f"{name}.before", f"{name}.after"
        self._send = sender(connection)

    def __call__(
        self, keys: Mapping[str, str], args: Mapping[str, Any], rest: Sequence[Any] = (), send: Callable[..., Any] | None = None
    ) -> Any:
        """`send`: what takes the command in place of the connection."""
        command = self.command(keys, args, rest)
        send = send or self._send
        failpoint(self.before)
        try:
            try:
                answer = send("EVALSHA", self.sha, *command)
            except NoScriptError:
                answer = send("EVAL", self.text, *command)
        except ResponseError as error:
            if (refusal := self.refusal(error)) is not error:
                raise refusal from None
            raise
        failpoint(self.after)
        return answer

    @staticmethod
    def refusal(error: ResponseError) -> Exception:
        """What to raise for an error reply: itself, or SchemaMismatch if it says that this process is too old for the data."""
        return schema.mismatch(str(error)) if str(error).startswith(schema.REFUSAL) else error

    def command(self, keys: Mapping[str, str], args: Mapping[str, Any], rest: Sequence[Any] = ()) -> tuple[Any, ...]:
        """The words after the script, or its name, in the command."""
        return (self._count, *map(keys.__getitem__, self._keys), *map(args.__getitem__, self._args), *rest)
