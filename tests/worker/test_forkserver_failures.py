"""Task modules that can't be imported, forks that fail, descriptors that run out; and that nothing grows when all is well."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest
import redis

from fusion import Queue
from tests.faults.rig.conservation import check_conservation
from tests.kit.length import long_case
from tests.kit.waiting import eventually, unhurried
from tests.kit.witnesses import alive, field, runs_of, status_of
from tests.kit.workers import CROWDED, WorkerProcess, Workers, process_per_job

GOOD = "from tests.jobs.basic import witness\n\ndef note(path):\n    return witness(path, 'ran')\n"


class Module:
    """A task module `shaky` that a test writes and mends."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._file = directory / "shaky.py"
        self.seen = directory / "seen"
        self.env = {
            "FUSION_TASKS": "shaky",
            "PYTHONPATH": str(directory),
            "PYTHONDONTWRITEBYTECODE": "1",
            "SHAKY_SEEN": str(self.seen),
            "FUSION_IMPORT_TIMEOUT": "0.6",
        }

    def write(self, head: str = "") -> None:
        # Renamed into place: a fork server must not read half a file.
        new = self._directory / "shaky.new"
        new.write_text(head + "\n" + GOOD)
        new.rename(self._file)

    def notes(self, word: str) -> list[int]:
        return runs_of(self.seen, word)


@pytest.fixture
def shaky(tmp_path: Path) -> Module:
    return Module(tmp_path)


