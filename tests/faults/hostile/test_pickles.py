"""A pickle runs code when it is loaded. None is, whoever reads it, unless it is allowed and signed; and none is unpacked without end."""

from __future__ import annotations

import ast
import pickle
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import redis

from fusion import FailedFilter, FailedQueue, Queue
from fusion.exceptions import BadSignature, ConfigurationError
from fusion.job import Job
from fusion.settings import use_settings
from tests.architecture.source import modules, parse
from tests.faults.hostile.test_fields import ENV, LOOKS, look, read_all
from tests.faults.hostile.values import FIELDS, bombs, plant, spoil_the_rest, spread, zlib_bomb
from tests.jobs import basic
from tests.kit.process import ROOT
from tests.kit.relays import Relays
from tests.kit.schedulers import Schedulers
from tests.kit.waiting import eventually
from tests.kit.witnesses import field, status_of
from tests.kit.workers import Workers
from tests.relay.harness import documents_in
from tests.web.conftest import Start

#: Calls that run what they are given.
LOADERS = {"loads", "load", "Unpickler", "_loads", "_load"}
PICKLERS = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib", "_pickle", "yaml"}
KEYS = {"FUSION_SECRET_KEYS": "k1:" + "0123456789abcdefghijklmnopqrstuv", "FUSION_ALLOW_PICKLE": "1"}
MODES = {"pickle off": {}, "unsigned": KEYS}


def loaders_in(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"eval", "exec"}:
            yield node.lineno, node.func.id
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in PICKLERS
            and node.attr in LOADERS
        ):
            yield node.lineno, f"{node.value.id}.{node.attr}"
        if isinstance(node, ast.ImportFrom) and node.module in PICKLERS:
            yield from ((node.lineno, f"{node.module}.{name.name}") for name in node.names if name.name in LOADERS)


def test_one_module_loads_pickles_and_none_runs_text() -> None:
    found = {str(path): list(loaders_in(parse(path))) for path in modules("fusion", "tasks", "wrappers")}
    assert {path: [what for _, what in calls] for path, calls in found.items() if calls} == {
        "fusion/kernel/serializers.py": ["pickle.loads"]
    }


@pytest.mark.parametrize(
    "code", ["pickle.loads(x)", "f = pickle.Unpickler", "from pickle import loads as l", "eval('1')", "marshal.loads(b'')"]
)
def test_the_check_finds(code: str) -> None:
    assert list(loaders_in(ast.parse(code)))


@pytest.fixture
def touched(tmp_path: Path) -> Path:
    return tmp_path / "touched"


def test_the_bombs_are_some(touched: Path) -> None:
    for raw in bombs(touched).values():
        touched.unlink(missing_ok=True)
        try:
            raw = zlib.decompress(raw)
        except zlib.error:
            pass
        pickle.loads(raw)
        assert touched.exists()


