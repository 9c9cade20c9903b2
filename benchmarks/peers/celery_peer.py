"""Celery's prefork pool, and its threads. It acknowledges before it runs unless told otherwise, and takes four jobs ahead for each process
unless told to take more: all three ways are measured."""

from __future__ import annotations

import os
from collections.abc import Sequence

from celery import Celery

from benchmarks import tasks
from benchmarks.peers.base import URL, Conditions, Peer, function, unless

app = Celery("bench", broker=URL)
app.conf.task_ignore_result = True
app.conf.worker_hijack_root_logger = False
app.conf.broker_connection_retry_on_startup = True
app.conf.task_acks_late = os.environ.get("BENCH_ACKS_LATE") == "1"
app.conf.worker_prefetch_multiplier = int(os.environ.get("BENCH_PREFETCH", "4"))

FUNCTIONS = {name: app.task(getattr(tasks, name), name=name) for name in tasks.PLAIN}


class CeleryProducer:
    def __init__(self, url: str) -> None:
        app.conf.broker_url = url
        self._connection = app.connection_for_write(url)
        self._producer = app.amqp.Producer(self._connection)

    def one(self, task: str, *args: object) -> None:
        FUNCTIONS[function(task)].apply_async(args, producer=self._producer)

    def many(self, task: str, calls: Sequence[tuple[object, ...]]) -> bool:
        return False

    def close(self) -> None:
        self._connection.release()


def _commands(asked: Conditions, url: str) -> list[list[str]]:
    start = ["-m", "celery", "-A", "benchmarks.peers.celery_peer", "worker", "--pool", "prefork"]
    flags = ["--concurrency", str(asked.processes), "--without-gossip", "--without-mingle"]
    return [[*start, *flags, *unless(asked.quiet, "--loglevel", "ERROR")]]


def _threads(asked: Conditions, url: str) -> list[list[str]]:
    start = ["-m", "celery", "-A", "benchmarks.peers.celery_peer", "worker", "--pool", "threads"]
    flags = [
        "--concurrency",
        str(asked.at_once),
        "--without-gossip",
        "--without-mingle",
        *unless(asked.quiet, "--loglevel", "ERROR"),
    ]
    return [[*start, "--hostname", f"threads{number}@%h", *flags] for number in range(asked.processes)]


PREFORK = Peer("Celery prefork", "celery", False, False, CeleryProducer, _commands)
LATE = Peer("Celery, acks late", "celery", False, True, CeleryProducer, _commands, env=(("BENCH_ACKS_LATE", "1"),))
AHEAD = Peer("Celery, prefetch 64", "celery", False, False, CeleryProducer, _commands, env=(("BENCH_PREFETCH", "64"),))
THREADS = Peer("Celery threads", "celery", False, False, CeleryProducer, _threads, ("worker",), (("BENCH_PREFETCH", "64"),))
