"""Attributes that a class does not have, and that RQ's class has: reading one raises an error that names what to use.

A `__getattr__` would do the same. But then Python takes longer for each attribute that is there: `enqueue` took 3 thousand instructions more.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def absent(kind: str, names: str) -> dict[str, Absent]:
    """Return members for a class, one for each of these names. `kind`: the class, as `fusion.hints` calls it."""
    return {name: Absent(kind) for name in names.split()}


class Absent:
    """A member that is not there for `getattr` and `hasattr`, unless an instance or another base has one of that name."""

    __slots__ = ("_kind", "_name", "_owner")

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner, self._name = owner, name

    def __get__(self, found: Any, owner: type) -> Any:
        behind = owner.__mro__[owner.__mro__.index(self._owner) + 1 :]
        if any(self._name in vars(base) for base in behind):
            return getattr(super(self._owner, owner if found is None else found), self._name)
        from fusion.hints import missing_in

        raise missing_in(self._kind, found, owner, self._name)
