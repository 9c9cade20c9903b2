"""`make lua`: builds the scripts that Fusion sends to Redis, `fusion/store/lua/built/`, from their sources in `fusion/store/lua/`.

A source is written for people: it names includes, keys, arguments and constants, and has small functions. Lua makes each local function anew at
each call of a script, and looks for each local that a function takes from outside one after another. So the build

- joins a script with its includes, each once, behind those that it includes itself;
- leaves out functions and variables that nothing names, comments and indentation;
- writes what small functions return in the place of their calls, and literals in the place of the names of keys, arguments and constants;
- writes the body of a function that ONCE names in the place of its one call;
- moves functions that OFTEN, RARE or RARER name into one that makes all of a group at the first call of one. They stand before what calls them;
- does both with a function that ONCE and one of these name: the functions that are rare call it, in the others its body stands.

What is left open are the values of a fleet (`FleetConstants`): the loader sets them. Lines of `built/` keep their text, and marks (`--@file:line`)
tell where a run of lines comes from, so that an error of the server leads to the source.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import groupby
from pathlib import Path

from fusion.kernel import defaults, states
from fusion.store.layout import codec, compact, schema
from fusion.store.scripting.constants import FleetConstants, literal
from tools.lua_in_place import in_place
from tools.lua_lines import BRACKET, COMMENT, STRING, Function, Line, functions, names_made, parts_of, words_of
from tools.lua_scope import Scope

LUA = Path(schema.__file__).parents[1] / "lua"
BUILT = LUA / "built"

#: Values that are the same in all fleets of one version. RUN_FIELDS: the fields that a claim answers, TIED_FIELDS, CHAIN_FIELDS: and of some;
#: AHEAD, ALONE: what the ids of some executions end in; STORED_RESULT_TTL: what its absence means in a compact record; KEPT_STATES: ended
#: ones with a set for each queue.
_VALUES: dict[str, str | int | tuple[str, ...]] = {
    "MIN_TTL": defaults.MIN_TERMINAL_TTL,
    "STORED_RESULT_TTL": int(compact.DEFAULTS["result_ttl"]),
    "CANCELED_TTL": defaults.CANCELED_TTL,
    "RUN_FIELDS": codec.RUN_FIELDS,
    "N_RUN_FIELDS": len(codec.RUN_FIELDS),
    "TIED_FIELDS": codec.TIED_FIELDS,
    "N_TIED_FIELDS": len(codec.TIED_FIELDS),
    "CHAIN_FIELDS": codec.CHAIN_FIELDS,
    "N_CHAIN_FIELDS": len(codec.CHAIN_FIELDS),
    "AHEAD": codec.AHEAD,
    "ALONE": codec.ALONE,
    "FIRST_SCHEMA": schema.FIRST,
    "KEPT_STATES": states.KEPT,
}
CONSTANTS = {name: literal(value) for name, value in _VALUES.items()}
#: Values that some scripts take as arguments, and includes use; nil in the others.
_TOLD = ("MINUTE", "MINUTE_TEXT")
CONSTANTS |= dict.fromkeys(_TOLD, "nil")
#: Values that the loader sets.
OPEN = frozenset(FleetConstants().literals())
#: What Redis gives to every script.
GLOBALS = frozenset("redis cjson math string table tonumber tostring type pcall error unpack ipairs pairs KEYS ARGV".split())

_HEADER = re.compile(r"^-- (KEYS|ARGV|FLAGS|INCLUDE|ONCE|OFTEN|RARER?|Uses|Exports|Acts): (.*)$", re.MULTILINE)
_EXPRESSION = re.compile(r"local function (\w+)\((\w+(?:, \w+)*)\) return (.*) end$")
_VARIABLES = re.compile(r"local ([a-z]\w*(?:, [a-z]\w*)*)(?: = (?:\{(?: \w+ = nil )?\}|\d+))?(?: --.*)?$")
_VARIABLE = re.compile(r"local ([a-z]\w*)(?: = (?:\{[^(){}]*\}|\d+))?(?: --.*)?$")
_CONSTANTS = re.compile(r"local ([A-Z].*?) = (.*?)( --.*)?$")
_CONSTANT = re.compile(r"[A-Z][A-Z_]+")
_NAMED = re.compile(r"[A-Z](?<!\w[A-Z])(?:(?<=[KA])_\w+|[A-Z_]*)\b")
_LITERAL = re.compile(rf"""P \.\. {STRING}|{STRING}|"[^"]*"|[\d.e^ *-]+""")
_SIMPLE = re.compile(r"[\w.]+(?:\[\w+\])?|'\w*'")
_BLOCK = re.compile(rf"{STRING}|\b(function|do|if|repeat|end|until)\b")
#: Words of Lua and of its libraries that a small function may use.
_KNOWN = frozenset("nil true false or and not tonumber math floor max min string match find sub".split())


