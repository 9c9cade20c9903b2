"""The clock of the test kit: scripts read the server's time plus what a test has added. Only `fusion.testing` uses it.

Scripts that were changed for it refuse to run on a server that no kit has prepared, and no process changes them while no test runs.
"""

from __future__ import annotations

import os
import re
import sys
import time
from types import FrameType
from typing import Any

from redis import Redis

from fusion.store.scripting import scripts

#: Outside of any prefix of Fusion's: the microseconds that the kit's clock is ahead of the server's.
_AHEAD = "fusion-test-kit:ahead"
_TIME = re.compile(r"^local clock = (redis\.call|command)\('TIME'\)$", re.MULTILINE)
_MOVED = rf"""local clock = \1('TIME')
do
  local ahead = \1('GET', '{_AHEAD}') or error("the clock of Fusion's test kit was moved, and this is not its server")
  local moved = clock[1] * 1000000 + clock[2] + ahead
  clock = {{ (moved - moved % 1000000) / 1000000, moved % 1000000 }}
end"""
#: Moves the clock, and brings nearer the ends of what expires by the server's own clock: pauses, unique keys, closed queues. All these are
#: texts. Records of ended jobs stay: a test reads them.
_MOVE = f"""
redis.call('INCRBY', '{_AHEAD}', ARGV[1] * 1000)
local cursor = '0'
repeat
  local found = redis.call('SCAN', cursor, 'TYPE', 'string', 'COUNT', 10000)
  cursor = found[1]
  for _, key in ipairs(found[2]) do
    local left = redis.call('PTTL', key)
    if left >= 0 then redis.call('PEXPIRE', key, string.format('%d', left - ARGV[1])) end
  end
until cursor == '0'
"""


def check_test() -> None:
    """Raise RuntimeError unless a test runs: one of pytest's, or of unittest's."""
    if "PYTEST_CURRENT_TEST" in os.environ:
        return
    run = getattr(getattr(sys.modules.get("unittest.case"), "TestCase", None), "run", None)
    frame: FrameType | None = sys._getframe()
    while run is not None and frame is not None:
        if frame.f_code is run.__code__:
            return
        frame = frame.f_back
    raise RuntimeError("fusion.testing works in tests alone: in one of pytest's, or of a unittest.TestCase")


def empty(connection: Redis, server: int) -> None:
    """Delete all data of the kit's server, whose process has this id. RuntimeError if the client leads to another one."""
    pid = connection.info("server")["process_id"]
    if not server or pid != server:
        raise RuntimeError(f"process {pid} is not the private Redis of these tests: nothing is deleted")
    connection.flushall()


def _moved(text: str) -> str:
    text = _TIME.sub(_MOVED, text)
    if text.count("'TIME'") > text.count("local clock = "):
        raise RuntimeError("a script reads the clock in a way that fusion.testing does not know")
    return text


def install() -> None:
    """Have scripts that are made from now on read the kit's clock. RuntimeError outside of tests."""
    check_test()
    scripts.rewrite = _moved
    scripts.load.cache_clear()


def uninstall() -> None:
    """Have scripts that are made from now on read the server's clock."""
    scripts.rewrite = None
    scripts.load.cache_clear()


class KitClock:
    """The clock of one kit, on the empty server of that kit."""

    def __init__(self, connection: Redis) -> None:
        """Start it at the server's time. What this client reads of the time is the kit's from now on."""
        self._ahead_ms = 0
        self._move = connection.register_script(_MOVE)
        connection.set(_AHEAD, 0)
        connection.set_response_callback("TIME", self._time)

    def move(self, ms: int) -> None:
        """Move it by this many milliseconds."""
        self._move(args=[ms])
        self._ahead_ms += ms

    def now(self) -> float:
        """Return its time in Unix seconds."""
        return time.time() + self._ahead_ms / 1000  # the server is on this machine

    def _time(self, reply: Any, **options: Any) -> tuple[int, int]:
        micros = int(reply[0]) * 1_000_000 + int(reply[1]) + self._ahead_ms * 1000
        return micros // 1_000_000, micros % 1_000_000
