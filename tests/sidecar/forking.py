"""A process that forks from three threads while its keeper starts one worker after the other; prints what the forked ones had of these."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from dataclasses import replace

from fusion import EmbeddedWorker
from fusion.runtime.backoff import Backoff
from fusion.sidecar import keeper as module
from fusion.sidecar.host_lock import HostLock, WorkerSeats
from fusion.sidecar.keeper import Keeper, guard


def of_the_keeper() -> list[str]:
    """The files and sockets that are open: this process has no others."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
        except OSError:
            continue  # the listing's own
    return [name for name in found if name.startswith("socket:") or name.endswith(".lock")]


def forks(until: float, left: list[str]) -> None:
    while time.monotonic() < until:
        reading, writing = os.pipe()
        if not (pid := os.fork()):
            os.write(writing, "; ".join(of_the_keeper()).encode())
            os._exit(0)
        os.close(writing)
        left.append(os.read(reading, 4096).decode())
        os.close(reading)
        os.waitpid(pid, 0)


def main(seconds: float) -> None:
    logging.disable(logging.CRITICAL)
    vars(module)["_BETWEEN_STARTS"] = 0.0
    place = replace(EmbeddedWorker("s", tasks=["tests.jobs.basic"])._place(), command=["/bin/false"])
    keeper = Keeper(place, HostLock("forks"), WorkerSeats("forks"))
    keeper._backoff = Backoff(0.0, 0.0)
    with guard:
        keeper.start()
    left: list[str] = []
    threads = [threading.Thread(target=forks, args=(time.monotonic() + seconds, left)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    keeper.stop(0)
    keeper.join()
    print(f"{len(left)} forks, {keeper._backoff.failures} workers, left: {sorted(set(left) - {''})}, at last: {of_the_keeper()}")


if __name__ == "__main__":
    main(float(sys.argv[1]))
