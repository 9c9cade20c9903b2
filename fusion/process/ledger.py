"""Outcomes on their way to Redis, and the turn that carries them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from fusion.execution.completion import Decision
from fusion.failpoints import failpoint
from fusion.process.link import RedisLink
from fusion.settings import Settings
from fusion.store.broker import Broker
from fusion.store.records import Claimed, Commit, Turn


@dataclass(slots=True)
class Result:
    """An outcome. `at`: monotonic time at which it was known."""

    claimed: Claimed
    decision: Decision
    at: float
    elapsed: float

    def commit(self, now: float) -> Commit:
        d = self.decision
        age = max(0.0, now - self.at)
        return Commit(
            d.kind, self.claimed.id, self.claimed.execution_id, self.elapsed, age, d.delay, d.reason, d.fields, d.attempt
        )


@dataclass(slots=True)
class _OpenTurn:
    token: int
    results: list[Result]
    queues: list[str]
    slots: list[int]
    ahead: int
    begun: list[Claimed]


class Ledger:
    """Keeps outcomes until Redis has answered for them.

    A turn that got no answer is repeated word for word under its token, since it may have been carried out; what came in meanwhile waits
    for the next. Nothing here decides anything.
    """

    def __init__(self, broker: Broker, link: RedisLink, settings: Settings) -> None:
        self._broker, self._link = broker, link
        self._lease, self._worker_ttl = settings.lease, settings.worker_ttl
        self._results: list[Result] = []
        self._begun: list[Claimed] = []
        self._open: _OpenTurn | None = None
        self._token = 0

    @property
    def settled(self) -> bool:
        """Whether Redis knows everything."""
        return not self._results and not self._begun and self._open is None

    def held(self) -> list[Claimed]:
        """Jobs that are still this worker's though they have run."""
        return [r.claimed for r in (*self._results, *(self._open.results if self._open else ()))]

    def add(self, claimed: Claimed, decision: Decision, elapsed: float) -> None:
        self._results.append(Result(claimed, decision, time.monotonic(), elapsed))
        if self._begun:
            self._begun = [other for other in self._begun if other is not claimed]

    def begun(self, claimed: Claimed) -> None:
        """A job claimed ahead runs: should this worker die now, it is lost."""
        self._begun.append(claimed)

    def turn(
        self, name: str, incarnation: str, queues: Sequence[str], slots: list[int], ahead: int = 0
    ) -> tuple[Turn, list[Result]] | None:
        """One round trip: tell the outcomes, ask for jobs. Returns the answer and the results it answers; None if there was nothing to say.
        The last `ahead` slots are for jobs that wait behind others.

        RedisAway, with the turn kept; the answer `unregistered` keeps it too: register, then call again.
        """
        if self._open is None:
            if not self._results and not slots and not self._begun:
                return None
            self._token += 1
            self._open = _OpenTurn(self._token, self._results, list(queues), slots, ahead, self._begun)
            self._results, self._begun = [], []
        sent = self._open
        failpoint("turn.before")
        turn = self._link.attempt(lambda: self._send(sent, name, incarnation))
        failpoint("turn.after_reply")
        if turn.status != "unregistered":
            self._open = None
        return turn, sent.results

    def _send(self, sent: _OpenTurn, name: str, incarnation: str) -> Turn:
        now = time.monotonic()
        commits = [result.commit(now) for result in sent.results]
        begun = [(claimed.id, claimed.execution_id) for claimed in sent.begun]
        lease, ttl = self._lease, self._worker_ttl
        return self._broker.turn(name, incarnation, sent.token, commits, sent.queues, sent.slots, lease, ttl, sent.ahead, begun)
