"""Which job comes next: classes, turns, order, wildcards, the LIST queue, suspension and doorbells."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
import redis

from fusion import Queue
from fusion.job import Job
from fusion.settings import Settings, use_settings
from fusion.store.access import broker_of
from tests.faults.rig.conservation import check_conservation
from tests.jobs import basic
from tests.kit.promises import claim, promise
from tests.kit.waiting import eventually, unhurried
from tests.kit.witnesses import lines, status_of
from tests.kit.workers import WorkerProcess, Workers

#: Nothing but a doorbell wakes a worker within the time of a test.
SLEEPER = {"FUSION_IDLE_WAIT": "60"}


def words(seen: Path) -> list[str]:
    return [line.split()[0] for line in lines(seen)]


def waiting_at_doorbell(conn: redis.Redis) -> int:
    return sum(client["cmd"] == "blpop" for client in conn.client_list())


def state_of(conn: redis.Redis, worker: WorkerProcess) -> str:
    (name,) = [key for key in conn.smembers("rq:workers") if key.decode().endswith(f".{worker.pid}")]
    return (conn.hget(name, "state") or b"").decode()


class Gate:
    """A job that runs until it is opened."""

    def __init__(self, directory: Path, queue: str = "sms") -> None:
        self.file, self.seen = directory / f"gate-{queue}", directory / f"started-{queue}"
        self.file.touch()
        self.job = Queue(queue).enqueue(basic.until_gone, str(self.file), str(self.seen), priority=255)

    def wait_started(self) -> Gate:
        eventually(self.seen.exists)
        return self

    def open(self) -> None:
        self.file.unlink()


# -- order


def test_a_high_job_that_arrives_mid_drain_is_the_next_claim(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    seen, gate = tmp_path / "seen", Gate(tmp_path, "email")
    for word, priority in (("m1", 1), ("low", 0), ("m2", 1)):
        Queue("email").enqueue(basic.witness, str(seen), word, priority=priority)
    worker = workers.start("email", "sms")
    gate.wait_started()
    Queue("sms").enqueue(basic.witness, str(seen), "otp", priority=2)
    last = Queue("sms").enqueue(basic.witness, str(seen), "bulk", priority=0)
    gate.open()
    last.wait(10)
    eventually(lambda: len(words(seen)) == 5, why=worker.output)
    assert words(seen)[:3] == ["otp", "m1", "m2"]
    assert sorted(words(seen)[3:]) == ["bulk", "low"]


@pytest.mark.long
def test_queues_of_one_class_take_turns(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    names = ("a", "b", "c")
    for name in names:
        Queue(name).enqueue_many([Queue.prepare_data(basic.witness, (str(seen), f"{name}{n:03}")) for n in range(100)])
    workers.burst("--customq", ",".join(names))
    order = words(seen)
    assert len(order) == 300
    for start in range(0, 300, 3):
        assert {word[0] for word in order[start : start + 3]} == set(names), f"turn at {start}: {order[start : start + 3]}"
    for name in names:
        own = [word for word in order if word[0] == name]
        assert own == sorted(own)


@claim("P10")
@pytest.mark.long
@pytest.mark.timeout(180)
def test_one_worker_runs_2000_jobs_in_the_order_of_their_arrival(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    datas = [Queue.prepare_data(basic.witness, (str(seen), f"{n:04}")) for n in range(2000)]
    jobs = [Queue("sms").enqueue_many([data])[0] for data in datas[:100]] + Queue("sms").enqueue_many(datas[100:])
    workers.burst("sms", "--disable-job-desc-logging", timeout=150)
    with promise("P10"):
        assert words(seen) == [f"{n:04}" for n in range(2000)]
    assert set(check_conservation(conn, [job.id for job in jobs]).values()) == {"finished"}


def test_four_slots_run_four_jobs_at_once(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    gates = [Gate(tmp_path, name) for name in ("a", "b", "c", "d", "e")]
    worker = workers.start("a", "b", "c", "d", "e", "--slots", "4")
    eventually(lambda: sum(gate.seen.exists() for gate in gates) == 4)
    eventually(lambda: state_of(conn, worker) == "busy")
    waits = [gate for gate in gates if not gate.seen.exists()]
    assert [status_of(conn, gate.job.id) for gate in waits] == ["queued"]
    gates[gates.index(waits[0]) - 1].open()
    waits[0].wait_started()
    for gate in gates:
        gate.file.unlink(missing_ok=True)
    assert [gate.job.wait(10) for gate in gates] == ["finished"] * 5


# -- which queues


def test_a_wildcard_serves_queues_that_appear_later(workers: Workers, conn: redis.Redis) -> None:
    stranger = Queue("push").enqueue(basic.noop)
    workers.start("--customq", "sms*", env={"FUSION_IDLE_WAIT": "0.2"})
    first = Queue("sms_de").enqueue(basic.noop)
    assert first.wait(10) == "finished"
    second = Queue("sms").enqueue(basic.noop)
    assert second.wait(10) == "finished"
    assert status_of(conn, stranger.id) == "queued"


def test_all_is_the_configured_queues_and_what_else_is_known(workers: Workers, conn: redis.Redis) -> None:
    names = ("sms", "email", "pn", "webhook", "whatsapp", "scheduler", "invoices")
    jobs = [Queue(name).enqueue(basic.noop) for name in names]
    worker = workers.burst("--customq", "all")
    assert [job.wait(0) for job in jobs] == ["finished"] * len(names), worker.output


@pytest.mark.long
def test_exact_names_serve_nothing_else(workers: Workers, conn: redis.Redis) -> None:
    served = [Queue(name).enqueue(basic.noop) for name in ("sms", "email", "sms.de")]
    others = [Queue(name).enqueue(basic.noop) for name in ("sms2", "smsxde", "default")]
    workers.burst("sms", "--customq", "email,sms.de")
    assert [status_of(conn, job.id) for job in served] == ["finished"] * 3
    assert [status_of(conn, job.id) for job in others] == ["queued"] * 3


@pytest.mark.long
def test_reserved_queues_are_never_served(workers: Workers, conn: redis.Redis) -> None:
    """Not even when somebody put work there by hand."""
    failed = Queue("sms").enqueue(basic.boom)
    conn.hset("rq:job:planted", mapping={"data": json.dumps(["tests.jobs.basic.noop", None, [], {}]), "status": "queued"})
    conn.zadd("rq:queue:_x", {"planted": 1.5})
    conn.sadd("rq:queues", "rq:queue:_x", "rq:queue:failed")
    workers.burst("*")
    workers.burst("--customq", "all")
    assert Job.fetch(failed.id).attempts == 1
    assert status_of(conn, failed.id) == "failed"
    assert status_of(conn, "planted") == "queued"
    assert conn.zcard("rq:queue:_x") == 1


# -- the LIST queue


@pytest.mark.long
def test_an_outsiders_job_with_a_name_that_is_too_long_fails_and_the_next_one_runs(
    workers: Workers, conn: redis.Redis, tmp_path: Path
) -> None:
    for name, job_id in (("a." * 200_000 + "b", "long"), ("tests.jobs.basic.witness", "short")):
        data = json.dumps([name, None, [str(tmp_path / "seen"), job_id], {}])
        conn.hset(f"rq:job:{job_id}", mapping={"data": data})
        conn.rpush("rq:queue:scheduler", job_id)
    workers.burst("scheduler")
    assert words(tmp_path / "seen") == ["short"]
    assert status_of(conn, "long") == "failed"
    failed = Job.fetch("long", connection=conn)
    assert failed.error_class == "fusion.exceptions.NameTooLong"
    assert len(failed.exc_info or "") < 1000


@pytest.mark.long
def test_the_list_queue_runs_outsiders_jobs_in_order(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    seen, queue = tmp_path / "seen", Queue("scheduler")

    def outsider(job_id: str) -> None:
        data = json.dumps(["tests.jobs.basic.witness", None, [str(seen), job_id], {}])
        conn.hset(f"rq:job:{job_id}", mapping={"data": data})
        conn.rpush("rq:queue:scheduler", job_id)

    ours = [queue.enqueue(basic.witness, str(seen), "one")]
    outsider("two")
    ours.append(queue.enqueue(basic.witness, str(seen), "three", priority=2))  # FIFO whatever its priority
    outsider("four")
    assert (conn.type("rq:queue:scheduler"), queue.count) == (b"list", 4)
    assert queue.get_job_ids() == [ours[0].id, "two", ours[1].id, "four"]
    worker = workers.burst("scheduler")
    assert words(seen) == ["one", "two", "three", "four"], worker.output
    check_conservation(conn, [ours[0].id, "two", ours[1].id, "four"])
    assert Job.fetch("two").result == "two"


@pytest.mark.long
def test_nonsense_in_an_outsiders_hash_harms_that_job_at_most(workers: Workers, conn: redis.Redis) -> None:
    data = json.dumps(["tests.jobs.basic.boom", None, [], {}])
    fields = (
        "timeout",
        "retryCount",
        "retry",
        "priority",
        "attempts",
        "meta",
        "serializer",
        "result_ttl",
        "enqueued_at",
        "on_failure",
    )
    for field in fields:
        conn.hset(f"rq:job:{field}", mapping={"data": data, field: "\u00e9 nonsense"})
        conn.rpush("rq:queue:scheduler", field)
    conn.rpush("rq:queue:scheduler", "nobody")
    after = Queue("scheduler").enqueue(basic.noop)
    worker = workers.burst("scheduler")
    assert after.wait(0) == "finished"
    assert {field: status_of(conn, field) for field in fields} == dict.fromkeys(fields, "failed"), worker.output
    assert status_of(conn, "nobody") == "failed", "an unknown id holds nobody up"
    assert Job.fetch("nobody").reason.startswith("corrupt")
    check_conservation(conn, [*fields, after.id])


# -- what a worker may run


def test_a_pickled_job_is_refused_until_allowed(workers: Workers, conn: redis.Redis) -> None:
    use_settings(Settings.load(serializer="pickle"))
    job = Queue("sms").enqueue(basic.echo, {1, 2})
    use_settings(None)
    workers.burst("sms")
    assert job.wait(0) == "failed"
    assert "allow_pickle (FUSION_ALLOW_PICKLE=1)" in job.reason
    job.requeue()
    workers.burst("sms", env={"FUSION_ALLOW_PICKLE": "1"})
    assert job.wait(0) == "finished"
    use_settings(Settings.load(allow_pickle=True))
    assert job.result == {1, 2}


@pytest.mark.long
def test_a_task_that_is_not_allowed_is_held_for_a_worker_that_has_it(workers: Workers, conn: redis.Redis) -> None:
    job = Queue("sms").enqueue("tests.jobs.typed.Point", 1)
    foreign = Queue("sms").enqueue("tests.kit.waiting.eventually")
    unknown = Queue("sms").enqueue("tests.jobs.basic.of_tomorrow")
    worker = workers.burst("sms", code=3)
    for held, why in (
        (job, "--tasks tests.jobs.typed"),
        (foreign, "--tasks tests.kit.waiting"),
        (unknown, "no function 'of_tomorrow'"),
    ):
        held.refresh()
        assert (held.get_status(), held.attempts) == ("blocked", 0), "it waits for a worker that has its task:\n" + worker.output
        assert why in held.reason
        assert why in worker.output
    workers.burst("sms", "--tasks", "tests.kit.waiting", code=3)
    assert foreign.wait(0) == "failed"
    assert "TypeError" in foreign.reason  # it was called, without its argument
    check_conservation(conn, [job.id, foreign.id, unknown.id])


@pytest.mark.long
def test_a_held_job_that_runs_after_all_looks_like_any_other(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    job = Queue("sms").enqueue("tests.jobs.gated.parent")
    workers.burst("sms", code=3)
    assert job.get_status() == "blocked", "it waits for a worker that has its task"
    workers.burst("sms", "--tasks", "tests.jobs.gated", env={"GATED_WITNESS": str(tmp_path / "pids")})
    assert job.wait(0) == "finished"
    assert (job.reason, job.exc_info, job.attempts) == ("", None, 0)


@pytest.mark.long
def test_held_for_too_long_fails_with_the_flag_in_the_error(workers: Workers, conn: redis.Redis) -> None:
    job = Queue("sms").enqueue("tests.jobs.gated.parent")
    workers.burst("sms", env={"FUSION_HOLD_TIMEOUT": "0"})
    assert (job.wait(0), job.attempts) == ("failed", 1)
    assert "--tasks tests.jobs.gated" in job.reason
    assert "--tasks tests.jobs.gated" in (job.exc_info or "")


# -- suspend, resume, doorbells


def test_suspending_a_busy_worker_lets_its_job_finish(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    worker = workers.start("sms", env=SLEEPER)
    gate.wait_started()
    behind = [Queue("sms").enqueue(basic.noop) for _ in range(3)]
    conn.set("rq:suspended", 1)
    gate.open()
    assert gate.job.wait(10) == "finished"
    eventually(lambda: state_of(conn, worker) == "suspended")
    later = Queue("sms").enqueue(basic.noop)  # rings, and the worker finds nothing
    eventually(lambda: conn.exists("rq:wake:sms") == 0)
    eventually(lambda: waiting_at_doorbell(conn) == 1)
    for job in (*behind, later):
        job.refresh()
        assert (job.get_status(), job.deliveries) == ("queued", 0)
    assert "suspended: no job is taken" in worker.output


@pytest.mark.long
def test_resume_wakes_workers_at_once(workers: Workers, conn: redis.Redis) -> None:
    broker = broker_of(conn)
    broker.suspend()
    idle = [workers.start("sms", env=SLEEPER), workers.start("email", env=SLEEPER)]
    eventually(lambda: all(state_of(conn, worker) == "suspended" for worker in idle))
    jobs = [Queue("sms").enqueue(basic.moment), Queue("email").enqueue(basic.moment)]
    eventually(lambda: waiting_at_doorbell(conn) == 2 and not conn.exists("rq:wake:sms", "rq:wake:email"))
    assert [job.get_status() for job in jobs] == ["queued"] * 2
    seconds, micros = conn.time()
    assert broker.resume() is True
    assert [job.wait(10) for job in jobs] == ["finished"] * 2
    assert max(job.result for job in jobs) - (seconds + micros / 1e6) < unhurried(1)
    assert broker.resume() is False


@pytest.mark.long
def test_a_suspension_may_end_by_itself(workers: Workers, conn: redis.Redis) -> None:
    workers.start("sms", env={"FUSION_IDLE_WAIT": "0.2"})
    seconds, micros = conn.time()
    broker_of(conn).suspend(1)
    job = Queue("sms").enqueue(basic.moment)
    assert job.wait(20) == "finished"
    assert job.result - (seconds + micros / 1e6) >= 0.99


@pytest.mark.long
def test_a_token_that_meets_no_free_slot_wakes_another_worker(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    first = workers.start("sms", "--slots", "2", env=SLEEPER)
    gate.wait_started()
    eventually(lambda: waiting_at_doorbell(conn) == 1)  # with its second slot
    second = workers.start("sms", env=SLEEPER)
    eventually(lambda: waiting_at_doorbell(conn) == 2)
    first.signal(signal.SIGTERM)  # no slot is free from here on, and its wait can't be taken back
    eventually(lambda: "warm shutdown" in first.output)
    job = Queue("sms").enqueue(basic.noop)  # the token goes to who has waited longest
    assert job.wait(15) == "finished"
    assert job.worker_name.endswith(f".{second.pid}")
    gate.open()
    assert first.wait() == 0
    assert gate.job.wait(5) == "finished"


@pytest.mark.long
def test_one_token_starts_as_many_workers_as_there_is_work(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    """One `enqueue_many` rings once; each worker that takes a job rings on."""
    started = [workers.start("sms", env=SLEEPER) for _ in range(3)]
    eventually(lambda: waiting_at_doorbell(conn) == 3)
    gates, seen = tmp_path / "gate", tmp_path / "seen"
    gates.touch()
    jobs = Queue("sms").enqueue_many([Queue.prepare_data(basic.until_gone, (str(gates), str(seen))) for _ in range(3)])
    eventually(lambda: len(words(seen)) == 3, why="three jobs at once")
    gates.unlink()
    assert [job.wait(10) for job in jobs] == ["finished"] * 3
    assert len({Job.fetch(job.id).worker_name for job in jobs}) == len(started)


def test_a_queue_paused_while_a_worker_waits_and_unpaused(workers: Workers, conn: redis.Redis) -> None:
    """users-ask 22: the very next claim heeds it, and the end of the pause wakes an idle worker at once."""
    workers.start("sms", "email", env={"FUSION_IDLE_WAIT": "30"})
    email = Queue("email", conn)
    email.pause()
    held = email.enqueue("tests.jobs.basic.noop")
    assert Queue("sms", conn).enqueue("tests.jobs.basic.noop").wait(10) == "finished"
    assert held.get_status() == "queued"
    assert email.resume()
    assert held.wait(10) == "finished"
