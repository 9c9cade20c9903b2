from __future__ import annotations

from datetime import datetime, timezone

import pytest

from fusion.jobs.attempts import Attempt, parse_history


def test_lines_become_attempts() -> None:
    raw = b'{"start":"2026-01-02T03:04:05.000006Z","outcome":"lost","error":"killed","worker":"w","signal":9,"maxrss":5e3,"oom":true}\n'
    start = datetime(2026, 1, 2, 3, 4, 5, 6, timezone.utc)
    assert parse_history(raw) == [Attempt(start, None, "w", "lost", "killed", 9, None, 5000, True)]
    assert parse_history(None) == parse_history("") == []


@pytest.mark.parametrize("line", ["{", "[1]", "7", "\ufffd"])
def test_what_can_not_be_read_is_left_out(line: str) -> None:
    assert [one.outcome for one in parse_history(f'{line}\n{{"outcome":"retry","signal":true,"worker":3}}')] == ["retry"]
    assert parse_history('{"signal":true,"worker":3}')[0] == Attempt(None, None, "", "", "")
