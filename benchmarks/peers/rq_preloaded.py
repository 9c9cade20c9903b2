"""`python -m benchmarks.peers.rq_preloaded MODULES ...` is RQ's command line in a process that has imported these modules first."""

from __future__ import annotations

import sys
from importlib import import_module

from rq.cli import main

if __name__ == "__main__":
    for name in sys.argv.pop(1).split(","):
        import_module(name)
    main()
