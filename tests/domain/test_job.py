"""A job seen from outside, in each of its states."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import redis

from fusion import Job, Queue
from fusion.exceptions import ConfigurationError, InvalidJobOperation, NoSuchJobError, SerializationError
from fusion.settings import Settings, use_settings
from fusion.store.access import broker_of
from fusion.trash import Trash
from tests.domain.conftest import Bench
from tests.faults.rig.conservation import check_conservation
from tests.jobs import basic
from tests.kit.hands import Hand, wire

ENDED = ("finished", "failed")


def test_fetching_an_unknown_job_is_an_error(conn: redis.Redis) -> None:
    with pytest.raises(NoSuchJobError, match="no job 'nobody'"):
        Job.fetch("nobody")
    assert Job.exists("nobody") is False
    assert Job.fetch_many([]) == []
    job = Queue("sms").enqueue(basic.noop)
    assert Job.exists(job.id)
    assert Job.fetch_many(["nobody", job.id, "nobody"]) == [None, job, None]
    job.delete()
    for action in (job.refresh, job.get_status, job.cancel, job.requeue, job.save_meta, lambda: job.wait(5), lambda: job.result):
        with pytest.raises(NoSuchJobError):
            action()
    job.delete()  # gone already: that is what was asked for
    assert conn.zcard("rq:queue:sms") == 0


def test_fetching_many_is_one_round_trip(conn: redis.Redis) -> None:
    jobs = Queue("sms").enqueue_many([Queue.prepare_data(basic.add, (n, n)) for n in range(50)])
    with wire(conn) as sent:
        found = Job.fetch_many([job.id for job in jobs], conn)
    assert [job and job.args for job in found] == [(n, n) for n in range(50)]
    assert len(sent) == 1  # one write to the socket, for all of them


@pytest.mark.parametrize("state", Bench.STATES)
def test_cancel_in_each_state(bench: Bench, state: str) -> None:
    job = bench.job(state)
    if state in ENDED:
        with pytest.raises(InvalidJobOperation, match=rf"has ended \({state}\)"):
            job.cancel()
        assert job.get_status() == state
    elif state == "started":
        assert job.cancel() == "pending"
        assert job.get_status() == "started"
        assert job.cancel() == "pending"
    else:
        assert job.cancel() == "canceled"
        assert job.cancel() == "canceled"  # a resend must be no error
        job.refresh()
        assert (job.reason, bench.hand.claim()) == ("canceled", [])
        assert bench.conn.zrange("rq:scheduler:scheduled_jobs", 0, -1) == []
    check_conservation(bench.conn, [job.id])


@pytest.mark.parametrize(
    ("outcome", "end"),
    [("finished", "finished"), ("failed", "failed"), ("retry", "canceled"), ("release", None), ("lost", "canceled")],
)
def test_how_a_run_ends_whose_cancel_is_pending(bench: Bench, outcome: str, end: str | None) -> None:
    job = bench.queue.enqueue(basic.noop)
    (claimed,) = bench.hand.claim()
    assert job.cancel() == "pending"
    assert bench.hand.tell(claimed, outcome) == "ok"
    if end is None:  # a release puts it back; the next claim must not run it
        assert bench.hand.claim() == [] or job.get_status() == "canceled"
        end = "canceled"
    assert job.get_status() == end
    check_conservation(bench.conn, [job.id])


@pytest.mark.parametrize("keep_place", [False, True])
@pytest.mark.parametrize("state", Bench.STATES)
def test_requeue_in_each_state(bench: Bench, state: str, keep_place: bool) -> None:
    job = bench.job(state, priority=2)
    behind = bench.queue.enqueue(basic.noop, priority=2)
    if state in ("failed", "canceled"):
        job.requeue(keep_place=keep_place)
        again = Job.fetch(job.id)
        assert (again.get_status(), again.origin, again.priority, again.retry_count) == ("queued", "sms", 2, 7)
        assert (again.exc_info, again.reason, again.ended_at, again.result) == (None, "", None, None)
        assert bench.conn.ttl(f"rq:job:{job.id}") == -1
        order = [job.id, behind.id] if keep_place else [behind.id, job.id]
        assert bench.queue.get_job_ids() == order
        with pytest.raises(InvalidJobOperation, match="is queued"):
            job.requeue()
    else:
        with pytest.raises(InvalidJobOperation, match=f"is {state}; only failed, canceled or stopped jobs are requeued"):
            job.requeue(keep_place=keep_place)
        assert job.get_status() == state
    check_conservation(bench.conn, [job.id, behind.id])


@pytest.mark.parametrize("state", Bench.STATES)
def test_delete_in_each_state(bench: Bench, state: str) -> None:
    job = bench.job(state)
    if state == "started":
        with pytest.raises(InvalidJobOperation, match="is running; stop"):
            job.delete()
        check_conservation(bench.conn, [job.id])
    else:
        job.delete()
        assert not Job.exists(job.id)
        left = [key for key in bench.conn.scan_iter() if job.id.encode() in key or _holds(bench.conn, key, job.id)]
        assert sorted(left) == [b"rq:trash", f"rq:trash:job:{job.id}".encode()]
        assert Trash(bench.conn).restore([job.id]).restored == 1
        job.delete(purge=True)
        left = [key for key in bench.conn.scan_iter() if job.id.encode() in key or _holds(bench.conn, key, job.id)]
        assert left == []
        assert bench.hand.claim() == []


def _holds(conn: redis.Redis, key: bytes, job_id: str) -> bool:
    kind = conn.type(key)
    if kind == b"zset":
        return conn.zscore(key, job_id) is not None
    return kind == b"list" and job_id.encode() in conn.lrange(key, 0, -1)


@pytest.mark.parametrize("action", ["cancel", "delete", "requeue"])
def test_the_list_queues_inbox_is_no_exception(conn: redis.Redis, action: str) -> None:
    """Before a worker has taken it over a job stands in a LIST."""
    queue = Queue("scheduler")
    first, job, last = (queue.enqueue(basic.noop) for _ in range(3))
    assert [one.get_position() for one in (first, job, last)] == [0, 1, 2]
    if action == "delete":
        job.delete()
        assert not Job.exists(job.id)
        rest = [first.id, last.id]
    else:
        job.cancel()
        rest = [first.id, last.id]
        check_conservation(conn, [first.id, job.id, last.id])
        if action == "requeue":
            job.requeue()
            rest = [first.id, last.id, job.id]
            check_conservation(conn, rest)
    assert queue.count == len(rest)
    assert queue.get_job_ids() == rest or action == "requeue"
    hand = Hand(broker_of(conn), "scheduler")
    assert sorted(claimed.id for claimed in hand.claim(5)) == sorted(rest)


# -- waiting


def test_waiting_ends_with_the_job_or_with_time(bench: Bench) -> None:
    job = bench.queue.enqueue(basic.noop)
    with pytest.raises(TimeoutError, match=rf"job {job.id} is queued after 0.05 s"):
        job.wait(0.05)
    waiting = threading.Thread(target=lambda: answers.append(job.wait(20)))
    answers: list[Any] = []
    waiting.start()
    bench.bring(job, "finished")
    waiting.join(20)
    assert answers == ["finished"]
    assert (job.result, job.return_value()) == ("done", "done")
    failed = bench.job("failed")
    assert failed.wait(0) == "failed"
    assert (failed.result, failed.exc_info, failed.reason) == (None, "Traceback", "ValueError: boom")


def test_a_job_that_waits_for_a_retry_has_not_ended(bench: Bench) -> None:
    job = bench.job("scheduled")
    with pytest.raises(TimeoutError, match="is scheduled"):
        job.wait(0)


def test_status_and_flags(bench: Bench) -> None:
    for state in Bench.STATES:
        job = bench.job(state)
        flags = {name for name in Bench.STATES if getattr(job, f"is_{name}")}
        assert flags == {state}
        assert str(job.get_status()) == state
        if state == "queued":
            job.delete()
    job = bench.queue.enqueue(basic.noop)
    bench.bring(job, "finished")
    assert job.get_status(refresh=False) == "queued"
    assert job.get_status() == "finished"
    assert job.get_status(refresh=False) == "finished"


def test_result_is_looked_up_until_there_is_one(bench: Bench) -> None:
    job = bench.queue.enqueue(basic.noop)
    assert job.result is None
    bench.bring(job, "finished")
    assert job.result == "done"
    with wire(bench.conn) as sent:
        assert job.result == "done"
    assert sent == []


def test_a_status_that_was_looked_up_alone_does_not_hide_the_result(bench: Bench) -> None:
    job = bench.queue.enqueue(basic.noop)
    bench.bring(job, "finished")
    assert job.get_status() == "finished"
    assert job.result == "done"


# -- meta


def test_meta_is_kept_for_any_holder(bench: Bench) -> None:
    for state in Bench.STATES:
        job = bench.job(state, meta={"from": "producer"})
        job.meta["seen"] = state
        job.save_meta()
        assert Job.fetch(job.id).meta == {"from": "producer", "seen": state}
        if state == "queued":
            job.delete()


def test_meta_of_every_type_that_arguments_may_have(bench: Bench) -> None:
    """A task's own meta is stored with the same types as results."""
    job = bench.job("queued", meta={"pair": (1, 2)})
    assert job.meta == {"pair": (1, 2)}
    assert Job.fetch(job.id).meta == {"pair": (1, 2)}
    job.meta["many"] = {1, 2}
    job.save_meta()
    assert Job.fetch(job.id).meta == {"pair": (1, 2), "many": {1, 2}}
    job.meta["bad"] = object()
    with pytest.raises(SerializationError, match="meta"):
        job.save_meta()
    assert Job.fetch(job.id).meta == {"pair": (1, 2), "many": {1, 2}}


