from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusion.execution.outcome import exc_classes
from fusion.kernel import defaults
from fusion.retry import DEFAULT, RETRYABLE, Retry, dotted


class Throttled(ConnectionError):
    pass


def names(error: BaseException) -> list[str]:
    """What a job's process tells of an exception."""
    return exc_classes(error).decode().split("\n")


def test_the_default_policy() -> None:
    """The policy: counts 7 to 10, so three retries, after min(1 h, 120 s * 2^(n-1)) and up to a quarter of jitter."""
    assert DEFAULT.max == 3
    assert [DEFAULT.delay(done, lambda low, high: low) for done in range(8)] == [120, 240, 480, 960, 1920, 3600, 3600, 3600]
    assert DEFAULT.delay(0, lambda low, high: high) == 150
    assert DEFAULT.place == "keep"


@given(st.integers(0, 10**6), st.floats(1e-3, 1e9))
def test_a_delay_stays_between_the_base_and_the_cap_with_its_jitter(done: int, base: float) -> None:
    delay = Retry(max=1, backoff=base).delay(done)
    assert min(base, defaults.RETRY_CAP) <= delay <= defaults.RETRY_CAP * (1 + defaults.RETRY_JITTER)


def test_a_herd_is_spread() -> None:
    random.seed(5)
    delays = [DEFAULT.delay(2) for _ in range(1000)]
    assert len({int(delay) for delay in delays}) > 100


@pytest.mark.parametrize(
    ("raised", "retried"),
    [
        (ConnectionResetError(), True),
        (Throttled(), True),
        (TimeoutError(), True),
        (OSError(), False),
        (ValueError(), False),
        (KeyboardInterrupt(), False),
    ],
)
def test_what_the_default_retries(raised: BaseException, retried: bool) -> None:
    assert DEFAULT.covers(names(raised)) is retried


def test_what_a_network_does_to_one_is_covered_by_name() -> None:
    import requests

    for kind in (requests.ConnectTimeout, requests.ConnectionError, requests.ReadTimeout):
        assert dotted(kind) in RETRYABLE
        assert DEFAULT.covers(names(kind()))
    assert not DEFAULT.covers(names(requests.HTTPError()))
    assert DEFAULT.covers(["botocore.exceptions.ClientError", "builtins.Exception"])


@pytest.mark.parametrize(
    ("interval", "expected"), [(0, [0, 0, 0]), (5, [5, 5, 5]), ([1, 10], [1, 10, 10]), ((2.5,), [2.5, 2.5, 2.5])]
)
def test_intervals_repeat_their_last(interval: Any, expected: list[float]) -> None:
    assert [Retry(3, interval).delay(done) for done in range(3)] == expected


@pytest.mark.parametrize(
    "policy",
    [
        Retry(0),
        Retry(1),
        Retry(3, [1, 2.5]),
        Retry(2, backoff=0.5),
        Retry(2, on=(ValueError, "a.B")),
        Retry(2, on=[]),
        Retry(9, 7, place="back"),
        Retry(within="2h"),
        Retry(5, [1, 9], within=60),
    ],
)
def test_stored_and_read_back(policy: Retry) -> None:
    text = policy.to_json()
    assert Retry.from_json(text) == Retry.from_json(text.encode()) == policy
    assert hash(Retry.from_json(text)) == hash(policy)
    assert policy != Retry(4, 99)
    assert repr(policy)


def test_a_window_instead_of_a_count() -> None:
    policy = Retry(within="2h")
    assert (policy.within, policy.said) == (7200.0, "Retry(within=7200)")
    assert [policy.delay(done, min) for done in range(4)] == [1, 2, 4, 8], (
        "a pace of its own: it must not fail many times a second"
    )
    assert policy.max >= 1_000_000, "a worker of before, which knows no window, goes by this"
    both = Retry(3, 5, within=timedelta(minutes=1))
    assert (both.max, both.within, both.delay(0), both.said) == (3, 60.0, 5.0, "Retry(max=3, within=60)")


@pytest.mark.parametrize("wrong", [0, -1, "2 hours", "", float("inf"), True, 1e12])
def test_a_window_that_is_none(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"Retry\(within=.*use a duration over 0"):
        Retry(within=wrong)


def test_neither_a_count_nor_a_window() -> None:
    with pytest.raises(ValueError, match="say how many"):
        Retry()


def test_only_what_differs_is_stored() -> None:
    assert Retry(3).to_json() == '{"max": 3}'


def test_on_covers_subclasses_through_the_names_of_the_bases() -> None:
    policy = Retry(1, on=[ConnectionError])
    assert policy.covers(names(Throttled()))
    assert not policy.covers(names(ValueError()))
    assert Retry(1).covers([])
    assert not Retry(1, on=()).covers(["builtins.Exception"])
    assert Retry(1, on=KeyError).on == Retry(1, on="builtins.KeyError").on == ("builtins.KeyError",)


@pytest.mark.parametrize(
    "wrong",
    [
        {"max": -1}, {"max": 1.5}, {"max": True}, {"max": "3"}, {"max": 1, "interval": -1}, {"max": 1, "interval": []},
        {"max": 1, "interval": [1, float("nan")]}, {"max": 1, "interval": float("inf")}, {"max": 1, "interval": ["1"]},
        {"max": 1, "backoff": 0}, {"max": 1, "backoff": float("nan")}, {"max": 1, "place": "front"},
    ],
)  # fmt: skip
def test_a_policy_that_makes_no_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"Retry\("):
        Retry(**wrong)


@pytest.mark.parametrize("wrong", [{"interval": 1e12}, {"interval": [1, 1e300]}, {"backoff": 1e10}, {"interval": -1}])
def test_no_retry_is_planned_for_a_time_beyond_all_others(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="use seconds"):
        Retry(max=1, **wrong)
