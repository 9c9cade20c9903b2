"""A terminal that is drawn over again and again without flicker, and what is typed at it; frames one below the other where there is none."""

from __future__ import annotations

import os
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


def show(frame: Frame, interval: float | None) -> None:
    """Print a frame; with an interval again and again: in place on a terminal, else one below the other."""
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
    """Each frame overwrites the last one in place, so that nothing flickers. While Redis is away the last figures stay."""
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
    """What to tell of an error a person may have caused while the last figures stay; another error is raised."""
    line = explain(error)
    if line is None:
        raise error
    return styled(shown(line), fg="red")


def draw(text: str, status: str) -> None:
    """Draw a frame with a last line over the last one."""
    click.echo(drawn(screen(text, status, shutil.get_terminal_size().lines)), nl=False)


def screen(text: str, status: str, height: int) -> str:
    """The bytes that draw `text` and a last line; what does not fit gives way to a count, the summary stays."""
    lines = text.split("\n")
    room = max(height - 2, 2)
    if len(lines) > room:
        lines = [*lines[: room - 2], f"... {len(lines) - room + 1} more lines", lines[-1]]
    return _HOME + _END_LINE.join([*lines, ""]) + _END_LINE + status + "\x1b[K" + _END_SCREEN


@contextmanager
def alternate_screen() -> Iterator[None]:
    """Gives the terminal back as it was, also when asked to terminate."""

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


class Keys:
    """What is typed, key by key. Ctrl-C and Ctrl-Z stay what they are; a window of another size counts as a key of no name."""

    def __init__(self) -> None:
        self._fd = sys.stdin.fileno() if sys.stdin.isatty() else None
        self._told, self._tells = os.pipe()
        os.set_blocking(self._told, False)
        os.set_blocking(self._tells, False)

    def wait(self, seconds: float) -> str:
        """The keys that came within that time, as soon as there are any; empty if none did."""
        watched = [fd for fd in (self._fd, self._told) if fd is not None]
        ready = select.select(watched, [], [], max(0.0, seconds))[0]
        if self._told in ready:
            with suppress(BlockingIOError):
                os.read(self._told, 4096)
        if self._fd is None or self._fd not in ready:
            return ""
        typed = os.read(self._fd, 1024)
        if not typed:
            raise SystemExit(0)  # whoever typed has hung up
        return typed.decode("ascii", "ignore")

    @contextmanager
    def raw(self) -> Iterator[Keys]:
        """Keys come one by one and are not shown; the terminal is given back at the end, and while the program is stopped."""
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
        """Ctrl-Z: the shell gets its terminal as it was, and we take it again when we go on."""
        self._give_back()
        click.echo(_LEAVE, nl=False)
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._stopped)
        self._give_back = self._take()
        click.echo(_ENTER, nl=False)
