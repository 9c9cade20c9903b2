"""Calls of an EmbeddedWorker, and the errors where it can't work."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import psutil
import pytest
import redis

from fusion import EmbeddedWorker, Queue
from fusion.exceptions import ConfigurationError, InvalidName
from fusion.settings import Settings, get_settings
from fusion.sidecar import embedded_worker, host_lock, keeper
from tests.kit.waiting import eventually
from tests.kit.witnesses import alive, arguments_of, field, runs_of, status_of

TASKS = ["tests.jobs.basic"]
GATED = "tests.jobs.basic.until_gone"


def pid_of(worker: EmbeddedWorker) -> int:
    return eventually(lambda: worker.pid) or 0


def test_it_runs_jobs_between_start_and_stop(conn: redis.Redis) -> None:
    job = Queue("s", conn).enqueue("tests.jobs.basic.add", 2, 3)
    with EmbeddedWorker("s", tasks=TASKS, name="beside") as worker:
        assert worker.start() is worker, "started already"
        pid = pid_of(worker)
        eventually(lambda: status_of(conn, job.id) == "finished")
        assert conn.smembers("rq:workers") == {b"rq:worker:beside"}
        assert psutil.Process(pid).ppid() == os.getpid()
        assert os.getpgid(pid) == pid, "a ^C at the terminal is the application's"
    assert worker.pid is None
    assert not alive(pid)
    assert "fusion-embedded-worker" not in [thread.name for thread in threading.enumerate()]
    worker.stop()


def test_no_password_stands_on_its_command_line(redis_url: str) -> None:
    url = redis_url.replace("unix://", "unix://:of-anna@")
    with EmbeddedWorker(["s", "t*"], redis_url=url, tasks=TASKS, slots=2, secret_keys="k1:" + "of-berta" * 5) as worker:
        process = psutil.Process(pid_of(worker))
        line, environment = process.cmdline(), process.environ()
        worker.stop(0)
    assert line[:4] == [sys.executable, "-m", "fusion", "worker"]
    assert line[-3:] == ["--", "s", "t*"]
    assert not [word for word in line if "of-" in word]
    assert environment["FUSION_REDIS_URL"] == url
    assert environment["FUSION_SLOTS"] == "2"
    assert environment["FUSION_SECRET_KEYS"] == "k1:" + "of-berta" * 5


@pytest.mark.long
def test_a_stop_waits_for_running_jobs_as_long_as_they_may_take(conn: redis.Redis, tmp_path: Path) -> None:
    gate, seen = tmp_path / "gate", tmp_path / "seen"
    gate.touch()
    queue = Queue("s", conn)
    worker = EmbeddedWorker("s", tasks=TASKS).start()
    job = queue.enqueue(GATED, str(gate), str(seen))
    eventually(lambda: runs_of(seen, "started", job.id))
    threading.Timer(1.0, gate.unlink).start()
    worker.stop()
    assert status_of(conn, job.id) == "finished"

    gate.touch()
    worker.start()
    job = queue.enqueue(GATED, str(gate), str(seen))
    eventually(lambda: runs_of(seen, "started", job.id))
    worker.stop(0.2)
    assert status_of(conn, job.id) == "queued"
    assert field(conn, job.id, "attempts") in ("", "0")


@pytest.mark.long
def test_embedded_workers_of_different_queues_run_side_by_side(conn: redis.Redis) -> None:
    with EmbeddedWorker("s", tasks=TASKS) as one, EmbeddedWorker("t", tasks=TASKS) as other:
        assert pid_of(one) != pid_of(other)
        with EmbeddedWorker("s", tasks=TASKS) as same:
            jobs = [Queue(name, conn).enqueue("tests.jobs.basic.noop") for name in "st"]
            eventually(lambda: all(status_of(conn, job.id) == "finished" for job in jobs))
            assert same.pid is None
            one.stop()
            assert pid_of(same)


def test_each_redis_prefix_and_kind_of_work_has_a_lock_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    locked: list[str] = []
    monkeypatch.setattr(host_lock, "HostLock", locked.append)
    monkeypatch.setattr(keeper.Keeper, "start", lambda self: None)

    def lock(**named: object) -> str:
        EmbeddedWorker(**{"queues": "s", "tasks": TASKS, "redis_url": "redis://:of-anna@a:1/0", **named}).start()  # type: ignore[arg-type]
        return locked.pop()

    usual = lock()
    assert "of-anna" not in usual
    assert lock(redis_url="redis://:of-berta@a:1/0", slots=4, name="box") == usual
    others: list[dict[str, object]] = [
        {"redis_url": "redis://b:1/0"},
        {"redis_url": "redis://a:2/0"},
        {"redis_url": "redis://a:1/1"},
        {"prefix": "shop:"},
        {"queues": ["s", "t"]},
        {"tasks": ["tests.jobs"]},
    ]
    assert usual not in [lock(**named) for named in others]
    assert len({lock(**named) for named in others}) == len(others)


@pytest.mark.long
def test_an_application_that_tasks_import_starts_none_in_the_worker(conn: redis.Redis) -> None:
    job = Queue("s", conn).enqueue("tests.jobs.embedding.threads")
    with EmbeddedWorker("s", tasks=["tests.jobs.embedding"]) as worker:
        eventually(lambda: status_of(conn, job.id) == "finished")
        assert field(conn, job.id, "result") == '["MainThread"]'
        lines = [arguments_of(child) for child in psutil.Process(pid_of(worker)).children(recursive=True)]
        assert [line for line in lines if "worker" in line] == []


@pytest.mark.long
def test_starts_and_stops_from_many_threads_leave_nothing(conn: redis.Redis) -> None:
    worker = EmbeddedWorker("s", tasks=TASKS)
    before = len(os.listdir("/proc/self/fd"))

    def play() -> None:
        for _ in range(15):
            worker.start()
            worker.stop(0)

    threads = [threading.Thread(target=play) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert "fusion-embedded-worker" not in [thread.name for thread in threading.enumerate()]
    assert len(os.listdir("/proc/self/fd")) <= before


@pytest.mark.parametrize("how", ["variable", "setting", "inside of a worker"])
def test_an_embedded_worker_can_be_switched_off(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    settings = Settings(embedded_worker=how != "setting", tasks=("no.such",))
    if how != "setting":
        monkeypatch.setenv("FUSION_EMBEDDED_WORKER", "0")
    with EmbeddedWorker("s", settings=settings) as worker:
        assert worker.pid is None
    if how == "variable":
        assert not get_settings().embedded_worker


def test_an_embedded_worker_that_cannot_run_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = EmbeddedWorker("s", tasks=TASKS)
    with monkeypatch.context() as patched:
        patched.setattr(os, "name", "nt")
        with pytest.raises(ConfigurationError, match="needs Linux or macOS: run `fusion start` there"):
            worker.start()
    with monkeypatch.context() as patched:
        patched.setattr(sys, "executable", "/usr/bin/uwsgi")
        patched.setattr(sys, "exec_prefix", "/nowhere")
        with pytest.raises(
            ConfigurationError, match=r"sys.executable is '/usr/bin/uwsgi', which is not a Python .* set it to one"
        ):
            worker.start()
    with pytest.raises(ConfigurationError, match="setting queue_gates can't be handed to another process"):
        EmbeddedWorker("s", tasks=TASKS, queue_gates="sms max_wait=5m").start()
    assert worker.pid is None


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        (["no.such"], r"task module 'no.such' \(from argument tasks\) can't be found from here"),
        (["fusion.no_such"], "task module 'fusion.no_such' .* correct the name"),
        (["1st"], "name a module, like 'tasks'"),
    ],
)
def test_missing_task_modules_are_named(tasks: list[str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        EmbeddedWorker("s", tasks=tasks).start()


def test_without_any_task_module_it_says_how_to_name_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_worker, "task_modules", lambda patterns: ())
    with pytest.raises(ConfigurationError, match=r"name yours, EmbeddedWorker\(tasks=\['shop.tasks'\]\) or FUSION_TASKS"):
        EmbeddedWorker("s").start()


def test_wrong_arguments_are_refused_at_once() -> None:
    with pytest.raises(ConfigurationError, match=r"setting reserve_high = 2 \(from argument reserve_high\) is not valid"):
        EmbeddedWorker("s", reserve_high=2)
    with pytest.raises(TypeError, match="no such settings: slot"):
        EmbeddedWorker("s", slot=2)
    with pytest.raises(TypeError, match=r"give settings=, or single ones \(slots\), not both"):
        EmbeddedWorker("s", settings=get_settings(), slots=2)
    with pytest.raises(InvalidName, match="queue name 'a b'"):
        EmbeddedWorker(["s", "a b"])
