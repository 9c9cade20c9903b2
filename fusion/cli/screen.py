"""Redraw a terminal in place without flicker and read keys. Without a terminal, frames are printed one below the other."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import click

from fusion.cli.context import explain
from fusion.cli.output import drawn, echo, shown, styled
from fusion.cli.times import told
from fusion.kernel.timeutil import now

_ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l"  # the alternate screen, no cursor, long lines cut instead of wrapped
_LEAVE = "\x1b[?7h\x1b[?25h\x1b[?1049l"
_HOME, _END_LINE, _END_SCREEN = "\x1b[H", "\x1b[K\n", "\x1b[J"

Frame = Callable[[], str]

#: What one key sends: an escape sequence, or a character. A lone escape is the key Esc.
_KEY = re.compile(r"\x1b(?:\[[0-9;?]*[@-~]|O[@-~])|[\s\S]")
#: A sequence whose rest has not arrived; and seconds to wait for that. Over a slow line a key's characters may come apart.
_OPEN, _REST = re.compile(r"\x1b(?:\[[0-9;?]*|O)?\Z"), 0.05
_NAMES = {
    "\r": "enter",
    "\n": "enter",
    "\x1b": "esc",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    "\x1b[1~": "home",
    "\x1b[4~": "end",
}
_NAMES |= {
    f"\x1b{way}{end}": name
    for way in "[O"
    for end, name in zip("ABCDHF", ("up", "down", "right", "left", "home", "end"), strict=True)
}


def keys_of(typed: str) -> list[str]:
    """Return the names of typed keys: a character, `up`, `down`, `left`, `right`, `home`, `end`, `page up`, `page down`, `enter` or `esc`. Other
    keys that send more than a character have no name, and are left out."""
    found = (_NAMES.get(key, key) for key in _KEY.findall(typed))
    return [key for key in found if not key.startswith("\x1b")]


def show(frame: Frame, interval: float | None) -> None:
    """Print a frame; with an interval repeatedly, in place on a terminal, else one below the other."""
    if interval is None:
        echo(frame())
    elif sys.stdout.isatty():
        live(frame, interval)
    else:
        repeat(frame, interval)


def repeat(frame: Frame, interval: float) -> None:
    """Print each frame below the last one, every `interval` seconds, until Ctrl-C."""
    try:
        while True:
            echo(frame() + "\n")
            time.sleep(interval)
    except KeyboardInterrupt:
        pass


def live(frame: Frame, interval: float) -> None:
    """Draw each frame over the last one, so that nothing flickers. While Redis is down the last figures stay."""
    text = frame()
    with alternate_screen():
        trouble = ""
        while True:
            status = trouble or f"Updated {told(now())}, every {interval:g} s; Ctrl-C ends"
            draw(text, status)
            time.sleep(interval)
            try:
                text, trouble = frame(), ""
            except Exception as error:
                trouble = in_words(error)


def in_words(error: Exception) -> str:
    """Return the line for an error that a person may have caused, shown while the last figures stay. Other errors are raised."""
    line = explain(error)
    if line is None:
        raise error
    return styled(shown(line), fg="red")


def draw(text: str, status: str) -> None:
    """Draw a frame and its status line over the last frame."""
    click.echo(drawn(screen(text, status, shutil.get_terminal_size().lines)), nl=False)


def screen(text: str, status: str, height: int) -> str:
    """Return the output that draws `text` and the status line. Lines that do not fit are replaced by their number; the summary stays."""
    lines = text.split("\n")
    room = max(height - 2, 2)
    if len(lines) > room:
        lines = [*lines[: room - 2], f"... {len(lines) - room + 1} more lines", lines[-1]]
    return _HOME + _END_LINE.join([*lines, ""]) + _END_LINE + status + "\x1b[K" + _END_SCREEN


@contextmanager
def alternate_screen() -> Iterator[None]:
    """Use the alternate screen in the block, and restore the terminal after it, also on SIGTERM."""

    def end(number: int, stack: Any) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    click.echo(_ENTER, nl=False)
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        click.echo(_LEAVE, nl=False)
        signal.signal(signal.SIGTERM, before)


class TypedKeys:
    """Typed keys, one by one. Ctrl-C and Ctrl-Z work as usual; a change of the window's size counts as a key without a name."""

    def __init__(self) -> None:
        self._fd = sys.stdin.fileno() if sys.stdin.isatty() else None
        self._told, self._tells = os.pipe()
        os.set_blocking(self._told, False)
        os.set_blocking(self._tells, False)

    def wait(self, seconds: float) -> list[str]:
        """Wait up to `seconds` for keys and return their names (`keys_of`); none if there were none."""
        watched = [fd for fd in (self._fd, self._told) if fd is not None]
        ready = select.select(watched, [], [], max(0.0, seconds))[0]
        if self._told in ready:
            with suppress(BlockingIOError):
                os.read(self._told, 4096)
        if self._fd is None or self._fd not in ready:
            return []
        typed = self._typed()
        while _OPEN.search(typed) and select.select([self._fd], [], [], _REST)[0]:
            typed += self._typed()
        return keys_of(typed)

    def _typed(self) -> str:
        assert self._fd is not None
        typed = os.read(self._fd, 1024)
        if not typed:
            raise SystemExit(0)  # the terminal was closed
        return typed.decode("ascii", "ignore")

    @contextmanager
    def raw(self) -> Iterator[TypedKeys]:
        """Read keys one by one without echo. The terminal is restored at the end, and while the program is stopped."""
        handlers = {
            signal.SIGWINCH: signal.signal(signal.SIGWINCH, lambda *_: None),
            signal.SIGTSTP: signal.signal(signal.SIGTSTP, self._stopped),
        }
        woken = signal.set_wakeup_fd(self._tells, warn_on_full_buffer=False)
        give_back = self._take()
        self._give_back = give_back
        try:
            yield self
        finally:
            self._give_back()
            signal.set_wakeup_fd(woken)
            for number, handler in handlers.items():
                signal.signal(number, handler)
            os.close(self._told)
            os.close(self._tells)

    def _take(self) -> Callable[[], None]:
        fd = self._fd
        if fd is None:
            return lambda: None
        import termios
        import tty

        before = termios.tcgetattr(fd)
        tty.setcbreak(fd)
        return lambda: termios.tcsetattr(fd, termios.TCSADRAIN, before)

    def _stopped(self, number: int, stack: Any) -> None:
        """Handle Ctrl-Z: restore the terminal for the shell, and take it again when the program continues."""
        self._give_back()
        click.echo(_LEAVE, nl=False)
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._stopped)
        self._give_back = self._take()
        click.echo(_ENTER, nl=False)
