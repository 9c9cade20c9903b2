"""Checks the scripts of fusion/store/lua for what Lua finds out only when it runs, and prints each one's room under Lua's limits.

Every name that a script reads must be a local of it, defined before; a name that an include defines may be used only by files whose INCLUDE
names that include, and nothing else. Locals that several files share and change are declared (`Exports:` and `Uses:`).
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from fusion.store.scripting.constants import FleetConstants
from fusion.store.scripting.scripts import load
from tools import lua_build
from tools.lua_build import CONSTANTS as BUILT_IN
from tools.lua_build import GLOBALS, OPEN
from tools.lua_scope import Local, Scope

CONSTANTS = FleetConstants()
#: Lua's own limits for one function.
MOST_LOCALS, MOST_UPVALUES = 200, 60
LINE = 120


def sources() -> dict[str, str]:
    """Every script and include by name; an include's name begins with `include/`."""
    lua = lua_build.LUA
    files = {path.stem: path.read_text() for path in lua.glob("*.lua")}
    return files | {f"include/{path.stem}": path.read_text() for path in lua.glob("include/*/*.lua")}


def problems(name: str, texts: Mapping[str, str]) -> list[str]:
    """What is wrong with a script and its includes, a line each."""
    header = lua_build.headers(texts[name])
    try:
        order = lua_build.in_order(header.get("INCLUDE", ()), lambda piece: texts[f"include/{piece}"])
    except (KeyError, ValueError) as error:
        return [f"{name}: {error}"]
    pieces = [*(f"include/{piece}" for piece in order), name]
    starts, line = list[int](), 1
    for piece in pieces:
        starts.append(line)
        line += len(texts[piece].splitlines())
    try:
        # Without comments: a header that says something else is the same code.
        scope = _scope(
            "".join(f"{'' if one.startswith('--') else one}\n" for piece in pieces for one in texts[piece].splitlines())
        )
    except SyntaxError as error:
        return [f"{name} with its includes: {error}"]

    def of(line: int) -> str:
        return pieces[bisect_right(starts, line) - 1]

    known = GLOBALS | OPEN | BUILT_IN.keys() | {"REST"}
    known |= {f"K_{key}" for key in header.get("KEYS", ())} | {f"A_{arg}" for arg in header.get("ARGV", ())}
    found = [f"{of(line)}: {free} is not defined in {name}" for free, line in scope.free if free not in known]
    found += [f"{of(line)}: {free} becomes a global in {name}" for free, line in scope.globals_set]
    top = set(scope.top.values())
    used = {(of(line), of(local.line), local) for local, line in scope.uses if local in top}
    edges = {(user, definer) for user, definer, _ in used if user != definer}
    heads = {piece: lua_build.headers(texts[piece]) for piece in pieces}
    functions = {local.name for local in top if local.function}
    for user, head in heads.items():
        named = {word for kind in ("ONCE", "OFTEN", "RARE", "RARER") for word in head.get(kind, ())}
        found += [f"{user}: {word} is in its ONCE or RARE, and no function" for word in sorted(named - functions)]
        direct = {f"include/{piece}" for piece in head.get("INCLUDE", ())}
        needed = {definer for one, definer in edges if one == user}
        acting = {piece for piece in direct if "Acts" in lua_build.headers(texts[piece])}
        found += [f"{user}: uses {_names(used, user, piece)} and does not include {piece}" for piece in sorted(needed - direct)]
        found += [f"{user}: includes {piece} without a use" for piece in sorted(direct - needed - acting)]
        theirs = {local.name for one, definer, local in used if one == user and definer != user and _is_state(local)}
        said = set(head.get("Uses", ()))
        found += [f"{user}: {word} is not in its Uses" for word in sorted(theirs - said)]
        found += [f"{user}: {word} is in its Uses without a use" for word in sorted(said - theirs)]
        own = {local.name for one, definer, local in used if definer == user and one != user and _is_state(local)}
        found += [f"{user}: {word} is not in its Exports" for word in sorted(own - set(head.get("Exports", ())))]
    return sorted(set(found))


@lru_cache(maxsize=256)
def _scope(text: str) -> Scope:
    return Scope(text)


def _is_state(local: Local) -> bool:
    return local.changed and not local.function


def _names(used: set[tuple[str, str, Local]], user: str, definer: str) -> str:
    return ", ".join(sorted({local.name for one, other, local in used if (one, other) == (user, definer)}))


@dataclass(frozen=True)
class Room:
    """What a script leaves of Lua's limits for one function, as a server gets it. `size`: of its text, in bytes; `undefined`: names
    that are defined in the files and no longer in the text: the build's mistake."""

    free_locals: int
    free_upvalues: int
    size: int
    undefined: frozenset[str]

    @classmethod
    def of(cls, name: str) -> Room:
        text = load(name).text(CONSTANTS, (7,))
        scope = Scope(re.sub(r"^#!.*\n", "", text))
        undefined = frozenset(name for name, _ in scope.free) - GLOBALS
        return cls(MOST_LOCALS - scope.most_locals, MOST_UPVALUES - scope.most_upvalues, len(text), undefined)


def long_lines(texts: Mapping[str, str]) -> list[str]:
    """Lines that are longer than LINE characters."""
    numbered = ((name, n, line) for name, text in texts.items() for n, line in enumerate(text.splitlines(), 1))
    return [f"{name}:{n}: {len(line)} characters, the limit is {LINE}" for name, n, line in numbered if len(line) > LINE]


def main() -> int:
    """Print whatever is wrong, and with -v each script's room; 1 if something is."""
    texts = sources()
    rooms = {name: Room.of(name) for name in sorted(texts) if not name.startswith("include/")}
    found = sorted({problem for name in rooms for problem in problems(name, texts)}) + long_lines(texts)
    found += [f"{name}: {word} is not defined in its text" for name, room in rooms.items() for word in sorted(room.undefined)]
    if "-v" in sys.argv[1:]:
        print(f"{'script':20}{'free locals':>12}{'free upvalues':>15}{'bytes':>8}")
        for name, room in rooms.items():
            print(f"{name:20}{room.free_locals:12}{room.free_upvalues:15}{room.size:8}")
    print("\n".join(found) or f"lua: every name of {len(rooms)} scripts is defined")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
