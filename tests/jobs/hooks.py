"""Hooks at fork and exit, of the standard library's modules and of this one."""

from __future__ import annotations

import atexit
import logging
import os
import random
import threading
import weakref
from multiprocessing.util import Finalize
from typing import Any

#: What the hooks of this module have done in this process and those before it.
seen: list[str] = []
_started: list[threading.Thread] = []
_gate = threading.Event()
random.gauss(0, 1)  # has one more number ready


class Counting(logging.StreamHandler):  # type: ignore[type-arg]
    """Counts how often the standard library made its lock anew after a fork."""

    renewed = 0

    def _at_fork_reinit(self) -> None:
        self.renewed += 1
        super()._at_fork_reinit()  # type: ignore[misc]


counting = Counting()


def _start_thread() -> None:
    thread = threading.Thread(target=_gate.wait, daemon=True)
    thread.start()
    _started.append(thread)


os.register_at_fork(
    before=lambda: seen.append("before 1"),
    after_in_child=lambda: seen.append(f"child 1 {random.random()}"),
    after_in_parent=lambda: seen.append("parent 1"),
)
os.register_at_fork(before=lambda: seen.append("before 2"), after_in_child=lambda: seen.append("child 2"))
os.register_at_fork(after_in_child=_start_thread)


def born() -> dict[str, Any]:
    """The state that a horse begins with."""
    main = threading.main_thread()
    return {
        "native_id": main.native_id == os.getpid(),
        "main": main is threading.current_thread() and main.is_alive(),
        "threads": len(threading.enumerate()),
        "hook's thread": _started[-1].is_alive() and _started[-1] in threading.enumerate(),
        "numbers": [random.random(), random.gauss(0, 1)],
        "renewed": counting.renewed,
        "seen": [line for line in seen if not line.startswith("parent")][-4:],
    }


def fork_amid_threads() -> dict[str, Any]:
    """What a fork of the task finds: another thread holds the locks of `logging` and is not there in the child."""
    log, ready, done = logging.getLogger("tests.hooks"), threading.Event(), threading.Event()
    handler = logging.StreamHandler(open(os.devnull, "w"))  # noqa: SIM115
    log.addHandler(handler)
    random.seed(1)

    def hold() -> None:
        """Keep the locks of the handler until the fork is over."""
        with handler.lock:  # type: ignore[union-attr]
            ready.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    ready.wait()
    seen.clear()
    read, write = os.pipe()
    before = counting.renewed
    if not (pid := os.fork()):
        log.error("the lock is free")
        own = _started[-1]
        facts = [
            counting.renewed - before,
            threading.main_thread() is threading.current_thread(),
            own.is_alive() and own in threading.enumerate(),
            thread.is_alive(),
            random.random() != random.Random(1).random(),
            [line.split(" 0.")[0] for line in seen],
        ]
        os.write(write, repr(facts).encode())
        os._exit(0)
    os.close(write)
    with open(read) as answer:
        text = answer.read()
    os.waitpid(pid, 0)
    done.set()
    thread.join()
    return {"child": text, "parent": seen}


def _write(path: str, line: str) -> None:
    with open(path, "a") as file:
        file.write(line + "\n")


class _Thing:
    pass


_thing = _Thing()
#: The file that handlers at exit write to.
_path = os.environ.get("TEST_HOOKS_PATH", os.devnull)
atexit.register(_write, _path, "atexit")
weakref.finalize(_thing, _write, _path, "weakref")


def finalize() -> None:
    """Leave something to do for multiprocessing at exit."""
    Finalize(None, _write, (_path, "multiprocessing"), exitpriority=1)
