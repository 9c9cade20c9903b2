"""Memory, descriptors and imports of each process, and what it asks of Redis while there is nothing to do."""

from __future__ import annotations

import json
import resource
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import redis

from fusion import Queue
from fusion.kernel import defaults
from tests.budgets import figures
from tests.cli.conftest import run_worker
from tests.forkserver.driver import Driver
from tests.kit.monitor import Monitor
from tests.kit.process import ROOT
from tests.kit.waiting import eventually
from tests.kit.workers import WorkerProcess, Workers, process_per_job

WINDOW = 3.0
#: Seconds without a new connection after which the processes are at rest: more than pass before anything that they do is done first.
QUIET = defaults.REAP_INTERVAL + 1.0
PROGRAMS: dict[str, tuple[tuple[str, ...], tuple[str, ...], str]] = {
    "worker": (("worker",), ("--customq", "all"), "ready for jobs"),
    "pool": (("worker",), ("sms", "--horses", "2"), "ready for jobs"),
    "scheduler": (("scheduler",), (), "scheduler "),
    "relay": (("relay",), (), " to file"),
    "supervisor": (("start",), ("-n", "1", "--no-scheduler"), "is ready"),
}
LEAN = {"redis", "hiredis", "asyncio", "click", "croniter", "requests", "urllib3", "psutil"}
#: What a fork server keeps out besides: each would be copied with every fork.
LEANER = LEAN | {"logging", "socket", "subprocess", "threading", "dataclasses", "inspect", "datetime", "traceback", "typing"}


def private(process: psutil.Process) -> int:
    rows = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
    return 1024 * sum(int(row.split()[1]) for row in rows if row.startswith("Private_"))


def started(workers: Workers, tmp_path: Path, number: int, name: str) -> WorkerProcess:
    command, args, _ = PROGRAMS[name]
    base, _, query = workers.redis_url.partition("?")
    login = [item for item in query.split("&") if item and not item.startswith("db=")]
    url = f"{base}?{'&'.join([*login, f'db={number}'])}"  # by which the server's monitor tells them apart
    env = {
        "FUSION_TASKS": "*" if name == "scheduler" else "tests.jobs.costs"
    }  # a scheduler would load them in a process of its own
    if name == "relay":
        env["FUSION_EVENTS_FILE"] = str(tmp_path / "events.jsonl")
    return workers.start(*args, ready=False, env=env, url=url, program=("run_worker.py", *command))


def rows_of(name: str, process: psutil.Process) -> dict[str, tuple[float, float]]:
    """What it costs and what it may: resident and private bytes, descriptors; of a worker's fork server and horses too."""
    found: dict[str, tuple[float, float]] = {
        f"{name}: resident": (process.memory_info().rss, figures.RESIDENT),
        f"{name}: descriptors": (process.num_fds(), figures.DESCRIPTORS[name]),
    }
    if name in ("worker", "pool"):
        (server,) = process.children()
        found[f"{name}: fork server: descriptors"] = server.num_fds(), figures.FORK_SERVER_DESCRIPTORS
        for horse in server.children():
            limit = figures.WARM_PRIVATE if name == "pool" else figures.HORSE_PRIVATE
            found[f"{name}: horse {horse.pid}: private"] = private(horse), limit
            found[f"{name}: horse {horse.pid}: descriptors"] = horse.num_fds(), figures.HORSE_DESCRIPTORS
    return found


def connections(conn: redis.Redis) -> int:
    """How many the server has accepted so far."""
    return int(conn.info("stats")["total_connections_received"])


def settled(conn: redis.Redis) -> None:
    """Wait until nobody has made a connection for a while: those that are made when they are first needed have been, at whatever pace."""
    seen = [(connections(conn), time.monotonic())]

    def quiet() -> bool:
        if (now := connections(conn)) != seen[-1][0]:
            seen.append((now, time.monotonic()))
        return time.monotonic() - seen[-1][1] >= QUIET

    eventually(quiet, 60, 0.1, why="no more connections are made")


@pytest.mark.long
@process_per_job("its first worker would be like its second")
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_processes_at_rest(workers: Workers, conn: redis.Redis, monitor: Monitor, tmp_path: Path) -> None:
    found = {name: started(workers, tmp_path, number, name) for number, name in enumerate(PROGRAMS, 1)}
    for name, process in found.items():
        eventually(lambda name=name, process=process: PROGRAMS[name][2] in process.output, 60, why=process.output or name)
    eventually(
        lambda: sum(client["cmd"] == "blpop" for client in conn.client_list()) >= 4, 30, why="they wait at their doorbells"
    )
    settled(conn)
    monitor.by_database()
    before, begin = connections(conn), time.monotonic()
    time.sleep(WINDOW)  # not a wait for anything: the window of the measurement
    asked, window = monitor.by_database(), time.monotonic() - begin
    made = connections(conn) - before

    costs: dict[str, tuple[float, float]] = {"connections made": (made, 2)}
    for number, name in enumerate(found, 1):
        rate = figures.REST["worker"] if name == "supervisor" else 0.0  # its worker's are in its own database
        costs[f"{name}: requests"] = asked[number], (figures.REST[name] + rate) * window + figures.BURST
        costs |= rows_of(name, psutil.Process(found[name].pid))
    for process in found.values():
        process.signal(signal.SIGQUIT)  # all at once
    for what, (cost, limit) in costs.items():
        print(f"{what}: {cost:.0f} of {limit:.0f}")
    assert {what: cost for what, cost in costs.items() if cost[0] > cost[1]} == {}
    assert min(asked[1], asked[2], asked[4]) > 0, "they were seen: workers and relay look now and then"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    "flags",
    [
        pytest.param((), id="process per job", marks=process_per_job("the other case")),
        pytest.param(("--horses", "1"), id="warm processes"),
    ],
)
def test_the_cost_of_a_horse_before_its_task_begins(workers: Workers, conn: redis.Redis, flags: tuple[str, ...]) -> None:
    queue = Queue("sms", conn)
    jobs = [queue.enqueue("tests.jobs.costs.own") for _ in range(10)]
    workers.burst("sms", *flags, env={"FUSION_TASKS": "tests.jobs.costs"})
    assert [job.wait(10) for job in jobs] == ["finished"] * 10
    runs: list[dict[str, Any]] = [job.result for job in jobs]
    print(min(run["faults"] for run in runs), max(run["faults"] for run in runs), runs[-1])
    assert max(run["descriptors"] for run in runs) <= figures.HORSE_DESCRIPTORS
    assert max(run["private"] for run in runs) <= (figures.WARM_PRIVATE if flags else figures.HORSE_PRIVATE)
    if not flags:
        assert max(run["faults"] for run in runs) <= figures.HORSE_FAULTS


