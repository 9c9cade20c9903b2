"""Takes out of a script what its calls would pay for in vain: Lua makes every local function anew at each call, needed or not."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from functools import cache

_FUNCTION = re.compile(r"^local function (\w+)\((?:[^\n]* end\n|[^\n]*\n.*?^end\n)", re.MULTILINE | re.DOTALL)
_EMPTY = re.compile(r"^local function (\w+)\([\w, ]*\) end\n", re.MULTILINE)
_NOTHING = re.compile(r"^ *(?:if [^\n]* then +end)?\n", re.MULTILINE)
_EXPRESSION = re.compile(r"^local function (\w+)\((\w+)\) return (.*) end\n", re.MULTILINE)
_TOKEN = re.compile(r"'[^']*'|\w+")
_WORD = re.compile(r"'[^'\n]*'|--[^\n]*|(?<!\.)\.\w+|\w+")
_NOT_CALLED = re.compile(r"\b\w+\b(?!\()")
_PARENTHESIS = re.compile(r"'[^']*'|[()]")
_STATE = re.compile(r"^local ([a-z]\w*(?:, [a-z]\w*)*)(?: = (?:\{\}|\d+))?(?: --[^\n]*)?\n", re.MULTILINE)
#: Words of Lua and of its libraries that a small function may use.
_KNOWN = frozenset("nil or and not tonumber math floor max min string match find sub".split())
_SIMPLE = re.compile(r"[\w.]+|'\w*'")


def without_unused(text: str) -> str:
    """Without the functions at the left margin that nothing names: includes bring all of theirs. Of a text without comments."""
    words = Counter(_WORD.findall(text))
    kept, cut = list(_FUNCTION.finditer(text)), list[re.Match[str]]()
    # Functions are whole lines, and no word goes beyond its line: of what is left the words are those of all, less those cut out.
    while unused := [match for match in kept if words[match[1]] < 2]:
        kept = [match for match in kept if words[match[1]] > 1]
        for match in unused:
            words.subtract(_WORD.findall(match[0]))
        cut += unused
    pieces, at = list[str](), 0
    for match in sorted(cut, key=re.Match.start):
        pieces.append(text[at : match.start()])
        at = match.end()
    return "".join((*pieces, text[at:]))


def without_empty(text: str) -> str:
    """Without functions that do nothing, their calls, of which each is a statement, and conditions for these alone."""
    names = _EMPTY.findall(text)
    if not names:
        return text
    calls = re.compile(rf"\b(?:{'|'.join(names)})\([^()\n]*\)")
    return _NOTHING.sub("", calls.sub("", _EMPTY.sub("", text)))


def made_when_called(text: str, groups: Sequence[Collection[str]]) -> str:
    """With the functions of these names made by the first call of one of their group, which `rare`, a new name, sees to; and with them
    variables that they alone use. To make a function costs more than many a call of one, and what several take from outside is then taken
    once. ValueError if one is handed on as a value.
    """
    defined = Counter(match[1] for match in _FUNCTION.finditer(text))
    groups = [names for names in groups if sum(defined[name] for name in names) > 1]
    text, own = _without_variables_of(text, groups)
    found = [[match for match in _FUNCTION.finditer(text) if match[1] in names] for names in groups]
    everything = sorted((match for group in found for match in group), key=re.Match.start)
    if not everything:
        return text
    number = {match[1]: nth for nth, match in enumerate((match for group in found for match in group), 1)}
    calls = re.compile(rf"'[^'\n]*'|--[^\n]*|\b(pcall\()?(?<!\.)\b({'|'.join(number)})\b(\(\)?|, |\))?")

    def call(match: re.Match[str], known: Collection[str] = ()) -> str:
        before, name, after = match.groups()
        if not name or name in known:  # a string or a comment; one that is made beside it
            return match[0]
        if not after or bool(before) == after.startswith("("):
            raise ValueError(f"{name} is made when it is called, and can't be handed on")
        comma = ", " if after in ("(", ", ") else ")"
        return f"{before or ''}rare{', ' if before else '('}{number[name]}{comma}"

    pieces, at = [f"local {', '.join(('rare', *(f'made_{nth}' for nth in range(len(found)))))}\n"], 0
    for match in everything:
        pieces.append(calls.sub(call, text[at : match.start()]))
        at = match.end()
    pieces.append("rare = function(nth, ...)\n")
    first = 0
    for nth, group in enumerate(found):
        names = [match[1] for match in group]
        made = own[nth] + "".join(match[0] for match in group)
        pieces += (
            f"if nth <= {first + len(group)} then\nif not made_{nth} then\n",
            calls.sub(lambda match, names=names: call(match, names), made),  # type: ignore[misc]
            f"made_{nth} = {{ {', '.join(names)} }}\nend\nreturn made_{nth}[nth{f' - {first}' if first else ''}](...)\nend\n",
        )
        first += len(group)
    return "".join((*pieces, "end\n", calls.sub(call, text[at:])))


def _without_variables_of(text: str, groups: Sequence[Collection[str]]) -> tuple[str, list[str]]:
    """The text without the variables that the functions of one group alone use, and those of each group."""
    inside, own = [list[str]() for _ in groups], [""] * len(groups)

    def note(match: re.Match[str]) -> str:
        for nth, names in enumerate(groups):
            if match[1] in names:
                inside[nth].append(match[0])
                return ""
        return match[0]

    outside = Counter(_WORD.findall(_FUNCTION.sub(note, text)))
    words = [set(_WORD.findall("".join(functions))) for functions in inside]

    def cut(line: re.Match[str]) -> str:
        names = set(line[1].split(", "))
        users = [nth for nth, known in enumerate(words) if names & known]
        if len(users) != 1 or any(outside[name] > 1 for name in names):
            return line[0]
        own[users[0]] += line[0]
        return ""

    return _STATE.sub(cut, text), own


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
