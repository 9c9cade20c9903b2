"""Code and names lose their reference counts where Python allows it; what may hold a resource keeps them."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from fusion.forkserver import immortal
from tests.forkserver.driver import Driver, job_fields

JOBS = "tests.jobs.immortal."
LASTING = ("function", "code", "class", "module", "property")
COUNTED = ("instance", "closure", "list", "file")
#: More than anything has references.
MANY = 1 << 30
ABLE = sys.version_info[:2] in ((3, 12), (3, 13))


@pytest.fixture
def driver() -> Iterator[Driver]:
    with Driver(modules=("tests.jobs.immortal",)) as made:
        yield made


def test_lasting_objects_are_immortal_and_others_are_counted(driver: Driver) -> None:
    counts = driver.run(JOBS + "counts").result
    assert [counts[name] > MANY for name in LASTING] == [ABLE] * len(LASTING)
    assert all(counts[name] < 20 for name in COUNTED)


def test_warm_processes_count_everything() -> None:
    with Driver(modules=("tests.jobs.immortal",), executor="pool") as driver:
        horse = driver.server.fork()
        driver.hand_out(job_fields(JOBS + "counts"), horse)
        frames = driver.wait_until(horse.receive, "an outcome")
        assert frames[0][b"kind"] == b"finished" and b"4294967" not in frames[0][b"result"]


def test_released_objects_are_closed_and_finalized(driver: Driver) -> None:
    assert driver.run(JOBS + "let_go").result == {"written": ["flushed"] * 2, "gone": ["instance"], "alive": 0}


def test_collecting_everything_harms_nothing(driver: Driver) -> None:
    ran = driver.run(JOBS + "collect")
    assert ran.result == {"made": True, "names": 1000, "again": [1], "error": "xxx"}
    assert ran.exited.status == 0


def test_a_python_that_counts_otherwise_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(immortal, "_IMMORTAL", 12345)
    assert immortal.make_immortal() == 0
