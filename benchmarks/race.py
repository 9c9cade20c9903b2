"""Contenders measured in turns: all are up at the same time, each with a Redis of its own, and one at a time works for a slice."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

from benchmarks.contestant import Contestant, Slice
from benchmarks.local_http import LocalHTTP
from benchmarks.peers.base import Conditions

#: Contenders of a race by the name that they go by: a key of the registry, and the conditions.
Field = Mapping[str, tuple[str, Conditions]]


@dataclass
class Lap:
    """What one contender did in all of its slices.

    `rate`: jobs/s. `cpu`: milliseconds a job by kind of process. `requests`, `connections`: a job. `memory`: MiB of its workers.
    """

    rate: float
    requests: float
    connections: float
    memory: float
    cpu: dict[str, float] = field(default_factory=dict)

    @property
    def spent(self) -> float:
        """CPU milliseconds a job, of all processes."""
        return sum(self.cpu.values())


def race(entered: Field, slices: int, seconds: float) -> dict[str, Lap]:
    """Have each of them work for this many slices, in an order that chance decides anew each time. Those that are not installed are left out."""
    taken: dict[str, list[Slice]] = {}
    with ExitStack() as stack:
        http = stack.enter_context(LocalHTTP())
        contestants = {name: stack.enter_context(one) for name, one in _made(entered, http.url).items()}
        for one in contestants.values():
            one.hold()
        for one in contestants.values():
            one.slice(min(seconds, 0.3))  # finds its pace
        for _ in range(slices):
            for name in random.sample(list(contestants), len(contestants)):
                taken.setdefault(name, []).append(contestants[name].slice(seconds))
        return {name: _lap(taken[name], one.memory()) for name, one in contestants.items()}


def _made(entered: Field, http: str) -> dict[str, Contestant]:
    found = {}
    for name, (key, asked) in entered.items():
        try:
            found[name] = Contestant(key, asked, http)
        except ImportError as error:
            print(f"{name}: left out, {error}; pip install '.[bench]'", file=sys.stderr)
    return found


def _lap(slices: list[Slice], memory: float) -> Lap:
    jobs = sum(one.after.jobs - one.before.jobs for one in slices)
    cpu = {kind: 1000 * sum(one.after.cpu[kind] - one.before.cpu[kind] for one in slices) / jobs for kind in slices[0].after.cpu}
    return Lap(
        rate=sum(one.jobs for one in slices) / sum(one.seconds for one in slices),
        requests=sum(one.after.requests - one.before.requests - 1 for one in slices) / jobs,
        connections=sum(one.after.connections - one.before.connections for one in slices) / jobs,
        memory=memory,
        cpu=cpu,
    )
