"""Tasks of a site that starts its worker wherever it is imported, so in the worker as well."""

from __future__ import annotations

import threading

from fusion import EmbeddedWorker

worker = EmbeddedWorker("s", tasks=["tests.jobs.embedding"]).start()


def threads() -> list[str]:
    """The threads of the process that runs this."""
    worker.start()
    return sorted(thread.name for thread in threading.enumerate())
