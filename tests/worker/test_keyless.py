"""Jobs that came without the concurrency key that their task declares: they run, and a warning is logged."""

from __future__ import annotations

import pytest
import redis

from fusion import Queue
from fusion.execution.perform import Performer
from fusion.kernel.serializers import JSONSerializer, dumps_call
from fusion.store.read.inspector import Inspector
from tests.kit.length import long_case
from tests.kit.witnesses import status_of
from tests.kit.workers import Workers


@pytest.mark.parametrize("mode", [long_case("slots"), "horses"])
def test_they_are_named_once_and_counted(workers: Workers, conn: redis.Redis, mode: str) -> None:
    from tests.jobs.keyed import crawl, report, sync

    queue = Queue("q", conn)
    by_name = [queue.enqueue("tests.jobs.keyed.sync", 7) for _ in range(3)] + [queue.enqueue("tests.jobs.keyed.crawl")]
    others = [queue.enqueue("tests.jobs.keyed.sync", 7, concurrency_key="mine"), queue.enqueue("tests.jobs.keyed.report")]
    bound = [queue.enqueue(sync, 7), queue.enqueue(crawl), queue.enqueue(report), queue.enqueue("tests.jobs.basic.noop")]
    worker = workers.burst("q", f"--{mode}", "1", env={"FUSION_TASKS": "tests.jobs"})
    assert {status_of(conn, job.id) for job in [*by_name, *others, *bound]} == {"finished"}
    named = [line for line in worker.output.splitlines() if "without the concurrency key that its @job declares" in line]
    assert [line.split("jobs of ")[1].split()[0] for line in named] == ["tests.jobs.keyed.sync", "tests.jobs.keyed.crawl"], named
    assert all("give concurrency_key= with the enqueue" in line for line in named)
    assert [(one.function, one.count) for one in Inspector(conn).keyless()] == [
        ("tests.jobs.keyed.sync", 3),
        ("tests.jobs.keyed.crawl", 1),
    ]


@pytest.mark.parametrize(("task", "ties", "told"), [("sync", b"", True), ("sync", b"k", False), ("report", b"", False)])
def test_a_run_tells_it_with_its_outcome(task: str, ties: bytes, told: bool) -> None:
    name = f"tests.jobs.keyed.{task}"
    args = (1,) if task == "sync" else ()
    fields = {b"id": b"j", b"data": dumps_call(JSONSerializer(), name, args, {})} | ({b"ties": ties} if ties else {})
    performer = Performer(("tests.jobs.keyed",))
    assert performer.run(fields, lambda frame: None).get(b"keyless") == (name.encode() if told else None)
    missing = fields | {b"data": dumps_call(JSONSerializer(), "tests.jobs.keyed.nothing", (), {})}
    assert b"keyless" not in performer.run(missing, lambda frame: None), "it is of the last run alone"
