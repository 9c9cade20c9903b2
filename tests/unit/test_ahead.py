"""How many jobs a warm process is given ahead."""

from __future__ import annotations

from fusion.process.ahead import BUDGET, MOST, Foresight


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
    assert BUDGET / foresight.depth <= BUDGET
