"""SIGKILL and SIGSTOP of workers, fork servers and horses at every place: nothing is lost, stuck, run too often, or left over."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

from tests.faults.crash.matrix import FULL, Case, product, subset
from tests.faults.crash.run import run
from tests.kit.workers import Workers


def _name(cases: list[Case]) -> str:
    return f"{cases[0].point}{cases[0].mode.suffix}" if FULL else "; ".join(map(str, cases))


@pytest.mark.parametrize("cases", product() if FULL else subset(6), ids=_name)
def test_whoever_is_struck_at(cases: list[Case], workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    run(cases, workers, conn, tmp_path)
