"""Workers with keys: what is not signed with one of them fails before any of it is imported or unpickled."""

from __future__ import annotations

import pickle
import secrets
import signal
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import redis

from fusion import Job, Queue
from fusion.cron.scheduler import Scheduler
from fusion.settings import use_settings
from tests.jobs import basic
from tests.kit.hands import events_of
from tests.kit.schedulers import Schedulers
from tests.kit.waiting import eventually
from tests.kit.witnesses import arguments_of, field, status_of
from tests.kit.workers import WorkerProcess, Workers

OLD, NEW = (f"{name}:{secrets.token_urlsafe(32)}" for name in ("k1", "k2"))
BAD = "fusion.exceptions.BadSignature"
PARENT = "tests.jobs.gated.parent"
BOMB_MIB = 1024


class Keys:
    """What this process, the producer, signs with."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def use(self, *keys: str) -> None:
        if keys:
            self._monkeypatch.setenv("FUSION_SECRET_KEYS", ",".join(keys))
        else:
            self._monkeypatch.delenv("FUSION_SECRET_KEYS", raising=False)
        use_settings(None)


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch, redis_url: str) -> Iterator[Keys]:
    held = Keys(monkeypatch)
    held.use(OLD)
    yield held
    use_settings(None)


def with_keys(path: Path, *given: str, **more: str) -> dict[str, str]:
    """The environment of a worker whose keys are in a file. The witness module is allowed and not named, so that no process loads it ahead:
    only a job would import it."""
    path.write_text("\n".join(given))
    return {
        "FUSION_SECRET_KEYS": "",
        "FUSION_SECRET_KEYS_FILE": str(path),
        "FUSION_TASKS": "tests.jobs,os",
        "FUSION_PRELOAD": "off",
        "GATED_WITNESS": str(path.with_name("imported")),
        **more,
    }


def command_lines() -> str:
    """Of everything that this test has started."""
    found = [" ".join(arguments_of(process)) for process in psutil.Process().children(recursive=True)]
    assert any("scheduler" in line for line in found)
    return "\n".join(found)


def settled(conn: redis.Redis, *jobs: str) -> None:
    eventually(lambda: all(status_of(conn, job) in ("finished", "failed") for job in jobs), 20, why="all have ended")


def forge(conn: redis.Redis, job: Job, forged: str, **changes: bytes | None) -> str:
    """A copy of a stored job with some of its fields changed, queued behind it."""
    fields = {name: value for name, value in conn.hgetall(f"rq:job:{job.id}").items() if name.decode() not in changes}
    fields |= {name.encode(): value for name, value in changes.items() if value is not None}
    conn.hset(f"rq:job:{forged}", mapping=fields)
    conn.zadd("rq:queue:sms", {forged: 0.5})
    return forged


def test_what_is_not_signed_fails_at_once_and_is_never_imported(
    workers: Workers, conn: redis.Redis, keys: Keys, tmp_path: Path
) -> None:
    good = Queue("sms").enqueue(PARENT, on_failure="tests.jobs.gated.parent")
    flipped = conn.hget(f"rq:job:{good.id}", "signature")
    altered = conn.hget(f"rq:job:{good.id}", "data").replace(b"[]", b"[1]")
    sample: dict[str, bytes | None] = {
        "data": altered,
        "signature": flipped[:-1] + bytes([flipped[-1] ^ 1]),
        "timeout": b"181",
        "priority": b"2",
        "retry": b'{"max": 3}',
        "on_failure": None,
        "on_success": b'{"func": "tests.jobs.gated.parent", "timeout": 60}',
        "on_lost": b"fail",
        "ttl": b"1000000",
        "failed_task_handler": b"http://169.254.169.254/",
        "serializer": b"pickle",
    }
    forged = [forge(conn, good, f"forged-{name}", **{name: value}) for name, value in sample.items()]
    forged += [forge(conn, good, "replayed"), forge(conn, good, "unsigned", signature=None)]
    broken = forge(conn, good, "retrying", signature=b"x", retry=b'{"max": 9}', on_failure=b'{"func": "tests.jobs.gated.parent"}')
    good.cancel()

    worker = workers.start("sms", env=with_keys(tmp_path / "keys", OLD, FUSION_ALLOW_PICKLE="1"))
    settled(conn, *forged, broken)
    eventually(lambda: all(f"job {job} failed" in worker.output for job in (*forged, broken)), why="a turn tells Redis first")
    for job in (*forged, broken):
        assert (status_of(conn, job), field(conn, job, "error_class")) == ("failed", BAD), job
        assert field(conn, job, "reason").startswith(
            f"{BAD}: its signature" if job != "unsigned" else f"{BAD}: it has no signature"
        )
        assert [event["event"] for event in events_of(conn, job)] == ["processing", "failed"]
        assert worker.output.count(f"job {job} failed: {BAD}") == 1
    assert field(conn, "unsigned", "exc_info") == field(conn, "unsigned", "reason")
    assert not (tmp_path / "imported").exists(), "the task's module was imported"

    # the witness sees what is imported, and the worker goes on
    control = Queue("sms").enqueue(PARENT)
    assert control.wait(10) == "finished"
    assert (tmp_path / "imported").exists()


@pytest.mark.long
def test_rotation_without_a_restart(workers: Workers, conn: redis.Redis, keys: Keys, tmp_path: Path) -> None:
    path = tmp_path / "keys"
    worker = workers.start("sms", env=with_keys(path, OLD))

    def run() -> str:
        job = Queue("sms").enqueue(basic.add, 1, 2)
        settled(conn, job.id)
        return field(conn, job.id, "reason")

    def reload(*given: str) -> None:
        times = worker.output.count("jobs are checked against")
        path.write_text("\n".join(given))
        worker.signal(signal.SIGHUP)
        eventually(lambda: worker.output.count("jobs are checked against") > times)

    assert run() == ""
    keys.use(NEW, OLD)
    assert "'k2', which is none of this worker's (k1)" in run()
    reload(OLD, NEW)
    assert run() == ""
    keys.use(OLD)
    assert run() == "", "what the old key signed is good while it is there"
    reload(NEW)
    assert "'k1', which is none of this worker's (k2)" in run()
    path.write_text("k2:S3CR3T")
    worker.signal(signal.SIGHUP)
    eventually(lambda: "the keys stay as they were" in worker.output)
    keys.use(NEW)
    assert run() == ""
    for text in (OLD.partition(":")[2], NEW.partition(":")[2], "S3CR3T"):
        assert text not in worker.output


@pytest.mark.parametrize(("content", "told"), [(None, "No such file"), ("k1:short", "too weak")])
def test_a_worker_does_not_start_without_the_keys_it_was_promised(
    workers: Workers, conn: redis.Redis, tmp_path: Path, content: str | None, told: str
) -> None:
    path = tmp_path / "keys"
    if content:
        path.write_text(content)
    worker = workers.start("sms", env={"FUSION_SECRET_KEYS_FILE": str(path)}, ready=False)
    assert worker.wait() == 1
    assert told in worker.output.splitlines()[-1]
    assert "Traceback" not in worker.output


@pytest.mark.long
def test_a_backlog_of_before_there_were_keys(workers: Workers, conn: redis.Redis, keys: Keys, tmp_path: Path) -> None:
    keys.use()
    before = [Queue("sms").enqueue(basic.add, 1, n) for n in range(2)]
    keys.use(OLD)
    forged = forge(conn, Queue("sms").enqueue(basic.add, 1, 2), "forged", data=b'["tests.jobs.gated.parent",null,[],{}]')
    lenient = workers.burst("sms", env=with_keys(tmp_path / "keys", OLD, FUSION_REQUIRE_SIGNATURES="0"))
    assert [status_of(conn, job.id) for job in before] == ["finished"] * 2
    assert field(conn, forged, "error_class") == BAD
    assert "jobs without a signature run too" in lenient.output

    keys.use()
    late = Queue("sms").enqueue(basic.add, 1, 2)
    strict = workers.burst("sms", env=with_keys(tmp_path / "keys", OLD))
    assert field(conn, late.id, "error_class") == BAD
    assert "let a backlog through" in field(conn, late.id, "reason")
    assert "docs/security.md" in strict.output
    # failed so, it is not lost
    late.refresh()
    late.requeue()
    workers.burst("sms", env=with_keys(tmp_path / "keys", OLD, FUSION_REQUIRE_SIGNATURES="0"))
    assert late.wait(0) == "finished"


@pytest.mark.long
def test_a_retry_and_a_requeue_keep_the_signature(workers: Workers, conn: redis.Redis, keys: Keys, tmp_path: Path) -> None:
    worker = workers.start("sms", env=with_keys(tmp_path / "keys", OLD))
    job = Queue("sms").enqueue("tests.jobs.basic.refused", failure_ttl=600, ttl=600)
    eventually(lambda: status_of(conn, job.id) == "scheduled", why=worker.output)
    job.reschedule(0)
    eventually(lambda: field(conn, job.id, "attempts") == "2")
    for _ in range(2):
        eventually(lambda: status_of(conn, job.id) == "scheduled")
        attempts = int(field(conn, job.id, "attempts"))
        job.reschedule(0)
        eventually(lambda before=attempts: int(field(conn, job.id, "attempts")) > before)
    settled(conn, job.id)
    assert field(conn, job.id, "error_class") == "builtins.ConnectionError"
    job.refresh()
    job.requeue()
    eventually(lambda: field(conn, job.id, "attempts") == "5")
    assert field(conn, job.id, "error_class") == "builtins.ConnectionError"


# -- cron


@pytest.mark.long
def test_cron_jobs_of_code_and_of_a_program_run(
    workers: Workers, conn: redis.Redis, redis_url: str, keys: Keys, tmp_path: Path
) -> None:
    module = tmp_path / "declared_entries.py"
    module.write_text("def register(scheduler):\n    scheduler.every(1, 'tests.jobs.basic.noop', id='declared', queue='sms')\n")
    env = with_keys(tmp_path / "keys", OLD)
    workers.start("sms", env=env)
    Scheduler(conn).every(1, "tests.jobs.basic.noop", id="made", queue="sms")
    schedulers = Schedulers(redis_url, tmp_path)
    try:
        started = schedulers.start("-P", str(tmp_path), "--schedule", "declared_entries", env=env)

        def finished(entry: str) -> bool:
            found = [key.decode().removeprefix("rq:job:") for key in conn.scan_iter(f"rq:job:cron-{entry}-*")]
            states = {job: status_of(conn, job) for job in found}
            assert "failed" not in states.values(), [field(conn, job, "reason") for job in states]
            return "finished" in states.values()

        eventually(lambda: finished("made") and finished("declared"), 20, why=started.output)
        run = Scheduler(conn).run("declared")
        assert run.wait(10) == "finished"
        secret = OLD.partition(":")[2]
        assert secret not in started.output
        assert secret not in command_lines()
    finally:
        schedulers.stop()


@pytest.mark.long
def test_keys_that_can_not_be_read_leave_the_declared_entries_as_they_are(
    conn: redis.Redis, redis_url: str, keys: Keys, tmp_path: Path
) -> None:
    module = tmp_path / "declared_entries.py"
    module.write_text(
        "def register(scheduler):\n    scheduler.every(3600, 'tests.jobs.basic.noop', id='declared', queue='sms')\n"
    )
    env, path = with_keys(tmp_path / "keys", OLD), tmp_path / "keys"
    schedulers = Schedulers(redis_url, tmp_path)
    try:
        started = schedulers.start("-P", str(tmp_path), "--schedule", "declared_entries", env=env)
        eventually(lambda: conn.exists("rq:cron:entry:declared"))
        first = conn.hget("rq:cron:entry:declared", "rev")
        path.unlink()
        started.signal(signal.SIGHUP)
        started.says("the cron entries stay as they are")
        assert conn.hget("rq:cron:entry:declared", "rev") == first
        path.write_text(NEW)
        started.signal(signal.SIGHUP)
        eventually(lambda: conn.hget("rq:cron:entry:declared", "rev") != first, why=started.output)
        assert b"v1.k2." in conn.hget("rq:cron:entry:declared", "spec")
    finally:
        schedulers.stop()


# -- pickles


class Bomb:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return open, (self.path, "w")


def pickled(*args: object) -> bytes:
    return zlib.compress(pickle.dumps(("tests.jobs.basic.echo", None, args, {})))


@pytest.mark.long
def test_a_pickle_is_loaded_only_from_a_signed_job(
    workers: Workers, conn: redis.Redis, keys: Keys, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FUSION_SERIALIZER", "pickle")
    use_settings(None)
    good = Queue("sms").enqueue(basic.add, 1, 2)
    fields = {"serializer": b"pickle", "data": pickled(Bomb(tmp_path / "forged"))}
    forged = [
        forge(conn, good, "signed-for-another", **fields),
        forge(conn, good, "unsigned", signature=None, **fields),
        forge(conn, good, "other-fields", signature=None, meta=pickled(Bomb(tmp_path / "forged")), result=pickled(), **fields),
    ]
    for lenient in ("1", "0"):
        env = with_keys(tmp_path / "keys", OLD, FUSION_ALLOW_PICKLE="1", FUSION_REQUIRE_SIGNATURES=lenient)
        workers.burst("sms", env=env)
        assert good.wait(0) == "finished"
        assert [field(conn, job, "error_class") for job in forged] == [BAD] * 3
        assert not (tmp_path / "forged").exists()
        for job in forged:
            Job.fetch(job).requeue()

    # the bomb is one: signed, it goes off
    signed = Queue("sms").enqueue(basic.echo, Bomb(tmp_path / "signed"))
    workers.burst("sms", env=env)
    assert (tmp_path / "signed").exists(), signed.id


def zlib_bomb(mib: int) -> bytes:
    """This many MiB of zeros. Blocks that were flushed in full don't refer to one another: one can stand there many times."""
    packer = zlib.compressobj(9)
    head, block = packer.compress(b""), bytes(1 << 20)
    first, again = (packer.compress(block) + packer.flush(zlib.Z_FULL_FLUSH) for _ in range(2))
    return head + first + again * (mib - 1)


