"""A group of errors, as a TaskGroup raises it: retried as its errors are, and known by the first of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fusion import Retry, RetryLater
from fusion.execution.completion import Decision, decide
from fusion.execution.outcome import failed
from fusion.retry import RateLimited


def decided(error: BaseException, policy: Retry | None = None) -> Decision:
    """What happens to a job that raises it."""
    job = {} if policy is None else {b"retry": policy.to_json().encode()}
    try:
        raise error
    except BaseException as caught:
        return decide(job, failed(caught, caught.__traceback__))


def grouped(*errors: BaseException, name: str = "several") -> BaseExceptionGroup[BaseException]:
    return BaseExceptionGroup(name, errors)


class Later(ConnectionError):
    retry_after = 90.0


ONE, TWO = ConnectionRefusedError("no"), TimeoutError("late")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (grouped(ONE), "retry"),
        (grouped(ONE, TWO), "retry"),
        (grouped(grouped(ONE), grouped(TWO, ONE)), "retry"),
        (grouped(ONE, ValueError("bad")), "failed"),
        (grouped(ValueError("bad"), ONE), "failed"),
        (grouped(ONE, grouped(TWO, ValueError("bad"))), "failed"),
        (grouped(RetryLater(5)), "retry"),
        (grouped(RetryLater(5), ONE), "retry"),
        (grouped(RetryLater(5), ValueError("bad")), "failed"),
        (grouped(RateLimited(5), RateLimited(7)), "limited"),
        (grouped(RateLimited(5), ONE), "retry"),
        (grouped(RateLimited(5), ValueError("bad")), "failed"),
        (grouped(*[ONE] * 999), "retry"),
        (grouped(*[ONE] * 5000), "failed"),
    ],
)
def test_it_is_retried_if_each_of_its_errors_would_be(error: BaseException, kind: str) -> None:
    assert decided(error).kind == kind


@pytest.mark.parametrize(
    ("on", "kind"),
    [
        (None, "retry"),
        ([ExceptionGroup], "retry"),
        ([ValueError, ConnectionError], "retry"),
        ([Exception], "retry"),
        ([ValueError], "failed"),
        ([ConnectionRefusedError], "failed"),
        ([KeyError], "failed"),
    ],
)
def test_a_policy_names_its_errors_or_the_group_itself(on: Any, kind: str) -> None:
    assert decided(grouped(ONE, ValueError("bad")), Retry(max=1, on=on)).kind == kind


def test_its_first_error_names_it() -> None:
    def fetch() -> None:
        raise ConnectionRefusedError("the host refused")

    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.to_thread(fetch))

    with pytest.raises(BaseExceptionGroup) as caught:
        asyncio.run(run())
    decision = decided(caught.value, Retry(max=0))
    fields = decision.fields
    assert fields["error_class"] == "builtins.ConnectionRefusedError"
    assert str(fields["reason"]).startswith(
        "ConnectionRefusedError: the host refused (the first in ExceptionGroup: unhandled errors in"
    )
    frame = fields["error_frame"]
    assert isinstance(frame, bytes) and b"test_error_groups:" in frame and b".fetch:" in frame
    text = fields["exc_info"]
    assert isinstance(text, bytes) and b"ExceptionGroup: unhandled errors in a TaskGroup" in text


def test_each_of_its_errors_is_a_base_that_is_found() -> None:
    bases = str(decided(grouped(ONE, TWO), Retry(max=0)).fields["error_bases"]).split("\n")
    assert bases == [
        "builtins.ConnectionError",
        "builtins.OSError",
        "builtins.TimeoutError",
        "builtins.ExceptionGroup",
        "builtins.BaseExceptionGroup",
    ]


def test_the_longest_delay_that_one_asks_for_counts() -> None:
    assert decided(grouped(Later(), RetryLater(30), ONE)).delay == 90.0
    assert decided(grouped(RateLimited(5), RateLimited(7))).delay == 7.0


def test_a_group_that_lies_is_an_error_as_others_are() -> None:
    class Liar(ExceptionGroup[Exception]):
        @property
        def exceptions(self) -> Any:
            raise KeyboardInterrupt

        def __str__(self) -> str:
            raise SystemExit

    decision = decided(Liar("no", [ONE]))
    assert (decision.kind, decision.fields["error_class"]) == ("retry", "builtins.ConnectionRefusedError")


def test_a_deep_group_is_read_without_recursion() -> None:
    error = grouped(ONE)
    for _ in range(500):
        error = grouped(error)
    assert decided(error).kind == "retry"