# -- sources


def headers(text: str) -> dict[str, tuple[str, ...]]:
    """Return the words of a source's header lines by kind; of a kind that has several lines, those of all."""
    found = dict[str, tuple[str, ...]]()
    for kind, words in _HEADER.findall(text):
        found[kind] = found.get(kind, ()) + tuple(words.split())
    return found


def in_order(names: Sequence[str], read: Callable[[str], str]) -> list[str]:
    """Return these includes in the order in which they stand in a script: each once, behind those that it includes itself.
    `read`: text by name. Raises ValueError for includes that include each other."""
    order = dict[str, None]()

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            raise ValueError(f"includes that include each other: {' -> '.join((*path, name))}")
        if name not in order:
            for other in headers(read(name)).get("INCLUDE", ()):
                visit(other, (*path, name))
            order[name] = None

    for name in names:
        visit(name, ())
    return list(order)


@cache
def _includes() -> Mapping[str, Path]:
    """Name -> file of each include; the folders are for people."""
    return {path.stem: path for path in LUA.glob("include/*/*.lua")}


def _path(name: str) -> Path:
    if name not in _includes():
        raise ValueError(f"no file of lua/include is called {name}.lua")
    return _includes()[name]


def include(name: str) -> str:
    """Return the text of `lua/include/*/<name>.lua`. Raises ValueError if there is none."""
    return _read(_path(name))


@cache
def _read(path: Path) -> str:
    return path.read_text()


def script_names() -> list[str]:
    """Return the names of all scripts."""
    return sorted(path.stem for path in LUA.glob("*.lua"))


def _lines_of(path: Path, source: str) -> Iterator[Line]:
    """The lines of a source that hold code."""
    for number, text in enumerate(source.splitlines(), 1):
        if text and not text.lstrip().startswith("--"):
            yield Line(text, path.relative_to(LUA).as_posix(), number)


# -- the build


def build(name: str, read: Callable[[Path], str] = _read, change: Callable[[str], str] | None = None) -> str:
    """Return the built text of a script. `read`: the text of a source. `change`: done to the joined text, before names
    give way to values (for tests). Raises ValueError for a source that can't be built, SyntaxError for one
    that is no Lua."""
    head = headers(read(LUA / f"{name}.lua"))
    files = _files(name, read)
    rare = [{word for text in files.values() for word in headers(text).get(kind, ())} for kind in ("OFTEN", "RARE", "RARER")]
    arguments = {f"K_{key}": f"KEYS[{nth}]" for nth, key in enumerate(head.get("KEYS", ()), 1)}
    arguments |= {f"A_{argument}": f"ARGV[{nth}]" for nth, argument in enumerate(head.get("ARGV", ()), 1)}
    arguments["REST"] = str(len(head.get("ARGV", ())) + 1)
    arguments |= {name: arguments[f"A_{name.lower()}"] for name in _TOLD if f"A_{name.lower()}" in arguments}
    lines = joined(name, read)
    once = {word for text in files.values() for word in headers(text).get("ONCE", ())}
    lines = without_unused(in_place(lines, once, set[str]().union(*rare)))
    lines = made_when_called(lines, rare)
    lines = [replace(line, text=COMMENT.sub(lambda match: match[1] or "", line.text).strip()) for line in lines]
    if change is not None:
        lines = [Line(text) for text in change("".join(f"{line.text}\n" for line in lines)).splitlines()]
    lines = inlined(lines)
    lines = [line for line in folded(with_values(lines, CONSTANTS | arguments)) if not line.text.startswith("if nil then ")]
    lines = at_hand(lines)
    text = "".join(f"-- {kind}: {' '.join(words)}\n" for kind, words in head.items() if kind in ("KEYS", "ARGV", "FLAGS"))
    text += "".join(_marked(lines))
    scope = Scope(text)
    if undefined := sorted({word for word, _ in scope.free} - GLOBALS - OPEN):
        raise ValueError(f"{name}: {', '.join(undefined)} is not defined")
    return text


