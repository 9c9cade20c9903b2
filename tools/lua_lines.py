"""Lines of a script's sources, as the steps of the build read them: the functions, words and names in them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

STRING = r"'[^'\n]*'"
COMMENT = re.compile(rf"({STRING})|--.*")
WORD = re.compile(rf"{STRING}|--[^\n]*|(?<!\.)\.\w+|\w+")
BRACKET = re.compile(rf"{STRING}|[()]|[][{{}},]")
_FUNCTION = re.compile(r"local function (\w+)\(")
_LOCALS = re.compile(
    r"\blocal (?:function )?(\w+(?:, \w+)*)(?:\(([^()]*)\))?|\bfor (\w+(?:, \w+)*) (?:=|in)|\bfunction ?\(([^()]*)\)"
)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a script. `file`, `number`: where it stands in the sources; a line that the build adds has no file."""

    text: str
    file: str = ""
    number: int = 0


@dataclass(frozen=True, slots=True)
class Function:
    """A function at the left margin: a range of lines."""

    name: str
    first: int
    end: int


def functions(lines: Sequence[Line]) -> list[Function]:
    """Return the functions at the left margin, in order. Their bodies are indented."""
    found, first, name = list[Function](), 0, ""
    for at, line in enumerate(lines):
        match = _FUNCTION.match(line.text)
        if match and not line.text.endswith(" end"):
            first, name = at, match[1]
        elif match:
            found.append(Function(match[1], at, at + 1))
        elif name and line.text == "end":
            found.append(Function(name, first, at + 1))
            name = ""
    return found


def words_of(lines: Iterable[Line]) -> Counter[str]:
    """Return how often each word stands in the lines. A string or a comment is one word."""
    return Counter(word for line in lines for word in WORD.findall(line.text))


def parts_of(text: str) -> list[str]:
    """Return the arguments in the text of an argument list."""
    parts, depth, at = list[str](), 0, 0
    for match in BRACKET.finditer(text):
        depth += 1 if match[0] in "([{" else -1 if match[0] in ")]}" else 0
        if match[0] == "," and not depth:
            parts.append(text[at : match.start()].strip())
            at = match.end()
    return [*parts, last] if (last := text[at:].strip()) else parts


def names_made(lines: Iterable[Line]) -> set[str]:
    """The names that lines make: of locals, loops and arguments."""
    return {
        name for line in lines for groups in _LOCALS.findall(line.text) for group in groups for name in re.findall(r"\w+", group)
    }
