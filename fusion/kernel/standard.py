"""Puts the standard library before all other places of modules, so that Python's own modules don't import a user's `resource.py` or
`types.py`."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs every process 0.6 MB
    from collections.abc import Iterable

_HOME = os.path.dirname(os.__file__)
_PLACES = (_HOME, os.path.join(_HOME, "lib-dynload"))


def standard_first(path: Iterable[str]) -> list[str]:
    """Return the entries of a `sys.path`, those of the standard library first."""
    return sorted(path, key=lambda entry: entry not in _PLACES)


def command(module: str) -> list[str]:
    """Return the beginning of a command that runs `main` of this Fusion's module in a new Python. The folder in which it is started, and its
    contents, do not affect the imports."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    first = "home = os.path.dirname(os.__file__); sys.path.sort(key=lambda entry: entry not in (home, os.path.join(home, 'lib-dynload')))"
    code = f"import os, sys; sys.path.insert(0, sys.argv.pop(1)); {first}; from {module} import main; main()"
    return [sys.executable, "-P", "-c", code, root]
