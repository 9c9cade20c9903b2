"""Decides for a call that raised whether it may have been executed: a producer must know before it does the work some other way."""

from __future__ import annotations

import re

from redis import exceptions as errors

_DOUBTFUL = "_fusion_doubtful"
#: Replies that redis-py does not count among its ResponseErrors.
_REPLIES = (errors.ResponseError, errors.BusyLoadingError, errors.AuthenticationError, errors.AuthorizationError)
#: redis-py's messages for errors before there is a connection, and of Sentinel clients for the reply READONLY.
_NOT_DONE = re.compile(
    r"(?:Error .*|Timeout )connecting to |No master found for |The previous master is now a slave|Too many connections|each of the \d+ connections",
    re.DOTALL,
)


def may_have_run(error: BaseException) -> bool:
    """Return True if one attempt may have been executed. After a reply, the server did not do it. Without one, only an attempt that never got
    a connection is sure."""
    if not isinstance(error, errors.RedisError):  # redis-py wraps what happens once it is connected
        return False
    return not isinstance(error, _REPLIES) and not _NOT_DONE.match(str(error))


def note(error: BaseException, earlier: bool) -> bool:
    """Note on the error of the last attempt, and return, whether it or an earlier attempt may have been executed."""
    doubtful = earlier or may_have_run(error)
    setattr(error, _DOUBTFUL, doubtful)
    return doubtful


def is_certain(error: BaseException) -> bool:
    """Return True if nothing was executed, over all attempts. Never true of a client that is not Fusion's own: it may have tried before."""
    seen: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in seen:
        doubtful = getattr(cause, _DOUBTFUL, None)
        if doubtful is not None:
            return not doubtful
        seen.append(cause)
        cause = cause.__cause__ or cause.__context__
    return False
