"""What is retried, after how long: every class of the default policy, its subclasses, and what tasks ask for."""

from __future__ import annotations

import time
from email.utils import formatdate
from typing import Any
from unittest import mock

import pytest
import requests

from fusion import Retry, RetryLater
from fusion.execution.completion import Decision, decide, died
from fusion.execution.outcome import asked_delay, error_frame, failed
from fusion.execution.perform import Performer
from fusion.kernel import defaults
from fusion.retry import RETRYABLE
from tasks.providers.base import ProviderUnavailable


class Throttled(requests.exceptions.ReadTimeout):
    pass


class Stop(ConnectionRefusedError):
    pass


ClientError = type("ClientError", (Exception,), {"__module__": "botocore.exceptions"})
ThrottlingException = type("ThrottlingException", (ClientError,), {"__module__": "botocore.errorfactory"})

RETRIED = [
    requests.exceptions.ConnectTimeout,
    requests.exceptions.ConnectionError,
    requests.exceptions.ReadTimeout,
    ConnectionError,
    TimeoutError,
    ClientError,
    # below them
    requests.exceptions.SSLError,
    requests.exceptions.ProxyError,
    Throttled,
    Stop,
    ConnectionResetError,
    BrokenPipeError,
    ThrottlingException,
    ProviderUnavailable,
]
FINAL = [
    ValueError,
    OSError,
    requests.HTTPError,
    requests.exceptions.InvalidURL,
    FileNotFoundError,
    KeyboardInterrupt,
    MemoryError,
]


def decided(error: BaseException, **job: bytes) -> Decision:
    """What happens to a job that raises it."""
    try:
        raise error
    except BaseException as caught:
        return decide({name.encode(): value for name, value in job.items()}, failed(caught, caught.__traceback__))


def made(kind: type[BaseException]) -> BaseException:
    return kind("no")


def test_every_class_of_the_default_policy_is_in_the_table() -> None:
    assert {f"{kind.__module__}.{kind.__qualname__}" for kind in RETRIED} >= set(RETRYABLE)


@pytest.mark.parametrize("kind", RETRIED, ids=lambda kind: kind.__qualname__)
@pytest.mark.parametrize("done", [0, 1, 2])
def test_the_default_retries_three_times(kind: type[BaseException], done: int) -> None:
    decision = decided(made(kind), retryCount=b"%d" % (7 + done))
    assert (decision.kind, decision.fields["retryCount"]) == ("retry", 8 + done)
    base = 120 * 2**done
    assert base <= decision.delay <= base * 1.25
    assert decided(made(kind), retryCount=b"10").kind == "failed"


@pytest.mark.parametrize("kind", FINAL, ids=lambda kind: kind.__qualname__)
def test_anything_else_fails_at_once(kind: type[BaseException]) -> None:
    assert decided(made(kind)).kind == "failed"


def response(**headers: str) -> requests.Response:
    found = requests.Response()
    found.headers.update({name.replace("_", "-"): value for name, value in headers.items()})
    return found


def with_retry_after(value: str) -> requests.ConnectionError:
    return requests.ConnectionError("busy", response=response(retry_after=value))


@pytest.mark.parametrize(
    ("error", "delay"),
    [
        (ProviderUnavailable("busy", retry_after=7), 7),
        (ProviderUnavailable("busy", retry_after=0), 0),
        (ProviderUnavailable("busy", retry_after=-5), 0),
        (ProviderUnavailable("busy", retry_after=1e9), 86400),
        (ProviderUnavailable("busy", retry_after=float("inf")), 86400),
        (with_retry_after("30"), 30),
        (RetryLater(3.5), 3.5),
        (RetryLater(10**6, "tomorrow"), 86400),
    ],
    ids=repr,
)
def test_the_delay_that_the_error_asks_for(error: BaseException, delay: float) -> None:
    decision = decided(error)
    assert (decision.kind, decision.delay) == ("retry", delay)


def test_a_date_as_retry_after() -> None:
    assert 50 < decided(with_retry_after(formatdate(time.time() + 60, usegmt=True))).delay <= 60
    assert decided(with_retry_after(formatdate(time.time() - 60, usegmt=True))).delay == 0


@pytest.mark.parametrize("wish", [None, True, "soon", float("nan"), [], {}, "Tue, 99 Foo 2026"], ids=repr)
def test_a_wish_that_can_not_be_read_is_none(wish: Any) -> None:
    assert 120 <= decided(ProviderUnavailable("busy", retry_after=wish)).delay <= 150