def _files(name: str, read: Callable[[Path], str]) -> dict[Path, str]:
    includes = in_order(headers(read(LUA / f"{name}.lua")).get("INCLUDE", ()), lambda one: read(_path(one)))
    return {path: read(path) for path in [*map(_path, includes), LUA / f"{name}.lua"]}


def joined(name: str, read: Callable[[Path], str] = _read) -> list[Line]:
    """Return the lines of a script and of its includes that are used, as they stand in the sources: the first step of the build."""
    return without_unused([line for path, text in _files(name, read).items() for line in _lines_of(path, text)])


def without_unused(lines: Sequence[Line]) -> list[Line]:
    """Return the lines without functions and variables that nothing names: includes bring all of theirs."""
    words, kept, cut = words_of(lines), functions(lines), set[int]()
    kept += [Function(match[1], at, at + 1) for at, line in enumerate(lines) if (match := _VARIABLE.match(line.text))]
    while unused := [one for one in kept if words[one.name] < 2]:
        kept = [one for one in kept if words[one.name] > 1]
        for one in unused:
            words.subtract(words_of(lines[one.first : one.end]))
            cut.update(range(one.first, one.end))
    return [line for at, line in enumerate(lines) if at not in cut]


def made_when_called(lines: Sequence[Line], groups: Sequence[Collection[str]]) -> list[Line]:
    """Return the lines with the functions of these names made by the first call of one of their group, which `rare`, a new name, sees to;
    and with them variables that they alone use. To make a function costs more than many a call of one, and what several take from outside
    is then taken once. Raises ValueError if one is handed on as a value.
    """
    defined = Counter(one.name for one in functions(lines))
    groups = [names for names in groups if sum(defined[name] for name in names) > 1]
    lines, own = _without_variables_of(lines, groups)
    found = [[one for one in functions(lines) if one.name in names] for names in groups]
    everything = sorted((one for group in found for one in group), key=lambda one: one.first)
    if not everything:
        return list(lines)
    number = {one.name: nth for nth, one in enumerate((one for group in found for one in group), 1)}
    calls = re.compile(rf"{STRING}|--[^\n]*|\b(pcall\()?(?<!\.)\b({'|'.join(number)})\b(\(\)?|, |\))?")

    def with_calls(part: Iterable[Line], known: Collection[str] = ()) -> Iterator[Line]:
        def call(match: re.Match[str]) -> str:
            before, name, after = match.groups()
            if not name or name in known:  # a string or a comment; one that is made beside it
                return match[0]
            if not after or bool(before) == after.startswith("("):
                raise ValueError(f"{name} is made when it is called, and can't be handed on")
            comma = ", " if after in ("(", ", ") else ")"
            return f"{before or ''}rare{', ' if before else '('}{number[name]}{comma}"

        return (replace(line, text=calls.sub(call, line.text)) for line in part)

    new, at = [Line("local rare, groups_made")], 0
    for one in everything:
        new += with_calls(lines[at : one.first])
        at = one.end
    new += [Line("rare = function(nth, ...)"), Line("if not groups_made then groups_made = {} end")]
    first = 0
    for nth, group in enumerate(found):
        names = [one.name for one in group]
        made = [*own[nth], *(line for one in group for line in lines[one.first : one.end])]
        new += [Line(f"if nth <= {first + len(group)} then"), Line(f"if not groups_made[{nth + 1}] then")]
        new += with_calls(made, names)
        new += [Line(f"groups_made[{nth + 1}] = {{ {', '.join(names)} }}"), Line("end")]
        new += [Line(f"return groups_made[{nth + 1}][nth{f' - {first}' if first else ''}](...)"), Line("end")]
        first += len(group)
    return [*new, Line("end"), *with_calls(lines[at:])]


