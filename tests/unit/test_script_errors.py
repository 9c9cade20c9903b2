"""What a server before Redis 7 answers when a command in a script is refused: an error of the script, with that of the command inside."""

from __future__ import annotations

import pytest
from redis.exceptions import OutOfMemoryError, ReadOnlyError, ResponseError

from fusion.store.client.classify import classify, one_line, reply_code, unwrapped

#: As Redis 6.2.14 answered, without `ERR`, which redis-py takes off.
FULL = "-OOM command not allowed when used memory > 'maxmemory'."
PLACED = f"Error running script (call to f_{'8' * 40}): @user_script:1: @user_script: 1: {FULL}"
SOURCED = f"Error running script (call to f_{'9' * 40}): {FULL} (fusion/store/lua/enqueue.lua:281)"


@pytest.mark.parametrize("text", [PLACED, SOURCED])
def test_it_is_the_error_that_the_command_met(text: str) -> None:
    error = ResponseError(text)
    assert (classify(error), reply_code(error)) == ("transient", "OOM")
    assert "is full and takes no more" in one_line(error)
    assert type(unwrapped(error)) is OutOfMemoryError


def test_others_keep_their_code() -> None:
    assert type(unwrapped(ResponseError(PLACED.replace("OOM", "READONLY")))) is ReadOnlyError
    error = unwrapped(ResponseError(PLACED.replace("OOM", "NOPERM")))
    assert (type(error), reply_code(error), classify(error)) == (ResponseError, "NOPERM", "configuration")


@pytest.mark.parametrize("text", ["OOM command not allowed", "WRONGTYPE Operation against a key", f"value: {PLACED}"])
def test_any_other_error_is_left_alone(text: str) -> None:
    error = ResponseError(text)
    assert unwrapped(error) is error
