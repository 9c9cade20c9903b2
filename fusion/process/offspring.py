"""Signals that a horse lets pass, and the processes that its task forks: those are to die of them as anywhere else.

Whoever stops a whole tree (systemd, Heroku, ^C) signals the horses too, and their jobs are to end well. What a task forks would inherit
that: `Process.terminate()` would do nothing, and a `Pool` wait for ever.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found, unused-ignore]  # the wrappers in `signal` make enum members: slow after a fork
import _thread
import os

#: What a horse lets pass unless its task installs a handler.
PASSING = (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP, _signal.SIGQUIT)

_mask = _thread._local()  # of the thread that forks


def let_pass(signum: int, frame: object) -> None:
    """A handler in place of SIG_IGN, which programs started by a task would inherit."""


def free_children() -> None:
    """From here on what this process forks has the usual dispositions. What its task installs by itself is inherited, as anywhere."""
    os.register_at_fork(before=_hold, after_in_parent=_go_on, after_in_child=_be_usual)


def _hold() -> None:
    # A TERM that meets the child before its dispositions are its own would be lost.
    _mask.before = _signal.pthread_sigmask(_signal.SIG_BLOCK, PASSING)


def _go_on() -> None:
    _signal.pthread_sigmask(_signal.SIG_SETMASK, _mask.before)


def _be_usual() -> None:
    ours = [number for number in PASSING if _signal.getsignal(number) is let_pass]
    for number in ours:
        _signal.signal(number, _signal.SIG_DFL)
    _go_on()
    # Last: what came before ends the child, while a KeyboardInterrupt raised in here would be lost.
    if _signal.SIGINT in ours:
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)
