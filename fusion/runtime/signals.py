"""Signals of a long-running process: handlers only note them; the loop acts."""

from __future__ import annotations

import signal
import socket
import time
from math import inf
from types import FrameType

_NOTED = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP, signal.SIGTSTP, signal.SIGCONT)


class Signals:
    """Counts INT and TERM together (once is warm, twice is cold), notes QUIT, HUP and the last of TSTP and CONT, and wakes a selector.

    `drain` is called by the loop when something came.
    """

    #: True if the process ends with its loop. Then later signals are ignored: their default action would make a clean end look like a
    #: crash.
    ends_process = False

    def __init__(self) -> None:
        #: True once any signal has come.
        self.came = False
        self.stops = 0
        #: Monotonic time of the last signal that ends processes.
        self.struck_at = -inf
        self.quit = False
        self.reload = False
        #: True after TSTP, False after CONT; None once it was handled.
        self.set_quiet: bool | None = None
        #: True if a signal came since the last `drain`; set just before the selector wakes.
        self.noted = False
        self._wake, self._woken = socket.socketpair()
        self._wake.setblocking(False)
        self._woken.setblocking(False)
        self._before: dict[int, object] = {}
        self._wakeup_before: int | None = None

    def install(self) -> None:
        """Install handlers that note signals, in place of the default actions."""
        self._wakeup_before = signal.set_wakeup_fd(self._woken.fileno(), warn_on_full_buffer=False)
        for number in _NOTED:
            self._before[number] = signal.signal(number, self._note)

    def restore(self) -> None:
        """Restore the handlers from before, for a worker inside another program."""
        if self._wakeup_before is not None:
            signal.set_wakeup_fd(self._wakeup_before)
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_IGN if self.ends_process else handler)  # type: ignore[arg-type]
        self._wake.close()
        self._woken.close()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.came = self.noted = True
        if number not in (signal.SIGTSTP, signal.SIGCONT):
            self.struck_at = time.monotonic()
        if number == signal.SIGQUIT:
            self.quit = True
        elif number == signal.SIGHUP:
            self.reload = True
        elif number in (signal.SIGTSTP, signal.SIGCONT):
            self.set_quiet = number == signal.SIGTSTP
        else:
            self.stops += 1

    def fileno(self) -> int:
        """The descriptor that becomes readable when a signal comes."""
        return self._wake.fileno()

    def drain(self) -> None:
        """Empty the descriptor; the signals are noted already."""
        self.noted = False
        try:
            while self._wake.recv(512):
                pass
        except BlockingIOError:
            pass
