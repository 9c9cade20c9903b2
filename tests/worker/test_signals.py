"""Warm, cold and immediate ends, reload, and commands over the channel."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path

import psutil
import pytest
import redis

from fusion import Queue
from fusion.job import Job
from tests.faults.rig.conservation import check_conservation
from tests.kit.length import long_case
from tests.kit.private_redis import PrivateRedis
from tests.kit.waiting import eventually
from tests.kit.witnesses import alive, field, lines, runs_of, status_of
from tests.kit.workers import WorkerProcess, Workers, alone_in_its_process

GATED = "tests.jobs.basic.until_gone"


class Scene:
    """A worker that is in the middle of one job, and a second job that waits."""

    def __init__(self, workers: Workers, conn: redis.Redis, directory: Path, **env: str) -> None:
        self.conn, self.gate, self.seen = conn, directory / "gate", directory / "seen"
        self.gate.touch()
        self.queue = Queue("s", conn)
        self.running: Job = self.queue.enqueue(GATED, str(self.gate), str(self.seen))
        self.waiting: Job = self.queue.enqueue("tests.jobs.basic.witness", str(self.seen), "second")
        self.worker: WorkerProcess = workers.start("s", env=env)
        self.horse = eventually(lambda: runs_of(self.seen, "started"), why="the job has begun")[0]
        self.tree = self.worker.tree()

    def states(self) -> list[str]:
        return [status_of(self.conn, job.id) for job in (self.running, self.waiting)]

    def ended(self, code: int) -> None:
        assert self.worker.wait() == code, self.worker.output
        eventually(lambda: not any(alive(process.pid) for process in self.tree), why="no process is left")
        assert self.conn.smembers("rq:workers") == set()
        assert not list(self.conn.scan_iter("rq:worker:*"))
        check_conservation(self.conn, [self.running.id, self.waiting.id])

    def warm_end(self) -> None:
        """The running job may finish, the waiting one is not taken."""
        eventually(lambda: "warm shutdown" in self.worker.output, why="the signal is heard")
        assert self.worker.process.poll() is None
        assert alive(self.horse)
        self.gate.unlink()
        self.ended(0)
        assert self.states() == ["finished", "queued"]
        assert len(runs_of(self.seen, "started")) == 1

    def cold_end(self) -> None:
        """The running job is back at its place, in front of the one that waited, with nothing spent."""
        self.ended(1)
        assert self.states() == ["queued", "queued"]
        assert self.queue.get_job_ids() == [self.running.id, self.waiting.id]
        assert field(self.conn, self.running.id, "attempts") in ("", "0")
        assert field(self.conn, self.running.id, "lost") in ("", "0")


@pytest.fixture
def scene(workers: Workers, conn: redis.Redis, tmp_path: Path) -> Scene:
    return Scene(workers, conn, tmp_path)


@pytest.mark.parametrize("number", [signal.SIGTERM, long_case(signal.SIGINT)])
def test_one_signal_is_a_warm_end(scene: Scene, number: signal.Signals) -> None:
    scene.worker.signal(number)
    scene.warm_end()


def test_the_shutdown_command_is_a_warm_end(scene: Scene) -> None:
    name = next(iter(scene.conn.smembers("rq:workers"))).decode().removeprefix("rq:worker:")
    channel = f"rq:pubsub:{name}"
    eventually(lambda: scene.conn.pubsub_numsub(channel)[0][1] == 1, why="the worker listens")
    for noise in (
        b"\xff\x00",
        b"[]",
        b"7",
        json.dumps({"command": ["shutdown"]}).encode(),
        json.dumps({"command": "no such"}).encode(),
    ):
        scene.conn.publish(channel, noise)
    assert scene.conn.publish(channel, json.dumps({"command": "shutdown"})) == 1
    scene.warm_end()


def test_the_kill_horse_command_ends_the_running_job(scene: Scene) -> None:
    name = next(iter(scene.conn.smembers("rq:workers"))).decode().removeprefix("rq:worker:")
    eventually(
        lambda: scene.conn.publish(f"rq:pubsub:{name}", json.dumps({"command": "kill-horse"})) == 1, why="the worker listens"
    )
    eventually(lambda: scene.states() == ["failed", "finished"], why="the job has failed, the next one ran")
    assert "killed by command" in field(scene.conn, scene.running.id, "exc_info")
    assert not alive(scene.horse)
    check_conservation(scene.conn, [scene.running.id, scene.waiting.id])


@pytest.mark.long
def test_two_signals_are_a_cold_end(scene: Scene) -> None:
    scene.worker.signal(signal.SIGTERM)
    eventually(lambda: "warm shutdown" in scene.worker.output)
    scene.worker.signal(signal.SIGINT)
    scene.cold_end()


def test_quit_is_a_cold_end_at_once(scene: Scene) -> None:
    scene.worker.signal(signal.SIGQUIT)
    scene.cold_end()


@pytest.mark.parametrize("first", [long_case("worker"), "horses"])
def test_a_signal_to_the_whole_tree_is_a_warm_end(scene: Scene, first: str) -> None:
    tree = [psutil.Process(scene.worker.pid), *scene.tree]
    for process in tree if first == "worker" else reversed(tree):
        with contextlib.suppress(psutil.NoSuchProcess):  # the worker lets its spares go at once
            process.send_signal(signal.SIGTERM)
    scene.warm_end()


@pytest.mark.long
@alone_in_its_process("a task has no main thread there, which handlers of signals are for")
def test_a_horse_that_dies_of_the_trees_signal_gives_its_job_back(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    job = Queue("s", conn).enqueue("tests.jobs.basic.with_default_signals", str(seen))
    worker = workers.start("s")
    (horse,) = eventually(lambda: runs_of(seen, "default"), why="the job has begun")
    worker.signal(signal.SIGTERM)
    eventually(lambda: "warm shutdown" in worker.output)
    os.kill(horse, signal.SIGTERM)
    assert worker.wait() == 0, worker.output
    assert status_of(conn, job.id) == "queued"
    assert field(conn, job.id, "attempts") in ("", "0")
    assert field(conn, job.id, "lost") in ("", "0")
    check_conservation(conn, [job.id])


def test_an_idle_worker_ends_at_once(workers: Workers, conn: redis.Redis) -> None:
    worker = workers.start("s")
    worker.signal(signal.SIGTERM)
    assert worker.wait(10) == 0
    assert conn.smembers("rq:workers") == set()


@pytest.mark.long
def test_a_worker_that_can_not_import_its_tasks_still_ends(workers: Workers, conn: redis.Redis) -> None:
    worker = workers.start("s", ready=False, env={"FUSION_TASKS": "no.such.module"})
    eventually(lambda: "no.such.module" in worker.output, why="the failure is logged")
    worker.signal(signal.SIGTERM)
    assert worker.wait(10) == 0
    assert conn.smembers("rq:workers") == set()


MODULE = "from tests.jobs.basic import until_gone, witness\n\ndef note(path):\n    return witness(path, {word!r})\n"


def test_reload_takes_changed_code_and_lets_the_running_job_finish(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    module, gate, seen = tmp_path / "reloadable.py", tmp_path / "gate", tmp_path / "seen"
    module.write_text(MODULE.format(word="old"))
    gate.touch()
    env = {"FUSION_TASKS": "tests.jobs.basic,reloadable", "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    queue = Queue("s", conn)
    worker = workers.start("s", "--slots", "2", env=env)
    first = queue.enqueue("reloadable.note", str(seen))
    eventually(lambda: status_of(conn, first.id) == "finished")
    running = queue.enqueue(GATED, str(gate), str(seen))
    eventually(lambda: runs_of(seen, "started"))
    old = worker.fork_server()
    module.write_text(MODULE.format(word="new"))
    worker.signal(signal.SIGHUP)
    after = queue.enqueue("reloadable.note", str(seen))
    eventually(lambda: status_of(conn, after.id) == "finished", why="a job runs while the old fork server drains")
    assert [line.split()[0] for line in lines(seen)] == ["old", "started", "new"]
    assert status_of(conn, running.id) == "started"
    gate.unlink()
    eventually(lambda: status_of(conn, running.id) == "finished")
    eventually(lambda: not alive(old.pid), why="the old fork server ends with its last job")
    assert worker.fork_server().pid != old.pid
    assert len(runs_of(seen, "started")) == 1
    check_conservation(conn, [first.id, running.id, after.id])


@pytest.mark.long
def test_reloads_in_a_row(workers: Workers, conn: redis.Redis) -> None:
    worker = workers.start("s")
    for _ in range(3):
        before = worker.output.count("ready for jobs")
        worker.signal(signal.SIGHUP)
        eventually(lambda before=before: worker.output.count("ready for jobs") > before, why="a new fork server")
    jobs = [Queue("s", conn).enqueue("tests.jobs.basic.add", i, 1) for i in range(10)]
    eventually(lambda: all(status_of(conn, job.id) == "finished" for job in jobs))
    eventually(lambda: len(psutil.Process(worker.pid).children()) == 1, why="one fork server is left")


@pytest.mark.long
def test_a_warm_end_waits_for_redis_to_take_the_outcome(
    private_redis: PrivateRedis, private_workers: Workers, tmp_path: Path
) -> None:
    scene = Scene(private_workers, private_redis.conn, tmp_path, FUSION_SOCKET_TIMEOUT="0.3")
    private_redis.pause()
    scene.gate.unlink()
    eventually(lambda: "Redis is away" in scene.worker.output, why="the outcome can't be committed")
    scene.worker.signal(signal.SIGTERM)
    eventually(lambda: "warm shutdown" in scene.worker.output)
    private_redis.resume()
    scene.ended(0)
    assert scene.states() == ["finished", "queued"]
    assert len(runs_of(scene.seen, "started")) == 1


@pytest.mark.long
def test_a_warm_end_gives_redis_up_after_one_lease(private_redis: PrivateRedis, private_workers: Workers, tmp_path: Path) -> None:
    scene = Scene(private_workers, private_redis.conn, tmp_path, FUSION_SOCKET_TIMEOUT="0.2", FUSION_LEASE="0.5")
    private_redis.pause()
    scene.gate.unlink()
    scene.worker.signal(signal.SIGTERM)
    assert scene.worker.wait(5) == 1, scene.worker.output
    private_redis.resume()
    heir = private_workers.start("s", env={"FUSION_LEASE": "0.5"})
    eventually(lambda: scene.states() == ["finished", "finished"], why="another worker runs both")
    assert len(runs_of(scene.seen, "started")) <= 2
    check_conservation(private_redis.conn, [scene.running.id, scene.waiting.id])
    assert heir.process.poll() is None


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGQUIT, signal.SIGTERM], ids=["quit", "two terms"])
def test_a_cold_end_does_not_wait_for_redis(
    private_redis: PrivateRedis, private_workers: Workers, tmp_path: Path, number: int
) -> None:
    scene = Scene(private_workers, private_redis.conn, tmp_path, FUSION_SOCKET_TIMEOUT="0.3")
    private_redis.pause()
    scene.worker.signal(number)
    if number == signal.SIGTERM:
        eventually(lambda: "warm shutdown" in scene.worker.output)
        scene.worker.signal(number)
    assert scene.worker.wait(5) == 1
    assert not alive(scene.horse)
