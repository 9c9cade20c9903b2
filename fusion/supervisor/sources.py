"""The files whose change restarts a worker: those of the tasks' packages, and of the settings module."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from importlib.util import find_spec

#: Path -> when it was changed last, in nanoseconds, and its size.
Snapshot = dict[str, tuple[int, int]]

#: Most files that are checked: `*` in a home directory must not read all of it.
_MOST = 10_000
_PASSED_OVER = frozenset(("__pycache__", "node_modules", "site-packages", "venv", "env"))


class WatchedFiles:
    """The files to watch. `modules`: names or patterns of task modules, `*` for all below `folders`. `files`: more files."""

    def __init__(self, modules: Iterable[str], folders: Iterable[str] = (), files: Iterable[str] = ()) -> None:
        roots: list[str] = [*files]
        for module in modules:
            # Watch the whole package, as tasks import their neighbours. Only the top package can be found without an import.
            roots += folders if module == "*" else _places(module.partition(".")[0])
        self.roots = sorted({os.path.abspath(root) for root in roots})

    def look(self) -> Snapshot:
        """Return the present state of all files."""
        found: Snapshot = {}
        for path in self._paths():
            try:
                status = os.stat(path)
            except OSError:  # an editor is about to write it again
                continue
            found[path] = (status.st_mtime_ns, status.st_size)
            if len(found) >= _MOST:
                break
        return found

    def _paths(self) -> Iterator[str]:
        for root in self.roots:
            if not os.path.isdir(root):
                yield root
                continue
            for folder, folders, files in os.walk(root):
                folders[:] = sorted(name for name in folders if name not in _PASSED_OVER and not name.startswith("."))
                yield from (os.path.join(folder, name) for name in sorted(files) if name.endswith(".py"))

    @staticmethod
    def differences(before: Snapshot, after: Snapshot) -> list[str]:
        """Return the files that changed, came or went, relative to the working directory."""
        return [os.path.relpath(path) for path in sorted(before.keys() | after.keys()) if before.get(path) != after.get(path)]


def _places(module: str) -> list[str]:
    """Return the folders or the file of a top-level module; empty if there is none yet."""
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):
        return []
    if spec is None:
        return [
            path
            for entry in sys.path
            for path in (os.path.join(entry or ".", module), os.path.join(entry or ".", f"{module}.py"))
        ]
    if spec.submodule_search_locations is not None:
        return list(spec.submodule_search_locations)
    return [spec.origin] if spec.origin and os.path.exists(spec.origin) else []
