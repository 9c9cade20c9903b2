"""How many jobs a warm process is given ahead."""

from __future__ import annotations

from fusion.executors.prefetch import LOOK, MOST, Foresight


def seen(*seconds: float) -> Foresight:
    foresight = Foresight()
    for one in seconds:
        foresight.saw(one)
    return foresight


def test_nothing_is_foreseen_of_the_first_jobs() -> None:
    assert [seen(*[1e-5] * n).depth for n in (0, 7, 8)] == [0, 0, MOST]


def test_what_waits_is_a_few_milliseconds_of_work() -> None:
    assert [seen(*[seconds] * 200).depth for seconds in (0.0, 0.001, 0.0013, 0.0021, 0.005, 5)] == [MOST, 4, 3, 1, 0, 0]


def test_a_long_job_is_believed_at_once_and_short_ones_slowly() -> None:
    foresight = seen(*[1e-4] * 100)
    assert foresight.depth == MOST
    foresight.saw(1.0)
    assert foresight.depth == 0
    after = 0
    while foresight.depth < MOST:
        foresight.saw(1e-4)
        after += 1
    assert 20 < after < 500


def test_a_turn_takes_no_longer_than_what_may_wait_for_it() -> None:
    foresight = Foresight(0.004)
    assert foresight.most == MOST, "nothing is known yet"
    for _ in range(100):
        foresight.turned(0.001, 8)
    assert 31 <= foresight.most <= 32
    for _ in range(100):
        foresight.turned(0.01, 5)
    assert foresight.most == 4, "with fewer each would pay for too much of the turn"


def test_a_run_counts_as_long_later_on_a_busy_machine_but_not_much_later() -> None:
    foresight = Foresight()
    patience = [foresight.patience]
    for seconds in (0.001, 0.01, 10):
        for _ in range(100):
            foresight.turned(seconds, 1)
        patience.append(foresight.patience)
    assert patience[0] == patience[1] == LOOK < patience[2] < patience[3]
    assert 2.9 < patience[2] / 0.01 < 3.1
    assert patience[3] == 5 * LOOK


def test_nothing_is_claimed_ahead_without_a_budget() -> None:
    foresight = Foresight(0.0)
    for _ in range(100):
        foresight.saw(1e-5)
    assert foresight.depth == 0
