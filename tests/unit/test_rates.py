"""Rates as people write them, and the text that scripts read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusion.exceptions import OptionError
from fusion.kernel.rates import Rate


@pytest.mark.parametrize(
    ("text", "stored", "shown"),
    [
        ("100/60s", "100/60000/1", "100/60s"),
        ("100/s", "100/1000/100", "100/s"),
        ("10/1s", "10/1000/10", "10/s"),
        ("5/2m", "5/120000/1", "5/120s"),
        ("500/m", "500/60000/8", "500/60s"),
        ("3/0.5s", "3/500/6", "3/0.5s"),
        (" 1/H ", "1/3600000/1", "1/3600s"),
        ("7 / 1d", "7/86400000/1", "7/86400s"),
        ("1000000/s", "1000000/1000/1000000", "1000000/s"),
    ],
)
def test_what_people_write(text: str, stored: str, shown: str) -> None:
    rate = Rate.parse(text)
    assert (rate.stored, str(rate)) == (stored, shown)
    assert Rate.of_stored(rate.stored) == rate
    assert Rate.parse(str(rate), rate.burst) == rate


def test_a_burst_of_ones_own() -> None:
    assert Rate.parse("100/60s", 20).stored == "100/60000/20"
    assert Rate.parse("100/s", 1).stored == "100/1000/1"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "write how many"), ("100", "write how many"), ("100/", "write how many"), ("/s", "write how many"), (None, "write how many"),
        (100, "write how many"), ("-1/s", "write how many"), ("1.5/s", "write how many"), ("100/60", "write how many"),
        ("100/0s", "write how many"), ("1/1.2.3s", "write how many"), ("1/w", "write how many"), ("100 per second", "write how many"),
        ("٣/s", "write how many"), ("0/s", "from 1 to 1000000"), ("1000001/s", "from 1 to 1000000"), ("1/31d", "1 ms to 30 days"),
        ("1/0.0001s", "1 ms to 30 days"), ("1000000/0.5s", "in a second"),
    ],
)  # fmt: skip
def test_what_is_no_rate(text: Any, why: str) -> None:
    with pytest.raises(OptionError, match=why) as caught:
        Rate.parse(text, name="queue_rate")
    assert caught.value.name == "queue_rate"


@pytest.mark.parametrize("burst", [0, -1, True, 1.5, "5", 1_000_001])
def test_what_is_no_burst(burst: Any) -> None:
    with pytest.raises(OptionError, match=r"burst=.*whole number") as caught:
        Rate.parse("10/s", burst)
    assert caught.value.name == "burst"


@pytest.mark.parametrize("stored", ["", "1/2", "0/1000/1", "1/0/1", "1/1000/0", "1/1000/1/1", "a/b/c"])
def test_what_was_not_stored_by_us(stored: str) -> None:
    assert Rate.of_stored(stored) is None


@given(st.integers(1, 1_000_000), st.integers(1, 30 * 86_400_000))
def test_there_and_back(count: int, period_ms: int) -> None:
    if count * 1000 <= 1_000_000 * period_ms:
        rate = Rate.parse(f"{count}/{period_ms / 1000:.15g}s")
        assert (rate.count, rate.period_ms) == (count, period_ms)
        assert Rate.parse(str(rate), rate.burst) == rate
