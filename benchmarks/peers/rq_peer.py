"""RQ's forking worker, a process of its own for each that runs at a time: as it comes, importing the task's module in each job, or with the
modules imported before it forks; and its worker that does not fork."""

from __future__ import annotations

from collections.abc import Sequence

import redis
import rq

from benchmarks.peers.base import Conditions, Peer, unless


class RQProducer:
    def __init__(self, url: str) -> None:
        self._conn = redis.Redis.from_url(url)
        self._queue = rq.Queue("rqbench", connection=self._conn)

    def one(self, task: str, *args: object) -> None:
        self._queue.enqueue(task, *args)

    def many(self, task: str, calls: Sequence[tuple[object, ...]]) -> bool:
        for at in range(0, len(calls), 1000):
            self._queue.enqueue_many([rq.Queue.prepare_data(task, args) for args in calls[at : at + 1000]])
        return True

    def close(self) -> None:
        self._conn.close()


def _worker(asked: Conditions, url: str, *start: str) -> list[list[str]]:
    command = [*start, "worker", "rqbench", "--url", url, *unless(asked.quiet, "--quiet")]
    return [command for _ in range(asked.processes)]


def _commands(asked: Conditions, url: str) -> list[list[str]]:
    return _worker(asked, url, "-m", "rq.cli")


def _preloaded(asked: Conditions, url: str) -> list[list[str]]:
    return _worker(asked, url, "-m", "benchmarks.peers.rq_preloaded", ",".join(asked.modules))


def _simple(asked: Conditions, url: str) -> list[list[str]]:
    return [[*command, "--worker-class", "rq.SimpleWorker"] for command in _commands(asked, url)]


_KINDS = ("worker", "horses")

FORKING = Peer("RQ", "rq", True, False, RQProducer, _commands, _KINDS)
PRELOADED = Peer("RQ, modules imported before it forks", "rq", True, False, RQProducer, _preloaded, _KINDS)
SIMPLE = Peer("RQ, SimpleWorker", "rq", False, False, RQProducer, _simple, _KINDS)
