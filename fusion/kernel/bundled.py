"""The bundled package `tasks`, for processes that must also import another module of that name.

A checkout of Fusion has it beside `fusion` and `run_worker.py`; a wheel does not. A user's own `tasks` takes precedence, wherever both are in
`sys.path`. The bundled one is then imported under the name ALIAS. `tasks.sms` means its module unless the user's `tasks` has one of that
name.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs every process 0.6 MB
    from types import ModuleType

NAME, ALIAS = "tasks", "fusion_bundled_tasks"
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Unavailable(ImportError):
    """The bundled package exists, but a module that it needs is missing."""


def public(module: str) -> str:
    """Return the name by which jobs know a module."""
    return NAME + module[len(ALIAS) :] if module == ALIAS or module.startswith(ALIAS + ".") else module


def missing(module: str, error: ModuleNotFoundError) -> bool:
    """Return True if the import failed because the module, or a package above it, does not exist."""
    return error.name is not None and (module == error.name or module.startswith(error.name + "."))


def load(module: str) -> ModuleType:
    """Import a module by the name that jobs have for it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if not (module.startswith(NAME + ".") and missing(module, error) and _finder in sys.meta_path):
            raise
        other = ALIAS + module[len(NAME) :]
        try:
            return import_module(other)
        except ModuleNotFoundError as second:
            if missing(other, second):
                raise error from None
            raise Unavailable(f"{module} is one of Fusion's bundled tasks, which can't be imported here: {second}") from None


def settle() -> tuple[str, str] | None:
    """Let the user's `tasks` take precedence, if there are two. Return where it is, and where the bundled package is; None if there are not
    two. Call it once `sys.path` is final."""
    found = _finder.look()
    if found is not None and _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    elif found is None and _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
    return found


class _Finder:
    """Finds both by their names; the import system finds their submodules."""

    own: ModuleSpec | None = None
    folder = ""

    def look(self) -> tuple[str, str] | None:
        entries = [os.path.abspath(entry) for entry in sys.path]
        checkouts = [entry for entry in dict.fromkeys((*entries, _ROOT)) if _is_checkout(entry)]
        self.own = None
        if checkouts:
            self.folder = os.path.join(checkouts[0], NAME)
            self.own = PathFinder.find_spec(NAME, [entry for entry in entries if entry not in checkouts]) or _beside(checkouts)
        if self.own is None:
            return None
        return self.own.origin or next(iter(self.own.submodule_search_locations or ()), "elsewhere"), self.folder

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name == NAME:
            return self.own
        if name == ALIAS:
            spec = _spec(ALIAS, os.path.join(self.folder, "__init__.py"))
            spec.submodule_search_locations = [self.folder]
            return spec
        return None


def _is_checkout(entry: str) -> bool:
    return all(
        os.path.isfile(os.path.join(entry, *parts))
        for parts in (("run_worker.py",), ("fusion", "__init__.py"), (NAME, "__init__.py"))
    )


def _beside(checkouts: list[str]) -> ModuleSpec | None:
    """Return the spec of a file `tasks.py` in the checkout itself: Python alone would prefer the package of that name."""
    for checkout in checkouts:
        if os.path.isfile(file := os.path.join(checkout, f"{NAME}.py")):
            return _spec(NAME, file)
    return None


def _spec(name: str, file: str) -> ModuleSpec:
    # importlib.util has a function for it, but imports contextlib
    spec = ModuleSpec(name, SourceFileLoader(name, file), origin=file)
    spec.has_location = True
    return spec


_finder = _Finder()
