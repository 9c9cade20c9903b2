"""How a relay treats a sink that fails. Pure."""

from __future__ import annotations

import pytest

from fusion.relay.runner import Pace


def _fail(pace: Pace, times: int, *, outage: bool = True) -> list[float]:
    return [pace.failed(pace.size, None, outage=outage) for _ in range(times)]


def test_pauses_grow_up_to_half_a_minute() -> None:
    pauses = _fail(Pace(500), 12)
    assert 0.125 <= pauses[0] <= 0.25
    assert all(15 <= pause <= 30 for pause in pauses[-3:])
    assert _fail(Pace(500), 2000)[-1] <= 30


def test_the_breaker_opens_after_five_failures_and_tries_one_event() -> None:
    pace = Pace(500)
    _fail(pace, 4)
    assert (pace.open, pace.size) == (False, 500)
    _fail(pace, 1)
    assert (pace.open, pace.size) == (True, 1)
    sizes = []
    for _ in range(10):
        pace.succeeded()
        sizes.append(pace.size)
    assert sizes == [2, 4, 8, 16, 32, 64, 128, 256, 500, 500]
    assert (pace.open, pace.failures) == (False, 0)


@pytest.mark.parametrize(
    ("asked", "low", "high"), [(None, 0.125, 0.25), (0.0, 0.125, 0.25), (20.0, 20, 20), (10_000.0, 300, 300)]
)
def test_a_sink_may_ask_for_a_longer_pause(asked: float | None, low: float, high: float) -> None:
    assert low <= Pace(500).failed(500, asked, outage=True) <= high


def test_an_error_that_is_no_outage_closes_in_on_one_event() -> None:
    pace = Pace(500)
    sizes = []
    for _ in range(8):
        _fail(pace, 1, outage=False)
        sizes.append(pace.size)
    assert sizes == [250, 125, 62, 31, 15, 7, 3, 1]
    assert (pace.failures, pace.hopeless) == (0, False)
    _fail(pace, 3, outage=False)
    assert (pace.failures, pace.hopeless) == (3, True)
    pace.gave_up()
    assert not pace.hopeless, "the next event gets a chance of its own"


def test_a_batch_smaller_than_it_may_be_is_halved_as_well() -> None:
    pace = Pace(500)
    pace.failed(20, None, outage=False)
    assert pace.size == 10


def test_an_outage_in_between_is_nothing_against_the_event() -> None:
    pace = Pace(1)
    _fail(pace, 2, outage=False)
    _fail(pace, 1, outage=True)
    _fail(pace, 2, outage=False)
    assert not pace.hopeless
