"""Fail when a source file is longer than LIMIT lines. A module is as long as its idea, and no longer than this; what is built has no limit."""

from __future__ import annotations

import sys
from pathlib import Path

LIMIT = 600
FOLDERS = ("fusion", "tasks", "wrappers", "tests", "benchmarks", "tools")
SUFFIXES = (".py", ".lua")


def too_long(root: Path) -> list[str]:
    """One line per file over LIMIT, longest first."""
    files = (
        path
        for folder in FOLDERS
        for path in (root / folder).rglob("*")
        if path.suffix in SUFFIXES and path.parent.name != "built"
    )
    counts = sorted(((len(path.read_bytes().splitlines()), path) for path in files), reverse=True)
    return [f"{path.relative_to(root)}: {lines} lines, the limit is {LIMIT}; split it" for lines, path in counts if lines > LIMIT]


if __name__ == "__main__":
    found = too_long(Path(__file__).resolve().parent.parent)
    print("\n".join(found) or f"sizes: no file over {LIMIT} lines")
    sys.exit(bool(found))
