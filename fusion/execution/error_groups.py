"""The errors in a group, as `asyncio.TaskGroup` raises it. Loaded by the first job that raises one."""

from __future__ import annotations

from types import TracebackType

#: Errors of a group that are looked at. One with more of them is retried by a policy for any error alone.
MOST = 1000
# Not by the attributes, which a class may have made its own.
_MEMBERS, _TRACEBACK = BaseExceptionGroup.exceptions.__get__, vars(BaseException)["__traceback__"].__get__


def errors_in(group: BaseException) -> list[BaseException]:
    """The errors in a group and in the groups below it, in their order: one more than `MOST` at most."""
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
    """True for a group in which each error is of that kind."""
    return all(issubclass(type(one), kind) for one in errors_in(group))


def traceback_of(error: BaseException) -> TracebackType | None:
    """The traceback of an error, whatever its class makes of the attribute."""
    found: TracebackType | None = _TRACEBACK(error)
    return found
