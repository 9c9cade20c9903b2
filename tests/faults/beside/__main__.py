"""Stock RQ and rq-scheduler beside a fleet of Fusion that is killed."""

from __future__ import annotations

import sys

from tests.faults.beside.chaos import main

if __name__ == "__main__":
    sys.exit(main())