@pytest.mark.long
def test_a_decompression_bomb_is_refused_in_little_memory(
    workers: Workers, conn: redis.Redis, keys: Keys, tmp_path: Path
) -> None:
    keys.use()
    bomb = zlib_bomb(BOMB_MIB)
    assert len(bomb) < 2 << 20
    assert zlib.decompressobj().decompress(bomb, 100) == bytes(100)
    job = Queue("sms").enqueue(basic.boom)
    forged = forge(conn, job, "bomb", serializer=b"pickle", data=bomb)
    plain = forge(conn, job, "plain", serializer=b"pickle", data=zlib.compress(b"no pickle"))
    workers.burst("sms", env={"FUSION_ALLOW_PICKLE": "1"})
    assert "larger than 16777216 bytes" in field(conn, forged, "reason")
    assert "not a pickle" in field(conn, plain, "reason")
    (held,), (usual,) = ([one.maxrss for one in Job.fetch(name).attempt_history] for name in (forged, plain))
    assert held is not None
    assert usual is not None
    assert held - usual < 20 * 1024


# -- what tells of a job that was not checked


_TRAPS = [
    ("retry", b"[" * 200_000),
    ("retry", b'{"max": ' + b"9" * 5000 + b"}"),
    ("retry", b'{"max": NaN}'),
    ("on_failure", b"[" * 200_000),
    ("on_success", b"[" * 200_000),
    ("meta", b"[" * 200_000),
    ("timeout", b"NaN"),
    ("retryCount", b"9" * 5000),
]


@pytest.mark.long
def test_json_traps_in_a_field_fail_the_job_and_not_the_worker(workers: Workers, conn: redis.Redis) -> None:
    job = Queue("sms").enqueue(basic.boom)
    for n, (name, value) in enumerate(_TRAPS):
        forge(conn, job, f"trap{n}", **{name: value})
    worker: WorkerProcess = workers.burst("sms")
    states = {f"{name}={value[:20]!r}": status_of(conn, f"trap{n}") for n, (name, value) in enumerate(_TRAPS)}
    assert states == dict.fromkeys(states, "failed"), worker.output
    assert status_of(conn, job.id) == "failed"
    assert "Traceback" not in worker.output
