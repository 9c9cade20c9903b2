"""Notices that an event loop is blocked, and finds the code that blocks it."""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections.abc import Callable
from time import monotonic, sleep

#: Seconds for which a loop may be blocked; between two heartbeats of the loop; and between two checks of them.
LONGEST, _SIGN, _LOOK = 1.0, 0.2, 0.25
#: Most lines of a reported stack.
_LINES = 20


class LoopWatch:
    """A thread that watches the loop of the thread that made it, while the loop has work.

    `tell` is called in this thread once for each standstill, with the seconds so far, the running task and its stack. `over` is called in
    the loop's thread once a reported standstill has ended, with its seconds. `lost`: the seconds of all standstills, reported or not.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, tell: Callable[[float, object, str], None], over: Callable[[float], None]
    ) -> None:
        self._loop, self._tell, self._over = loop, tell, over
        self._ident = threading.get_ident()
        self._busy = threading.Event()
        self._came_round = self._told = self.lost = 0.0
        self._thread: threading.Thread | None = None

    def mind(self) -> None:
        """Start watching: the loop has work."""
        if self._busy.is_set():
            return
        self._busy.set()
        self._came_round = monotonic()
        self._sign()
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="fusion-watch", daemon=True)
            self._thread.start()

    def rest(self) -> None:
        """Stop watching: the loop has no work."""
        self._busy.clear()

    def come_round(self) -> None:
        """Note that the loop runs. Call it in the loop's thread."""
        before, self._came_round = self._came_round, monotonic()
        still = self._came_round - before
        if still > LONGEST:
            self.lost += still
            if self._told == before:
                self._over(still)

    def _sign(self) -> None:
        self.come_round()
        if self._busy.is_set():
            self._loop.call_later(_SIGN, self._sign)

    def _watch(self) -> None:
        while True:
            self._busy.wait()
            sleep(_LOOK)
            at = self._came_round
            still = monotonic() - at
            if still > LONGEST + _SIGN and at != self._told and self._busy.is_set():
                self._told = at
                try:
                    self._tell(still - _SIGN, asyncio.current_task(self._loop), self._stack())
                except OSError:  # the worker is gone
                    return

    def _stack(self) -> str:
        frame = sys._current_frames().get(self._ident)
        return "".join(traceback.format_stack(frame)[-_LINES:]) if frame else ""
