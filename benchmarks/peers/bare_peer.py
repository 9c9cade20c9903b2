"""The loop that does nothing but fork, as a contender: it needs no jobs and no Redis."""

from __future__ import annotations

from benchmarks.peers.base import Conditions, Peer


def _commands(asked: Conditions, url: str) -> list[list[str]]:
    return [["-m", "benchmarks.bare", asked.task, *asked.modules]]


LOOP = Peer("bare loop", "fusion-queue", True, False, None, _commands, ("who forks", "horses"))