# -- safety


def test_looking_at_a_pickled_job_runs_nothing(conn: redis.Redis) -> None:
    use_settings(Settings.load(serializer="pickle"))
    job = Queue("sms").enqueue(basic.add, 1, 2)
    found = Job.fetch(job.id)
    assert (found.description, found.origin, found.get_status()) == ("tests.jobs.basic.add", "sms", "queued")
    for name in ("func_name", "args", "kwargs"):
        with pytest.raises(ConfigurationError, match="FUSION_ALLOW_PICKLE=1"):
            getattr(found, name)
    use_settings(Settings.load(allow_pickle=True))
    assert (found.func_name, found.args) == ("tests.jobs.basic.add", (1, 2))


def test_an_outsiders_hash_with_few_fields_can_be_looked_at(conn: redis.Redis) -> None:
    conn.hset(
        "rq:job:theirs", mapping={"data": '["a.b", null, [1], {}]', "created_at": "2026-01-02T03:04:05.000006", "timeout": "x"}
    )
    job = Job.fetch("theirs")
    assert (job.func_name, job.args, job.priority, job.retry_count, job.log_tag, job.meta) == ("a.b", (1,), 1, 7, "", {})
    assert job.created_at is not None and job.created_at.isoformat() == "2026-01-02T03:04:05.000006+00:00"
    assert (job.started_at, job.exc_info, job.retry, job.worker_name, job.original_queue) == (None, None, None, "", "")
    assert job.timeout == 180
    assert "theirs" in repr(job)


def test_a_job_names_its_concurrency_key(conn: redis.Redis) -> None:
    """Blocked or not, as it was enqueued and as it is read."""
    queue = Queue("sms", conn)
    jobs = [queue.enqueue("t.f", concurrency_key="user:42", max_concurrent=1) for _ in range(2)]
    assert [str(job.get_status()) for job in jobs] == ["queued", "blocked"]
    assert [job.concurrency_key for job in (*jobs, Job.fetch(jobs[1].id, conn))] == ["user:42"] * 3
    assert queue.enqueue("t.f").concurrency_key == ""
