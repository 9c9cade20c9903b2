"""The options of jobs that are counted, and a program that enqueues such jobs. It imports little else, as callgrind slows it down."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from fusion import Queue, Retry
from fusion.store.client.connections import connect

TASK = "tests.jobs.basic.noop"
BATCH = "b"
#: Calls with an option that are not counted, and the counted ones after them.
BEFORE, COUNTED = 5, 30

#: By name: the options of the n-th job. `before` is the id of the job before it, empty for the first.
FEATURES: dict[str, Callable[[int, str], Mapping[str, Any]]] = {
    "no option": lambda n, before: {},
    "`priority`": lambda n, before: {"priority": "high"},
    "`job_timeout`": lambda n, before: {"job_timeout": 60},
    "`ttl`": lambda n, before: {"ttl": 3600},
    "`retry`": lambda n, before: {"retry": Retry(max=3)},
    "`meta`": lambda n, before: {"meta": {"tenant": n}},
    "`unique_key`": lambda n, before: {"unique_key": f"u{n}"},
    "`concurrency_key` with slots to spare": lambda n, before: {"concurrency_key": "k", "max_concurrent": 1000},
    "`batch`": lambda n, before: {"batch": BATCH},
    "`depends_on` one job": lambda n, before: {"depends_on": before} if before else {},
}


def main(url: str) -> None:
    """Make the calls with each option. `os.getppid` marks the beginning and the end of the counted ones for callgrind."""
    conn = connect(url)
    for nth, options in enumerate(FEATURES.values()):
        queue = Queue(f"q{nth}", conn)
        given = [options(n, "before") for n in range(BEFORE + COUNTED)]
        if "depends_on" in given[0]:
            queue.enqueue(TASK, job_id="before")
        for one in given[:BEFORE]:
            queue.enqueue(TASK, **one)
        os.getppid()
        for one in given[BEFORE:]:
            queue.enqueue(TASK, **one)
        os.getppid()


if __name__ == "__main__":
    main(sys.argv[1])