def test_what_requests_adds_to_a_horse() -> None:
    def faults(*modules: str) -> float:
        with Driver(modules=(*modules, "tests.jobs.costs")) as driver:
            runs = [driver.run("tests.jobs.costs.own").result for _ in range(25)]
        return statistics.median(int(run["faults"]) for run in runs)

    more = faults("requests") - faults()
    print(f"{more} faults more")
    assert more <= figures.HORSE_FAULTS_OF_REQUESTS


def test_the_fork_server_is_lean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path))
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    with Driver(modules=()):
        pass  # compiled once: the compiler takes a megabyte
    with Driver(modules=()) as driver:
        assert driver.server.pid is not None
        bare = subprocess.Popen(
            [sys.executable, "-c", "print(flush=True); input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert bare.stdout is not None and bare.stdin is not None
        bare.stdout.readline()
        more = psutil.Process(driver.server.pid).memory_info().rss - psutil.Process(bare.pid).memory_info().rss
        total = psutil.Process(driver.server.pid).memory_info().rss
        bare.communicate(b"\n")
        print(f"fork server: {total / figures.MB:.1f} MB, {more / figures.MB:.1f} over a bare interpreter")
        assert more < figures.FORK_SERVER_OVER_BARE, f"{more / 1024:.0f} KiB over a bare interpreter"
        if sys.version_info < (3, 12):
            assert total < figures.FORK_SERVER, f"{total / 1024:.0f} KiB"


def test_a_fork_server_gives_back_what_imports_have_freed() -> None:
    """The tables of these pages would be copied with every fork."""

    def anonymous(*modules: str) -> int:
        with Driver(modules=modules) as driver:
            rows = Path(f"/proc/{driver.server.pid}/status").read_text().splitlines()
            return 1024 * next(int(row.split()[1]) for row in rows if row.startswith("RssAnon"))

    assert anonymous("tests.jobs.frees_memory") - anonymous() < 4 * figures.MB, "the module frees 20 MB as it is imported"


@pytest.mark.parametrize(
    ("code", "unwanted"),
    [
        ("import fusion; fusion.StoreUnavailable", LEAN | {"logging", "fusion.store", "fusion.async_queue"}),
        ("import fusion; fusion.Queue", LEAN - {"redis", "hiredis", "asyncio"} | {"fusion.async_queue", "fusion.runtime", "fusion.worker"}),
        ("import fusion.forkserver.server", LEANER | {"fusion.store", "fusion.cli"}),
        ("import fusion.settings; fusion.settings.get_settings()", LEAN | {"logging"}),
        ("import fusion.forkserver.server; from fusion.kernel.serializers import JSONSerializer; JSONSerializer().dumps((1, {2}, b''))",
         LEANER | {"decimal", "uuid"}),
    ],
    ids=["fusion", "Queue", "fork server", "settings", "results of types that JSON lacks"],
)  # fmt: skip
def test_the_modules_that_an_import_loads(code: str, unwanted: set[str]) -> None:
    # redis imports OpenTelemetry where it is installed, which no budget counts.
    script = (
        f"import sys; before = set(sys.modules); sys.modules['opentelemetry'] = None\n{code}\nprint(*(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True, timeout=30)
    loaded = set(done.stdout.split())
    assert any(name.startswith("fusion") for name in loaded)
    assert not loaded & unwanted


def test_help_takes_little_cpu_time() -> None:
    def once() -> float:
        # Of the processor: one thread that waits for nothing takes no longer than that, and other tests that run don't count.
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert run_worker("--help").returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(once() for _ in range(5)) < figures.HELP_CPU


@pytest.mark.parametrize(
    "args",
    [
        ["--help"],
        ["info", "--help"],
        ["worker", "--help"],
        ["enqueue", "--help"],
        ["failures", "--help"],
        ["--version"],
        ["infoo"],
    ],
)
def test_help_imports_neither_redis_nor_requests(args: list[str]) -> None:
    code = (
        f"import sys, json; sys.argv = ['run_worker.py', *{args!r}]\n"
        "from fusion.cli.main import main\n"
        "try: main()\n"
        "finally: print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})), file=sys.stderr)"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    loaded = json.loads(ended.stderr.splitlines()[-1])
    assert "click" in loaded
    assert not {"redis", "hiredis", "requests", "asyncio", "croniter", "rich"} & set(loaded)
