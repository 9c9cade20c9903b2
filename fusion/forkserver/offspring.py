"""Signals that a horse ignores, and the processes that its task forks: these must die of the signals as usual.

A stop of the whole tree (systemd, Heroku, ^C) signals the horses too, but their jobs must finish. Forked children would inherit that: then
`Process.terminate()` would do nothing, and a `Pool` would wait for ever.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found, unused-ignore]  # the wrappers in `signal` make enum members: slow after a fork
import os
import resource
from _thread import _local, get_ident
from math import inf
from time import monotonic, sleep

from fusion.kernel.defaults import SIGNAL_WINDOW

#: Seconds by which a parent may receive the signal later than its child.
_LATER = 0.1
#: Seconds for which a thread at most waits for a main thread that gets no CPU; nanoseconds of CPU in which that would have run a handler.
_LONGEST, _TURN = 0.5, 500_000
#: Signals that a horse ignores unless its task installs a handler.
PASSING = (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP, _signal.SIGQUIT)

_PASSING_MASK = sum(1 << number - 1 for number in PASSING)

_mask = _local()  # the signal mask of the forking thread


#: The original, from before any task module was loaded.
_register_at_fork = os.register_at_fork
try:
    _register_at_fork()
except TypeError:  # this call fails, but makes the names of its parameters, which each horse would make otherwise
    pass

#: Monotonic time of the last ignored signal.
_passed = [-inf]
#: Id of the thread in which signal handlers run.
_main = [0]


def let_pass(signum: int, frame: object) -> None:
    """Note the signal and do nothing. It is a handler because programs that a task starts would inherit SIG_IGN."""
    _passed[0] = monotonic()


def note_struck(answer: dict[bytes, bytes]) -> None:
    """Add to a failure that a signal reached this process just before.

    A signal to the whole tree ends the task's children, and with them the task. It may reach the children first. In another thread than
    that of the signal handlers, the task may even end before the handlers ran.
    """
    if answer.get(b"kind") != b"failed":
        return
    forked = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    in_main = get_ident() == _main[0]
    is_pending = False
    if forked or not in_main:
        began = now = monotonic()
        soon = began + (_LATER if forked else _LATER / 10)
        ran = _main_ran()
        while now - _passed[0] > SIGNAL_WINDOW and not (is_pending := _is_pending()):
            if now >= soon and (in_main or now >= began + _LONGEST or not _main_starves(ran)):
                break
            sleep(_LATER / 10)
            now = monotonic()
    ago = 0.0 if is_pending else monotonic() - _passed[0]
    if ago <= SIGNAL_WINDOW:
        answer[b"signaled"] = b"%.6f" % ago


def _is_pending() -> bool:
    """Return True if a signal that is let pass has reached this process, or its main thread, and waits there to be handled."""
    try:
        with open("/proc/self/status", "rb") as file:
            lines = [line.split() for line in file if line.startswith((b"SigPnd:", b"ShdPnd:"))]
    except OSError:  # no Linux
        return False
    return any(int(mask, 16) & _PASSING_MASK for _, mask in lines)


def _main_ran() -> int:
    """Return the nanoseconds for which the main thread has had a CPU; 0 if that is not known."""
    try:
        with open("/proc/self/schedstat", "rb") as file:
            return int(file.read().split()[0])
    except (OSError, ValueError, IndexError):  # no Linux, or built without it
        return 0


def _main_starves(ran: int) -> bool:
    """Return True if the main thread could run, but on a busy machine has had no turn since `_main_ran` said `ran`: nor had its handlers."""
    try:
        with open("/proc/self/stat", "rb") as file:
            can_run = file.read().rpartition(b")")[2].split(None, 1)[0] == b"R"
    except OSError:  # no Linux
        return False
    return can_run and _main_ran() - ran < _TURN


def free_children() -> None:
    """Give processes that this one forks the usual signal dispositions. They inherit handlers that the task installs, as usual."""
    _main[0] = get_ident()
    _passed[0] = -inf  # forget the signals of the fork server, such as deaths of other horses
    _register_at_fork(before=_hold, after_in_parent=_go_on, after_in_child=_be_usual)


def _hold() -> None:
    # A TERM would be lost if it reached the child before it has its own dispositions.
    _mask.before = _signal.pthread_sigmask(_signal.SIG_BLOCK, PASSING)


def _go_on() -> None:
    _signal.pthread_sigmask(_signal.SIG_SETMASK, _mask.before)


def _be_usual() -> None:
    ours = [number for number in PASSING if _signal.getsignal(number) is let_pass]
    for number in ours:
        _signal.signal(number, _signal.SIG_DFL)
    _go_on()
    # SIGINT last: pending other signals end the child first, and a KeyboardInterrupt raised in here would be lost.
    if _signal.SIGINT in ours:
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)
