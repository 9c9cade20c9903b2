"""Fail when the sources use more of the phrases that a reader has to decode.

Each has a plain word, and a number that only goes down: a phrase found less often leads to a hint, not to a failure.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

FOLDERS = ("fusion", "tasks", "wrappers")
#: Folders in which only the phrases of `NOWHERE` are counted.
BESIDE = ("benchmarks", "tests", "tools")
#: Phrases that stand nowhere; the files that test or list them are left out.
NOWHERE = (
    "who asks",
    "came of",
    "what becomes",
    "what became",
    "becomes of",
    "became of",
    "such a one",
    "so many",
    "so long",
    "is told",
    "are told",
    "be told",
    "hears",
    "hear of",
)
LISTS = ("tools/check_words.py", "tests/unit/test_check_words.py", "tests/unit/test_check_pages.py")
SUFFIXES = (".py", ".lua", ".toml", ".html")
#: Phrase -> (times that it stands in the sources at most, how to say it plainly).
PHRASES: dict[str, tuple[int, str]] = {
    "who asks": (0, "the caller, the viewer"),
    "came of": (0, "the result, the outcome"),
    "of what is none": (0, "if it is not one, if it is invalid"),
    "for what is none": (0, "if it is not one, if it is invalid"),
    "such a one": (0, "name the thing"),
    "so many": (0, "this many, `limit`, a number"),
    "so long": (0, "this long, a time, `seconds`"),
    "is told": (0, "receives, gets, reads"),
    "are told": (0, "receive, get, read"),
    "be told": (0, "receive, get, know"),
    "hears of": (0, "learns of, receives"),
    "what becomes": (0, "what happens to"),
    "what became": (0, "the outcome of"),
    "becomes of": (0, "happens to"),
    "became of": (0, "happened to"),
    "says so": (2, "reports it, logs it"),
    "whoever": (24, "the caller, the process that"),
    "by then": (0, "then, at that time, before that"),
    "vouches": (0, "confirms, shows that it is ours"),
    "hears": (0, "receives, learns"),
    "hear of": (0, "learn of"),
    "amid": (4, "during"),
    "in vain": (0, "without success"),
    "so that none": (0, "so that no job, no entry ..."),
    "of which none": (0, "that must not, that do not"),
    "who wants": (1, "a process that wants"),
    "nothing of it": (0, "none of its data"),
    "somebody": (26, "name who: a user, an operator, another process"),
}


def counted(root: Path) -> dict[str, list[str]]:
    """For each phrase the places, as FILE:LINE."""
    found: dict[str, list[str]] = {phrase: [] for phrase in PHRASES}
    patterns = {phrase: re.compile(rf"\b{phrase}\b", re.IGNORECASE) for phrase in PHRASES}
    nowhere = {phrase: pattern for phrase, pattern in patterns.items() if phrase in NOWHERE}
    for folders, counting in ((FOLDERS, patterns), (BESIDE, nowhere)):
        files = [path for folder in folders for path in sorted((root / folder).rglob("*")) if path.suffix in SUFFIXES]
        for path in [*files, *(root.glob("CHANGELOG.md") if folders is FOLDERS else ())]:
            name = str(path.relative_to(root))
            if name in LISTS:
                continue
            text = path.read_text()
            lower = text.lower()
            there = {phrase: pattern for phrase, pattern in counting.items() if phrase in lower}
            for number, line in enumerate(text.splitlines() if there else (), 1):
                for phrase, pattern in there.items():
                    found[phrase] += [f"{name}:{number}"] * len(pattern.findall(line))
    return found


def verdicts(found: dict[str, list[str]]) -> tuple[list[str], list[str]]:
    """Return a line for each phrase that stands there too often, and one for each whose number can be lowered."""
    wrong, hints = [], []
    for phrase, (most, plainly) in PHRASES.items():
        if len(found[phrase]) > most:
            places = ", ".join(found[phrase][:5]) if most == 0 else "see git diff"
            wrong.append(f"{phrase!r}: {len(found[phrase])} times, {most} at most ({places}); say: {plainly}")
        elif len(found[phrase]) < most:
            hints.append(
                f"hint: {phrase!r}: {len(found[phrase])} times; its number in tools/check_words.py can be lowered from {most}"
            )
    return wrong, hints


if __name__ == "__main__":
    wrong, hints = verdicts(counted(Path(__file__).resolve().parent.parent))
    print("\n".join(wrong + hints) or f"words: none of {len(PHRASES)} phrases stands there more often than before")
    sys.exit(bool(wrong))
