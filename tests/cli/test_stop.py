"""`stop` by ids and by what jobs have in common, on a real Redis. It is `cancel` with another wish: which are meant, see test_cancel.py."""

from __future__ import annotations

import json

import redis

from fusion import Job, Queue
from tests.cli.conftest import Hands, Invoke
from tests.faults.rig.conservation import check_conservation

SMS = "tasks.sms.sendSMS"


def _jobs(conn: redis.Redis, hands: Hands) -> None:
    for job_id in ("running", "waiting"):
        Queue("sms", conn).enqueue(SMS, job_id=job_id, fair_key="t")
    assert [job.id for job in hands("sms", name="w.1").register().turn(slots=1)] == ["running"]


def test_stop_lists_stopped_jobs_and_notified_ones(invoke: Invoke, conn: redis.Redis, hands: Hands) -> None:
    _jobs(conn, hands)
    result = invoke("stop", "running", "waiting", "nobody", "a b", code=1)
    assert result.stdout.splitlines() == [
        "running is running: its worker was ordered to stop it; it is stopped unless it finishes or fails first",
        "1 jobs stopped, 1 being stopped by their workers",
    ]
    assert sorted(result.stderr.splitlines()) == [
        "Unable to stop a b: no such job; job id 'a b': use 1 to 128 of the characters A-Z a-z 0-9 _ - [FUS-114]",
        "Unable to stop nobody: no such job",
    ]
    told = invoke("stop", f"func:{SMS}", code=1).stderr
    assert told == f"Unable to stop func:{SMS}: no such job; to select jobs: run_worker.py stop --query func:{SMS}\n"
    assert check_conservation(conn, ["running", "waiting"]) == {"running": "started", "waiting": "stopped"}
    assert conn.hget("rq:job:running", "cancel") == b"stop"
    assert invoke("stop", "waiting").stdout == "1 jobs stopped\n", "again"
    assert "it has ended (stopped)" in invoke("cancel", "waiting", code=1).stderr


def test_by_what_they_have_in_common(invoke: Invoke, conn: redis.Redis, hands: Hands) -> None:
    _jobs(conn, hands)
    dry = json.loads(invoke("stop", "--fair-key", "t", "--dry-run", "--json").stdout)
    assert (dry["stopped"], dry["running"], dry["dry_run"]) == (1, ["running"], True)
    said = invoke("stop", "--fair-key", "t", "--dry-run").stdout.splitlines()
    assert said[-1] == "1 jobs would be stopped, 1 are running, and their workers would stop them"
    assert Job.fetch("waiting", conn).is_queued
    document = json.loads(invoke("stop", "--fair-key", "t", "--json").stdout)
    assert document == {"schema": 1, "stopped": 1, "running": ["running"], "refused": {}}
    assert Job.fetch("waiting", conn).is_stopped
