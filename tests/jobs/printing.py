"""Tasks that print and log, as any code does."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

log = logging.getLogger("shop.sms")


def says(text: str, *, fails: bool = False) -> str:
    """On both streams, by print and by logging, and once without an end of the line."""
    print("printed", text)
    print("to stderr", text, file=sys.stderr)
    log.warning("logged %s", text)
    print("begun", text, end="")
    if fails:
        raise ValueError(text)
    return text


async def says_so(text: str, pause: float) -> None:
    """A coroutine, in turns with others."""
    for n in range(5):
        print(f"{text} {'abcde'[n]}")
        await asyncio.sleep(pause)
    raise ValueError(text)


def in_turns(text: str, pause: float) -> None:
    """A plain function, in turns with others."""
    for n in range(5):
        print(f"{text} {'abcde'[n]}")
        time.sleep(pause)
    raise ValueError(text)


def waits(text: str, gate: str, started: str) -> None:
    """Prints, and then waits while the gate is there."""
    print(text)
    Path(started).touch()
    while Path(gate).exists():
        time.sleep(0.01)


def dies(text: str, pause: float, *, loud: int = 0) -> None:
    """Killed from outside, a moment after its last line."""
    for n in range(loud):
        print("one of many", n)
    print(text)
    time.sleep(pause)
    os.kill(os.getpid(), signal.SIGKILL)


def many(count: int, *, fails: bool = False, width: int = 60) -> float:
    """Return the seconds that it took to print this many lines."""
    began = time.monotonic()
    for n in range(count):
        print("line", n, "x" * width)
    if fails:
        raise ValueError("after all")
    return time.monotonic() - began


def forks(witness: str) -> None:
    """A child prints, and lives on with the standard streams; so does a daemon of its own session."""
    print("before the fork")
    if os.fork() == 0:
        print("of the child")
        sys.stdout.flush()
        time.sleep(30)
        os._exit(0)
    subprocess.Popen(["sh", "-c", "echo of a command; sleep 30"], start_new_session=True)
    print("after the fork")
    Path(witness).touch()
    raise ValueError("no")


def odd() -> None:
    """What is no text, or no line: bytes, half of a pair, escapes, ten megabytes, a progress bar, other threads."""
    sys.stdout.buffer.write(b"\xff\xfe of the buffer\n")
    print("half \ud800 of a pair", file=sys.stderr)
    print("\x1b[31mred\x1b[0m \x07")
    print("y" * 10_000_000)
    for n in range(100):
        print(f"\rstep {n}", end="")
    print()
    thread = threading.Thread(target=print, args=("of a thread",))
    thread.start()
    thread.join()
    print("last")
    raise ValueError("no")


def code(kind: str, text: str) -> str:
    """Shows a one-time password in one of these ways."""
    if kind == "print":
        print(text)
    elif kind == "log":
        log.error("otp %s", text)
    elif kind == "pieces":
        for letter in text:
            print(letter, end="")
        print()
    elif kind == "raise":
        raise ValueError(text)
    elif kind == "trace":
        log.error("no", exc_info=ValueError(text))
    if kind != "return":
        raise RuntimeError("so that its log is kept")
    return text


def bound() -> None:
    """A line whose format names the job."""
    log.error("of a job")
    raise ValueError("no")


def waits_and_prints(gate: str, started: str, count: int) -> None:
    """Prints once the gate is gone; a file says when it is through."""
    Path(started).touch()
    while Path(gate).exists():
        time.sleep(0.01)
    for n in range(count):
        print("line", n)
    print("the last one")
    Path(started + ".done").touch()
    raise ValueError("no")


def fails_once(ran: str) -> None:
    """Prints and fails the first time, and prints the second time."""
    print("at work")
    if not Path(ran).exists():
        Path(ran).touch()
        time.sleep(0.3)
        raise ConnectionError("once")
