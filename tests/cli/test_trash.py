"""`trash`, and what `empty` and `delete` say of it."""

from __future__ import annotations

import json

import pytest
import redis

from fusion import Job, Queue
from fusion.store.write.broker import Broker
from fusion.trash import Trash
from tests.cli.conftest import Fail, Invoke
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import put


def _jobs(invoke: Invoke, *words: str) -> list[str]:
    return sorted(job["id"] for job in json.loads(invoke("trash", "list", "--json", *words).stdout)["jobs"])


def test_an_emptied_queue_is_restored_from_the_trash(invoke: Invoke, conn: redis.Redis, fail: Fail) -> None:
    fail("email", 2)
    put(Broker(conn), "sms", "a", "b", "c")
    said = invoke("empty", "sms", "--yes")
    assert said.stdout == "3 jobs removed from sms queue\n"
    assert said.stderr == ("3 jobs deleted; to get them back within an hour: run_worker.py trash restore --query queue:sms\n")
    Job.fetch("email-000", conn).delete()
    assert _jobs(invoke) == ["a", "b", "c", "email-000"]
    assert _jobs(invoke, "--query", "state:failed") == ["email-000"]
    assert _jobs(invoke, "--query", "queue:sms", "--limit", "2", "--offset", "2") != []
    assert "email-000" in invoke("trash", "list").stdout
    assert "state: failed" in invoke("trash", "show", "email-000").stdout
    assert json.loads(invoke("trash", "show", "a", "--json").stdout)["queue"] == "sms"
    assert "no job x in the trash" in invoke("trash", "show", "x", code=1).stderr
    assert invoke("trash", "restore", "--query", "queue:sms", "--dry-run").stdout == "3 jobs would be restored\n"
    assert invoke("trash", "restore", "--query", "queue:sms").stdout == "3 jobs restored\n"
    put(Broker(conn), "email", "email-000")
    refused = invoke("trash", "restore", "email-000", "nobody", code=1)
    assert refused.stdout == "0 jobs restored\n"
    assert refused.stderr == (
        "Unable to restore email-000: a job of this id lives; delete or rename that one first\n"
        "Unable to restore nobody: it is not in the trash; what was deleted stays there for an hour\n"
    )
    assert invoke("trash", "empty", "--yes").stdout == "1 jobs removed from the trash\n"
    assert invoke("trash", "list").stdout == "The trash is empty\n"
    check_conservation(conn, ["a", "b", "c"])


def test_for_good(invoke: Invoke, conn: redis.Redis) -> None:
    put(Broker(conn), "sms", "a", "b", "c")
    Queue("sms", conn).fetch_job("a").delete(purge=True)
    assert invoke("empty", "sms", "--yes", "--purge").stderr == ""
    assert Queue("sms", conn).empty(purge=True) == 0
    assert Trash(conn).count == 0


def test_deleted_jobs_that_the_trash_cannot_keep_are_reported(
    invoke: Invoke, conn: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over 80 % of its maxmemory Redis keeps nothing that somebody deletes."""
    put(Broker(conn), "sms", "a", "b")
    used = conn.info("memory")["used_memory"]
    conn.config_set("maxmemory", int(used / 0.85))
    try:
        said = invoke("empty", "sms", "--yes")
        assert Queue("sms", conn).count == 0
    finally:
        conn.config_set("maxmemory", 0)
    assert said.stderr == "2 jobs are gone for good: the trash is full, or Redis is over 80 % of its maxmemory\n"
    assert Trash(conn).count == 0


def test_wrong_words(invoke: Invoke, conn: redis.Redis) -> None:
    assert "give ids, --all or --query" in invoke("trash", "restore", code=2).stderr
    assert "give ids, --all or --query" in invoke("trash", "restore", "a", "--all", code=2).stderr
    assert "nonsense" in invoke("trash", "list", "--query", "nonsense:1", code=2).stderr
    assert invoke("trash", "restore", "--all").stdout == "0 jobs restored\n"


def test_signed_jobs_stay_signed(conn: redis.Redis, monkeypatch: pytest.MonkeyPatch, redis_url: str) -> None:
    from fusion.settings import Settings, use_settings

    use_settings(Settings.load(redis_url=redis_url, secret_keys="k1:0123456789abcdefghijklmnopqrstuvwxyzABCDEF"))
    try:
        job = Queue("sms", conn).enqueue("tasks.sms.sendSMS", "a")
        before = {name: value for name, value in conn.hgetall(f"rq:job:{job.id}").items() if name != b"requeue_nonce"}
        assert b"signature" in before
        job.delete()
        assert Trash(conn).restore([job.id]).restored == 1
        after = {name: value for name, value in conn.hgetall(f"rq:job:{job.id}").items() if name != b"requeue_nonce"}
        assert after == before
    finally:
        use_settings(Settings.load(redis_url=redis_url))
