"""Threads that the kernel still lists after their end are not counted as started."""

from __future__ import annotations

import threading

from fusion.kernel.linux import thread_count, threads_above


def test_a_thread_that_ends_soon_is_not_counted_and_one_that_stays_is() -> None:
    before, over = thread_count(), threading.Event()
    ended = threading.Timer(0.03, over.set)
    ended.start()
    assert thread_count() > before
    assert threads_above(before, within=5) == 0
    end = threading.Event()
    stays = threading.Thread(target=end.wait)
    stays.start()
    try:
        assert threads_above(before, within=0.05) == 1
    finally:
        end.set()
        stays.join()
