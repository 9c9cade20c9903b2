"""Lua scripts: built files, named keys and arguments, the values of a fleet, and a call that survives SCRIPT FLUSH.

`lua/built/` holds what is sent to Redis, built by `make lua` (tools/lua_build.py) from the sources in `lua/`. What is left to do here is to set
the values of the fleet (`FleetConstants`). Nothing is compiled.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from redis import Redis
from redis.exceptions import NoScriptError, ResponseError

from fusion.kernel.failpoints import failpoint
from fusion.store.client.classify import unwrapped
from fusion.store.client.wire import sender
from fusion.store.layout import schema
from fusion.store.layout.slots import GUARD, tag_of
from fusion.store.scripting.constants import FleetConstants, literal

_BUILT = resources.files("fusion.store") / "lua" / "built"
_HEADER = re.compile(r"^-- (KEYS|ARGV|FLAGS): (.*)$", re.MULTILINE)
#: The prefix and a text behind it become one literal.
_VALUE = re.compile(rf"\bP \.\. '([^'\"\n]*)'|\b(?:{'|'.join(FleetConstants().literals())})\b")
#: The line of a script in an error of Redis 7 or Valkey (at the end), of Lua itself, and of Redis 6.
_PLACE = re.compile(r" script: (?:\w+, )?on @user_script:(\d+)\.$|@?user_script: ?(\d+): ")
#: On a cluster: PUBLISH would go to all of its nodes, SPUBLISH goes to those that serve the slot. The version is a constant of Redis 7 and Valkey.
_PUBLISH = "(redis.REDIS_VERSION_NUM and 'SPUBLISH' or 'PUBLISH')"
_MARK = re.compile(r"--@(?:([^:]*):(\d+))?")


@dataclass(frozen=True, slots=True)
class Source:
    """One script as built: the names of its keys and arguments, and its text."""

    name: str
    keys: tuple[str, ...]
    args: tuple[str, ...]
    allow_oom: bool
    body: str

    def text(self, constants: FleetConstants, server: tuple[int, ...]) -> str:
        """The script for a server of this version. Before Redis 7 no flag exists; there a first write that frees lifts the ban for the rest."""
        known = constants.literals()
        start = known["P"][:-1]

        def value(match: re.Match[str]) -> str:
            return known[match[0]] if match[1] is None else f'{start}{match[1]}"'

        text = _VALUE.sub(value, self.body)
        if tag_of(constants.prefix):
            text = text.replace("'PUBLISH'", _PUBLISH)
        if not self.allow_oom:
            return text
        if server >= (7,):
            return f"#!lua flags=allow-oom\n{text}"
        return f"redis.call('DEL', {literal(constants.prefix + 'oom')})\n{text}"


def names() -> list[str]:
    """The names of all scripts."""
    return sorted(entry.name.removesuffix(".lua") for entry in _BUILT.iterdir() if entry.name.endswith(".lua"))


def _read(name: str) -> str:
    return (_BUILT / f"{name}.lua").read_text()


#: Changes a built text before it is used: the clock of the test kit (`kit_clock`). None outside of tests.
rewrite: Callable[[str], str] | None = None


@cache
def load(name: str) -> Source:
    """Read `lua/built/<name>.lua`."""
    body = _read(name)
    return parsed(name, body if rewrite is None else rewrite(body))


def parsed(name: str, body: str) -> Source:
    """The script that a built text holds."""
    head = dict[str, tuple[str, ...]]()
    while match := _HEADER.match(body):
        head[match[1]] = tuple(match[2].split())
        body = body[match.end() + 1 :]
    return Source(name, head.get("KEYS", ()), head.get("ARGV", ()), "allow-oom" in head.get("FLAGS", ()), body)


def source_of(text: str, line: int) -> str:
    """The file in `lua/` and the line of it from which a line of a sent text comes, as `include/lib/keys.lua:37`; `built` for one that
    the build added."""
    lines = text.splitlines()[:line]
    for back, one in enumerate(reversed(lines)):
        if match := _MARK.fullmatch(one):
            return f"{match[1]}:{int(match[2]) + back - 1}" if match[1] else "built"
    return "built"


def with_source(error: str, text: str) -> str:
    """Return the text of an error with the line of the source at its end, if it names a line of this script."""
    places = ["".join(found) for found in _PLACE.findall(error)]
    return f"{_PLACE.sub('', error)} (fusion/store/lua/{source_of(text, int(places[-1]))})" if places else error


class Script:
    """One script bound to a connection. A call is one round trip once the server knows the script."""

    def __init__(self, name: str, connection: Redis, constants: FleetConstants, server: tuple[int, ...]) -> None:
        source = load(name)
        self.text = source.text(constants, server)
        self.sha = hashlib.sha1(self.text.encode()).hexdigest()  # noqa: S324 - the server's own naming of scripts
        self._keys, self._args = source.keys, source.args
        # While a cluster moves a slot key by key, a node refuses a call that names a key that is there and one that is not (TRYAGAIN), or
        # only keys that are not there (ASK). So a call that names a key that never exists is refused as a whole, before the script writes.
        # Otherwise the script would run until it met a key that has moved, and its writes before that would stay.
        self._guard = (f"{constants.prefix}{GUARD}",) if tag_of(constants.prefix) else ()
        self._count = str(len(source.keys) + len(self._guard))
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

    async def awaited(
        self, keys: Mapping[str, str], args: Mapping[str, Any], rest: Sequence[Any], send: Callable[..., Awaitable[Any]]
    ) -> Any:
        """Do what `__call__` does, for a coroutine."""
        command = self.command(keys, args, rest)
        failpoint(self.before)
        try:
            try:
                answer = await send("EVALSHA", self.sha, *command)
            except NoScriptError:
                answer = await send("EVAL", self.text, *command)
        except ResponseError as error:
            if (refusal := self.refusal(error)) is not error:
                raise refusal from None
            raise
        failpoint(self.after)
        return answer

    def send_whole(self, *words: Any) -> Any:
        """Call the script by its text, on a server that does not know its name."""
        return self._send("EVAL", self.text, *words)

    def refusal(self, error: ResponseError) -> Exception:
        """Return what to raise for an error reply: the error, with the line of the source in place of that of the sent text; or
        SchemaMismatch if this process is too old for the data."""
        if str(error).startswith(schema.REFUSAL):
            return schema.mismatch(str(error))
        error.args = (with_source(str(error), self.text),)
        return unwrapped(error)

    def command(self, keys: Mapping[str, str], args: Mapping[str, Any], rest: Sequence[Any] = ()) -> tuple[Any, ...]:
        """The words after the script, or its name, in the command."""
        return (self._count, *map(keys.__getitem__, self._keys), *self._guard, *map(args.__getitem__, self._args), *rest)
