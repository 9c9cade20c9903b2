"""SIGKILL and SIGSTOP of workers, fork servers and horses at every place: nothing is lost, stuck, run too often, or left over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from _pytest.mark.structures import ParameterSet

from tests.faults.crash.matrix import FULL, Case, product, subset
from tests.faults.crash.run import run
from tests.kit.length import gate_case
from tests.kit.promises import claim
from tests.kit.workers import Workers


def _name(cases: list[Case]) -> str:
    return f"{cases[0].point}{cases[0].mode.suffix}" if FULL else "; ".join(map(str, cases))


def _groups() -> Iterator[ParameterSet]:
    """The gate runs those with a place or an executor that none before has."""
    met = set[str]()
    for cases in product() if FULL else subset(6):
        shown = {cases[0].mode.executor, *(case.point.name for case in cases)}
        yield (pytest.param if shown <= met else gate_case)(cases, id=_name(cases))
        met |= shown


# The waits of `run` together: samples alone are ten seconds apart.
@pytest.mark.timeout(180)
@claim("P1")
@pytest.mark.parametrize("cases", [*_groups()])
def test_a_process_may_be_killed_at_any_failpoint(cases: list[Case], workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    run(cases, workers, conn, tmp_path)
