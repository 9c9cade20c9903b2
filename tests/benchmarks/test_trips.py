"""`python -m benchmarks trips` follows real calls."""

from __future__ import annotations

import pytest

from benchmarks import trips

#: Files, functions and moves of one call at most: a little over what they are. Lower them as the code gets shorter.
MOST = {"enqueue": (10, 25, 19), "GET": (34, 165, 225)}


@pytest.mark.parametrize("call", sorted(MOST))
def test_a_call_goes_no_further_than_it_did(call: str, redis_url: str) -> None:
    follow = next(follow for name, follow in trips.TRIPS.items() if name.split()[0] == call)
    trip = follow(redis_url)
    row = trip.row()
    print(call, row, sorted(trip.files))
    assert all(found <= most for found, most in zip(row, MOST[call], strict=True)), row
    assert all(found > most / 3 for found, most in zip(row, MOST[call], strict=True)), (
        f"it is lower now, so the bound is to be: {row}"
    )


@pytest.mark.long
def test_a_job_in_a_worker(redis_url: str) -> None:
    # A timer, such as the heartbeat, may be due in one of them.
    files, functions, moves = map(min, zip(*(trips.of_worker(redis_url).row() for _ in range(2)), strict=True))
    print(files, functions, moves)
    # A busy machine makes rounds of the loop more, and each is some 20 moves.
    assert 25 < files <= 42 and 120 < functions <= 178 and 140 < moves <= 300
