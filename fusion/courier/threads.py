"""Threads for calls that block. Unlike those of `concurrent.futures` they don't keep a process from ending."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")


class Threads(Generic[T]):
    """Runs calls in up to `size` threads. Each calls `ring` when it has a result for `results`."""

    def __init__(self, name: str, size: int, ring: Callable[[], None]) -> None:
        self._name, self._size, self._ring = name, size, ring
        self._calls: SimpleQueue[Callable[[], T] | None] = SimpleQueue()
        self._results: SimpleQueue[T] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._under_way = 0

    def run(self, call: Callable[[], T]) -> None:
        """Have a thread make the call, which must not raise."""
        self._under_way += 1
        if self._under_way > len(self._threads) < self._size:
            self._threads.append(threading.Thread(target=self._work, name=f"{self._name} {len(self._threads) + 1}", daemon=True))
            self._threads[-1].start()
        self._calls.put(call)

    def results(self) -> list[T]:
        """Take the results that have come since the last time."""
        found: list[T] = []
        try:
            while True:
                found.append(self._results.get_nowait())
        except Empty:
            self._under_way -= len(found)
            return found

    def close(self) -> None:
        """Start no more calls. Those under way end by themselves, and their results are dropped."""
        for _ in self._threads:
            self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            self._results.put(call())
            self._ring()
