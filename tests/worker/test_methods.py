"""Static methods, class methods and methods of pickled objects as tasks of real workers."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from fusion import Queue
from fusion.settings import use_settings
from tests.jobs.methods import Counter, Heir
from tests.kit.waiting import eventually
from tests.kit.workers import Workers


@pytest.fixture
def pickling(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("FUSION_ALLOW_PICKLE", "1")
    use_settings(None)
    yield
    monkeypatch.undo()
    use_settings(None)


@pytest.mark.usefixtures("pickling")
@pytest.mark.parametrize("executor", ["process", "asyncio"])
def test_methods_run(workers: Workers, conn: redis.Redis, executor: str) -> None:
    plain, pickled = Queue("q", conn), Queue("q", conn, serializer="pickle")
    jobs = [
        plain.enqueue(Counter.double, 4),
        plain.enqueue("tests.jobs.methods.Heir.named", 4),
        plain.enqueue(Heir.Inner.named),
        pickled.enqueue(Counter(3).add, 4),
        pickled.enqueue(Counter(3).add_later, 5),
        pickled.enqueue(Counter.named, 4),
    ]
    workers.start("q", "--executor", executor, env={"FUSION_TASKS": "tests.jobs.methods"})
    assert [job.wait(20) for job in jobs] == ["finished"] * 6
    assert [job.result for job in jobs] == [8, "Heir 4", "Counter.Inner", 7, 8, "Counter 4"]
    assert [job.func_name.removeprefix("tests.jobs.methods.") for job in jobs[2:5]] == [
        "Counter.Inner.named",
        "Counter.add",
        "Counter.add_later",
    ]


@pytest.mark.usefixtures("pickling")
def test_a_method_of_an_object_is_held_where_its_class_is_not_allowed(workers: Workers, conn: redis.Redis) -> None:
    job = Queue("q", conn, serializer="pickle").enqueue(Counter(3).add, 4)
    workers.start("q", env={"FUSION_TASKS": "tests.jobs.basic"})
    eventually(lambda: job.get_status() == "blocked", 20, why="held")
    assert conn.zcard("rq:waits:held:q:tests.jobs.methods.Counter.add") == 1
