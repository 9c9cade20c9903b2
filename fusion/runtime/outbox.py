"""Outcomes on their way to Redis, and the turn that carries them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf

from redis.exceptions import NoScriptError

from fusion.execution.completion import Decision
from fusion.kernel.defaults import SIGNAL_WINDOW
from fusion.kernel.failpoints import failpoint
from fusion.runtime.backoff import Backoff
from fusion.runtime.free_slots import ANY, FreeSlots
from fusion.runtime.redis_link import RedisAway, RedisLink
from fusion.settings import Settings
from fusion.store.layout.records import Claimed, Commit, Turn, Wishes
from fusion.store.write.broker import Broker, TurnCall

#: How often an outcome is offered again that a broken key refused, and the first of the pauses, in seconds, each twice the one before.
_OFFERS, _PAUSE = 5, 1.0
#: Outcomes that one turn tells, by weight: one of a job that is bound to something is as much work for the server as some of others, and one
#: that has not finished as two that have.
_MOST, _BOUND = 60, 4


@dataclass(slots=True)
class Result:
    """An outcome on its way. `at`: monotonic time at which it was known; `elapsed`: seconds the job ran."""

    claimed: Claimed
    decision: Decision
    at: float
    elapsed: float
    #: Pauses between offers, once a broken key has refused it.
    backoff: Backoff | None = None
    #: What it is if the worker was signaled at this time too.
    instead: Decision | None = None
    signaled: float = 0.0

    def give_up(self) -> None:
        """It was to be tried again and has failed: Redis says that this is too late."""
        self.decision = replace(self.decision, kind="failed")

    def commit(self, now: float) -> Commit:
        """The outcome as a turn at this time carries it."""
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
    slots: FreeSlots
    begun: list[Claimed]
    wishes: Wishes


@dataclass(frozen=True, slots=True)
class _ReadyTurn:
    """The next turn as it is by all that is known now, and its call."""

    turn: _OpenTurn
    sender: tuple[str, str]
    call: TurnCall


class Outbox:
    """Keeps outcomes until Redis has answered for them.

    - a turn that got no answer is repeated word for word under its token, since it may have been carried out; what came in meanwhile waits
      for the next;
    - an outcome that a broken key refused is offered again for a while: somebody may mend the key.

    An exchange is waited for (`receive`), or heard of later (`ask`, then `hear`). Nothing here decides anything.
    """

    def __init__(self, broker: Broker, link: RedisLink, settings: Settings) -> None:
        self._broker, self._link = broker, link
        #: Where the turn is that was asked for. Nothing else is read from its connection.
        self.line = broker.turn_line()
        self._lease, self._worker_ttl, self._listed = settings.lease, settings.worker_ttl, settings.order == "listed"
        self._results: list[Result] = []
        self._late: list[tuple[float, Result]] = []
        self._begun: list[Claimed] = []
        self._open: _OpenTurn | None = None
        self._ready: _ReadyTurn | None = None
        self._token = 0
        #: Outages that had begun when a turn was last asked for.
        self._outages = 0

    @property
    def settled(self) -> bool:
        """Redis knows everything that it takes now."""
        return not self._results and not self._begun and self._open is None

    @property
    def told(self) -> bool:
        """No outcome waits for Redis; a turn may be under way that tells none."""
        return not self._results and not self._begun and not (self._open and self._open.results)

    @property
    def next_at(self) -> float:
        """When an outcome that was put off is offered."""
        return min(at for at, _ in self._late) if self._late else inf

    @property
    def is_sending(self) -> bool:
        """A turn is under way."""
        return self._open is not None

    def held(self) -> list[Claimed]:
        """Jobs that have run and are still this worker's, as Redis has not answered for them."""
        late = [result for _, result in self._late]
        return [r.claimed for r in (*self._results, *late, *(self._open.results if self._open else ()))]

    def refused(self, result: Result) -> bool:
        """Put off an outcome that a broken key refused. False if that was often enough: the job runs again when its lease is over."""
        result.backoff = result.backoff or Backoff(_PAUSE, inf)
        pause = result.backoff.next()
        if result.backoff.failures > _OFFERS:
            return False
        self._late.append((time.monotonic() + pause, result))
        return True

    def offer_late(self, now: float) -> None:
        """Offer what was put off and is due by `now`."""
        if not self._late:
            return
        self._results += [result for at, result in self._late if at <= now]
        self._late = [(at, result) for at, result in self._late if at > now]

    def renumber(self) -> None:
        """Give a turn under way a new token: Redis knows this worker no more, and under the old one other jobs would get the executions of
        those that it was given before."""
        if self._open is not None:
            self._token += 1
            self._open.token = self._token

    def add(self, claimed: Claimed, decision: Decision, elapsed: float) -> None:
        """Have the next turn tell what became of a job."""
        self._results.append(Result(claimed, decision, time.monotonic(), elapsed))
        if self._begun:
            self._begun = [other for other in self._begun if other is not claimed]

    def add_struck(self, claimed: Claimed, decision: Decision, elapsed: float, instead: Decision, signaled: float) -> None:
        """Add an outcome of a process that got a signal at the monotonic time `signaled`. It waits a moment: if the worker turns out to have
        got the signal too, the outcome is `instead`."""
        result = Result(claimed, decision, time.monotonic(), elapsed, instead=instead, signaled=signaled)
        self._late.append((signaled + SIGNAL_WINDOW, result))

    def struck(self, at: float) -> None:
        """Note that the worker got a signal at that monotonic time."""
        for _, result in self._late:
            if result.instead is not None and abs(result.signaled - at) <= SIGNAL_WINDOW:
                result.decision, result.instead = result.instead, None

    def begun(self, claimed: Claimed) -> None:
        """Have the next turn tell that a prefetched job runs: should this worker die now, it is lost."""
        self._begun.append(claimed)

    def send(self, queues: Sequence[str], slots: FreeSlots, wishes: Wishes | None = None) -> None:
        """Begin a turn: tell the outcomes, ask for jobs. Nothing if one is under way, or if there is nothing to say."""
        if self._open is None and (self._results or slots.floors or slots.ahead or self._begun):
            self._token += 1
            results, self._results = self._first()
            self._open = _OpenTurn(self._token, results, list(queues), slots, self._begun, wishes or Wishes())
            self._begun = []

    def _first(self) -> tuple[list[Result], list[Result]]:
        """The outcomes that the next turn tells, and those that have to wait for another."""
        if len(self._results) * (_BOUND + 1) <= _MOST:
            return self._results, []
        weight = 0
        for nth, result in enumerate(self._results):
            weight += _BOUND if result.claimed.fields.get(b"ties") else 1
            weight += result.decision.kind != "finished"
            if weight > _MOST:
                return self._results[:nth], self._results[nth:]
        return self._results, []

    def prepare(self, queues: Sequence[str], slots: FreeSlots, wishes: Wishes, name: str, incarnation: str) -> None:
        """Encode the next turn ahead, one that tells nothing; nothing if that is done. `send` begins what it is given all the same: what
        was encoded serves if that is this, word for word."""
        token = self._token + 1
        if self._ready is None or self._ready.turn.token != token:
            turn = _OpenTurn(token, [], list(queues), slots, [], wishes)
            call = self._make_call(turn, name, incarnation)
            call.encode()
            self._ready = _ReadyTurn(turn, (name, incarnation), call)

    def receive(self, name: str, incarnation: str) -> tuple[Turn, list[Result]]:
        """Exchange the turn under way with Redis: its answer, and the results that it answers.

        RedisAway, with the turn kept. The answer `unregistered` keeps it too: register, then call again.
        """
        assert self._open is not None
        if self.line.busy:
            self.line.drop()  # what was asked for is repeated
        return self._take_in(self._open, self._link.attempt(self._call(self._open, name, incarnation)))

    def ask(self, name: str, incarnation: str) -> bool:
        """Send the turn under way and wait for nothing. RedisAway, with the turn kept.

        False if it is to be exchanged by `receive`: after an attempt that failed, each next one is a single exchange, on the main line, until
        one succeeds.
        """
        assert self._open is not None
        if self._link.away_since is not None:
            return False
        if self._outages != self._link.outages:
            self.line.drop()  # it lay still amid the outage, and may have died without a word: the next silence would look like another
            self._outages = self._link.outages
        return self._link.attempt(partial(self.line.send, self._call(self._open, name, incarnation)))

    def hear(self, name: str, incarnation: str) -> tuple[Turn, list[Result]]:
        """Take the answer to what was asked, as `receive` returns it. RedisAway, with the turn kept, if none came in time; and if Redis is away
        by other calls: two lines must not tell different things of it by turns."""
        assert self._open is not None
        if self._link.away_since is not None:
            self.line.drop()
            raise RedisAway
        heard = partial(self._heard, self._open, name, incarnation)
        return self._take_in(self._open, self._link.attempt(heard, since=self._outages))

    def _heard(self, sent: _OpenTurn, name: str, incarnation: str) -> Turn:
        try:
            return self.line.answer()
        except NoScriptError:
            return self._call(sent, name, incarnation)()

    def _take_in(self, sent: _OpenTurn, turn: Turn) -> tuple[Turn, list[Result]]:
        if turn.status == "unregistered":
            self.renumber()
        else:
            self._open = None
            if sent.begun:
                failpoint("ahead.told")
        return turn, sent.results

    def _call(self, sent: _OpenTurn, name: str, incarnation: str) -> TurnCall:
        ready = self._ready
        if ready is not None and ready.turn == sent and ready.sender == (name, incarnation):
            return ready.call
        return self._make_call(sent, name, incarnation)

    def _make_call(self, sent: _OpenTurn, name: str, incarnation: str) -> TurnCall:
        now = time.monotonic()
        commits = [result.commit(now) for result in sent.results]
        begun = [(claimed.id, claimed.execution_id) for claimed in sent.begun]
        lease, ttl = self._lease, self._worker_ttl
        slots = sent.slots.floors + [ANY] * sent.slots.ahead
        rest = (commits, sent.queues, slots, lease, ttl, sent.slots.ahead, begun, sent.wishes)
        return self._broker.turn_call(name, incarnation, sent.token, *rest, listed=self._listed)
