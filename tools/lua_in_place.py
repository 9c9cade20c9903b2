"""The step of the build that writes a function's body in the place of its call."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from tools.lua_lines import BRACKET, COMMENT, STRING, WORD, Line, functions, names_made, parts_of, words_of

_STATEMENT = re.compile(r"( *)(?:((?:local )?)(\w+(?:, \w+)*) = )?(\w+)\((.*)\)")
_RETURN = re.compile(rf"{STRING}|\breturn\b(?: +(?!end$)(.*?))?(?= else\b| elseif\b| end$|$)")
_LOOP = re.compile(r"( *)(?:for|while|repeat)\b.*(?<! end)$")


def in_place(lines: Sequence[Line], names: Collection[str], rare: Collection[str] = ()) -> list[Line]:
    """Return the lines with the bodies of these functions in the places of their calls, each a block of its own. To make a function costs
    more than it tells a reader of the built text. What it takes becomes locals of the block. A function of `rare`, too, stays, for those
    that are rare themselves, and for calls that are not alone in their lines. Raises ValueError for one that returns out of a loop, or what a
    call does not assign; for one whose names mean something else at a call; for one that no call alone in its line stands behind; and for one
    that is not rare, and has several.
    """
    lines = _joined([replace(line, text=COMMENT.sub(lambda match: match[1] or "", line.text).rstrip()) for line in lines], names)
    bodies = {one.name: lines[one.first : one.end] for one in functions(lines) if one.name in names}
    lasting = bodies.keys() & set(rare)
    cut = {at for one in functions(lines) if one.name in bodies.keys() - lasting for at in range(one.first, one.end)}
    inside = {at for one in functions(lines) if one.name in rare for at in range(one.first, one.end)}
    shared = names_made(line for line in lines if line.text.startswith("local "))
    words, put = words_of(lines), set[str]()

    def with_bodies(line: Line, chosen: Collection[str], around: set[str]) -> Iterator[Line]:
        match = _STATEMENT.fullmatch(line.text)
        if match is None or match[4] not in chosen or (match[4] in lasting and not match[3] and _gives(bodies[match[4]])):
            yield line
            return
        body = bodies[match[4]]
        own = names_made(body)
        if match[4] not in lasting and words[match[4]] != 2:
            raise ValueError(f"{match[4]} is not called once")
        if hidden := sorted(around & shared & (words_of(body).keys() - own)):
            raise ValueError(f"{match[4]} takes {', '.join(hidden)}, which is something else where it is called")
        put.add(match[4])
        for one in _block(line, match, body):
            yield from with_bodies(one, chosen, around | own)

    found, around = list[Line](), set[str]()
    for at, line in enumerate(lines):
        around = around | names_made([line]) if line.text.startswith(" ") else set() if line.text == "end" else names_made([line])
        if at not in cut:
            chosen = bodies.keys() - lasting if at in inside else bodies.keys()
            found += with_bodies(line, chosen, around if line.text.startswith(" ") else set())
    if missing := sorted(bodies.keys() - put):
        raise ValueError(f"{', '.join(missing)}: the call is a line of its own")
    return found


def _gives(body: Sequence[Line]) -> bool:
    """Whether a function returns a value, or one in it does."""
    return any(match[1] for line in body for match in _RETURN.finditer(line.text))


def _joined(lines: Sequence[Line], names: Collection[str]) -> list[Line]:
    """The lines, with each call of one of these, if it is a statement of its own, in one line."""
    found, start = (
        list[Line](),
        re.compile(rf" *(?:(?:local )?\w+(?:, \w+)* = )?({'|'.join(sorted(names))})\((.*)") if names else None,
    )
    for line in lines:
        opened = start and found and start.fullmatch(found[-1].text)
        if opened and sum({"(": 1, ")": -1}.get(one, 0) for one in BRACKET.findall(opened[2])) >= 0 and line.text.startswith(" "):
            found[-1] = replace(found[-1], text=f"{found[-1].text} {line.text.strip()}")
        else:
            found.append(line)
    return found


def _block(line: Line, call: re.Match[str], function: Sequence[Line]) -> list[Line]:
    """A function's body as a block that assigns to the names before its call what it returns. Lines at the margin would end the function
    around it. An early return leaves a loop that runs once."""
    head, *body, end = function
    parameters = [one for one in head.text.partition("(")[2][:-1].split(", ") if one]
    given, targets = parts_of(call[5]), call[3] or ""
    if parameters[-1:] == ["..."]:
        parameters.pop()
        more = given[len(parameters) :]
        if len(more) < len(given) - len(parameters) or names_made(body) & words_of(Line(one) for one in more).keys():
            raise ValueError(f"{call[4]} has names of what it is called with")
        body = [replace(one, text=re.sub(r"(, )?\.\.\.", ", ".join(("", *more)) if more else "", one.text)) for one in body]
        given = given[: len(parameters)]
    if taken := set(targets.split(", ")) & (words_of(body).keys() | set(parameters)):
        raise ValueError(f"{call[4]} has names of what it is assigned to: {', '.join(sorted(taken))}")
    if targets and not body[-1].text.startswith("  return ") and not _returns(body):
        raise ValueError(f"{call[4]} returns nothing")
    last = body[-1]
    if last.text.startswith("  return "):
        body = [*body[:-1], *_left(call[4], last, targets, "")]
    early = _returns(body)
    if early:
        body = _without_returns(call[4], body, targets)
    found = (
        [replace(line, text=f"local {targets}")]
        if call[2]
        else [replace(line, text=f"{targets} = nil")]
        if targets and early
        else []
    )
    found.append(replace(head, text=" repeat" if early else " do"))
    if parameters and (given or early or words_of(body).keys() & set(parameters)):
        found.append(replace(line, text=f"local {', '.join(parameters)}{' = ' if given else ''}{', '.join(given)}"))
    return [*found, *body, replace(end, text=" until true" if early else " end")]


def _left(name: str, line: Line, targets: str, after: str) -> list[Line]:
    """A line that returns, as one that assigns to `targets`, and does `after`."""

    def instead(match: re.Match[str]) -> str:
        value = match[1]
        if not match[0].startswith("return"):
            return match[0]
        if value and not targets:
            raise ValueError(f"{name} returns something")
        return " ".join(one for one in (f"{targets} = {value or 'nil'}" if targets else "", after) if one)

    text = _RETURN.sub(instead, line.text)
    return [replace(line, text=text)] if text.strip() else []


def _without_returns(name: str, body: Sequence[Line], targets: str) -> list[Line]:
    """A body that leaves the loop around it where it returned. Raises ValueError for one that returns out of a loop of its own, or that holds a
    function."""
    found, loops = list[Line](), list[int]()
    for line in body:
        if loops and line.text.startswith(("end", "until "), loops[-1]):
            loops.pop()
        text = line.text
        if "return" in WORD.findall(text):
            if loops or re.search(r"\b(for|while|repeat|function)\b", text):
                raise ValueError(f"{name} returns out of a loop")
            found += _left(name, line, targets, "break")
            continue
        if match := _LOOP.match(text):
            loops.append(len(match[1]))
        elif re.search(r"\bfunction\b.*(?<! end)$", text):
            raise ValueError(f"{name} returns, and holds a function")
        found.append(line)
    return found


def _returns(body: Sequence[Line]) -> bool:
    """Whether a function's body returns: not one of the functions in it."""
    text = "\n".join(line.text for line in body)
    return "return" in WORD.findall(
        re.sub(r"^( *)local function .*(?<! end)(?:\n.*)*?\n\1end$|^ *local function .* end$", "", text, flags=re.MULTILINE)
    )
