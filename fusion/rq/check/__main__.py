"""`python -m fusion.rq.check PATH`."""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from fusion.rq.check import commands, sources
from fusion.rq.check.sources import Found
from fusion.rq.check.verdicts import CHANGE, MISSING, WORKS, Verdict

_SKIPPED = {".git", ".hg", ".tox", ".venv", "venv", "env", "node_modules", "__pycache__", "site-packages", "build", "dist"}


def main(arguments: list[str] | None = None) -> int:
    """Print what a project uses of RQ. Return 1 if something is missing."""
    parser = argparse.ArgumentParser(
        prog="python -m fusion.rq.check", description="What a project that uses RQ needs for fusion.rq."
    )
    parser.add_argument("path", type=Path, help="folder of the project, or a file")
    parser.add_argument("--all", action="store_true", help="also each use that works as it is")
    options = parser.parse_args(arguments)
    counts: Counter[str] = Counter()
    tasks: set[str] = set()
    for path, relative in _files(options.path):
        for found in _read(path, relative):
            if isinstance(found, str):
                tasks.add(found)
                continue
            counts[found.verdict.kind] += 1
            if options.all or found.verdict.kind != WORKS:
                print(
                    f"{relative}:{found.line}: {found.what}: {found.verdict.kind}{' ' if found.verdict.text else ''}{found.verdict.text}"
                )
    print(
        "\nReplace rq by fusion.rq in imports, and rq_scheduler by fusion.rq_scheduler: what works is imported from there."
        if counts
        else "\nThis project does not use RQ."
    )
    print(f"{counts[WORKS]} uses work, {counts[CHANGE]} need a change, {counts[MISSING]} are missing. docs/from-rq.md has more.")
    if tasks:
        print(f"FUSION_TASKS={','.join(sorted(tasks))}")
    else:
        print("No enqueued function was found: FUSION_TASKS has to name the modules of your tasks.")
    return 1 if counts[MISSING] else 0


def _files(root: Path) -> Iterator[tuple[Path, Path]]:
    if root.is_file():
        yield root, Path(root.name)
        return
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(set(folders) - _SKIPPED)
        for name in sorted(names):
            path = Path(folder) / name
            if (name.endswith(".py") or commands.is_read(name)) and not path.is_symlink():
                yield path, path.relative_to(root)


def _read(path: Path, relative: Path) -> Iterator[Found | str]:
    text = path.read_text(errors="replace")
    if path.suffix != ".py":
        yield from commands.read(text)
        return
    parts = [part for part in relative.with_suffix("").parts if part not in ("src", "__init__")]
    try:
        yield from sources.read(text, ".".join(parts))
    except (SyntaxError, ValueError, RecursionError) as error:
        if "rq" in text:
            yield Found(getattr(error, "lineno", 0) or 0, "this file", Verdict(MISSING, f"can't be read: {error}"))


if __name__ == "__main__":
    raise SystemExit(main())
