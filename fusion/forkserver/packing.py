"""Keeps together in memory what every horse writes to, so that it copies fewer pages after the fork.

Python writes to each object that it uses, at least to its reference count, and to each function's code. Imports scatter these objects over all
pages, and new objects fill the gaps between them.
"""

from __future__ import annotations

import gc
import sys
from types import CodeType, FrameType, FunctionType

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs every process 0.6 MB
    from collections.abc import Callable, Iterable
    from typing import Any

#: The allocator cuts pools of this size into blocks of one size, up to the largest. Each pool begins with a head.
_POOL, _HEAD = 1 << 14, 48
_STEP, _LARGEST = 16, 512
#: This number of blocks side by side comes from a part of a pool that was never used: there are no more gaps of their size.
_ROW = 3
#: Most blocks of one size that are filled, where Python has another allocator.
_MOST = 4096

#: The original code of functions: if it went, there would be gaps again.
_old: list[CodeType] = []


def fill_gaps() -> list[bytes]:
    """Fill the gaps that freed objects have left in the allocator's pools, so that new objects lie side by side behind them.

    Return what must be kept for that.
    """
    kept: list[bytes] = []
    own = sys.getsizeof(b"")
    for size in range(_LARGEST, own, -_STEP):
        row = last = 0
        for _ in range(_MOST):
            kept.append(block := bytes(size - own))
            row = row + 1 if id(block) == last + size or id(block) % _POOL == _HEAD else 0
            if row == _ROW:
                break
            last = id(block)
    return kept


def called_by(run: Callable[[], object]) -> set[int]:
    """Call `run`; return the ids of the code of all functions that it calls."""
    found: set[int] = set()

    def note(frame: FrameType, event: str, arg: Any) -> None:
        if event == "call":
            found.add(id(frame.f_code))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(before)
    return found


def pack(codes: set[int], modules: Iterable[str]) -> None:
    """Replace the code of functions by a copy, so that the code of all of them lies side by side.

    `codes`: ids of the code of functions; `modules`: all functions of these modules belong to them, too.
    """
    gc.collect()
    spaces = {id(vars(sys.modules[name])) for name in modules if name in sys.modules}
    gaps = fill_gaps()
    for function in gc.get_objects():
        if type(function) is FunctionType and (id(function.__code__) in codes or id(function.__globals__) in spaces):
            _old.append(function.__code__)
            function.__code__ = _copy(function.__code__)
    gaps.clear()


def _copy(code: CodeType) -> CodeType:
    return code.replace(co_consts=tuple(map(_copy_of_constant, code.co_consts)))


def _copy_of_constant(constant: Any) -> Any:
    if type(constant) is CodeType:  # of a function inside the function
        return _copy(constant)
    return bytes(bytearray(constant)) if type(constant) is bytes else constant
