"""Of a run of RQ's tests: names that `fusion.rq` does not have, and each test in a process of its own with a time limit."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
import time


class _Absent(type):
    """The class of a missing name: it can stand in a list of bases or in a signature, and fails when it is used."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        raise ImportError(f"fusion.rq has no {cls.__module__}")

    def __call__(cls, *args, **kwargs):
        raise ImportError(f"fusion.rq has no {cls.__module__}")


def import_names(module, *names):
    """Return the names of a module; one that fails on use for each that is missing."""
    try:
        found = importlib.import_module(module)
    except ImportError:
        found = None
    return [_name(found, module, name) for name in names]


def _name(found, module, name):
    try:
        if found is not None:
            return getattr(found, name)
        return importlib.import_module(f"{module}.{name}")
    except (AttributeError, ImportError):
        path = f"{module}.{name}".removeprefix("fusion.")
        if path in _INTERNAL:
            return _INTERNAL[path]
        try:
            return importlib.import_module(f"{module}.{name}")
        except ImportError:
            return _Absent(name, (), {"__module__": path})


def _get_version(connection):
    return tuple(int(part) for part in connection.info("server")["redis_version"].split(".")[:3])


#: Internal names that RQ's kit itself needs to load its files.
_INTERNAL = {"rq.utils.get_version": _get_version}


# -- a plug-in of pytest


def pytest_runtest_protocol(item, nextitem):
    """Run the test in a forked process; what it printed and how it ended goes to the file of results."""
    limit = float(os.environ["FUSION_RQ_SUITE_LIMIT"])
    began = time.monotonic()
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        code = 1
        with contextlib.suppress(BaseException):
            os.close(read)
            os.setpgid(0, 0)
            code = _in_child(item, write)
        os._exit(code)
    os.close(write)
    raw = _until_end(read, began + limit)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    _sweep()
    _flush()
    outcome, why = (
        json.loads(raw) if raw else ("failed", "the time limit" if time.monotonic() - began > limit else "its process died")
    )
    _write(item, outcome, why, time.monotonic() - began)
    return True


def _in_child(item, write):
    from _pytest.runner import runtestprotocol

    outcome, why = "passed", ""
    for report in runtestprotocol(item, log=False, nextitem=None):
        if report.failed and outcome != "failed":
            lines = str(report.longreprtext).strip().splitlines()
            outcome, why = "failed", next((line for line in reversed(lines) if line.startswith("E ")), lines[-1] if lines else "")
            why = why.removeprefix("E ").strip()[:300]
            if os.environ.get("FUSION_RQ_SUITE_SHOW"):
                sys.__stderr__.write(f"\n==== {item.nodeid}\n{report.longreprtext}\n")
        elif report.skipped and outcome == "passed":
            outcome, why = "skipped", str(report.longrepr[-1] if isinstance(report.longrepr, tuple) else "")
    os.write(write, json.dumps([outcome, why]).encode())
    return 0


def _until_end(read, end):
    import select

    raw = b""
    while (left := end - time.monotonic()) > 0:
        if select.select([read], [], [], left)[0]:
            part = os.read(read, 65536)
            if not part:
                break
            raw += part
            try:
                json.loads(raw)
            except ValueError:
                continue
            break  # processes that the test left behind may still hold the pipe
    os.close(read)
    return raw


def _sweep():
    """End the processes that the test has left in other groups: all that descend from this one, which adopts orphans."""
    import psutil

    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            process.kill()
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _flush():
    import redis

    # RQ's kit takes the first empty database; a test that was killed leaves keys.
    with redis.Redis(port=int(os.environ["FUSION_RQ_SUITE_PORT"])) as server:
        server.flushall()


def pytest_sessionstart(session):
    import ctypes

    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def pytest_collectreport(report):
    if report.failed:
        lines = str(report.longreprtext).strip().splitlines()
        _line({"file": os.path.basename(report.nodeid), "error": lines[-1] if lines else ""})


def _write(item, outcome, why, took):
    owner = item.cls.__name__ if item.cls is not None else ""
    _line(
        {
            "file": item.path.name,
            "class": owner,
            "test": item.originalname or item.name,
            "outcome": outcome,
            "why": why,
            "took": took,
        }
    )


def _line(what):
    with open(os.environ["FUSION_RQ_SUITE_RESULTS"], "a") as out:
        out.write(json.dumps(what) + "\n")
