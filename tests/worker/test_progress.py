"""`get_current_job().progress`: from a task to its readers, without a cost for tasks that don't report it."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
import redis

from fusion import Job, Queue
from fusion.kernel.progress import Progress
from tests.jobs import long
from tests.kit.hands import events_of
from tests.kit.length import long_case
from tests.kit.waiting import eventually
from tests.kit.workers import Workers

TASKS = {"FUSION_TASKS": "tests.jobs"}
MODES = pytest.mark.parametrize("mode", [pytest.param((), id="fork"), long_case(("--horses", "2"), id="pool")])


def progress_of(job: Job) -> Progress | None:
    job.refresh()
    return job.progress


def told(conn: redis.Redis) -> list[str]:
    return [event["message"] for event in events_of(conn) if event["event"] == "progress"]


@MODES
def test_it_is_shown_while_the_job_runs_and_the_last_word_stays(
    workers: Workers, conn: redis.Redis, tmp_path: Path, mode: tuple[str, ...]
) -> None:
    (gate := tmp_path / "gate").touch()
    job = Queue("sms").enqueue(long.tells, str(gate))
    assert job.progress is None
    worker = workers.start("sms", *mode, env=TASKS)
    found = eventually(lambda: (p := progress_of(job)) and p.note == "stage 2" and p)
    assert (found.done, found.total, found.percent, str(found)) == (2, 3, pytest.approx(66.67, abs=0.01), "2 of 3: stage 2")
    assert found.at is not None and abs(found.at - datetime.now(timezone.utc)) < timedelta(seconds=30)
    gate.unlink()
    assert job.wait(10) == "finished"
    assert job.progress is not None and (job.progress.done, job.progress.note) == (3, "all"), (
        "told less than a second before the end"
    )
    assert job.result == "done"
    assert told(conn) == ["2 of 3"], "an event in five seconds, without the note"
    (event,) = (event for event in events_of(conn) if event["event"] == "progress")
    assert (event["job_id"], event["queue"]) == (job.id, "sms")
    assert event["worker"].endswith(f".{worker.pid}")


@pytest.mark.long
def test_a_loop_that_tells_each_step_is_hardly_slower_and_writes_little(workers: Workers, conn: redis.Redis) -> None:
    job = Queue("sms").enqueue(long.tells_much, 20_000)
    conn.config_resetstat()
    workers.burst("sms", env=TASKS)
    job.refresh()
    assert job.progress is not None and (job.progress.done, job.progress.total) == (20_000, 20_000)
    assert job.result < 4.0, "seconds"
    calls = conn.info("commandstats")["cmdstat_evalsha"]["calls"]
    assert calls < 25 + 2 * job.result


def test_what_it_said_last_survives_its_end(workers: Workers, conn: redis.Redis) -> None:
    jobs = [Queue("sms").enqueue(task, 7) for task in (long.tells_then_dies, long.tells_then_fails)]
    workers.burst("sms", env=TASKS)
    for job in jobs:
        job.refresh()
        assert job.get_status() == "failed"
        assert job.progress is not None and job.progress.done == 7, job.func_name


@pytest.mark.long
def test_figures_that_are_none_are_refused(workers: Workers) -> None:
    of_type, of_value = {"text": ["3"], "bool": [True], "note": [1, 2, 3]}, {"negative": [-1], "nan": ["nan"], "total": [1, -2]}
    job = Queue("sms").enqueue(long.tells_wrongly, {**of_type, **of_value})
    workers.burst("sms", env=TASKS)
    job.refresh()
    assert job.result == {**dict.fromkeys(of_type, "TypeError"), **dict.fromkeys(of_value, "ValueError")}
    assert job.progress is None
