"""What a page of the docs promises, line by line, so that a rewritten page loses none of it.

A claim is what a reader could check: a number, a code name, a link's target, a table's row. `python -m tools.claims PAGE...` lists them;
with `--since REVISION` it lists those that stood in the page then and stand in it no more, and where in the docs each stands instead.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tools.page_text import ROOT

_CODE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_NUMBER = re.compile(
    r"(?<![\w.#/-])\d[\d,.]*(?:\s?(?:%|ms|s|MB|KB|GB|us|bytes|seconds|minutes|hours|days|times|jobs|MHz))?(?!\w)"
)
_WORDS = {
    **dict(zip("two three four five six seven eight nine ten".split(), map(str, range(2, 11)), strict=True)),
    "never": "never", "always": "always", "default": "default", "at most": "at most", "at least": "at least", "only": "only",
}  # fmt: skip


def claims(text: str) -> dict[str, int]:
    """Each claim with the line on which it stands first. A row is named by its first cell."""
    found: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("| ") and not line.startswith("|---"):
            found.setdefault(f"row: {line.split('|')[1].strip()}", number)
        for kind, pattern in (("code", _CODE), ("link", _LINK)):
            for match in pattern.findall(line):
                found.setdefault(f"{kind}: {match}", number)
        for match in _NUMBER.findall(_LINK.sub("]", _CODE.sub("", line))):
            found.setdefault(f"number: {match.rstrip('.,')}", number)
    return found


def counted(text: str) -> dict[str, int]:
    """How often the words stand there that make a promise narrow or wide."""
    return {word: len(re.findall(rf"\b{word}\b", text, re.IGNORECASE)) for word in _WORDS}


def main(arguments: list[str]) -> int:
    """List claims, or those that are gone since a revision."""
    since = arguments.pop(arguments.index("--since") + 1) if "--since" in arguments else ""
    names = [name for name in arguments if name != "--since"]
    if not names:
        print("usage: python -m tools.claims PAGE... [--since REVISION]", file=sys.stderr)
        return 2
    everywhere = {path: path.read_text() for path in (*(ROOT / "docs").rglob("*.md"), ROOT / "README.md")}
    for name in names:
        path = (Path.cwd() / name).resolve()
        now = path.read_text()
        if not since:
            print("\n".join(f"{name}:{line}: {claim}" for claim, line in claims(now).items()))
            continue
        shown = subprocess.run(
            ["git", "show", f"{since}:./{path.name}"], cwd=path.parent, capture_output=True, text=True, check=True
        )
        before, lines = shown.stdout, shown.stdout.splitlines()
        for claim, line in claims(before).items():
            value = claim.partition(": ")[2]
            if claim in claims(now) or (claim.startswith("code") and value in now):
                continue
            elsewhere = [str(other.relative_to(ROOT)) for other, text in everywhere.items() if other != path and value in text]
            there = f" (stands in {', '.join(elsewhere[:3])})" if elsewhere and not claim.startswith("number") else ""
            print(f"{name}:{line}: {claim}{there}\n    {lines[line - 1].strip()[:400]}")
        fewer = [f"{word} {was} -> {counted(now)[word]}" for word, was in counted(before).items() if counted(now)[word] < was]
        print(f"{name}: words that stand there less often: {', '.join(fewer) or 'none'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