_NOTE = """
import os
fd = os.open(os.environ["SHAKY_SEEN"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
os.write(fd, f"import - {os.getpid()}\\n".encode())
os.close(fd)
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("trouble", "told"),
    [
        pytest.param("import no_such_thing", "ModuleNotFoundError: No module named 'no_such_thing'", id="missing"),
        long_case("def broken(:", "SyntaxError", id="syntax"),
        long_case("raise SystemExit(3)", "SystemExit: 3", id="exit"),
        long_case("os._exit(0)", "the fork server ended while it imported shaky", id="os._exit"),
        pytest.param("os.kill(os.getpid(), 11)", "the fork server ended while it imported shaky", id="segfault"),
        long_case("import time; time.sleep(600)", "shaky does not end its import", id="hang"),
        pytest.param(
            "import subprocess; subprocess.run(['sleep', '600'])", "shaky does not end its import", id="hang in a child"
        ),
    ],
)
def test_a_module_that_can_not_be_imported_costs_no_job(
    trouble: str, told: str, workers: Workers, conn: redis.Redis, shaky: Module
) -> None:
    shaky.write(trouble if "broken" in trouble else _NOTE + trouble)
    job = Queue("f", conn).enqueue("shaky.note", str(shaky.seen))
    worker = workers.start("f", ready=False, env=shaky.env)
    eventually(lambda: worker.output.count("no job is claimed meanwhile") == 2, why="it is tried again")
    assert worker.output.count(told) >= 2 and "shaky" in worker.output
    assert status_of(conn, job.id) == "queued"
    assert not field(conn, job.id, "deliveries")
    assert worker.process.poll() is None
    shaky.write()
    eventually(lambda: status_of(conn, job.id) == "finished", why="with the module mended the job runs by itself")
    assert len(shaky.notes("ran")) == 1
    check_conservation(conn, [job.id])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=["term", "reload"])
def test_a_worker_whose_import_hangs_hears_its_signals(number: int, workers: Workers, conn: redis.Redis, shaky: Module) -> None:
    shaky.write(_NOTE + "import time; time.sleep(600)")
    worker = workers.start("f", ready=False, env={**shaky.env, "FUSION_IMPORT_TIMEOUT": "60"})
    (hanging,) = eventually(lambda: shaky.notes("import"), why="the import has begun")
    shaky.write()
    worker.signal(number)
    eventually(lambda: not alive(hanging), why="the hanging import is cut off")
    if number == signal.SIGTERM:
        assert worker.wait(10) == 0
    else:
        worker.wait_ready()


@pytest.mark.parametrize(
    ("trouble", "told"),
    [
        ("import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()", "starts 1 thread(s)"),
        ("import socket; pair = socket.socketpair()", "opens 2 connection(s)"),
    ],
    ids=["thread", "connection"],
)
def test_a_module_that_can_not_be_forked_is_imported_by_each_horse(
    trouble: str, told: str, workers: Workers, conn: redis.Redis, shaky: Module
) -> None:
    shaky.write(_NOTE + trouble)
    worker = workers.start("f", env=shaky.env)
    jobs = [Queue("f", conn).enqueue("shaky.note", str(shaky.seen)) for _ in range(3)]
    eventually(lambda: all(status_of(conn, job.id) == "finished" for job in jobs))
    assert f"shaky {told} when it is imported" in worker.output
    assert "each job's process imports it itself" in worker.output
    assert set(shaky.notes("ran")) <= set(shaky.notes("import")), "a job ran where the module was not imported"
    check_conservation(conn, [job.id for job in jobs])


@pytest.mark.long
@process_per_job("jobs are given to processes that import yet")
@pytest.mark.parametrize(
    ("trouble", "told"), [("os._exit(0)", "takes the process down"), ("time.sleep(600)", "does not end within")]
)
def test_what_no_horse_can_import_costs_no_job(
    trouble: str, told: str, workers: Workers, conn: redis.Redis, shaky: Module
) -> None:
    opens = "import socket, time; pair = socket.socketpair()\n"
    shaky.write(_NOTE + opens + f"if open(os.environ['SHAKY_SEEN']).read().count('import') > 1: {trouble}")
    job = Queue("f", conn).enqueue("shaky.note", str(shaky.seen), job_timeout=0.1)
    worker = workers.start("f", ready=False, env=shaky.env)
    eventually(lambda: worker.output.count("no job is claimed meanwhile") == 2, why="it is tried again")
    assert worker.output.count(told) == 2 and "shaky can't be imported" in worker.output
    assert (status_of(conn, job.id), field(conn, job.id, "deliveries")) == ("queued", "")
    shaky.write(opens)
    eventually(lambda: status_of(conn, job.id) == "finished", why="with the module mended the job runs by itself")
    check_conservation(conn, [job.id])


@pytest.mark.long
def test_strict_preload_makes_that_an_error(workers: Workers, conn: redis.Redis, shaky: Module) -> None:
    shaky.write("import socket; pair = socket.socketpair()")
    job = Queue("f", conn).enqueue("shaky.note", str(shaky.seen))
    worker = workers.start("f", "--preload", "strict", ready=False, env=shaky.env)
    eventually(lambda: "start the worker with --preload auto" in worker.output)
    assert status_of(conn, job.id) == "queued"


@process_per_job("this many jobs need no fork")
@pytest.mark.parametrize("nth", [1, long_case(2), long_case(3), 4])
def test_a_fork_that_fails_loses_no_job(nth: int, workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    jobs = [Queue("f", conn).enqueue("tests.jobs.basic.witness", str(seen), "ran") for _ in range(4)]
    worker = workers.start("f", ready=False, env={"FUSION_FAILPOINTS": f"fork.before=raise:BlockingIOError@{nth}"})
    eventually(lambda: all(status_of(conn, job.id) == "finished" for job in jobs))
    assert "fork failed" in worker.output
    assert [len(runs_of(seen, "ran", job.id)) for job in jobs] == [1] * 4
    for job in jobs:
        assert field(conn, job.id, "attempts") in ("", "0") and field(conn, job.id, "lost") in ("", "0")
    check_conservation(conn, [job.id for job in jobs])


@pytest.mark.long
@process_per_job("a job needs no descriptors of the worker")
def test_a_worker_out_of_descriptors_goes_on_when_there_are_some_again(
    workers: Workers, conn: redis.Redis, tmp_path: Path
) -> None:
    seen = tmp_path / "seen"
    queue = Queue("f", conn)
    worker = workers.start("f", env={"FUSION_IDLE_WAIT": "0.3"})
    process = psutil.Process(worker.pid)
    jobs = [queue.enqueue("tests.jobs.basic.witness", str(seen), "ran")]
    eventually(lambda: status_of(conn, jobs[0].id) == "finished")
    before = process.rlimit(psutil.RLIMIT_NOFILE)
    used = {int(entry.name) for entry in Path(f"/proc/{worker.pid}/fd").iterdir()}
    process.rlimit(psutil.RLIMIT_NOFILE, (min(set(range(1024)) - used), before[1]))
    jobs += [queue.enqueue("tests.jobs.basic.witness", str(seen), "ran") for _ in range(6)]
    eventually(lambda: "no socket for another process" in worker.output, why="forking ahead fails")
    # Not lower: poll() itself takes no more entries than there may be descriptors.
    process.rlimit(psutil.RLIMIT_NOFILE, (6, before[1]))
    worker.fork_server().kill()
    eventually(lambda: "the fork server can't be started" in worker.output, why="starting another fails too")
    assert worker.process.poll() is None
    process.rlimit(psutil.RLIMIT_NOFILE, before)
    eventually(lambda: all(status_of(conn, job.id) == "finished" for job in jobs), why="all jobs run")
    assert worker.process.poll() is None
    check_conservation(conn, [job.id for job in jobs])


def test_a_fork_servers_death_takes_its_jobs_children_along(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    worker = workers.start("f", env={"FUSION_TASKS": "tests.jobs.stubborn", "FUSION_MAX_LOST": "1"})
    job = Queue("f", conn).enqueue("tests.jobs.stubborn.leaves_a_child", str(seen))
    pids = eventually(lambda: len(found := runs_of(seen, "here")) == 2 and found, why="task and child have begun")
    worker.fork_server().kill()
    eventually(lambda: not any(alive(pid) for pid in pids), why="both are gone")
    eventually(lambda: status_of(conn, job.id) == "failed")
    assert "the fork server died with the job's process" in field(conn, job.id, "exc_info")
    check_conservation(conn, [job.id])


@pytest.mark.long
def test_a_signal_while_the_worker_registers_is_heard(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    here = tmp_path / "here"
    worker = workers.start("f", ready=False, env={"FUSION_FAILPOINTS": f"register.after=wait:{here}"})
    eventually(lambda: here.exists() and conn.smembers("rq:workers"), why="it has registered")
    worker.signal(signal.SIGTERM)
    here.unlink()
    assert worker.wait() == 0
    assert conn.smembers("rq:workers") == set()


# -- leaks


def _weigh(process: psutil.Process) -> tuple[list[str], int, int]:
    return _descriptors(process), process.num_threads(), process.memory_info().rss // 1024


def _descriptors(process: psutil.Process) -> list[str]:
    """What each is of, to name the one that is too many."""
    return [f"{one.name} {os.readlink(one)}" for one in sorted(Path(f"/proc/{process.pid}/fd").iterdir()) if one.is_symlink()]


def _settled(worker: WorkerProcess, conn: redis.Redis, queue: Queue, others: set[str]) -> bool:
    """`others`: ids of the connections from before the worker's start."""
    spares = [horse for horse in worker.horses() if alive(horse.pid)]
    # It opens the connections of its doorbell, its commands and its outcomes in its loop: on a busy machine that is later than the last commit.
    # What the other two sent last differs. Only this test sends `client|list`.
    clients = [client for client in conn.client_list() if client["id"] not in others and client["cmd"] != "client|list"]
    doorbell, commands = (client["cmd"] == "blpop" for client in clients), (client["sub"] != "0" for client in clients)
    waits = (len(clients), sum(doorbell), sum(commands)) == (4, 1, 1)
    return waits and queue.is_empty() and not conn.exists("rq:wip:f") and len(spares) == (1 if CROWDED else 2)


