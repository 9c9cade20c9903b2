"""Figures that a job's process names may be forged: its task can write frames of its own."""

from __future__ import annotations

import pytest

from fusion.executors.readings import elapsed, peak, signaled


@pytest.mark.parametrize("raw", [b"", b"-1", b"1e9", b"0x10", b" 7", b"1_0", b"nan", b"\xc2\xb2", b"9" * 16, b"9" * 5000])
def test_a_peak_that_is_no_number_of_kib_is_none(raw: bytes) -> None:
    assert peak({b"maxrss": raw}) == 0


def test_a_peak_is_told_in_kib_and_read_in_bytes() -> None:
    assert (peak({}), peak({b"maxrss": b"0"}), peak({b"maxrss": b"2048"})) == (0, 0, 2 * 1024**2)
    assert peak({b"maxrss": b"9" * 15}) == (10**15 - 1) * 1024


@pytest.mark.parametrize(
    ("raw", "seconds"), [(b"0.5", 0.5), (b"", 0.0), (b"-3", 0.0), (b"inf", 0.0), (b"nan", 0.0), (b"1e400", 0.0), (b"soon", 0.0)]
)
def test_an_elapsed_time_that_is_none_is_zero(raw: bytes, seconds: float) -> None:
    assert elapsed({b"elapsed": raw}) == seconds


@pytest.mark.parametrize(("raw", "ago"), [(b"0", 0.0), (b"60", 60.0), (b"61", None), (b"-1", None), (b"nan", None), (b"x", None)])
def test_a_signal_counts_if_it_came_within_the_last_minute(raw: bytes, ago: float | None) -> None:
    assert signaled({b"signaled": raw}) == ago
