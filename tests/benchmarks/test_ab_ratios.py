"""The statistics of `python -m benchmarks ab`, with inputs whose answers are known."""

from __future__ import annotations

import random

import pytest

from benchmarks.ab.ratios import Ratio, Verdict, interval


def _pairs(factor: float, noise: float, seed: int, starts: int = 6, each: int = 5) -> list[list[tuple[float, float]]]:
    """Pairs of which NEW is `factor` times OLD, each value being off by a normal distribution."""
    chance = random.Random(seed)
    return [[(800 * chance.gauss(1, noise), 800 * factor * chance.gauss(1, noise)) for _ in range(each)] for _ in range(starts)]


def test_pairs_of_equals_have_the_ratio_one() -> None:
    ratio = Ratio.of([[(2.0, 2.0), (3.0, 3.0)], [(700.0, 700.0)]], more_is_better=True)
    assert (ratio.median, ratio.low, ratio.high, ratio.pairs) == (1.0, 1.0, 1.0, 3)


def test_a_loss_of_three_percent_shows_in_thirty_pairs() -> None:
    ratio = Ratio.of(_pairs(0.97, noise=0.01, seed=1), more_is_better=True)
    assert ratio.median == pytest.approx(0.97, abs=0.01)
    assert ratio.high < 1.0


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    held = 0
    for seed in range(40):
        ratio = Ratio.of(_pairs(0.97, noise=0.05, seed=seed), more_is_better=True)
        held += ratio.low <= 0.97 <= ratio.high
    assert 35 <= held <= 40


def test_a_stray_slice_moves_nothing() -> None:
    pairs = _pairs(1.0, noise=0.01, seed=2)
    pairs[3][2] = (800.0, 80.0)
    assert Ratio.of(pairs, more_is_better=True).low > 0.98


def test_the_luck_of_a_start_widens_the_interval() -> None:
    apart = interval([[0.9] * 10, [1.0] * 10, [1.1] * 10])
    together = interval([[0.9, 1.0, 1.1] * 10])
    assert apart == (0.9, 1.1)
    assert together[1] - together[0] < 0.2


def test_the_same_values_have_the_same_interval() -> None:
    values = [[0.98, 1.01, 1.03], [0.97, 1.0]]
    assert interval(values) == interval(values)


@pytest.mark.parametrize(
    ("median", "low", "high", "more_is_better", "verdict"),
    [
        (1.00, 0.99, 1.01, True, Verdict.WITHIN),
        (1.20, 1.10, 1.30, True, Verdict.WITHIN),
        (0.98, 0.971, 0.99, True, Verdict.WITHIN),
        (0.98, 0.96, 1.01, True, Verdict.UNCLEAR),
        (0.96, 0.90, 1.02, True, Verdict.UNCLEAR),
        (0.96, 0.95, 0.98, True, Verdict.WORSE),
        (0.80, 0.70, 0.90, False, Verdict.WITHIN),
        (1.04, 1.01, 1.06, False, Verdict.WORSE),
        (1.04, 0.99, 1.06, False, Verdict.UNCLEAR),
    ],
)
def test_verdicts_at_three_percent(median: float, low: float, high: float, more_is_better: bool, verdict: Verdict) -> None:
    assert Ratio(median, low, high, 30, more_is_better).verdict(3) is verdict


@pytest.mark.parametrize("groups", [[], [[]], [[1.0], []]])
def test_nothing_has_no_median(groups: list[list[float]]) -> None:
    with pytest.raises(ValueError, match="no values"):
        interval(groups)
