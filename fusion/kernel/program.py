"""The name by which people call Fusion's command line here."""

from __future__ import annotations

import os
import sys

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
#: The name that examples in help are written with; a page of help shows the other in its place.
WRITTEN = "run_worker.py"


def name() -> str:
    """`fusion` or `run_worker.py`, as this process was started; in a process that is neither, `run_worker.py` in a checkout alone."""
    started = os.path.basename(sys.argv[0]) if sys.argv else ""
    if started in ("fusion", WRITTEN):
        return started
    return WRITTEN if os.path.isfile(os.path.join(_ROOT, WRITTEN)) else "fusion"
