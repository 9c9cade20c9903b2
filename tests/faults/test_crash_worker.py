"""SIGKILL and SIGSTOP of workers, fork servers and horses at every place: nothing is lost, stuck, run too often, or left over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.faults.matrix import FULL, Case, product, subset
from tests.faults.matrix_run import run
from tests.worker.harness import Workers


@pytest.fixture
def workers(redis_url: str, tmp_path: Path) -> Iterator[Workers]:
    found = Workers(redis_url, tmp_path)
    yield found
    found.stop()


def _name(cases: list[Case]) -> str:
    return f"{cases[0].point}{', pool' if cases[0].mode.ahead else ''}" if FULL else "; ".join(map(str, cases))


@pytest.mark.parametrize("cases", product() if FULL else subset(6), ids=_name)
def test_whoever_is_struck_at(cases: list[Case], workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    run(cases, workers, conn, tmp_path)
