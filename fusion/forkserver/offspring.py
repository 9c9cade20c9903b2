"""Signals that a horse lets pass, and the processes that its task forks: those are to die of them as anywhere else.

Whoever stops a whole tree (systemd, Heroku, ^C) signals the horses too, and their jobs are to end well. What a task forks would inherit
that: `Process.terminate()` would do nothing, and a `Pool` wait for ever.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found, unused-ignore]  # the wrappers in `signal` make enum members: slow after a fork
import _thread
import os
import resource
from math import inf
from time import monotonic, sleep

from fusion.kernel.defaults import SIGNAL_WINDOW

#: Seconds by which the signal of a parent may be later than that of its child.
_LATER = 0.1
#: What a horse lets pass unless its task installs a handler.
PASSING = (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP, _signal.SIGQUIT)

_mask = _thread._local()  # of the thread that forks


#: When the last signal was let pass, in monotonic seconds.
_passed = [-inf]
#: The thread in which handlers of signals run.
_main = [0]


def let_pass(signum: int, frame: object) -> None:
    """Note the signal and do nothing. A handler, as programs started by a task would inherit SIG_IGN."""
    _passed[0] = monotonic()


def note_struck(answer: dict[bytes, bytes]) -> None:
    """Tell with a failure that a signal reached this process a moment before: whoever sent it to the whole tree has ended what the task
    had started, and with that the task. It may reach the children first; and in a thread beside that of signal handlers the task may be
    over before those have had their turn."""
    if answer.get(b"kind") != b"failed":
        return
    forked = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    if forked or _thread.get_ident() != _main[0]:
        now = monotonic()
        until = now + _LATER
        soon = until if forked else now + _LATER / 10
        while (now < soon or (now < until and _main_waits_for_a_cpu())) and now - _passed[0] > SIGNAL_WINDOW:
            sleep(_LATER / 10)
            now = monotonic()
    ago = monotonic() - _passed[0]
    if ago <= SIGNAL_WINDOW:
        answer[b"signaled"] = b"%.6f" % ago


def _main_waits_for_a_cpu() -> bool:
    """Whether the main thread could run a handler but has had no turn yet: on a busy machine the task's thread may end before it has."""
    try:
        with open("/proc/self/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split(None, 1)[0] == b"R"
    except OSError:  # no Linux
        return False


def free_children() -> None:
    """Give processes that this one forks from now on the usual dispositions. Handlers that its task installs are inherited, as anywhere."""
    _main[0] = _thread.get_ident()
    _passed[0] = -inf  # what the fork server got, the deaths of other horses among it
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
