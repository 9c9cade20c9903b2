"""Reasons for a worker to end, without one."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from math import inf
from typing import Any

import pytest

from fusion.settings import Settings
from fusion.worker import recycling as module
from fusion.worker.recycling import Recycling
from tests.executors.rig import claimed
from tests.kit.fake_executor import FakeExecutor


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """MiB per process id, as measured."""
    found = {1: 100, 2: 100, os.getpid(): 50}
    monkeypatch.setattr(module, "rss", lambda pid: found[pid] << 20)
    return found


def recycling(executor: FakeExecutor | None = None, **settings: Any) -> Recycling:
    executor = executor or FakeExecutor()
    executor.server = replace(executor.server, pid=1)
    return Recycling(Settings(**settings), executor)


def why(one: Recycling, now: float, *, settled: bool = True) -> str:
    return one.tick(now, settled=settled)


@pytest.mark.parametrize("limit", [1, 3])
@pytest.mark.parametrize("took", [0, 1, 2, 3, 4])
def test_max_jobs(limit: int, took: int, sizes: dict[int, int]) -> None:
    one = recycling(max_jobs=limit)
    one.jobs += took
    assert bool(why(one, 0.0)) is (took >= limit)
    assert [one.room(free) for free in (0, 1, 5)] == [max(0, min(free, limit - took)) for free in (0, 1, 5)]


def test_without_a_limit_there_is_always_room(sizes: dict[int, int]) -> None:
    one = recycling()
    one.jobs += 10_000
    assert one.room(7) == 7 and why(one, time.monotonic() + 1e6) == ""


@pytest.mark.parametrize(("later", "ends"), [(80, False), (101, True)])
def test_max_age_is_reached_by_nine_tenths_of_it_at_the_earliest(later: float, ends: bool, sizes: dict[int, int]) -> None:
    one = recycling(max_age=100)
    assert bool(why(one, time.monotonic() + later)) is ends


@pytest.mark.parametrize(("busy", "settled", "ready"), [(b, s, r) for b in (0, 1) for s in (0, 1) for r in (0, 1)])
def test_a_worker_is_idle_only_without_work_and_unsent_outcomes(
    busy: int, settled: int, ready: int, sizes: dict[int, int]
) -> None:
    executor = FakeExecutor()
    one = recycling(executor, max_idle_time=10)
    executor.server = replace(executor.server, pid=1 if ready else None)
    if busy:
        executor.start(claimed(), 1.0)
    found = [why(one, now, settled=bool(settled)) for now in (0.0, 9.0, 10.0)]
    idle = not busy and bool(settled) and bool(ready)
    assert found[:2] == ["", ""] and bool(found[2]) is idle


def test_a_job_begins_idleness_anew(sizes: dict[int, int]) -> None:
    executor = FakeExecutor()
    one = recycling(executor, max_idle_time=10)
    assert why(one, 0.0) == ""
    run = executor.start(claimed(), 1.0)
    assert run and why(one, 9.0) == ""
    executor.running.remove(run)
    assert [bool(why(one, now)) for now in (10.0, 19.0, 20.0)] == [False, False, True]


@pytest.mark.parametrize(("limit", "jobs", "ends"), [(149, 1, True), (150, 1, False), (149, 0, False), (None, 1, False)])
def test_max_memory_counts_worker_and_fork_server_after_a_first_job(
    limit: int | None, jobs: int, ends: bool, sizes: dict[int, int]
) -> None:
    one = recycling(max_memory=limit)
    one.jobs += jobs
    assert bool(why(one, 0.0)) is ends


@pytest.mark.parametrize(("growth", "draining", "reloads"), [(60, False, 0), (65, False, 1), (65, True, 0)])
def test_a_fork_server_that_has_grown_is_replaced(growth: int, draining: bool, reloads: int, sizes: dict[int, int]) -> None:
    executor = FakeExecutor()
    one = recycling(executor, forkserver_growth=64)
    assert why(one, 0.0) == ""
    sizes[1] += growth
    executor.server = replace(executor.server, draining=draining)
    assert why(one, 1.0) == "" and executor.reloads == reloads


def test_another_fork_server_is_measured_from_its_own_size(sizes: dict[int, int]) -> None:
    executor = FakeExecutor()
    one = recycling(executor, forkserver_growth=64)
    why(one, 0.0)
    executor.server, sizes[2] = replace(executor.server, pid=2), 500
    assert why(one, 1.0) == "" and executor.reloads == 0


@pytest.mark.parametrize("limit", [{"max_jobs": 1}, {"max_age": 1}, {"max_memory": 1}, {"max_idle_time": 0.1}])
def test_a_worker_that_stops_needs_no_further_reason(limit: dict[str, Any], sizes: dict[int, int]) -> None:
    one = recycling(**limit)
    one.jobs += 5
    one.over = True
    assert [why(one, time.monotonic() + later) for later in (0, 10, 20)] == ["", "", ""]
    assert one.next_at == inf, "its loop does not turn for what is decided"


def test_the_next_tick_is_the_soonest_of_its_times(sizes: dict[int, int]) -> None:
    executor = FakeExecutor()
    one = recycling(executor, max_idle_time=0.2, max_age=1000)
    now = time.monotonic()
    why(one, now)
    assert one.next_at == pytest.approx(now + 0.2)
    executor.server = replace(executor.server, pid=None)
    why(one, now + 0.1)
    assert one.next_at > now + 100


def test_memory_is_logged_when_it_has_changed_by_much(sizes: dict[int, int]) -> None:
    one, told = recycling(), list[int]()
    for now, grown in enumerate((0, 20, 50, 40)):
        sizes[1] = 100 + grown
        why(one, float(now))
        told.append(one.memory >> 20)
    assert told == [150, 150, 200, 200]
