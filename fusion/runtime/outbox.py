"""Outcomes on their way to Redis, and the turn that carries them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from fusion.execution.completion import Decision
from fusion.kernel.defaults import SIGNAL_WINDOW
from fusion.kernel.failpoints import failpoint
from fusion.runtime.redis_link import RedisLink
from fusion.settings import Settings
from fusion.store.layout.records import Claimed, Commit, Turn, Wishes
from fusion.store.write.broker import Broker

#: How often an outcome is offered again that a broken key refused, and the first of the pauses, in seconds, each twice the one before.
_OFFERS, _PAUSE = 5, 1.0


@dataclass(slots=True)
class Result:
    """An outcome. `at`: monotonic time at which it was known."""

    claimed: Claimed
    decision: Decision
    at: float
    elapsed: float
    #: How often a broken key refused it.
    refused: int = 0
    #: What it is if the worker was signaled at this time too.
    instead: Decision | None = None
    signaled: float = 0.0

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
    wishes: Wishes


class Outbox:
    """Keeps outcomes until Redis has answered for them.

    A turn that got no answer is repeated word for word under its token, since it may have been carried out; what came in meanwhile waits
    for the next. An outcome that a broken key refused is offered again for a while: somebody may mend the key. Nothing here decides anything.
    """

    def __init__(self, broker: Broker, link: RedisLink, settings: Settings) -> None:
        self._broker, self._link = broker, link
        self._lease, self._worker_ttl, self._listed = settings.lease, settings.worker_ttl, settings.order == "listed"
        self._results: list[Result] = []
        self._late: list[tuple[float, Result]] = []
        self._begun: list[Claimed] = []
        self._open: _OpenTurn | None = None
        self._token = 0

    @property
    def settled(self) -> bool:
        """Whether Redis knows everything that it takes now."""
        return not self._results and not self._begun and self._open is None

    @property
    def next_at(self) -> float:
        """When an outcome that was refused is offered again."""
        return min((at for at, _ in self._late), default=float("inf"))

    def held(self) -> list[Claimed]:
        """Jobs that are still this worker's though they have run."""
        late = [result for _, result in self._late]
        return [r.claimed for r in (*self._results, *late, *(self._open.results if self._open else ()))]

    def refused(self, result: Result) -> bool:
        """A broken key refused this outcome; whether it will be offered again. If not, its job runs again when the lease is over."""
        result.refused += 1
        if result.refused > _OFFERS:
            return False
        self._late.append((time.monotonic() + _PAUSE * 2 ** (result.refused - 1), result))
        return True

    def offer_late(self, now: float) -> None:
        """Offer again what is due by `now`."""
        self._results += [result for at, result in self._late if at <= now]
        self._late = [(at, result) for at, result in self._late if at > now]

    def renumber(self) -> None:
        """Redis knows this worker no more, nor the token of a turn under way: under that one other jobs would get the executions of those
        that were given to it before."""
        if self._open is not None:
            self._token += 1
            self._open.token = self._token

    def add(self, claimed: Claimed, decision: Decision, elapsed: float) -> None:
        self._results.append(Result(claimed, decision, time.monotonic(), elapsed))
        if self._begun:
            self._begun = [other for other in self._begun if other is not claimed]

    def add_struck(self, claimed: Claimed, decision: Decision, elapsed: float, instead: Decision, signaled: float) -> None:
        """An outcome of a process that got a signal at that time. Whether the worker got it too shows within a moment."""
        result = Result(claimed, decision, time.monotonic(), elapsed, instead=instead, signaled=signaled)
        self._late.append((signaled + SIGNAL_WINDOW, result))

    def struck(self, at: float) -> None:
        """The worker got a signal at that time."""
        for _, result in self._late:
            if result.instead is not None and abs(result.signaled - at) <= SIGNAL_WINDOW:
                result.decision, result.instead = result.instead, None

    def begun(self, claimed: Claimed) -> None:
        """A job claimed ahead runs: should this worker die now, it is lost."""
        self._begun.append(claimed)

    def turn(
        self, name: str, incarnation: str, queues: Sequence[str], slots: list[int], ahead: int = 0, wishes: Wishes | None = None
    ) -> tuple[Turn, list[Result]] | None:
        """One round trip: tell the outcomes, ask for jobs. Returns the answer and the results it answers; None if there was nothing to say.
        The last `ahead` slots are for jobs that wait behind others.

        RedisAway, with the turn kept; the answer `unregistered` keeps it too: register, then call again.
        """
        if self._open is None:
            if not self._results and not slots and not self._begun:
                return None
            self._token += 1
            self._open = _OpenTurn(self._token, self._results, list(queues), slots, ahead, self._begun, wishes or Wishes())
            self._results, self._begun = [], []
        sent = self._open
        turn = self._link.attempt(lambda: self._send(sent, name, incarnation))
        if turn.status == "unregistered":
            self.renumber()
        else:
            self._open = None
            if sent.begun:
                failpoint("ahead.told")
        return turn, sent.results

    def _send(self, sent: _OpenTurn, name: str, incarnation: str) -> Turn:
        now = time.monotonic()
        commits = [result.commit(now) for result in sent.results]
        begun = [(claimed.id, claimed.execution_id) for claimed in sent.begun]
        lease, ttl = self._lease, self._worker_ttl
        rest = (commits, sent.queues, sent.slots, lease, ttl, sent.ahead, begun, sent.wishes)
        return self._broker.turn(name, incarnation, sent.token, *rest, listed=self._listed)