def _without_variables_of(lines: Sequence[Line], groups: Sequence[Collection[str]]) -> tuple[list[Line], list[list[Line]]]:
    """The lines without the variables that the functions of one group alone use, and those of each group."""
    inside = dict[int, int]()
    for one in functions(lines):
        for nth, names in enumerate(groups):
            if one.name in names:
                inside |= dict.fromkeys(range(one.first, one.end), nth)
                break
    outside = words_of(line for at, line in enumerate(lines) if at not in inside)
    words = [set(words_of(line for at, line in enumerate(lines) if inside.get(at) == nth)) for nth in range(len(groups))]
    rest, own = list[Line](), [list[Line]() for _ in groups]
    for line in lines:
        match = _VARIABLES.match(line.text)
        names = set(match[1].split(", ")) if match else set()
        users = [nth for nth, known in enumerate(words) if names & known]
        if len(users) == 1 and all(outside[name] < 2 for name in names):
            own[users[0]].append(line)
        else:
            rest.append(line)
    return rest, own


def at_hand(lines: Sequence[Line]) -> list[Line]:
    """Return the lines with `redis.call`, `redis.pcall` and ARGV as locals of the script, but in functions: there a local from outside costs
    more."""
    outside = _outside_of_functions(lines)
    names = {r"\bredis\.call\b": "command", r"\bredis\.pcall\b": "try_command", r"\bARGV\b": "argv"}
    used = {name: sum(len(re.findall(name, lines[at].text)) for at in outside) for name in names}
    chosen = {name: local for name, local in names.items() if used[name] > 2}
    if not chosen:
        return list(lines)

    def changed(text: str) -> str:
        for name, local in chosen.items():
            text = re.sub(name, local, text)
        return text

    values = ", ".join(name.replace("\\b", "").replace("\\", "") for name in chosen)
    head = Line(f"local {', '.join(chosen.values())} = {values}")
    return [head, *(replace(line, text=changed(line.text)) if at in outside else line for at, line in enumerate(lines))]


def _outside_of_functions(lines: Sequence[Line]) -> set[int]:
    """The lines that no function holds. Those that begin or end one count as its own."""
    found, depth, starts = set[int](), 0, list[int]()
    for at, line in enumerate(lines):
        holds = bool(starts)
        for word in _BLOCK.findall(line.text):
            if word in ("end", "until"):
                depth -= 1
                if starts and starts[-1] == depth:
                    starts.pop()
            elif word:
                if word == "function":
                    starts.append(depth)
                    holds = True
                depth += 1
        if not holds:
            found.add(at)
    return found


def inlined(lines: Sequence[Line]) -> list[Line]:
    """Return the lines with the calls of small functions replaced by what they return: of those that use their arguments, P, what is Lua's own,
    and variables of the script whose names stand for nothing else. An argument that is used twice is a name or a literal in each call."""
    small = dict[str, tuple[list[str], str]]()
    values = {word for line in lines for word in re.findall(r"\b\w+\b(?!\()", line.text)}
    made = Counter(name for line in lines for name in names_made([line]))
    shared = {"P"} | {name for line in lines if line.text.startswith("local ") for name in names_made([line]) if made[name] == 1}
    for line in lines:
        if not (match := _EXPRESSION.match(line.text)):
            continue
        name, parameters, value = match[1], match[2].split(", "), match[3]
        used = Counter(word for word in re.findall(rf"{STRING}|\w+", value) if word[0] != "'")
        others = {word for word in used if word not in _KNOWN and not word.isdecimal() and not _CONSTANT.fullmatch(word)}
        if not others - set(parameters) <= shared or name in values or not all(used[one] for one in parameters):
            continue
        twice = [nth for nth, one in enumerate(parameters) if used[one] > 1]
        called = [(one.text, call.end()) for one in lines for call in re.finditer(rf"(?<!function )\b{name}\(", one.text)]
        given = [parts_of(text[at : _closing(text, at)]) for text, at in called]
        if all(len(one) == len(parameters) and all(_SIMPLE.fullmatch(one[nth]) for nth in twice) for one in given):
            small[name] = parameters, value
    if not small:
        return list(lines)
    calls = re.compile(rf"\b({'|'.join(small)})\(")
    return [
        replace(line, text=_inlined(line.text, small, calls))
        for line in lines
        if not ((match := _EXPRESSION.match(line.text)) and match[1] in small)
    ]


def _inlined(text: str, small: Mapping[str, tuple[list[str], str]], calls: re.Pattern[str]) -> str:
    pieces, at = list[str](), 0
    while call := calls.search(text, at):
        end = _closing(text, call.end())
        parameters, value = small[call[1]]
        arguments = parts_of(_inlined(text[call.end() : end], small, calls))
        known = {name: one if _SIMPLE.fullmatch(one) else f"({one})" for name, one in zip(parameters, arguments, strict=True)}
        body = re.sub(rf"{STRING}|\w+", lambda word, known=known: known.get(word[0], word[0]), value)  # type: ignore[misc]
        pieces += (text[at : call.start()], f"({_inlined(body, small, calls)})")
        at = end + 1
    return "".join((*pieces, text[at:]))