def test_attributes_that_raise_and_botocores_response() -> None:
    class Nasty(ConnectionError):
        @property
        def retry_after(self) -> float:
            raise SystemExit

    assert asked_delay(Nasty()) == {}
    error = ThrottlingException()
    error.response = {"ResponseMetadata": {"HTTPHeaders": {"retry-after": "4"}}}
    assert decided(error).delay == 4


def test_a_wish_does_not_make_an_error_retryable() -> None:
    error = requests.HTTPError("gone", response=response(Retry_After="5"))
    assert decided(error).kind == "failed"
    assert decided(error, retry=Retry(1).to_json().encode()).delay == 5


def test_retry_later_goes_with_any_policy_up_to_its_max() -> None:
    narrow = Retry(2, on=[KeyError], place="back").to_json().encode()
    decision = decided(RetryLater(9), retry=narrow)
    assert (decision.kind, decision.delay, decision.fields["seq"]) == ("retry", 9, "")
    assert decided(RetryLater(9), retry=narrow, retryCount=b"9").kind == "failed"
    assert decided(RetryLater(9), retry=Retry(0).to_json().encode()).kind == "failed"


def returned(policy: Retry, calls: list[object] | None = None, **job: bytes) -> Decision:
    """What happens to a job whose task returned it."""
    fields = {name.encode(): value for name, value in {"data": b'["builtins.dict", null, [], {}]', **job}.items()}
    performer = Performer(("*",))
    with mock.patch("fusion.execution.perform._called", return_value=policy):
        return decide(fields, performer.run(fields, lambda frame: calls.append(frame) if calls is not None else None))


def test_a_returned_retry_reschedules_up_to_its_own_max() -> None:
    policy = Retry(2, interval=[5, 50])
    assert [returned(policy, retryCount=b"%d" % n).kind for n in (7, 8, 9)] == ["retry", "retry", "failed"]
    assert [returned(policy, retryCount=b"%d" % n).delay for n in (7, 8)] == [5, 50]
    last = returned(policy, retryCount=b"9")
    assert last.reason == "fusion.retry.RetryLater: the task returned Retry(max=2) after 2 retries"
    assert returned(Retry(1), retry=Retry(0).to_json().encode()).kind == "retry", "the task knows better than who enqueued it"


def test_its_failure_callback_is_called_when_the_retries_are_used_up() -> None:
    callback = b'{"func": "builtins.print"}'
    asked: list[dict[bytes, bytes]] = []
    assert returned(Retry(1), asked, on_failure=callback).kind == "retry"
    assert asked == []
    assert returned(Retry(1), asked, on_failure=callback, retryCount=b"8").kind == "failed"
    assert [frame[b"kind"] for frame in asked] == [b"stands", b"callback"]


def test_the_class_and_its_bases_are_kept() -> None:
    fields = decided(ThrottlingException()).fields
    assert (fields["error_class"], fields["error_bases"]) == (
        "botocore.errorfactory.ThrottlingException",
        "botocore.exceptions.ClientError",
    )
    assert "error_bases" not in decided(Exception()).fields
    dead = died({}, "SIGSEGV", attempt={"signal": 11})
    assert (dead.fields["error_class"], dead.attempt) == ("fusion.exceptions.WorkHorseTerminated", {"signal": 11})


def test_the_frame_is_the_last_of_the_users_own_code() -> None:
    try:
        requests.Request("GET", "no url").prepare()
    except ValueError as error:
        found = error_frame(error.__traceback__)[b"error_frame"].decode()
    module, function, line = found.split(":")
    assert (module, function) == (__name__, "test_the_frame_is_the_last_of_the_users_own_code")
    assert int(line) > 1
    assert error_frame(None) == {}


def test_the_frame_of_a_library_called_directly() -> None:
    """A job may name a function of the standard library."""
    with pytest.raises(TypeError) as caught:
        formatdate("no number")  # type: ignore[arg-type]
    tb = caught.value.__traceback__
    found = error_frame(tb and tb.tb_next)[b"error_frame"]
    assert found.startswith(b"email.utils:formatdate:")


@pytest.mark.parametrize("raw", [b"", b"nan", b"soon", b"-1", b"inf"])
def test_a_frame_that_a_task_wrote_itself(raw: bytes) -> None:
    """Nothing in an outcome can be relied on."""
    outcome = {b"kind": b"failed", b"exc_classes": b"builtins.TimeoutError", b"retry_after": raw, b"maxrss": raw}
    assert 0 <= decide({}, outcome).delay <= defaults.RETRY_ASKED_CAP
