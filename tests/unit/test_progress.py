"""The stored form of a job's progress."""

from __future__ import annotations

import json

import pytest

from fusion.kernel.progress import Progress, parse_progress, to_progress


@pytest.mark.parametrize(
    ("args", "shown", "percent"),
    [
        ((3, 10, "sent"), "3 of 10: sent", 30.0),
        ((3, None, ""), "3", None),
        ((0.5, 2.0, ""), "0.5 of 2", 25.0),
        ((12, 10, ""), "12 of 10", 100.0),
        ((0, 0, ""), "0 of 0", None),
    ],
)
def test_it_is_read_back(args: tuple[float, float | None, str], shown: str, percent: float | None) -> None:
    found = parse_progress(to_progress(*args))
    assert found is not None
    assert (str(found), found.percent) == (shown, percent)
    assert ":" not in found.figures


def test_a_long_note_is_cut() -> None:
    found = parse_progress(to_progress(1, None, "x" * 5000))
    assert found is not None and len(found.note) == 200 and found.note.endswith("...")


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b"[]", b"7", b'"a"', b"{}", b'{"done":"1"}', b'{"done":true}', b'{"done":NaN}', b'{"done":-1}', b'{"done":1,"total":"x"}',
     b'{"done":1,"note":5}', b"[" * 3000, b'{"done":1,"note":"' + b"x" * 9000 + b'"}'],
)  # fmt: skip
def test_malformed_progress_reads_as_none(raw: bytes) -> None:
    assert parse_progress(raw) is None


def test_a_time_that_is_none_is_left_out() -> None:
    found = parse_progress(json.dumps({"done": 1, "at": "yesterday"}))
    assert found == Progress(1) and hash(found) == hash(Progress(1))
    assert "1" in repr(found)
