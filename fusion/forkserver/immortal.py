"""Objects that are there for good lose their reference counts (Python 3.12 and 3.13): a horse that uses one writes nothing to its page.

Only kinds whose end nobody could notice: code, functions, classes, modules and what names and constants are made of. What may hold a
resource (instances, files, closures, containers of a module) is counted as ever, and closed as soon as nobody refers to it.
"""

from __future__ import annotations

import gc
import sys
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    ModuleType,
    WrapperDescriptorType,
)

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs every process 0.6 MB
    from collections.abc import Callable, Iterator
    from typing import Any

#: What Python itself has there for None.
_IMMORTAL = 0xFFFFFFFF
_PLAIN = frozenset({str, bytes, int, float, complex})
_mro, _bases = type.__dict__["__mro__"].__get__, type.__dict__["__bases__"].__get__
#: Of classes.
_DESCRIPTORS = frozenset(
    {
        property,
        classmethod,
        staticmethod,
        ClassMethodDescriptorType,
        GetSetDescriptorType,
        MemberDescriptorType,
        MethodDescriptorType,
        WrapperDescriptorType,
    }
)


def make_immortal() -> int:
    """Do so with all there is now, once all modules are loaded. Returns how many objects it were: none in a Python that counts otherwise."""
    mark = _marker()
    if mark is None:
        return 0
    count = 0
    for thing in gc.get_objects():
        for found in _lasting(thing):
            mark(id(found)).value = _IMMORTAL
            count += 1
    return count


def _marker() -> Callable[[int], Any] | None:
    """Access to the count at an address. None unless it is found there as it must be."""
    if sys.implementation.name != "cpython" or sys.version_info[:2] not in ((3, 12), (3, 13)):
        return None
    try:
        from ctypes import c_uint32
    except ImportError:
        return None
    own = object()
    others = [own, own]
    counted = c_uint32.from_address(id(own)).value == sys.getrefcount(own) - 1 == len(others) + 1
    return c_uint32.from_address if counted and c_uint32.from_address(id(None)).value == _IMMORTAL else None


def _lasting(thing: Any) -> Iterator[Any]:
    """`thing` and what is part of it, as far as they are of a kind that lasts."""
    kind = type(thing)
    if kind is FunctionType:
        if thing.__closure__ is None:
            yield thing
        yield from _of_code(thing.__code__)
    elif kind is ModuleType:
        yield thing
        yield thing.__dict__
    elif issubclass(kind, type):  # what `isinstance` asks a proxy of somebody's may run anything
        yield thing
        yield _mro(thing)
        yield _bases(thing)
    elif kind in _DESCRIPTORS or (kind is BuiltinFunctionType and type(thing.__self__) is ModuleType):
        yield thing
        return
    elif kind not in (dict, tuple, list):
        return
    for part in gc.get_referents(thing):
        if type(part) in _PLAIN:
            yield part


def _of_code(code: CodeType) -> Iterator[Any]:
    yield code
    yield from (code.co_consts, code.co_names, code.co_filename, code.co_name, code.co_qualname)
    yield from code.co_names
    for constant in code.co_consts:
        if type(constant) is CodeType:
            yield from _of_code(constant)
        elif type(constant) in _PLAIN:
            yield constant
