"""Work for the whole fleet, where processes are late because others have the CPU."""

from __future__ import annotations

import logging
import random
from collections import Counter
from heapq import heappop, heappush
from itertools import count

import pytest

from fusion.runtime import maintenance
from fusion.runtime.maintenance import Maintenance
from fusion.runtime.redis_link import RedisLink
from fusion.runtime.served_queues import ServedQueues
from fusion.settings import Settings
from tests.budgets import figures
from tests.kit.scripted_broker import ScriptedBroker

LOG = logging.getLogger("fleet")
#: Seconds that are played, and the most by which a process is late: for its own time, and for a message.
PLAYED, LATE = 120.0, 0.025
#: What a call publishes.
PUBLISHED = {"promote": "promote -1 -1 -1", "prune": "recover 0 0", "sample": "sample", "clean": "clean"}


class _Broker(ScriptedBroker):
    """Answers as Redis does; of several calls of `sample` within its interval, only one publishes."""

    def __init__(self, clock: _Clock) -> None:
        super().__init__()
        self._clock = clock

    def sample(self, interval: float) -> bool:
        clock = self._clock
        in_vain = clock.now - clock.sampled_at < interval
        self.calls.append("sample too early" if in_vain else "sample")
        clock.sampled_at = clock.sampled_at if in_vain else clock.now
        return False


class _Clock:
    now, sampled_at = 1000.0, 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    made = _Clock()
    monkeypatch.setattr(maintenance, "time", made)
    return made


def _played(clock: _Clock, processes: int) -> Counter[str]:
    """Return how often the processes of a fleet make each call in `PLAYED` seconds."""
    settings = Settings(lease=30.0, reap_interval=5.0, maintenance_interval=30.0, name="w")
    brokers = [_Broker(clock) for _ in range(processes)]
    duties = [Maintenance(settings, broker, RedisLink(LOG), ServedQueues(()), LOG) for broker in brokers]  # type: ignore[arg-type]
    order, events, sums = count(), list[tuple[float, int, int, str]](), Counter[str]()
    began = clock.now

    def plan(one: int) -> None:
        heappush(events, (duties[one].next_at + random.uniform(0, LATE), next(order), one, ""))

    for one in range(processes):
        heappush(events, (clock.now + random.uniform(0, 1), next(order), one, ""))
    while events[0][0] < began + PLAYED:
        clock.now, _, one, text = heappop(events)
        if text:
            duties[one].heard(text)
        elif duties[one].next_at <= clock.now:
            duties[one].tick(clock.now)
            for call in brokers[one].calls:
                if clock.now > began + 5:  # all have begun
                    sums[call] += 1
                for other in range(processes) if call in PUBLISHED else ():
                    heappush(events, (clock.now + 0.001 + random.uniform(0, LATE), next(order), other, PUBLISHED[call]))
            brokers[one].calls.clear()
            plan(one)
            continue
        else:
            continue  # it has heard of another's work since
        plan(one)
    return sums


@pytest.mark.parametrize("processes", [8, 50, 200])
def test_the_fleet_does_its_work_about_once_however_late_its_processes_are(clock: _Clock, processes: int) -> None:
    random.seed(31)
    sums = _played(clock, processes)
    print(processes, {call: round(number / PLAYED, 2) for call, number in sums.items()})
    assert sums["promote"] >= PLAYED - 6, "each second somebody looks what is due"
    assert sum(sums.values()) <= figures.FLEET_SCRIPTS * PLAYED
