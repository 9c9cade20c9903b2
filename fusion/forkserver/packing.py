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

#: Python's allocator cuts pools of this size into blocks of one size, up to the largest. Each pool begins with a head. The C library has the
#: larger objects.
_POOL, _HEAD = 1 << 14, 48
_STEP, _LARGEST = 16, 512
#: This number of blocks side by side comes from a part of a pool that was never used: there are no more gaps of their size.
_ROW = 3
#: Most blocks of one size that are filled, where Python has another allocator.
_MOST = 4096
#: Least bytes of a copied code object: then the C library allocates all of them in one row, and Python no pool for each size. Most bytes of a gap
#: that is filled before.
_CODE, _LARGEST_GAP = 640, 2048
#: Most characters of a text that is copied: longer ones are docstrings and messages.
_TEXT = 40

#: The original functions and code: if they were freed, there would be gaps again.
_old: list[Any] = []


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


def _fill_large_gaps() -> list[bytes]:
    """Fill the gaps in the memory of the C library in the same way."""
    kept: list[bytes] = []
    own = sys.getsizeof(b"")
    end = max(map(id, [bytes(32 * _LARGEST_GAP) for _ in range(_ROW)]))  # they come from the end, as hardly any gap is that large
    for size in range(_LARGEST_GAP, _LARGEST, -_STEP):
        for _ in range(_MOST):
            kept.append(block := bytes(size - own))
            if id(block) > end:
                end = id(kept.pop())
                break
    return kept


def called_by(run: Callable[[], object]) -> dict[int, None]:
    """Call `run`; return the ids of the code of all functions that it calls, in the order of their first calls."""
    found: dict[int, None] = {}

    def note(frame: FrameType, event: str, arg: Any) -> None:
        if event == "call":
            found[id(frame.f_code)] = None

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(before)
    return found


def pack(codes: Iterable[int], package: str) -> None:
    """Replace functions and their code by copies that lie side by side.

    `codes`: ids of the code of functions. They are replaced in the modules of `package`, and in the classes there.
    """
    gc.collect()
    wanted = {code: at for at, code in enumerate(codes)}
    functions = [found for found in gc.get_objects() if type(found) is FunctionType and id(found.__code__) in wanted]
    functions.sort(key=lambda function: wanted[id(function.__code__)])
    gaps = _fill_large_gaps(), fill_gaps()
    for function in functions:
        _old.append(function.__code__)
        function.__code__ = _copy(function.__code__)
    _replace({id(function): _twin(function) for function in functions}, package)
    _old.append(functions)
    del gaps


def _replace(twins: dict[int, FunctionType], package: str) -> None:
    for name, module in list(sys.modules.items()):
        if name != package and not name.startswith(package + "."):
            continue
        for key, value in list(vars(module).items()):
            if id(value) in twins:
                setattr(module, key, twins[id(value)])
            elif isinstance(value, type) and value.__module__ == name:
                for attribute, found in list(vars(value).items()):
                    if id(found) in twins:
                        setattr(value, attribute, twins[id(found)])


def _twin(function: FunctionType) -> FunctionType:
    twin = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    for name in ("__kwdefaults__", "__qualname__", "__module__", "__doc__"):
        setattr(twin, name, getattr(function, name))
    twin.__dict__.update(function.__dict__)
    return twin


def _copy(code: CodeType) -> CodeType:
    code = code.replace(co_consts=tuple(map(_copy_of_constant, code.co_consts)))
    lacks = _CODE - sys.getsizeof(code)
    if lacks <= 0:
        return code
    # Nothing runs behind the last instruction, a return or a jump back.
    return code.replace(co_code=code.co_code + code.co_code[-2:] * (lacks // 2))


def _copy_of_constant(constant: Any) -> Any:
    kind = type(constant)
    if kind is CodeType:  # of a function inside the function
        return _copy(constant)
    if kind is bytes:
        return bytes(bytearray(constant))
    if kind is float or kind is int:
        return constant * kind(1)
    if kind is tuple:
        return tuple(map(_copy_of_constant, constant))
    if kind is str and len(constant) <= _TEXT:
        return constant.encode("utf-8", "surrogatepass").decode("utf-8", "surrogatepass")
    return constant
