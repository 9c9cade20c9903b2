"""Python imports this module at its start. If AB_COUNT names a file, the number of instructions that the main thread has run stands in it after
the end; not those of child processes, which do not find AB_COUNT any more.
"""

from __future__ import annotations

import atexit
import os
import sys
from types import FrameType
from typing import Any

_count = 0


def _trace(frame: FrameType, event: str, argument: object) -> Any:
    global _count
    frame.f_trace_opcodes, frame.f_trace_lines = True, False
    _count += event == "opcode"
    return _trace


def _write(path: str) -> None:
    sys.settrace(None)
    with open(path, "w") as file:
        file.write(str(_count))


if _path := os.environ.pop("AB_COUNT", None):
    atexit.register(_write, _path)
    sys.settrace(_trace)
