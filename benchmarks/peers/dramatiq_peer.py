"""Dramatiq, one thread in each process unless more are asked for. It acknowledges after the run."""

from __future__ import annotations

from collections.abc import Sequence

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from benchmarks import tasks
from benchmarks.peers.base import URL, Conditions, Peer, function, unless

broker = RedisBroker(url=URL)
dramatiq.set_broker(broker)
FUNCTIONS = {name: dramatiq.actor(getattr(tasks, name)) for name in tasks.PLAIN}


class DramatiqProducer:
    def __init__(self, url: str) -> None:
        pass  # its broker is the module's

    def one(self, task: str, *args: object) -> None:
        FUNCTIONS[function(task)].send(*args)

    def many(self, task: str, calls: Sequence[tuple[object, ...]]) -> bool:
        return False

    def close(self) -> None:
        broker.client.connection_pool.disconnect()


def _commands(asked: Conditions, url: str) -> list[list[str]]:
    flags = ["--processes", str(asked.processes), "--threads", str(asked.at_once), *unless(asked.quiet, "--skip-logging")]
    return [["-m", "dramatiq", "benchmarks.peers.dramatiq_peer", *flags]]


THREADS = Peer("Dramatiq", "dramatiq", False, True, DramatiqProducer, _commands, feeds=False)
