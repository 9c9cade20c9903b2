"""When a callback is tried again, and when no more (P11)."""

from __future__ import annotations

import pytest

from fusion.delivery.answers import Answer
from fusion.delivery.errors import AddressRefused, DeliveryFailed, DeliveryRefused
from fusion.delivery.schedule import DELAYS, TryResult, verdict

HOUR, DAY = 3600, 86400


def no_jitter(low: float, high: float) -> float:
    return low


def most_jitter(low: float, high: float) -> float:
    return high


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_2xx_is_delivered(status: int) -> None:
    assert verdict(Answer(status, 60.0), 1) == TryResult("delivered")
    assert verdict(Answer(status), 10).outcome == "delivered"


@pytest.mark.parametrize("tries", [1, 5, 10, 11])
def test_410_ends_it_at_any_try(tries: int) -> None:
    assert verdict(Answer(410, 60.0), tries) == TryResult("gone", 0.0, "status 410")


@pytest.mark.parametrize("error", [DeliveryRefused("bad header"), AddressRefused("10.0.0.1 is private")])
def test_a_refused_delivery_is_given_up_at_once(error: DeliveryRefused) -> None:
    assert verdict(error, 1) == TryResult("given_up", 0.0, str(error))


@pytest.mark.parametrize(
    "result", [Answer(status) for status in (100, 101, 199, 300, 302, 308, 400, 401, 404, 409, 422, 429, 500, 502, 503, 504, 599)]
)
def test_any_other_status_is_tried_again_over_three_days(result: Answer) -> None:
    seen = [verdict(result, tries, no_jitter) for tries in range(1, 11)]
    assert [one.outcome for one in seen] == ["again"] * 9 + ["given_up"]
    assert [one.delay for one in seen[:9]] == [5, 300, 30 * 60, 2 * HOUR, 5 * HOUR, 10 * HOUR, 14 * HOUR, 20 * HOUR, 24 * HOUR]
    assert all(f"status {result.status}" in one.reason for one in seen)
    assert seen[-1].reason.endswith("10 tries")


def test_no_answer_is_tried_again_the_same_way() -> None:
    assert verdict(DeliveryFailed("reset"), 1, no_jitter) == TryResult("again", 5.0, "reset")
    assert verdict(DeliveryFailed("reset"), 10) == TryResult("given_up", 0.0, "reset; 10 tries")


def test_the_first_try_is_immediate_and_the_last_after_75_hours() -> None:
    assert DELAYS[0] == 0
    assert sum(DELAYS) == 75 * HOUR + 35 * 60 + 5


@pytest.mark.parametrize(
    ("asked", "tries", "delay"),
    [(60.0, 1, 60.0), (60.0, 2, 300.0), (HOUR, 2, HOUR), (0.0, 1, 5.0), (1e9, 1, DAY), (None, 1, 5.0)],
)
@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_only_ever_puts_it_off_and_at_most_a_day(status: int, asked: float | None, tries: int, delay: float) -> None:
    assert verdict(Answer(status, asked), tries, no_jitter).delay == delay
    assert verdict(DeliveryFailed("busy", asked), tries, no_jitter).delay == delay


def test_retry_after_gives_no_further_tries() -> None:
    assert verdict(Answer(503, 60.0), 10).outcome == "given_up"


def test_jitter_only_adds_up_to_a_quarter() -> None:
    assert verdict(Answer(500), 2, most_jitter).delay == 375
    assert verdict(Answer(429, 1000.0), 1, most_jitter).delay == 1250
    drawn = {verdict(Answer(500), 2).delay for _ in range(100)}
    assert 300 <= min(drawn) < max(drawn) <= 375
