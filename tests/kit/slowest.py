"""How long the server is busy with each script."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
import redis

from fusion.store.scripting.scripts import Script


class Slowest:
    """Milliseconds of its thread's time that the server took for the longest of the scripts called meanwhile: what runs beside it on this
    machine does not count. Loading a script is a call of its own, `load <name>`."""

    def __init__(self, conn: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
        self._conn = conn
        self.found: dict[str, float] = {}
        #: Of each call.
        self.times: dict[str, list[float]] = {}
        call = Script.__call__

        loaded = set[str]()

        def measured(script: Script, *args: Any, **more: Any) -> Any:
            if script.sha not in loaded:  # a server does so once: a time of its own
                loaded.add(script.sha)
                before = self._used()
                conn.script_load(f"{script.text}\n-- {uuid4()}")  # the server may know the text from a test before
                self.found[f"load {script.before.removesuffix('.before')}"] = self._used() - before
                conn.script_load(script.text)
            before = self._used()
            answer = call(script, *args, **more)
            name = script.before.removesuffix(".before")
            self.times.setdefault(name, []).append(self._used() - before)
            self.found[name] = max(self.times[name])
            return answer

        monkeypatch.setattr(Script, "__call__", measured)

    def _used(self) -> float:
        cpu = self._conn.info("cpu")
        return 1000 * (cpu["used_cpu_user_main_thread"] + cpu["used_cpu_sys_main_thread"])


#: Times that an experiment is done anew if a call of it was slow.
TRIALS = 4


def slow_calls(
    conn: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
    prepare: Callable[[], object],
    experiment: Callable[[], object],
    limit: float,
    *expected: str,
) -> dict[str, float]:
    """Scripts, `expected` among those called, of which the same call took the server this many milliseconds in each trial of an experiment, after
    the same preparation of an empty Redis. What a script does takes as long every time; what the machine below the server takes away from
    a call counts as the server's own time, and meets another call the next time."""
    least: dict[tuple[str, int], float] = {}
    for _ in range(TRIALS):
        conn.flushall()
        prepare()
        with monkeypatch.context() as patched:
            slowest = Slowest(conn, patched)
            experiment()
        print(slowest.found)
        assert slowest.times.keys() >= set(expected)
        for name, once in slowest.found.items():
            for nth, ms in enumerate(slowest.times.get(name, [once])):
                least[name, nth] = min(ms, least.get((name, nth), ms))
        slow = {name: ms for (name, _), ms in sorted(least.items(), key=lambda one: one[1]) if ms >= limit}
        if not slow:
            break
    return slow
