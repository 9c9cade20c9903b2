"""The name of Fusion's command line, as it is called here."""

from __future__ import annotations

import os
import sys

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
#: The program name in the examples of help texts; help pages replace it by the actual one.
WRITTEN = "run_worker.py"


def name() -> str:
    """Return `fusion` or `run_worker.py`, as this process was started. In any other process: `run_worker.py` in a checkout, else `fusion`."""
    started = os.path.basename(sys.argv[0]) if sys.argv else ""
    if started in ("fusion", WRITTEN):
        return started
    return WRITTEN if os.path.isfile(os.path.join(_ROOT, WRITTEN)) else "fusion"
