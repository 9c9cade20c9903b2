"""Fail when a page of the docs gets harder to read than it was: longer sentences on average, more long ones, more banned phrases.

It also fails when all pages together have more than `ALL_WORDS` words. The bounds of single pages stand in tools/pages.json.
A bound above the goal only falls: `--write` lowers those that a page has beaten. A page without bounds has the goal: 16 words
a sentence, none over 35, no banned phrase. `--table` prints every page, `--show PAGE` a page's long sentences and banned phrases.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator
from typing import NamedTuple

from tools.check_words import PHRASES
from tools.page_text import ROOT, blocks, pages, sentences, words

BOUNDS = ROOT / "tools" / "pages.json"
#: Words that a sentence may have.
LONGEST = 35
#: Words that all pages may have together.
ALL_WORDS = 74_500


class Figures(NamedTuple):
    """A page's words, and what is bounded: words a sentence, sentences that are too long, banned phrases."""

    words: int
    mean: float
    long: int
    banned: int


GOAL = Figures(0, 16.0, 0, 0)


def figures(text: str) -> Figures:
    """Count a page. The mean is that of paragraphs and list items; a table's cells count for all else."""
    found = list(blocks(text))
    prose = [words(one) for kind, block in found if kind == "text" for one in sentences(block)]
    cells = [words(one) for kind, block in found if kind == "cell" for one in sentences(block)]
    mean = math.ceil(10 * sum(prose) / len(prose)) / 10 if prose else 0.0
    too_long = sum(count > LONGEST for count in prose + cells)
    return Figures(sum(words(block) for _, block in found), mean, too_long, len(list(banned(text))))


def banned(text: str) -> Iterator[str]:
    """Each banned phrase that stands in the page, as often as it does."""
    for _, block in blocks(text):
        for phrase in PHRASES:
            yield from [phrase] * len(re.findall(rf"\b{phrase}\b", re.sub(r"`[^`]*`", "", block), re.IGNORECASE))


def to_mend(text: str) -> list[str]:
    """The sentences that are too long, and the banned phrases with the plain ones."""
    longest = [one for kind, block in blocks(text) if kind != "head" for one in sentences(block) if words(one) > LONGEST]
    return [*longest, *(f"{phrase!r}; say: {PHRASES[phrase][1]}" for phrase in banned(text))]


def wrong(name: str, now: Figures, bound: Figures) -> list[str]:
    """A line for each bound that the page goes over."""
    kinds = {"mean": "words a sentence", "long": f"sentences of over {LONGEST} words", "banned": "banned phrases"}
    return [
        f"{name}: {getattr(now, kind)} {what}, {getattr(bound, kind)} at most: python -m tools.check_pages --show {name}"
        for kind, what in kinds.items()
        if getattr(now, kind) > getattr(bound, kind)
    ]


def lowered(now: Figures, bound: Figures) -> Figures:
    """The bound after a page has become better: never under the goal, never over what it was."""
    return Figures(0, *(max(goal, min(a, b)) for a, b, goal in zip(now[1:], bound[1:], GOAL[1:], strict=True)))


def main(arguments: list[str]) -> int:
    """Check all pages, or do what the argument says."""
    if arguments[:1] == ["--show"]:
        print("\n".join(f"{name}: {one}" for name in arguments[1:] for one in to_mend((ROOT / name).read_text())))
        return 0
    bounds = {name: Figures(0, *bound) for name, bound in json.loads(BOUNDS.read_text()).items()}
    now = {str(path.relative_to(ROOT)): figures(path.read_text()) for path in pages()}
    if arguments == ["--table"]:
        print("| page | words | a sentence | over 35 | banned |\n|---|---|---|---|---|")
        print("\n".join(f"| {name} | {' | '.join(map(str, one))} |" for name, one in now.items()))
        return 0
    if arguments == ["--write"]:
        better = {name: lowered(now[name], bound) for name, bound in bounds.items() if name in now}
        kept = {name: bound[1:] for name, bound in better.items() if bound != GOAL}
        rows = ",\n".join(f"  {json.dumps(name)}: {json.dumps(list(bound))}" for name, bound in sorted(kept.items()))
        BOUNDS.write_text(f"{{\n{rows}\n}}\n")
        return 0
    errors = [line for name, one in now.items() for line in wrong(name, one, bounds.get(name, GOAL))]
    total = sum(one.words for one in now.values())
    better = [name for name, bound in bounds.items() if name not in now or lowered(now[name], bound) != bound]
    hints = [f"hint: bounds can be lowered (python -m tools.check_pages --write): {', '.join(better)}"] if better else []
    if total > ALL_WORDS:
        errors.append(f"all pages: {total:,} words, {ALL_WORDS:,} at most: let what two pages tell stand once, with a link")
    print("\n".join([*errors, *hints, f"pages: {len(now)}, {total:,} words"]))
    return bool(errors)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
