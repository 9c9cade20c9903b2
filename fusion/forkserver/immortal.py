"""Makes permanent objects immortal (Python 3.12 and 3.13): their reference counts no longer change, so a horse that uses one copies no
page.

This applies only to kinds whose end nobody could notice: code, functions, classes, modules, names and constants. Objects that may hold a
resource (instances, files, closures, containers of a module) keep their counts, and are closed as soon as nothing refers to them.
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

#: The reference count that Python gives to None.
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
    """Make all present objects of these kinds immortal; call it once all modules are loaded.

    Return the number of objects: 0 in a Python that stores counts in another way.
    """
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
    """Return access to the count at an address; None unless a test finds the expected count there."""
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
    """Yield `thing` and its parts, as far as they are of a permanent kind."""
    kind = type(thing)
    if kind is FunctionType:
        if thing.__closure__ is None:
            yield thing
        yield from _of_code(thing.__code__)
    elif kind is ModuleType:
        yield thing
        yield thing.__dict__
    elif issubclass(kind, type):  # not `isinstance`: on a foreign proxy that may run any code
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
