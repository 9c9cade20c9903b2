"""A process on a terminal of its own, as a person has it."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.cli.conftest import ROOT


class Terminal:
    """What was drawn so far is in `drawn`; stderr goes there too."""

    def __init__(self, process: subprocess.Popen[bytes], fd: int) -> None:
        self.process, self._fd, self.drawn = process, fd, ""
        self._decoder = codecs.getincrementaldecoder("utf-8")()  # a read may end inside of a character

    def read_until(self, text: str, timeout: float = 20.0) -> str:
        """Read until `text` was drawn since the last call; returns what was drawn since then."""
        start = len(self.drawn)
        deadline = time.monotonic() + timeout
        while text not in self.drawn[start:]:
            assert time.monotonic() < deadline, f"{text!r} was not drawn: {self.drawn[start:]!r}"
            if not self._read():
                raise AssertionError(f"ended before {text!r} was drawn: {self.drawn[start:]!r}")
        return self.drawn[start:]

    def modes(self) -> list[object]:
        """How the terminal is set."""
        return termios.tcgetattr(self._fd)

    def frame(self, pattern: str = "", timeout: float = 20.0) -> list[str]:
        """Read until the last whole frame of a command that draws again and again matches; return its lines, without colours. In the pattern
        `^` and `$` are the ends of a line, `\\A` and `\\Z` those of the frame."""
        deadline = time.monotonic() + timeout
        while True:
            whole = [part for part in self.drawn.split("\x1b[H")[1:] if "\x1b[J" in part]
            text = whole[-1].partition("\x1b[J")[0].replace("\r\n", "\n") if whole else ""
            lines = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line).rstrip() for line in text.split("\n")]
            if whole and re.search(pattern, "\n".join(lines), re.MULTILINE):
                return lines
            assert time.monotonic() < deadline, f"{pattern!r} was not drawn: {lines}"
            if not self._read():
                raise AssertionError(f"ended before {pattern!r} was drawn: {lines}")

    def resize(self, lines: int, columns: int) -> None:
        """Give the window another size, which the process gets as a signal."""
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def type(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def interrupt(self, timeout: float = 20.0) -> int:
        """Press ^C until it ends, as a person does: Python misses one that comes just before it blocks in a read."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            self.type("\x03")
            patience = time.monotonic() + 3.0
            while time.monotonic() < patience:
                if not self._read():
                    return self.process.wait(timeout)
        raise AssertionError("it does not end")

    def end(self, timeout: float = 20.0) -> int:
        """Everything drawn until the end; the exit code."""
        deadline = time.monotonic() + timeout
        while self._read():
            assert time.monotonic() < deadline, "it does not end"
        return self.process.wait(timeout)

    def _read(self) -> bool:
        if not select.select([self._fd], [], [], 0.5)[0]:
            return True
        try:
            data = os.read(self._fd, 65536)
        except OSError:  # what Linux says when nobody has the other side open
            return False
        self.drawn += self._decoder.decode(data)
        return bool(data)


@contextmanager
def terminal(*args: str, lines: int = 30, columns: int = 120, first: str = "", **environment: str) -> Iterator[Terminal]:
    """Run a command on a terminal of this size. `first`: Python code that the process runs before."""
    # pytest loads readline, which exports COLUMNS and LINES to the workers of pytest-xdist. They would hide the size.
    inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    ours, theirs = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    command = [sys.executable, str(ROOT / "run_worker.py"), *args]
    if first:
        runs = (
            f"import runpy, sys; sys.path.insert(0, {str(ROOT)!r}); {first}; runpy.run_path({command[1]!r}, run_name='__main__')"
        )
        command = [sys.executable, "-c", runs, *args]
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env={**inherited, **environment}, preexec_fn=_take_terminal
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(ours)


def _take_terminal() -> None:
    """Makes stdin the controlling terminal, so that ^C typed there is a signal."""
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
