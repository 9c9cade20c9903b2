"""The kit: what it runs and in which order, its clock, its assertions, and that it does not work outside of tests."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path
from time import process_time

import pytest
import redis

from fusion import AsyncQueue, Batch, Queue, Retry, Scheduler, chain
from fusion.exceptions import StoreUnavailable
from fusion.settings import get_settings
from fusion.store.scripting import kit_clock, scripts
from fusion.store.write.broker import Broker
from fusion.testing import Kit
from tests.kit.process import ROOT
from tests.testing import kit_tasks as tasks


@pytest.fixture(autouse=True)
def _forget() -> None:
    tasks.ran.clear()


# -- what was enqueued


def test_an_assert_compares_what_is_given(fusion_fake: Kit) -> None:
    job = tasks.note.delay("a", n=1)
    when = fusion_fake.now() + timedelta(minutes=9)
    Queue("late").enqueue_in("5m", tasks.note, "b", priority="high")
    Queue("later").enqueue_at(when, tasks.note, "c")
    assert fusion_fake.assert_enqueued(tasks.note) == job
    assert fusion_fake.assert_enqueued("tests.testing.kit_tasks.note", args=["a"], kwargs={"n": 1}, queue="kit", at=0) == job
    fusion_fake.assert_enqueued(tasks.note, queue="late", at="5m", priority="high")
    assert fusion_fake.assert_enqueued(tasks.note, at=when).origin == "later"
    for wrong in ({"args": ["d"]}, {"kwargs": {}, "queue": "kit"}, {"queue": "x"}, {"at": "6m"}, {"priority": "low"}):
        with pytest.raises(AssertionError, match=r"note was not enqueued with .*\n.*note\('a', n=1\) on kit"):
            fusion_fake.assert_enqueued(tasks.note, **wrong)  # type: ignore[arg-type]
    fusion_fake.assert_not_enqueued(tasks.fail)
    with pytest.raises(AssertionError, match="note was enqueued"):
        fusion_fake.assert_not_enqueued(tasks.note)
    assert tasks.ran == []


def test_a_job_that_was_a_duplicate_was_not_enqueued(fusion_fake: Kit) -> None:
    for _ in range(2):
        Queue().enqueue(tasks.note, "a", unique_key="a", on_duplicate="skip")
    assert len(fusion_fake.enqueued) == 1


# -- the drain


def test_retries_come_at_their_time(fusion_drain: Kit) -> None:
    job = Queue().enqueue(tasks.fail_twice, "a", retry=Retry(max=3, interval=60))
    assert [run.outcome for run in fusion_drain()] == ["retry"]
    assert fusion_drain("59s") == []
    assert [run.outcome for run in fusion_drain("5m")] == ["retry", "finished"]
    assert job.result == 3
    first, second, third = fusion_drain.runs
    for earlier, later in ((first, second), (second, third)):
        assert 59 < (later.at - earlier.at).total_seconds() < 100, "a minute, and what a loaded machine takes for a commit"


def test_dependents_chains_and_batches_run_on(fusion_drain: Kit) -> None:
    first = Queue("a").enqueue(tasks.note, "first")
    Queue("b").enqueue(tasks.note, "child", depends_on=first)
    chain(tasks.give.s(2), tasks.double.s()).enqueue()
    with Batch(on_complete=tasks.batch_ended.s()) as batch:
        batch.enqueue(tasks.note, "in a batch")
    fusion_drain("1m")
    assert "child" in tasks.ran and 4 in tasks.ran and "batch" in tasks.ran


def test_a_job_that_waits_longer_than_its_ttl_expires(fusion_drain: Kit) -> None:
    stale = Queue().enqueue(tasks.note, "stale", ttl="5m")
    fusion_drain.travel("6m")
    assert fusion_drain() == []
    assert stale.get_status() == "canceled"


def test_what_expires_by_the_servers_own_clock_does_so_by_the_kits(fusion_drain: Kit) -> None:
    queue = Queue()
    queue.enqueue(tasks.note, "a", unique_key="a", unique_window="1h", on_duplicate="skip")
    fusion_drain()
    assert queue.enqueue(tasks.note, "b", unique_key="a", unique_window="1h", on_duplicate="skip").duplicate_of
    queue.pause("2h")
    fusion_drain.travel("61m")
    assert not queue.enqueue(tasks.note, "c", unique_key="a", on_duplicate="skip").duplicate_of
    assert fusion_drain() == []
    fusion_drain("1h")
    assert tasks.ran == ["a", "c"]


def test_a_rate_is_kept_by_the_kits_clock(fusion_drain: Kit) -> None:
    queue = Queue()
    queue.set_rate("1/60s", burst=1)
    for n in range(3):
        queue.enqueue(tasks.note, n)
    assert len(fusion_drain()) == 1
    fusion_drain("3m")
    assert tasks.ran == [0, 1, 2]


def test_a_month_of_cron_and_retries(fusion_drain: Kit) -> None:
    # From ten o'clock on: of a month that begins at 04:40 the last retries come after its end.
    now = fusion_drain.now()
    fusion_drain.travel(now.replace(hour=10, minute=0, second=0) + timedelta(days=1) - now)
    fusion_drain.schedule(tasks.daily)
    Scheduler().every("6h", tasks.note, args=["often"])
    before = process_time()
    fusion_drain("30d")
    took = process_time() - before
    assert tasks.ran.count("often") == 120
    assert tasks.ran.count("daily") == 90, "each with two retries"
    assert took < 1.0, f"{took:.2f} s of this process's time"
    ticks = [run.at for run in fusion_drain.runs if run.task.endswith("note")]
    assert all(tick.hour % 6 == 0 and tick.minute == 0 for tick in ticks)


def test_declared_entries_are_found_by_function_and_module(fusion_drain: Kit) -> None:
    assert fusion_drain.schedule(tasks) == fusion_drain.schedule(tasks.daily) == ["tests-testing-kit_tasks-daily"]
    with pytest.raises(ValueError, match="declares no cron entry"):
        fusion_drain.schedule(tasks.note)


def test_a_task_that_enqueues_itself_is_noticed(fusion_drain: Kit) -> None:
    tasks.again.delay()
    with pytest.raises(RuntimeError, match="50 runs"):
        fusion_drain(limit=50)


def test_the_clock_does_not_go_back(fusion_drain: Kit) -> None:
    with pytest.raises(ValueError, match="does not go back"):
        fusion_drain.travel(-1)
    before = datetime.now(timezone.utc)
    fusion_drain.travel(timedelta(days=2))
    assert abs(fusion_drain.now() - before - timedelta(days=2)) < timedelta(seconds=20)
    job = Queue().enqueue_in("1m", tasks.note, "a")
    assert abs(job.reschedule("5m") - fusion_drain.now() - timedelta(minutes=5)) < timedelta(seconds=20)


def test_callbacks_to_urls_are_listed(fusion_drain: Kit) -> None:
    job = Queue().enqueue(tasks.note, "a", callback_url="https://hooks.example.com/a")
    fusion_drain()
    (one,) = fusion_drain.callbacks
    assert (one.url, one.job_id, one.job_status) == ("https://hooks.example.com/a", job.id, "finished")


def test_a_coroutine_runs(fusion_drain: Kit) -> None:
    tasks.later.delay("a")
    fusion_drain()
    assert tasks.ran == ["a"]


# -- eager


def test_eager_runs_at_once_what_jobs_enqueue_too(fusion_eager: Kit) -> None:
    job = tasks.spawn.delay("a")
    assert tasks.ran == ["spawned a"] and job.is_finished
    assert [run.outcome for run in fusion_eager.runs] == ["finished", "finished"]


def test_eager_of_an_async_queue(fusion_eager: Kit) -> None:
    import asyncio

    async def produce() -> None:
        async with AsyncQueue("a") as queue:
            await queue.enqueue(tasks.later, "a")
            assert tasks.ran == ["a"]

    asyncio.run(produce())
    assert [one.task for one in fusion_eager.enqueued] == ["tests.testing.kit_tasks.later"]


def test_a_failure_that_the_test_has_read_is_none(fusion_eager: Kit) -> None:
    tasks.fail.delay()
    (run,) = fusion_eager.failed
    assert run.reason == "ValueError: no" and run.job.is_failed


def test_a_failure_that_the_test_has_not_read_fails_it() -> None:
    with Kit() as kit, pytest.raises(AssertionError, match=r"1 job\(s\) failed(.|\n)*ValueError: no"):  # noqa: SIM117
        with kit.eager():
            tasks.fail.delay()


# -- where it works


def test_nothing_is_left_behind() -> None:
    before = get_settings()
    with Kit():
        assert get_settings() is not before
        assert "fusion-test-kit" in scripts.load("turn").body
    assert get_settings() is before
    assert "fusion-test-kit" not in scripts.load("turn").body
    with pytest.raises(StoreUnavailable):
        tasks.note.delay("to no server")


def test_one_kit_at_a_time(fusion_fake: Kit) -> None:
    with pytest.raises(RuntimeError, match="a test has one kit"):
        Kit().__enter__()


def test_moved_clocks_are_refused_by_other_servers(conn: redis.Redis) -> None:
    kit_clock.install()
    try:
        with pytest.raises(redis.ResponseError, match="this is not its server"):
            Broker(conn).promote()
    finally:
        kit_clock.uninstall()
    assert Broker(conn).promote()[0] == 0


def test_every_script_that_reads_the_clock_reads_the_kits() -> None:
    kit_clock.install()
    try:
        for name in scripts.names():
            body = scripts.load(name).body
            assert body.count("'TIME'") == body.count("fusion-test-kit:ahead")
    finally:
        kit_clock.uninstall()


def test_it_is_refused_outside_of_tests() -> None:
    program = "import pytest, unittest\nfrom fusion.testing import Kit\nKit().__enter__()\n"
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert "RuntimeError: fusion.testing works in tests alone" in ran.stderr


def test_a_project_that_uses_none_of_it_imports_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_other.py").write_text(
        "import sys\n\n\ndef test_it():\n    found = {name for name in sys.modules if name.split('.')[0] in ('fusion', 'redis')}\n"
        "    assert found <= {'fusion', 'fusion.testing', 'fusion.testing.plugin'}, found\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:valkey", str(tmp_path)]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout
