"""A worker of all bundled queues with real HTTP and SMTP to the sandbox: one process per job, many jobs at once in threads, and on a loop."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import cpu
from benchmarks.contestant import ROOT, stop
from benchmarks.figures.figure import Effort, Figure, Found
from benchmarks.guard import guarded_home
from benchmarks.server import Server
from tasks.demo import campaign

#: Seconds within which the campaign has to be through.
_LIMIT = 120.0
#: Seconds after which the sandbox answers.
_DELAY = 0.02
#: Share of the campaign that is not timed, at its beginning and at its end.
_EDGE = 0.05
_ENQUEUE = """
import sys
from tasks.demo import campaign
from wrappers import task_queue as wrapper
calls = {"sms": wrapper.enqueue_sms, "email": wrapper.enqueue_email, "pn": wrapper.enqueue_pn,
         "webhook": wrapper.enqueue_webhook, "whatsapp": wrapper.enqueue_whatsapp}
for number, (channel, payload) in zip(range(int(sys.argv[1])), campaign()):
    calls[channel](payload)
"""
_WAYS = {
    "25 processes": ("--slots", "25"),
    "25 threads": ("--executor", "thread", "--threads", "25"),
    "200 at once beside a loop": ("--executor", "asyncio", "--concurrency", "200"),
}


def bundled(effort: Effort) -> Found:
    """The campaign in each of these ways, one after the other."""
    jobs = min(sum(1 for _ in campaign()), max(200, effort.drained // 100))
    found = Found()
    first: float | None = None
    for way, flags in _WAYS.items():
        rate, spent, held = _run(flags, jobs)
        found.figures += [
            Figure("bundled", f"{way}: rate", rate, "jobs/s"),
            Figure("bundled", f"{way}: CPU a job", spent, "ms"),
            Figure("bundled", f"{way}: memory", held, "MiB"),
        ]
        if first is None:
            first = rate
        else:
            found.figures.append(Figure("bundled", f"{way} / 25 processes", rate / first))
    return found


def _run(flags: tuple[str, ...], jobs: int) -> tuple[float, float, float]:
    """Jobs a second, CPU milliseconds a job of the worker's processes, and what they held amid it, in MiB."""
    with Server() as server, _sandbox() as (url, env), open(os.devnull, "wb") as null:
        env = {**os.environ, **env, "PYTHONPATH": str(ROOT), "FUSION_REDIS_URL": server.url, "NO_PROXY": "127.0.0.1"}
        subprocess.run([sys.executable, "-c", _ENQUEUE, str(jobs)], env=env, cwd=ROOT, check=True)
        command = [sys.executable, "run_worker.py", "worker", "all", "--url", server.url, "--quiet", *flags]
        worker = subprocess.Popen(command, env=env, cwd=ROOT, stdout=null, stderr=null, start_new_session=True)
        try:
            low, high = int(_EDGE * jobs), int((1 - _EDGE) * jobs)
            began, at, used = _reached(url, low), time.monotonic(), _spent(worker)
            half = _reached(url, jobs // 2)
            held = cpu.pss(worker.pid)
            ended = _reached(url, high)
            took, spent = time.monotonic() - at, _spent(worker) - used
            assert began <= half <= ended
        finally:
            stop(worker)
    return (ended - began) / took, 1000 * spent / (ended - began), held


def _spent(worker: subprocess.Popen[bytes]) -> float:
    return sum(cpu.by_kind(worker.pid, ("worker", "fork server", "horses")).values())


def _reached(url: str, jobs: int) -> int:
    """Wait for this many requests, refused ones too. Returns how many there are. Raises RuntimeError after a while."""
    until = time.monotonic() + _LIMIT
    while (total := _total(url)) < jobs:
        if time.monotonic() > until:
            raise RuntimeError(f"{total} of {jobs} jobs reached the sandbox")
        time.sleep(0.05)
    return total


def _total(url: str) -> int:
    stats = _ask(f"{url}/_stats")
    refused = sum(int(count) for of in stats["refused"].values() for count in of.values())
    return int(stats["total"]) + refused


def _ask(url: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data=data), timeout=10) as answer:
        return json.loads(answer.read() or b"null")


@contextmanager
def _sandbox() -> Iterator[tuple[str, dict[str, str]]]:
    """Its address, and the variables that lead to it."""
    with tempfile.TemporaryDirectory(dir=guarded_home()) as home:
        ready = Path(home, "ready")
        command = [sys.executable, "-m", "tasks.sandbox", "--port", "0", "--smtp-port", "0", "--ready-file", str(ready)]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
        try:
            while not ready.exists():
                if process.poll() is not None:
                    raise RuntimeError("the sandbox did not start")
                time.sleep(0.02)
            told = json.loads(ready.read_text())
            _ask(f"{told['url']}/_faults", {"channel": "*", "delay": _DELAY})
            yield told["url"], told["env"]
        finally:
            stop(process)
