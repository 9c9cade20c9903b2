"""The verdict: each sign at its bounds, the cause that is named, and what it costs to make."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
import redis

from fusion import Queue
from fusion.doctor.finding import Finding
from fusion.doctor.look import Look
from fusion.doctor.verdict import CHECKS, examine, verdict
from fusion.kernel.timeutil import to_iso
from fusion.settings import Settings, get_settings, use_settings
from fusion.store.access import broker_of
from fusion.store.read.inspector import Inspector
from fusion.store.read.server_inspector import _USED, ServerInspector
from fusion.store.write.broker import Broker
from tests.cli.conftest import FakeHands, Invoke
from tests.cli.conftest import invoke as invoke
from tests.doctor.conftest import Doctor
from tests.jobs import basic
from tests.kit import guarded
from tests.kit.hands import put, wire
from tests.kit.waiting import eventually
from tests.kit.workers import Workers


def arrive(conn: redis.Redis, job_id: str, seconds: float) -> None:
    """The job has waited for this long."""
    at = to_iso(Inspector(conn).now() - timedelta(seconds=seconds))
    conn.hset(f"rq:job:{job_id}", mapping={"enqueued_at": at, "created_at": at})


def worker(conn: redis.Redis, *queues: str, name: str = "web1.1") -> FakeHands:
    made = FakeHands(Broker(conn), name, queues).register()
    conn.hset(f"rq:worker:{name}", "state", "idle")
    return made


def of_queue(doctor: Doctor) -> Finding | None:
    return next((one for one in doctor.verdict().findings if one.check == "queues"), None)


def test_a_redis_without_anything_is_healthy(doctor: Doctor) -> None:
    found = doctor.verdict()
    assert (found.word, found.causes, found.sentence()) == ("healthy", (), "healthy; 0 jobs end a minute")


@pytest.mark.parametrize(("jobs", "level"), [(2, None), (3, "warn"), (10, "warn"), (11, "fail")])
def test_depth_is_judged_by_the_longest_that_a_queue_may_be(doctor: Doctor, broker: Broker, jobs: int, level: str | None) -> None:
    worker(doctor.conn, "q")
    broker.set_gate("q", {"max_length": 20})
    put(broker, "q", *(f"j{n}" for n in range(jobs)))
    found = of_queue(doctor)
    assert (found and found.level) == level
    assert found is None or f"{jobs} of 20 places are taken ({jobs * 5} %)" in found.what


def test_the_setting_counts_where_nothing_is_set_for_the_queue(doctor: Doctor, broker: Broker) -> None:
    worker(doctor.conn, "q")
    put(broker, "q", "a", "b", "c")
    assert of_queue(doctor) is None
    use_settings(Settings.load(max_queue_length=4))
    assert doctor.verdict().word == "unhealthy"


@pytest.mark.parametrize(("seconds", "level"), [(290, None), (310, "warn"), (590, "warn"), (1810, "fail")])
def test_age_of_the_oldest(doctor: Doctor, broker: Broker, seconds: float, level: str | None) -> None:
    worker(doctor.conn, "q")
    doctor.conn.hset("rq:worker:web1.1", "state", "busy")
    put(broker, "q", "a")
    arrive(doctor.conn, "a", seconds)
    found = of_queue(doctor)
    assert (found and found.level) == level


def test_no_progress_for_ten_minutes_fails_and_an_end_is_progress(doctor: Doctor, broker: Broker) -> None:
    worker(doctor.conn, "q")
    put(broker, "q", "a")
    arrive(doctor.conn, "a", 700)
    found = of_queue(doctor)
    assert found and found.level == "fail" and "no job has ended for 10 min" in found.what and "(0 end a minute)" in found.what
    broker.note_history("web1.1", 1, {("queue", "q"): [(4, "1:failed", 5)]})
    found = of_queue(doctor)
    assert found and found.level == "warn" and "(0.5 end a minute)" in found.what
    broker.note_history("web1.1", 2, {("queue", "q"): [(12, "1:completed", 100)]})
    assert doctor.verdict().rate == 0.5, "what ended before does not count"


def test_fewer_run_than_may_while_jobs_wait(doctor: Doctor, broker: Broker) -> None:
    worker(doctor.conn, "q")
    broker.set_gate("q", {"limit": 3})
    put(broker, "q", "a")
    assert of_queue(doctor) is None, "it has only just come"
    arrive(doctor.conn, "a", 40)
    found = of_queue(doctor)
    assert found and found.level == "warn" and "0 of 3 run" in found.what


@pytest.mark.parametrize(("went", "level"), [(10, "warn"), (12, None), (80, None)])
def test_a_queue_that_grows_is_reported_before_its_oldest_job_is_old(
    doctor: Doctor, broker: Broker, went: int, level: str | None
) -> None:
    worker(doctor.conn, "q")
    doctor.conn.hset("rq:worker:web1.1", "state", "busy")
    for nth in range(60):
        put(broker, "q", f"a{nth}")
    doctor.conn.set("rq:flow:q", f"0 0 0 0 60000 70 {went} 0")
    arrive(doctor.conn, "a0", 20)
    assert of_queue(doctor) is None, "they have only just come"
    arrive(doctor.conn, "a0", 40)
    found = of_queue(doctor)
    assert (found and found.level) == level
    if found:
        assert "q: 60 a minute more come in than go out, a new job waits 6 min at this rate" in found.what


@pytest.mark.parametrize("kind", ["concurrency_key", "fair_key"])
def test_the_key_that_most_of_the_newest_jobs_share_is_named(doctor: Doctor, kind: str) -> None:
    for nth in range(120):
        options = {kind: "tenant-7" if nth % 2 else f"tenant-{nth}00"} | ({"max_concurrent": 500} if kind[0] == "c" else {})
        Queue("q", doctor.conn).enqueue(basic.noop, job_id=f"j{nth}", **options)
    (found,) = doctor.of("crowds")
    share = 50 if kind == "concurrency_key" else 60  # with fair turns the jobs of one key stand further back
    assert found.what == f"q: {share} of the last 100 jobs that came have the {kind.replace('_', ' ')} tenant-7"
    command = "limit set tenant-7 N" if kind == "concurrency_key" else "cancel --fair-key tenant-7 --dry-run"
    assert (found.level, found.fix) == ("note", f"run_worker.py {command}")
    for nth in range(61, 120, 2):
        doctor.conn.hset(f"rq:job:j{nth}", kind, "tenant-8")
    assert not doctor.of("crowds"), "both have less than half"


def test_a_command_that_starts_a_worker_names_the_module_of_the_job_that_waits(doctor: Doctor) -> None:
    Queue("q", doctor.conn).enqueue(basic.noop)
    assert of_queue(doctor).fix == "run_worker.py worker q --tasks tests.jobs.basic"  # type: ignore[union-attr]
    use_settings(Settings(tasks=("tests.jobs",)))
    assert of_queue(doctor).fix == "run_worker.py worker q"  # type: ignore[union-attr]


def test_the_first_cause_that_applies_is_named_with_what_mends_it(doctor: Doctor, broker: Broker) -> None:
    conn, found = doctor.conn, None

    def cause() -> tuple[str, str, str]:
        nonlocal found
        found = of_queue(doctor)
        assert found is not None
        return found.level, found.what.rpartition(": ")[2], found.fix.partition("\n")[0]

    put(broker, "q", "a")
    assert cause() == ("fail", "no live worker serves it", "run_worker.py worker q")
    worker(conn, "q*")
    assert of_queue(doctor) is None
    conn.hset("rq:worker:web1.1", "quiet", "1")
    assert cause() == ("warn", "web1.1", "run_worker.py unquiet web1.1")
    conn.hset("rq:worker:web1.1", "throttled", "RAM 93.0 %")
    assert cause()[:2] == ("fail", "memory is scarce where its workers run, no job is taken by web1.1 (RAM 93.0 %)")
    conn.hset("rq:worker:web1.1", "unloaded", "shop: ImportError")
    assert cause()[:2] == ("fail", "ImportError)") and "its tasks can't be loaded by web1.1 (shop: ImportError)" in str(found)
    broker.pause("q", by="deploy")
    assert cause() == ("note", "it is paused by deploy", "run_worker.py unpause q")
    arrive(conn, "a", 400)
    assert cause()[0] == "warn", "what was meant can last too long"
    broker.suspend()
    assert cause()[1:] == ("everything is suspended", "run_worker.py resume")


def test_a_worker_that_takes_nothing_is_named(doctor: Doctor, broker: Broker) -> None:
    worker(doctor.conn, "q")
    put(broker, "q", "a")
    arrive(doctor.conn, "a", 40)
    found = of_queue(doctor)
    assert found and found.level == "warn" and "web1.1 lives and takes none of them: the log says why" in found.what


def test_a_worker_that_can_not_load_its_tasks_is_named_with_the_queues_that_wait_for_it(doctor: Doctor, broker: Broker) -> None:
    worker(doctor.conn, "q")
    doctor.conn.hset("rq:worker:web1.1", "unloaded", "shop: ImportError: no x")
    (found,) = doctor.of("workers")
    assert (found.level, found.what) == ("warn", "web1.1 can't load tasks: shop: ImportError: no x")
    put(broker, "q", "a")
    (found,) = doctor.of("workers")
    assert (found.level, found.what) == ("fail", "web1.1 can't load tasks: shop: ImportError: no x; jobs of q wait for it")


def test_a_held_job_of_a_module_that_a_worker_has_is_not_mended_by_that_worker_again(doctor: Doctor, workers: Workers) -> None:
    Queue("q", doctor.conn).enqueue("tests.jobs.basic.typo")
    Queue("q", doctor.conn).enqueue("nowhere.typo")
    workers.start("q", env={"FUSION_TASKS": "tests.jobs"})
    eventually(lambda: len(doctor.of("held")) == 2)
    fixes = {found.what.partition(" that has ")[2].partition(":")[0]: found for found in doctor.of("held")}
    known = fixes["tests.jobs.basic.typo"]
    assert "module tests.jobs.basic has no function 'typo'; deploy the code that has it, or correct the name" in known.what
    query = "'is:held func:tests.jobs.basic.typo'"
    assert known.fix.endswith(f"run_worker.py delete --query {query} --dry-run\nrun_worker.py jobs {query}")
    assert known.what.endswith("; jobs that wait so for 10 min fail")
    assert fixes["nowhere.typo"].fix == "run_worker.py worker q --tasks nowhere"


def test_the_worker_for_jobs_on_probation_is_not_blamed(doctor: Doctor, broker: Broker) -> None:
    worker(doctor.conn, "q", name="web1.1").turn()
    worker(doctor.conn, "q", name="web1.2").turn()
    doctor.conn.hset("rq:worker:web1.2", "probation", "1")
    put(broker, "q", "a")
    arrive(doctor.conn, "a", 40)
    found = of_queue(doctor)
    assert found and "web1.1 lives and takes none of them" in found.what and "web1.2" not in found.what
    doctor.conn.delete("rq:worker:web1.1")
    found = of_queue(doctor)
    assert found and "no live worker serves it" in found.what


def test_ended_jobs_count_in_queues_without_waiting_jobs(doctor: Doctor, broker: Broker) -> None:
    put(broker, "q", "a")
    broker.delete(["a"])
    broker.note_history("web1.1", 1, {("queue", "q"): [(1, "1:completed", 40)]})
    assert doctor.verdict().sentence() == "healthy; 4 jobs end a minute"


def test_jobs_that_hold_up_others_are_named(doctor: Doctor, broker: Broker) -> None:
    hands = worker(doctor.conn, "q")
    put(broker, "q", "slow", "next")
    hands.turn(slots=1)
    doctor.conn.hset("rq:worker:web1.1", "state", "busy")
    arrive(doctor.conn, "next", 700)
    found = of_queue(doctor)
    assert found and "its 1 worker is busy, 1 of its jobs run (slow)" in found.what
    assert found.fix.split("\n") == ["run_worker.py stop slow", "run_worker.py start -n N --customq q"]


def test_few_failures_are_no_pattern_and_neither_are_old_ones(doctor: Doctor, broker: Broker) -> None:
    hands = worker(doctor.conn, "q")
    put(broker, "q", *(f"j{n}" for n in range(6)))
    hands.end("failed", hands.turn(slots=4))
    assert not doctor.of("failing")
    hands.end("failed", hands.turn(slots=2))
    (found,) = doctor.of("failing")
    assert (
        found.level == "fail"
        and "q: 6 jobs failed in the last 10 min, 100 % of what ended; 6 of them with ValueError" in found.what
    )
    broker.note_history("web1.1", 1, {("queue", "q"): [(1, "1:completed", 30)]})
    assert [one.level for one in doctor.of("failing")] == ["warn"]
    broker.note_history("web1.1", 2, {("queue", "q"): [(1, "1:completed", 60)]})
    assert not doctor.of("failing")
    for n in range(6):
        doctor.conn.hset(f"rq:job:j{n}", "ended_at", to_iso(Inspector(doctor.conn).now() - timedelta(seconds=700)))
    assert not doctor.of("failing")


def test_names_that_strangers_chose_are_quoted_for_the_shell(doctor: Doctor) -> None:
    doctor.conn.sadd("rq:queues", "rq:queue:$(reboot); x")
    doctor.conn.zadd("rq:queue:$(reboot); x", {"a": 1.5})
    found = of_queue(doctor)
    assert found and found.fix == "run_worker.py worker '$(reboot); x'"


def test_doctor_reports_broken_keys_and_everything_else(doctor: Doctor, broker: Broker) -> None:
    put(broker, "q", "a")
    for key in (
        "rq:waits",
        "rq:cron:due",
        "rq:callbacks:open",
        "rq:relays",
        "rq:dropped",
        "rq:schedulers",
        "rq:totals:q",
        "rq:events",
    ):
        doctor.conn.set(key, "junk")
    assert {one.about for one in doctor.of("keys")} >= {"rq:waits", "rq:cron:due", "rq:callbacks:open"}
    assert of_queue(doctor) is not None
    assert not [one for one in doctor.all() if "could not be made" in one.what]


def test_doctor_reports_stock_rq_on_the_prefix(doctor: Doctor) -> None:
    doctor.conn.sadd("rq:workers", "rq:worker:theirs")
    doctor.conn.hset("rq:worker:theirs", mapping={"birth": "2026-01-01T00:00:00Z", "queues": "q"})
    doctor.conn.sadd("rq:queues", "rq:queue:old")
    doctor.conn.rpush("rq:queue:old", "a", "b")
    assert [(one.level, one.about) for one in doctor.of("foreign")] == [("warn", "theirs"), ("note", "old")]
    assert "run_worker.py worker old --adopt-rq old" in doctor.of("foreign")[1].fix


def test_doctor_reports_workers_of_several_versions(doctor: Doctor) -> None:
    for name, version in (("web1.1", "0.1.0"), ("web1.2", "0.2.0")):
        worker(doctor.conn, "sms", name=name)
        doctor.conn.hset(f"rq:worker:{name}", "version", version)
    (found,) = doctor.of("versions")
    assert (found.level, "0.1.0, 0.2.0; web1.1 of 0.1.0" in found.what) == ("note", True)


def test_a_dead_worker_and_an_overdue_job_with_nobody_to_see(doctor: Doctor) -> None:
    worker(doctor.conn, "sms")
    doctor.conn.hincrby("rq:worker:web1.1", "beat_ms", -60_000)
    (dead,) = doctor.of("workers")
    assert dead.level == "fail" and dead.fix == "run_worker.py worker sms"
    Queue("sms").enqueue(basic.noop, job_id="later", enqueue_in=60)
    doctor.conn.zadd("rq:scheduler:scheduled_jobs", {"later": 1})
    (due,) = doctor.of("schedulers")
    assert due.level == "fail" and "a scheduled job has been due for" in due.what
    worker(doctor.conn, "sms", name="web1.2")
    assert [one.level for one in doctor.of("workers")] == ["note"]


def test_doctor_names_the_rights_that_a_user_lacks(doctor: Doctor) -> None:
    admin = guarded.admin_client(doctor.url)
    if admin.info()["redis_version"] < "7":
        pytest.skip("Redis 6.2 can't tell what a user may do")
    try:
        rules = [word for word in ServerInspector(admin).rules().split() if word not in ("+subscribe", "+publish")]
        admin.execute_command("ACL", "SETUSER", "meagre", "reset", "on", ">secret", *rules)
        meagre = redis.Redis(
            unix_socket_path=admin.connection_pool.connection_kwargs["path"], username="meagre", password="secret"
        )
        (found,) = [one for one in examine(Look(meagre, get_settings())) if one.check == "rights"]
        assert found.level == "warn" and "may not PUBLISH, SUBSCRIBE" in found.what
        whole = redis.Redis(
            unix_socket_path=admin.connection_pool.connection_kwargs["path"], username="meagre", password="secret"
        )
        admin.execute_command("ACL", "SETUSER", "meagre", "+subscribe", "+publish")
        assert not [one for one in examine(Look(whole, get_settings())) if one.check == "rights"]
        assert ServerInspector(whole).facts(deep=True).config is None, "it may not ask, and everything else is looked at"
        meagre.close()
        whole.close()
    finally:
        admin.execute_command("ACL", "DELUSER", "meagre")
        admin.close()
    assert len(_USED) > 40


def test_the_cost_of_a_verdict_does_not_grow_with_the_data(doctor: Doctor) -> None:
    def cost() -> int:
        with wire(doctor.conn) as sent:
            verdict(Look(doctor.conn, get_settings()))
        return len(sent)

    broker = broker_of(doctor.conn)
    put(broker, "q0", "a0")
    few = cost()
    for n in range(1, 600):
        doctor.conn.sadd("rq:queues", f"rq:queue:q{n}")
        doctor.conn.zadd(f"rq:queue:q{n}", {f"a{n}": 1.5})
        doctor.conn.zadd("rq:queue:failed", {f"f{n}": 2**40 + n})
    look = Look(doctor.conn, get_settings())
    assert len(look.queues) == 500 and len(look.recent) == 50
    assert cost() < 60 * few, "fifty queues and five hundred failed jobs are looked at, no more"


def test_the_command_says_it_in_words_and_json(invoke: Invoke, conn: redis.Redis) -> None:
    assert invoke("doctor").stdout.startswith("healthy: 37 checks")
    Queue("sms").enqueue(basic.noop)
    told = invoke("doctor", code=3).stdout
    assert "FAIL  queues: sms: 1 job waits (0 end a minute): no live worker serves it [FUS-483]\n" in told
    assert "[FUS-483]\n      -> run_worker.py worker sms --tasks tests.jobs.basic\n" in told
    document = json.loads(invoke("doctor", "--json", code=3).stdout)
    assert document["checks"] == [check.name for check in CHECKS]
    assert document["schema"] == 1 and document["verdict"] == "unhealthy"
    assert {"code", "level", "check", "about", "what", "fix", "mend"} == set(document["findings"][0])


def test_jobs_that_wait_for_each_other_are_named(invoke: Invoke, conn: redis.Redis) -> None:
    Queue("sms").enqueue(basic.noop, job_id="a")
    Queue("sms").enqueue(basic.noop, job_id="b", depends_on="a")
    Queue("sms").enqueue(basic.noop, job_id="c", depends_on="b")
    assert "wait for each other" not in invoke("doctor", code=3).stdout
    conn.sadd("rq:job:b:dependencies", "c")  # as a version without the search could leave it
    told = invoke("doctor", code=3).stdout
    assert "circles: 2 jobs wait for each other and never run: b -> c -> b [FUS-451]\n      -> run_worker.py cancel b\n" in told


def test_warnings_end_with_3_only_if_strict(invoke: Invoke, broker: Broker) -> None:
    broker.suspend()
    assert "strained" in invoke("doctor").stdout
    invoke("doctor", "--strict", code=3)


def test_doctor_without_redis_is_an_error(invoke: Invoke) -> None:
    assert invoke("doctor", "--url", "unix:///tmp/nothing-there.sock", code=1).stderr.startswith("Error: ")
