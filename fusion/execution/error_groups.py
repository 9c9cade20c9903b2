"""A group of errors, as `asyncio.TaskGroup` raises it: what an outcome frame has of its errors. Loaded by the first job that raises one."""

from __future__ import annotations

from types import TracebackType

from fusion.execution import outcome

#: Errors of a group that are looked at. One with more of them is retried by a policy for any error alone.
MOST = 1000
#: Different kinds of errors that a frame has, and names of classes.
_KINDS, _NAMES = 16, 60
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


def fields_of(group: BaseException, tb: TracebackType | None) -> dict[bytes, bytes]:
    """What differs from the fields of any error: the first error names the group, and `exc_group` has the classes of the group and of each kind
    of error in it, for the policy of retries. `tb`: of the group."""
    errors = errors_in(group)
    first, own = errors[0], outcome.exc_classes(group)
    kinds = list(dict.fromkeys(outcome.exc_classes(error) for error in errors[:MOST]))
    # An empty one is retried by a policy for any error, and by no other.
    rest = [b""] if len(errors) > MOST or len(kinds) > _KINDS else []
    names = list(dict.fromkeys(name for kind in kinds[:_KINDS] for name in kind.split(b"\n")))[:_NAMES]
    line = f"{outcome.exc_line(first).decode()} (the first in {outcome.exc_line(group).decode()})"
    return {
        b"exc_line": outcome.one_line(line),
        b"exc_classes": b"\n".join(dict.fromkeys((*names, *own.split(b"\n")))),
        b"exc_group": b"\n\n".join([own, *kinds[:_KINDS], *rest]),
        **_longest_delay([group, *errors[:MOST]]),
        **(outcome.error_frame(_TRACEBACK(first)) or outcome.error_frame(tb)),
    }


def _longest_delay(errors: list[BaseException]) -> dict[bytes, bytes]:
    asked = [delay for error in errors if (delay := outcome.asked_delay(error).get(b"retry_after"))]
    return {b"retry_after": max(asked, key=float)} if asked else {}