@pytest.mark.long
@pytest.mark.timeout(180)
def test_nothing_grows_over_1500_jobs(workers: Workers, conn: redis.Redis) -> None:
    queue, others = Queue("f", conn), {client["id"] for client in conn.client_list()}
    worker = workers.start("f", "--disable-job-desc-logging", env={"FUSION_MAX_JOBS_PER_HORSE": "0"})  # or it is replaced before
    processes = [psutil.Process(worker.pid), worker.fork_server(), *(worker.horses() if CROWDED else ())]

    def work(count: int) -> list[tuple[list[str], int, int]]:
        before = conn.zcard("rq:finished:f")
        queue.enqueue_many(Queue.prepare_data("tests.jobs.basic.noop", ["x" * 100]) for _ in range(count))
        eventually(lambda: conn.zcard("rq:finished:f") == before + count, unhurried(40), why=f"{count} jobs done")
        eventually(lambda: _settled(worker, conn, queue, others), why="idle again")
        return [_weigh(process) for process in processes]

    work(20)  # it has waited at its doorbell: all connections are made
    first, last = work(300), work(1200)
    for process, (fds, threads, rss), (_, threads_after, rss_after) in zip(processes, first, last, strict=True):
        # A job may come to a process of many before the thread of the last one is free again, and get another.
        spare = 1 if process not in processes[:2] else 0
        assert threads <= threads_after <= threads + spare
        # The last horse's socket may be open for a moment after its end.
        try:
            eventually(lambda process=process, fds=fds: process.num_fds() <= len(fds), why="no descriptor more than before")
        except AssertionError as error:
            raise AssertionError(f"{error}\nbefore: {fds}\nafter: {_descriptors(process)}\n{conn.client_list()}") from None
        assert rss_after <= rss * 1.03 + 256, f"{rss} KiB became {rss_after} KiB"
    assert last[0][1] == last[1][1] == 1, "the worker and its fork server have no threads"
