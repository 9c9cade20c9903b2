"""Takes out of a script what its calls would pay for in vain: Lua makes every local function anew at each call, needed or not."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache

_FUNCTION = re.compile(r"^local function (\w+)\((?:[^\n]* end\n|[^\n]*\n.*?^end\n)", re.MULTILINE | re.DOTALL)
_EXPRESSION = re.compile(r"^local function (\w+)\((\w+)\) return (.*) end\n", re.MULTILINE)
_CONSTANTS = re.compile(r"^local ([A-Z].*?) = (.*?)( --.*)?\n", re.MULTILINE)
_LITERAL = re.compile(r"""'[^']*'|"[^"]*"|[\d.e^ *-]+""")
_CONSTANT = re.compile(r"\b[A-Z][A-Z_]+\b")
_TOKEN = re.compile(r"'[^']*'|\w+")
_NOT_CALLED = re.compile(r"\b\w+\b(?!\()")
_PARENTHESIS = re.compile(r"'[^']*'|[()]")
_SIMPLE = re.compile(r"[\w.]+|'\w*'")


def without_unused(text: str) -> str:
    """Without the functions at the left margin that nothing names: includes bring all of theirs. Of a text without comments."""
    words = Counter(re.findall(r"\w+", text))
    fewer = _FUNCTION.sub(lambda match: match[0] if words[match[1]] > 1 else "", text)
    return text if fewer == text else without_unused(fewer)


@cache
def inlined(text: str) -> str:
    """With the calls of small functions replaced by what they return: of those that use nothing but their one argument, once, and P."""
    small = {}
    values = set(_NOT_CALLED.findall(text))
    for name, parameter, value in _EXPRESSION.findall(text):
        words = [word for word in _TOKEN.findall(value) if word[0] != "'"]
        if words.count(parameter) == 1 and set(words) <= {parameter, "P"} and name not in values:
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
    """Where the parenthesis closes that opened before."""
    depth = 1
    for match in _PARENTHESIS.finditer(text, at):
        depth += {"(": 1, ")": -1}.get(match[0], 0)
        if not depth:
            return match.start()
    raise ValueError("a parenthesis is not closed")
