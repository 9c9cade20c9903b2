"""The errors in a group, as `asyncio.TaskGroup` raises it. Loaded by the first job that raises one."""

from __future__ import annotations

from types import TracebackType

#: Most errors of a group that are checked. A larger group is retried only by a policy for any error.
MOST = 1000
# Not by attribute access, which a subclass may override.
_MEMBERS, _TRACEBACK = BaseExceptionGroup.exceptions.__get__, vars(BaseException)["__traceback__"].__get__


def errors_in(group: BaseException) -> list[BaseException]:
    """Return the errors in a group and its subgroups, in order; at most one more than `MOST`."""
    found: list[BaseException] = []
    left: list[BaseException] = [group]
    while left and len(found) <= MOST:
        error = left.pop()
        if issubclass(type(error), BaseExceptionGroup):
            left += reversed(_MEMBERS(error))
        else:
            found.append(error)
    return found


def is_only(group: BaseException, kind: type[BaseException]) -> bool:
    """Return True if each error in the group is of that kind."""
    return all(issubclass(type(one), kind) for one in errors_in(group))


def traceback_of(error: BaseException) -> TracebackType | None:
    """Return the traceback of an error, even if its class overrides the attribute."""
    found: TracebackType | None = _TRACEBACK(error)
    return found
