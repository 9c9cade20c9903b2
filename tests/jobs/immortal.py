"""Things that last, and things that somebody may let go of."""

from __future__ import annotations

import gc
import sys
import tempfile
import weakref
from collections.abc import Callable
from typing import Any


class Kind:
    """A class that lasts."""

    def method(self) -> str:
        """A text that lasts."""
        return "a constant"

    @property
    def value(self) -> int:
        """A number."""
        return 1_000_003


def _closing(file: Any) -> Callable[[], Any]:
    return lambda: file


_written = tempfile.NamedTemporaryFile("w", delete=False)  # noqa: SIM115
_enclosed: Any = _closing(tempfile.NamedTemporaryFile("w", delete=False))  # noqa: SIM115
_held: Any = [Kind(), {"a": Kind()}]
_gone: list[str] = []
_watched: Any = Kind()
weakref.finalize(_watched, _gone.append, "instance")


def counts() -> dict[str, int]:
    """References to each of these, as Python counts them."""
    return {
        "function": sys.getrefcount(_closing),
        "code": sys.getrefcount(Kind.method.__code__),
        "class": sys.getrefcount(Kind),
        "module": sys.getrefcount(sys.modules[__name__]),
        "property": sys.getrefcount(vars(Kind)["value"]),
        "instance": sys.getrefcount(_watched),
        "closure": sys.getrefcount(_enclosed),
        "list": sys.getrefcount(_held),
        "file": sys.getrefcount(_written),
    }


def let_go() -> dict[str, Any]:
    """What happens to what nobody refers to any more."""
    global _written, _enclosed, _watched, _held
    _written.write("flushed")
    _enclosed().write("flushed")
    paths = [_written.name, _enclosed().name]
    alive = [weakref.ref(_held[0]), weakref.ref(_held[1]["a"])]
    del _written, _enclosed, _watched, _held
    return {"written": [open(path).read() for path in paths], "gone": _gone, "alive": sum(ref() is not None for ref in alive)}


def collect() -> dict[str, Any]:
    """Everything is collected that can be, classes and functions are dropped, and Python still stands."""
    global Kind, _closing
    gc.unfreeze()
    gc.collect()
    made = type("Made", (Kind,), {"__doc__": "new"})
    ref = weakref.ref(made)
    assert made().method() == "a constant" and made().value == 1_000_003
    names = [sys.intern(f"name {n}") for n in range(1000)]
    del made, Kind, _closing
    gc.collect()
    sys.modules.pop("json.decoder", None)
    import json.decoder

    return {"made": ref() is None, "names": len(set(names)), "again": json.loads("[1]"), "error": _fail()}


def _fail() -> str:
    try:
        raise ValueError("x" * 3)
    except ValueError as error:
        return str(error)
