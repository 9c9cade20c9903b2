"""What is made of scripts at the start of a process, kept beside Python's bytecode for the next one: a quarter of what a worker's start takes.

As with bytecode: it is made anew when what it was made of is another, nobody waits for a file that can't be read or written, and
PYTHONDONTWRITEBYTECODE and PYTHONPYCACHEPREFIX hold. Unlike there, a file says what it was made of by content, not by time and size.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import cache
from hashlib import sha256
from importlib import resources
from importlib.util import cache_from_source
from pathlib import Path

_STORE = resources.files("fusion.store")


def kept(name: str, sources: Sequence[str], make: Callable[[], str]) -> str:
    """What `make` makes of these texts, from the file of this name if one holds it. What another process left there unfinished does not count."""
    path = _path(name)
    if path is None:
        return make()
    try:
        of = _digest(_makers(), *sources)
    except OSError:
        return make()  # of a Fusion without its sources nobody could tell which code made it
    try:
        head, _, text = path.read_bytes().decode().partition("\n")
        if head == f"{of} {_digest(text)}":
            return text
    except (OSError, UnicodeDecodeError):
        pass
    text = make()
    if not sys.dont_write_bytecode:
        _write(path, f"{of} {_digest(text)}\n{text}".encode())
    return text


def _digest(*texts: str) -> str:
    found = sha256()
    for text in texts:
        written = text.encode()
        found.update(b"%d " % len(written))
        found.update(written)
    return found.hexdigest()


def _path(name: str) -> Path | None:
    """None where Python keeps nothing either: in an archive, or an interpreter that has no name for its bytecode."""
    lua = _STORE / "lua"
    if not isinstance(lua, Path) or sys.implementation.cache_tag is None:
        return None
    return Path(cache_from_source(str(lua / f"{name}.py"))).with_suffix(".made")


@cache
def _makers() -> str:
    """The code by which it is made."""
    return "".join((_STORE / "scripting" / f"{module}.py").read_text() for module in ("lean", "scripts"))


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all: processes that start together write it at once."""
    part = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(content)
        part.replace(path)
    except OSError:
        try:
            part.unlink()
        except OSError:
            pass
