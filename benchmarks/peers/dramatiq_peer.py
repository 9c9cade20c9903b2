"""Dramatiq, one thread in each process. It acknowledges after the run."""

from __future__ import annotations

from collections.abc import Sequence

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from benchmarks import tasks
from benchmarks.peers.base import URL, Peer

broker = RedisBroker(url=URL)
dramatiq.set_broker(broker)
FUNCTIONS = {name: dramatiq.actor(getattr(tasks, name)) for name in ("noop", "stamp", "hold")}


class DramatiqProducer:
    def __init__(self, url: str) -> None:
        pass  # its broker is the module's

    def one(self, task: str, *args: object) -> None:
        FUNCTIONS[task].send(*args)

    def many(self, task: str, calls: Sequence[tuple[object, ...]]) -> bool:
        return False

    def close(self) -> None:
        broker.client.connection_pool.disconnect()


def _commands(processes: int, url: str) -> list[list[str]]:
    return [
        ["-m", "dramatiq", "benchmarks.peers.dramatiq_peer", "--processes", str(processes), "--threads", "1", "--skip-logging"]
    ]


THREADS = Peer("Dramatiq", "dramatiq", False, True, DramatiqProducer, _commands)
