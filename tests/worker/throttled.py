"""A worker whose RAM reading is the content of the file MEMORY_FILE, in percent. All else is real: `python -m tests.worker.throttled`."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

from fusion.kernel.memory import MemoryThrottle
from fusion.settings import Settings
from fusion.worker.worker import Worker

PROGRAM = ("-m", "tests.worker.throttled")


def main() -> int:
    logging.basicConfig(level="INFO", format="%(levelname)s %(message)s")
    settings = Settings.load()
    file = Path(os.environ["MEMORY_FILE"])
    throttle = MemoryThrottle.of(settings, {"RAM": lambda: float(file.read_text())})
    return Worker(settings, sys.argv[1:], throttle=throttle).run()


if __name__ == "__main__":
    sys.exit(main())
