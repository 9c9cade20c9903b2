"""`python -m benchmarks pages` looks at every page, and its figures are those of the server that it started. No test here checks speed."""

from __future__ import annotations

import json

import pytest

from benchmarks.pages import Cost, Watched, main, p
from tests.browser.house import addresses


@pytest.mark.long
@pytest.mark.timeout(240)
def test_every_page_is_measured(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSION_REDIS_URL", "")
    main(["--jobs", "2000", "--times", "2", "--viewers", "3", "--seconds", "5", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert document["states"]["queued"] > 900 and min(document["states"].values()) >= 20
    costs = document["pages"]
    assert len({one["path"] for one in costs}) == len(costs) > len(addresses())
    assert all(len(one["wall"]) == 2 and min(one["cpu"]) > 0 and min(one["calls"]) >= 1 for one in costs)
    viewers = document["viewers"]
    assert {*viewers["answers"]} <= {"200", "304"} and 6 <= sum(viewers["answers"].values()) <= 9
    assert 0 < viewers["redis"] < 100 and viewers["server"] > 0 and viewers["longest"] > 0


def test_the_bounds() -> None:
    assert p(95, [*range(20)]) == 18 and p(50, [3.0]) == 3.0 and p(95, [1, 2, 3]) == 3
    fine = [1.0] * 19
    assert not Cost("/", [*fine, 999.0], [*fine, 999.0], [1] * 20, 1).is_over
    assert Cost("/", [150.0], [1.0], [1], 1).is_over and Cost("/", [1.0], [100.0], [1], 1).is_over
    assert "OVER" in str(Cost("/", [150.0], [1.0], [1], 1))
    assert not Watched(20, 30.0, redis=4.9).is_over and Watched(20, 30.0, redis=5.0).is_over
    failing = Watched(20, 30.0)
    failing.answers[500] = 1
    assert failing.is_over and "1 x 500" in str(failing)
