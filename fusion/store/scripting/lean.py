"""Takes out of a script what its calls would pay for in vain: Lua makes every local function anew at each call, needed or not."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from functools import cache

_FUNCTION = re.compile(r"^local function (\w+)\((?:[^\n]* end\n|[^\n]*\n.*?^end\n)", re.MULTILINE | re.DOTALL)
_EMPTY = re.compile(r"^local function (\w+)\([\w, ]*\) end\n", re.MULTILINE)
_NOTHING = re.compile(r"^ *(?:if [^\n]* then +end)?\n", re.MULTILINE)
_EXPRESSION = re.compile(r"^local function (\w+)\((\w+)\) return (.*) end\n", re.MULTILINE)
_CONSTANTS = re.compile(r"^local ([A-Z].*?) = (.*?)( --.*)?\n", re.MULTILINE)
_LITERAL = re.compile(r"""'[^']*'|"[^"]*"|[\d.e^ *-]+""")
_CONSTANT = re.compile(r"\b[A-Z][A-Z_]+\b")
_TOKEN = re.compile(r"'[^']*'|\w+")
_WORD = re.compile(r"'[^'\n]*'|--[^\n]*|\w+")
_NOT_CALLED = re.compile(r"\b\w+\b(?!\()")
_PARENTHESIS = re.compile(r"'[^']*'|[()]")
#: Words of Lua and of its libraries that a small function may use.
_KNOWN = frozenset("nil or and not tonumber math floor max min string match find sub".split())
_SIMPLE = re.compile(r"[\w.]+|'\w*'")


def without_unused(text: str) -> str:
    """Without the functions at the left margin that nothing names: includes bring all of theirs. Of a text without comments."""
    words = Counter(_WORD.findall(text))
    fewer = _FUNCTION.sub(lambda match: match[0] if words[match[1]] > 1 else "", text)
    return text if fewer == text else without_unused(fewer)


def without_empty(text: str) -> str:
    """Without functions that do nothing, their calls, of which each is a statement, and conditions for these alone."""
    names = _EMPTY.findall(text)
    if not names:
        return text
    calls = re.compile(rf"\b(?:{'|'.join(names)})\([^()\n]*\)")
    return _NOTHING.sub("", calls.sub("", _EMPTY.sub("", text)))


def made_when_called(text: str, names: Collection[str], maker: str) -> str:
    """With the functions of these names made by the first call of one of them, which `maker`, a new name, sees to. To make a function costs
    more than many a call of one, and what several take from outside is then taken once. ValueError if one is handed on as a value.
    """
    found = [match for match in _FUNCTION.finditer(text) if match[1] in names]
    if len(found) < 2:
        return text
    number = {match[1]: nth for nth, match in enumerate(found, 1)}
    calls = re.compile(rf"'[^'\n]*'|--[^\n]*|\b(pcall\()?(?<!\.)\b({'|'.join(number)})\b(\(\)?|, |\))?")

    def call(match: re.Match[str]) -> str:
        before, name, after = match.groups()
        if not name:  # a string or a comment
            return match[0]
        if not after or bool(before) == after.startswith("("):
            raise ValueError(f"{name} is made when it is called, and can't be handed on")
        comma = ", " if after in ("(", ", ") else ")"
        return f"{before or ''}{maker}{', ' if before else '('}{number[name]}{comma}"

    pieces, at = [f"local {maker}, {maker}_made\n"], 0
    for match in found:
        pieces.append(calls.sub(call, text[at : match.start()]))
        at = match.end()
    made = "".join(match[0] for match in found)
    pieces += (
        f"{maker} = function(nth, ...)\nif not {maker}_made then\n{made}{maker}_made = {{ {', '.join(number)} }}\nend\n",
        f"return {maker}_made[nth](...)\nend\n",
        calls.sub(call, text[at:]),
    )
    return "".join(pieces)


@cache
def inlined(text: str) -> str:
    """With the calls of small functions replaced by what they return: of those that use their one argument, once, P and what is
    Lua's own, and nothing else."""
    small = {}
    values = set(_NOT_CALLED.findall(text))
    for name, parameter, value in _EXPRESSION.findall(text):
        words = [word for word in _TOKEN.findall(value) if word[0] != "'"]
        others = [word for word in words if word not in _KNOWN and not word.isdecimal()]
        if others.count(parameter) == 1 and set(others) <= {parameter, "P"} and name not in values:
            small[name] = parameter, value
    if not small:
        return text
    text = _EXPRESSION.sub(lambda match: "" if match[1] in small else match[0], text)
    return _replaced(text, small, re.compile(rf"\b({'|'.join(small)})\("))


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


def _replaced(text: str, small: dict[str, tuple[str, str]], calls: re.Pattern[str]) -> str:
    pieces, at = list[str](), 0
    while call := calls.search(text, at):
        end = _closing(text, call.end())
        parameter, value = small[call[1]]
        argument = _replaced(text[call.end() : end], small, calls)
        if not _SIMPLE.fullmatch(argument):
            argument = f"({argument})"
        words = {parameter: argument}
        pieces += (text[at : call.start()], "(", _TOKEN.sub(lambda word, words=words: words.get(word[0], word[0]), value), ")")  # type: ignore[misc]
        at = end + 1
    return "".join((*pieces, text[at:]))


def _closing(text: str, at: int) -> int:
    """The position of the parenthesis that closes the one opened before `at`. ValueError if there is none."""
    depth = 1
    for match in _PARENTHESIS.finditer(text, at):
        depth += {"(": 1, ")": -1}.get(match[0], 0)
        if not depth:
            return match.start()
    raise ValueError("a parenthesis is not closed")