@pytest.mark.timeout(180)
@pytest.mark.parametrize("mode", MODES)
def test_a_bomb_goes_off_nowhere(
    mode: str,
    workers: Workers,
    schedulers: Schedulers,
    relays: Relays,
    start: Start,
    conn: redis.Redis,
    redis_url: str,
    touched: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in MODES[mode].items():
        monkeypatch.setenv(name, value)
    use_settings(None)
    every = bombs(touched)
    traps = [(name, every["compressed call" if name == "data" else list(every)[n % 4]]) for n, name in enumerate(FIELDS)]
    # a worker, and what it makes of them
    pairs = list(plant(conn, "sms", traps, "tests.jobs.basic.boom", {"serializer": "pickle"}))
    worker = workers.burst("sms", env=ENV, timeout=120)
    assert {status_of(conn, probe) for _, probe in pairs} == {"finished"}, worker.output
    assert not touched.exists()
    # everybody else
    found = [*spread(conn, traps, {"serializer": "pickle"}, prefix="s"), *(hostile for hostile, _ in pairs)]
    spoil_the_rest(conn, set(every.values()))
    file = tmp_path / "events.jsonl"
    relay, scheduler = relays.start(env={"FUSION_EVENTS_FILE": str(file)}), schedulers.start()
    server = start(redis_url, "--no-auth")
    kept = [job for job in Job.fetch_many(found, conn) if job is not None]
    assert len(kept) > len(traps)
    for job in kept:
        read_all(job)
    for line in (*LOOKS, "failures --function *"):
        look(line)
    for job in kept:
        assert server.ask("GET", f"/api/v1/jobs/{job.id}?include=result").status == 200
    Queue("sms", conn).enqueue(basic.noop, job_id="last")
    eventually(lambda: any(told["job_id"] == "last" for told in documents_in(file)), 60, why="the relay is through")
    eventually(lambda: not conn.zcount("rq:scheduler:scheduled_jobs", "-inf", 1e9), 60, why="the scheduler is through")
    assert [one.process.poll() for one in (relay, scheduler, server)] == [None] * 3
    assert not touched.exists()


# -- programs that look at pickled jobs of theirs


@pytest.fixture
def pickled(conn: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> redis.Redis:
    for name, value in {**KEYS, "FUSION_SERIALIZER": "pickle"}.items():
        monkeypatch.setenv(name, value)
    use_settings(None)
    return conn


def test_a_program_with_keys_loads_the_arguments_of_signed_jobs_alone(pickled: redis.Redis, touched: Path) -> None:
    made = Queue("sms").enqueue(basic.add, 1, b=2)
    for job in (made, Job.fetch(made.id)):
        assert (job.func_name, job.args, job.kwargs) == ("tests.jobs.basic.add", (1,), {"b": 2})
    stored = pickled.hgetall(f"rq:job:{made.id}")
    for job_id, changes in {
        "altered": {"data": bombs(touched)["compressed call"]},
        "copied": {},
        "moved": {"origin": "root"},
        "unsigned": {"signature": ""},
        "of another key": {"signature": stored[b"signature"].replace(b"v1.k1.", b"v1.k2.")},
    }.items():
        name = made.id if job_id == "moved" else job_id.replace(" ", "-")
        pickled.hset(f"rq:job:{name}", mapping={**stored, **changes})
        for what in ("func_name", "args", "kwargs"):
            with pytest.raises(BadSignature, match=f"job {name}: its arguments are a pickle, and are not loaded"):
                getattr(Job.fetch(name), what)
    assert not touched.exists()


def test_a_signed_job_keeps_its_arguments_whatever_its_outcome(pickled: redis.Redis, workers: Workers) -> None:
    job = Queue("sms").enqueue(basic.boom, "no")
    workers.burst("sms", env={"FUSION_ALLOW_PICKLE": "1"})
    assert (job.get_status(), Job.fetch(job.id).args) == ("failed", ("no",))
    FailedQueue().requeue(job.id)
    assert Job.fetch(job.id).args == ("no",)


def test_a_pickled_result_is_not_loaded_where_there_are_keys(pickled: redis.Redis, touched: Path) -> None:
    job = Queue("sms").enqueue(basic.add, 1, 2)
    pickled.hset(f"rq:job:{job.id}", mapping={"status": "finished", "result": bombs(touched)["bare"]})
    with pytest.raises(BadSignature, match="which no signature covers"):
        _ = Job.fetch(job.id).result
    assert not touched.exists()


@pytest.mark.parametrize("allowed", ["0", "1"])
def test_failures_name_the_function_of_a_pickled_job_without_loading_it(
    conn: redis.Redis, touched: Path, allowed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where pickles are allowed: a job may have failed because its signature was refused."""
    monkeypatch.setenv("FUSION_ALLOW_PICKLE", allowed)
    use_settings(None)
    for name, raw in {**bombs(touched), "torn": bombs(touched)["compressed call"][:20], "endless": zlib_bomb(64)}.items():
        conn.hset(
            f"rq:job:{name.replace(' ', '-')}", mapping={"status": "failed", "serializer": "pickle", "data": raw, "origin": "q"}
        )
        conn.zadd("rq:queue:failed", {name.replace(" ", "-"): "inf"})
    found = FailedQueue(conn).requeue_all(FailedFilter(function="tests.jobs.basic.*"), dry_run=True)
    assert found.moved == 2, "the two calls"
    look("failures")
    assert not touched.exists()


# -- what is small in Redis and large in memory

READER = """
import resource, sys
from fusion.job import Job
from fusion.exceptions import FusionError
Job.fetch("small").exc_info
base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for name in ("args", "func_name", "result", "exc_info", "meta"):
    try:
        getattr(Job.fetch("bomb"), name)
    except FusionError as error:
        print(name, error)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base)
"""
#: MiB of zeros, in a thousandth of that; what reading them may cost at most.
BOMB, ROOM = 256, 20


def test_a_decompression_bomb_of_a_pickle_is_refused_in_little_memory(conn: redis.Redis, start: Start, redis_url: str) -> None:
    raw = zlib_bomb(BOMB)
    assert len(raw) < BOMB << 11
    common = {"status": "finished", "serializer": "pickle", "origin": "sms"}
    conn.hset(
        "rq:job:bomb", mapping={**common, **dict.fromkeys(("data", "result", "exc_info", "meta", "description", "reason"), raw)}
    )
    conn.hset("rq:job:small", mapping={**common, "data": zlib.compress(b"x"), "exc_info": "x"})
    conn.zadd("rq:finished:sms", {"bomb": "inf"})
    env = {"FUSION_ALLOW_PICKLE": "1", "FUSION_REDIS_URL": redis_url, "PATH": "/usr/bin:/bin"}
    program = [sys.executable, "-c", READER]
    said = subprocess.run(program, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()
    refused = [line for line in said if "what was compressed is larger than 16777216 bytes" in line]
    assert [line.split()[0] for line in refused] == ["args", "func_name", "result", "meta"], said
    assert int(said[-1]) < ROOM * 1024, said
    server = start(redis_url, "--no-auth", env={"FUSION_ALLOW_PICKLE": "1"})
    process = psutil.Process(server.process.pid)
    assert server.ask("GET", "/api/v1/jobs/small?include=result").status == 200
    before = process.memory_info().rss
    assert server.ask("GET", "/api/v1/jobs/bomb?include=result").status == 200
    assert process.memory_info().rss - before < ROOM << 20


def test_a_pickle_is_off_until_it_is_allowed(conn: redis.Redis, touched: Path) -> None:
    conn.hset(
        "rq:job:a",
        mapping={"status": "finished", "serializer": "pickle", "data": bombs(touched)["call"], "result": bombs(touched)["bare"]},
    )
    for name in ("args", "result"):
        with pytest.raises(ConfigurationError, match="FUSION_ALLOW_PICKLE=1"):
            getattr(Job.fetch("a", conn), name)
    assert (field(conn, "a", "status"), touched.exists()) == ("finished", False)
