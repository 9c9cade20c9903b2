"""Growing pauses."""

from __future__ import annotations

import pytest

from fusion.runtime.backoff import Backoff


@pytest.mark.parametrize(
    ("first", "longest", "free", "pauses"),
    [
        (0.05, 2.0, 0, [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]),
        (0.05, 2.0, 1, [0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]),
        (0.1, 30.0, 1, [0.0, 0.1, 0.2, 0.4]),
        (1.0, 16.0, 0, [1, 2, 4, 8, 16, 16]),
        (0.5, 0.5, 0, [0.5, 0.5, 0.5]),
        (2.0, 30.0, 3, [0, 0, 0, 2, 4, 8, 16, 30]),
    ],
)
def test_pauses_double_up_to_the_longest(first: float, longest: float, free: int, pauses: list[float]) -> None:
    backoff = Backoff(first, longest, free=free)
    assert [backoff.next() for _ in pauses] == pytest.approx(pauses)


@pytest.mark.parametrize("failures", range(1, 30))
def test_jitter_takes_up_to_half(failures: int) -> None:
    backoff, exact = Backoff(0.25, 30.0, jitter=True), Backoff(0.25, 30.0)
    for _ in range(failures):
        pause, most = backoff.next(), exact.next()
    assert most / 2 <= pause <= most


@pytest.mark.parametrize("failures", [1, 2, 7, 5000])
@pytest.mark.parametrize("free", [0, 1, 2])
def test_after_a_reset_it_begins_anew(failures: int, free: int) -> None:
    backoff = Backoff(0.1, 30.0, free=free)
    first = [backoff.next() for _ in range(4)]
    for _ in range(failures):
        assert backoff.next() <= 30.0
    assert backoff.failures == failures + 4
    backoff.reset()
    assert backoff.failures == 0
    assert [backoff.next() for _ in range(4)] == first
