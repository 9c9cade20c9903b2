"""How many jobs a warm process is given ahead."""

from __future__ import annotations

from fusion.executors.prefetch import LOOK, MOST, PrefetchEstimator


def seen(*seconds: float) -> PrefetchEstimator:
    estimator = PrefetchEstimator()
    for one in seconds:
        estimator.saw(one)
    return estimator


def test_nothing_is_foreseen_of_the_first_jobs() -> None:
    assert [seen(*[1e-5] * n).depth for n in (0, 7, 8)] == [0, 0, MOST]


def test_prefetched_jobs_are_a_few_milliseconds_of_work() -> None:
    assert [seen(*[seconds] * 200).depth for seconds in (0.0, 0.001, 0.0013, 0.0021, 0.005, 5)] == [MOST, 4, 3, 1, 0, 0]


def test_a_long_job_is_believed_at_once_and_short_ones_slowly() -> None:
    estimator = seen(*[1e-4] * 100)
    assert estimator.depth == MOST
    estimator.saw(1.0)
    assert estimator.depth == 0
    after = 0
    while estimator.depth < MOST:
        estimator.saw(1e-4)
        after += 1
    assert 20 < after < 500


def test_a_turn_takes_no_longer_than_what_may_wait_for_it() -> None:
    estimator = PrefetchEstimator(0.004)
    assert estimator.most == MOST, "nothing is known yet"
    for _ in range(100):
        estimator.exchanged(0.001, 8)
    assert 31 <= estimator.most <= 32
    for _ in range(100):
        estimator.exchanged(0.01, 5)
    assert estimator.most == 4, "with fewer each would pay for too much of the turn"


def test_a_run_counts_as_long_later_on_a_busy_machine_but_not_much_later() -> None:
    estimator = PrefetchEstimator()
    patience = [estimator.patience]
    for seconds in (0.001, 0.01, 10):
        for _ in range(100):
            estimator.exchanged(seconds, 1)
        patience.append(estimator.patience)
    assert patience[0] == patience[1] == LOOK < patience[2] < patience[3]
    assert 2.9 < patience[2] / 0.01 < 3.1
    assert patience[3] == 5 * LOOK


def test_nothing_is_claimed_ahead_without_a_budget() -> None:
    estimator = PrefetchEstimator(0.0)
    for _ in range(100):
        estimator.saw(1e-5)
    assert estimator.depth == 0
