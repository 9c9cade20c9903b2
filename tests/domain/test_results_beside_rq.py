"""The rows of the table of results in docs/long.md: what stock RQ does, run here, and what Fusion does."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta

import pytest

from tests.domain import test_dependencies_beside_rq as beside
from tests.domain.test_dependencies_beside_rq import Ours, Stock
from tests.kit.process import ROOT

rq, stock, ours, pytestmark = beside.rq, beside.stock, beside.ours, beside.pytestmark

ROWS: dict[str, Callable[[Stock, Ours], None]] = {}


def row(name: str) -> Callable[[Callable[[Stock, Ours], None]], None]:
    """A row of the table, by the text of its first column."""

    def keep(test: Callable[[Stock, Ours], None]) -> None:
        ROWS[name] = test

    return keep


@row("`job.results()`")
def _results(stock: Stock, ours: Ours) -> None:
    job = stock.enqueue(5)
    for _ in range(12):
        stock.work()
        rq.registry.FailedJobRegistry(queue=stock.queue).requeue(job)
    found = [result.created_at for result in job.results()]
    assert len(found) >= 10 and found == sorted(found, reverse=True)
    mine = ours.enqueue()
    ours.hand.tell(ours.hand.take(), "release", reason="why")
    ours.end()
    assert [str(result.type) for result in mine.results()] == ["successful", "released"]


@row("`result.type`")
def _types(stock: Stock, ours: Ours) -> None:
    assert {"SUCCESSFUL", "FAILED", "STOPPED", "RETRIED"} <= {kind.name for kind in rq.results.Result.Type}
    good, bad = stock.enqueue("x"), stock.enqueue(5)
    stock.work()
    assert [job.latest_result().type.name for job in (good, bad)] == ["SUCCESSFUL", "FAILED"]
    mine, other = ours.enqueue(), ours.enqueue()
    ours.end()
    ours.end("failed")
    assert [job.latest_result().type for job in (mine, other)] == ["successful", "failed"]
    assert mine.latest_result().type == mine.latest_result().Type.SUCCESSFUL


@row("`result.return_value`, `created_at`, `execution_started_at`, `worker_name`")
def _values(stock: Stock, ours: Ours) -> None:
    job = stock.enqueue("four")
    stock.work()
    theirs = job.latest_result()
    mine = ours.enqueue()
    ours.end()
    result = mine.latest_result()
    assert result is not None
    assert (theirs.return_value, result.return_value) == (4, 7)
    for one in (theirs, result):
        assert one.worker_name and one.created_at - one.execution_started_at >= timedelta(0)  # type: ignore[operator]


@row("`job.latest_result(timeout=5)`")
def _waits(stock: Stock, ours: Ours) -> None:
    assert stock.enqueue().latest_result(timeout=1) is None
    assert ours.enqueue().latest_result(timeout=0.05) is None


@row("`job.return_value()`")
def _last(stock: Stock, ours: Ours) -> None:
    job = stock.enqueue("four")
    stock.work()
    assert job.return_value() == 4
    mine = ours.enqueue()
    ours.end()
    assert mine.return_value() == mine.result == 7


#: Shown elsewhere, or not of RQ: rows of which a worker is needed.
ELSEWHERE = {"`result.exc_string`", "progress", "a stop of the worker during a job"}


@pytest.mark.parametrize("name", ROWS)
def test_rq_beside_ours(stock: Stock, ours: Ours, name: str) -> None:
    ROWS[name](stock, ours)


def test_each_row_is_here() -> None:
    text = (ROOT / "docs/long.md").read_text()
    table = text[text.index("| | RQ | Fusion |") :].partition("\n\n")[0]
    assert set(re.findall(r"^\| ([^|]+?) \|", table, re.MULTILINE)) - {"---"} == {*ROWS, *ELSEWHERE}
