"""Progress bars: on stderr, for people alone, and only of what has lasted two seconds."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import Any

import click

from fusion.cli.output import collects

#: Seconds after which a bar is drawn.
PATIENCE = 2.0


@contextmanager
def progress(what: str, total: int | None = None, *, quiet: bool = False) -> Iterator[Callable[[int], None]]:
    """Yield a function that is called with how many more are done. It draws a bar once the block has lasted `PATIENCE`.

    `what`: the words before the bar. `total`: how many there are; None if nobody knows, and then the bar shows how many are done. `quiet`: never
    draw, as with --json. Nothing is drawn either if stderr is no terminal, if another program reads stdout, or while output is collected.
    """
    if quiet or collects() or not watched():
        yield lambda done: None
        return
    bar: Any = None
    waiting, began = 0, time.time()
    with ExitStack() as stack:

        def advance(done: int) -> None:
            nonlocal bar, waiting
            waiting += done
            if bar is not None:
                bar.update(done)
            elif time.time() - began >= PATIENCE:
                bar = _bar(what, total)
                bar.start = bar.last_eta = began  # from which it estimates the time that is left
                bar.make_step(waiting)
                stack.enter_context(bar)

        yield advance


def _bar(what: str, total: int | None) -> Any:
    # Width 0: as wide as the terminal.
    if total is None:
        return click.progressbar(count(), label=what, width=0, show_eta=False, show_percent=False, show_pos=True, file=sys.stderr)
    return click.progressbar(length=total, label=what, width=0, file=sys.stderr)


def watched() -> bool:
    """Return True if stderr is a terminal, and stdout no pipe, whose reader may use that terminal as `less` does."""
    if not sys.stderr.isatty():
        return False
    try:
        mode = os.fstat(sys.stdout.fileno()).st_mode
    except (OSError, ValueError):  # it is no file
        return False
    return not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode))
