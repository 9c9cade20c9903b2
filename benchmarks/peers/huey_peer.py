"""Huey with process workers, with its plain and with its priority queue. It does not acknowledge: what a killed worker had is gone."""

from __future__ import annotations

import os
from collections.abc import Sequence

from huey import PriorityRedisHuey, RedisHuey

from benchmarks import tasks
from benchmarks.peers.base import URL, Conditions, Peer, function, unless

_kind = PriorityRedisHuey if os.environ.get("BENCH_PRIORITY") == "1" else RedisHuey
huey = _kind("bench", url=URL, results=False)
FUNCTIONS = {name: huey.task(name=name)(getattr(tasks, name)) for name in ("noop", "stamp", "hold")}


class HueyProducer:
    def __init__(self, url: str) -> None:
        pass  # its connection is the module's

    def one(self, task: str, *args: object) -> None:
        FUNCTIONS[function(task)](*args)

    def many(self, task: str, calls: Sequence[tuple[object, ...]]) -> bool:
        return False

    def close(self) -> None:
        huey.storage.pool.disconnect()


def _commands(asked: Conditions, url: str) -> list[list[str]]:
    flags = ["-k", "process", "-w", str(asked.processes), "--no-periodic", *unless(asked.quiet, "-q")]
    return [["-m", "huey.bin.huey_consumer", "benchmarks.peers.huey_peer.huey", *flags]]


PLAIN = Peer("Huey processes", "huey", False, False, HueyProducer, _commands, feeds=False)
PRIORITY = Peer(
    "Huey, priority queue", "huey", False, False, HueyProducer, _commands, env=(("BENCH_PRIORITY", "1"),), feeds=False
)