def _closing(text: str, at: int) -> int:
    """The position of the parenthesis that closes the one opened before `at`. ValueError if it does not stand in the line."""
    depth = 1
    for match in BRACKET.finditer(text, at):
        depth += {"(": 1, ")": -1}.get(match[0], 0)
        if not depth:
            return match.start()
    raise ValueError(f"the arguments of a small function stand in one line: {text}")


def with_values(lines: Iterable[Line], values: Mapping[str, str]) -> list[Line]:
    """Return the lines with values in the places of their names."""
    return [replace(line, text=_NAMED.sub(lambda match: values.get(match[0], match[0]), line.text)) for line in lines]


def folded(lines: Iterable[Line]) -> list[Line]:
    """Return the lines with constants in the places of their names."""
    known, rest = dict[str, str](), list[Line]()
    for line in lines:
        match = _CONSTANTS.match(line.text)
        names, values = (match[1].split(", "), match[2].split(", ")) if match else ([], [])
        if not match or len(names) != len(values):
            rest.append(line)
            continue
        constant = {
            name: value
            for name, value in zip(names, values, strict=True)
            if _CONSTANT.fullmatch(name) and _LITERAL.fullmatch(_opened(value))
        }
        bare = ("'", '"', "P ")
        known |= {
            name: value if value.startswith(bare) or value.isdecimal() or value in OPEN else f"({value})"
            for name, value in constant.items()
        }
        left = [(name, value) for name, value in zip(names, values, strict=True) if name not in constant]
        if left:
            text = f"local {', '.join(name for name, _ in left)} = {', '.join(value for _, value in left)}"
            rest.append(replace(line, text=text))
    return with_values(rest, known)


def _opened(value: str) -> str:
    """The value with a number in the place of each constant of a fleet."""
    return re.sub(r"\b[A-Z_]+\b", lambda match: "0" if match[0] in OPEN - {"P"} else match[0], value)


def _marked(lines: Iterable[Line]) -> Iterator[str]:
    """The lines, with a mark before each run that stands together in one source."""

    def run(numbered: tuple[int, Line]) -> tuple[str, int]:
        at, line = numbered
        return line.file, line.number - at if line.file else 0

    for (file, _), part in groupby(enumerate(lines), run):
        texts = [line for _, line in part]
        yield f"--@{file}:{texts[0].number}\n" if file else "--@\n"
        yield from (f"{line.text}\n" for line in texts)


# -- the command


def source_of_states() -> str:
    """Return the include that follows from the table of states."""

    def one_of(names: Iterable[str]) -> str:
        return " or ".join(f"status == '{name}'" for name in names)

    return f"""-- What states mean: written by `make lua` from fusion/kernel/states.py.

local function is_terminal(status)
  return {one_of(reversed(states.ENDED))}
end

-- Whether a job stands in another set than its queue. Of a hash with no status, or one we don't know, an old producer
-- is the writer.
local function is_elsewhere(status)
  return {one_of(name for name, state in states.STATES.items() if not state.ended and name != "queued")}
    or is_terminal(status)
end

local function may_be_requeued(status)
  return {one_of(states.REQUEUEABLE)}
end
"""


def main(arguments: Sequence[str]) -> int:
    """Write what has changed; with `--check`, return 1 in place of that."""
    own = {LUA / "include" / "lib" / "states.lua": source_of_states()}
    built = own | {BUILT / f"{name}.lua": build(name, lambda path: own.get(path) or _read(path)) for name in script_names()}
    stale = [path for path, text in built.items() if not path.exists() or path.read_text() != text]
    gone = [path for path in BUILT.glob("*.lua") if path not in built]
    if "--check" in arguments:
        if stale or gone:
            print(f"lua: not built from their sources: {' '.join(sorted(path.stem for path in [*stale, *gone]))}; run: make lua")
        return 1 if stale or gone else 0
    BUILT.mkdir(exist_ok=True)
    for path in stale:
        path.write_text(built[path])
    for path in gone:
        path.unlink()
    print(f"lua: {len(built)} files, {len(stale) + len(gone)} of them changed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
