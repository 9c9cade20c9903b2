"""A task with `yield` is refused by its name: a call of it runs none of its lines, and its job would end finished."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import redis

from fusion import Callback, Queue
from fusion.cron.scheduler import Scheduler
from fusion.decorators import job
from tests.jobs import basic, yielding
from tests.kit.length import long_case
from tests.kit.witnesses import field, status_of
from tests.kit.workers import Workers

MODULE = "tests.jobs.yielding"


@pytest.mark.parametrize("name", yielding.FUNCTIONS)
def test_no_function_at_hand_gets_that_far(conn: redis.Redis, name: str) -> None:
    function = getattr(yielding, name)
    queue = Queue("g", conn)
    told = rf"^{MODULE}\.{name} is a generator function, of which no line would run; write a task without yield"
    with pytest.raises(TypeError, match=told):
        queue.enqueue(function, "x")
    with pytest.raises(TypeError, match=told):
        queue.prepare_data(function, ["x"])
    with pytest.raises(TypeError, match=told):
        job()(function)
    with pytest.raises(TypeError, match=told):
        queue.enqueue(basic.noop, on_success=Callback(function))
    with pytest.raises(TypeError, match=told):
        Scheduler(conn).every("1h", function, id="e")
    assert conn.dbsize() == 0


@pytest.mark.parametrize("mode", [pytest.param((), id="a process per job"), long_case(("--horses", "1"), id="warm")])
def test_none_that_is_named_ends_finished(workers: Workers, conn: redis.Redis, tmp_path: Path, mode: tuple[str, ...]) -> None:
    queue, touched = Queue("g", conn), tmp_path / "touched"
    jobs = {
        name: queue.enqueue(f"{MODULE}.{name}", str(touched))
        for name in (*yielding.FUNCTIONS, *yielding.RETURNING, *yielding.OTHERS)
    }
    workers.burst("g", *mode, env={"FUSION_TASKS": "*"})
    assert not touched.exists()
    for name, one in jobs.items():
        what = "returned a generator" if name in yielding.RETURNING else "is a generator function"
        assert status_of(conn, one.id) == "failed", name
        assert field(conn, one.id, "exc_info").startswith(f"TypeError: {MODULE}.{name} {what}, of which no line would run"), name


def test_one_that_loops_over_it_runs(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    queue = Queue("g", conn)
    jobs = [queue.enqueue(yielding.loops, str(tmp_path / "a")), queue.enqueue(f"{MODULE}.listed", str(tmp_path / "b"))]
    workers.burst("g", env={"FUSION_TASKS": MODULE})
    assert [json.loads(field(conn, one.id, "result")) for one in jobs] == [1, [1]]
    assert (tmp_path / "a").exists()
    assert (tmp_path / "b").exists()


@pytest.mark.long
def test_a_callback_that_yields_is_an_error_of_the_callback(workers: Workers, conn: redis.Redis) -> None:
    one = Queue("g", conn).enqueue(basic.noop, on_success=f"{MODULE}.generator")
    workers.burst("g", env={"FUSION_TASKS": f"{MODULE},tests.jobs.basic"})
    assert status_of(conn, one.id) == "finished"
    assert "is a generator function" in field(conn, one.id, "callback_error")
