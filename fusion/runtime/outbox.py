"""Outcomes that wait for Redis, and the turn that carries them."""

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
from fusion.store.layout.records import Claimed, ClaimFilter, Commit, Turn, TurnRequest
from fusion.store.write.broker import Broker
from fusion.store.write.worker_broker import TurnCall

#: How often a refused outcome is sent again, and the first pause in seconds; each pause is twice the one before.
_OFFERS, _PAUSE = 5, 1.0
#: Outcomes of one turn, by weight. A job with a key, batch or relation costs the server as much as four jobs without. A job that did not
#: finish costs as much as two that did.
_MOST, _BOUND = 59, 4


@dataclass(slots=True)
class PendingOutcome:
    """An outcome on its way. `at`: monotonic time at which it was known; `elapsed`: seconds the job ran; `peak`: the most bytes of memory that its
    process held, 0 if that is not known."""

    claimed: Claimed
    decision: Decision
    at: float
    elapsed: float
    peak: int = 0
    #: Pauses between offers, once a broken key has refused it.
    backoff: Backoff | None = None
    #: The outcome to commit instead if the worker received a signal at the same time.
    instead: Decision | None = None
    signaled: float = 0.0

    def fail(self) -> None:
        """Turn a retry or a loss into a failure: Redis answered that the job has failed."""
        self.decision = replace(self.decision, kind="failed")

    def commit(self, now: float) -> Commit:
        """Return the outcome as a turn at this time sends it."""
        d, claimed = self.decision, self.claimed
        age = max(0.0, now - self.at)
        return Commit(
            d.kind, claimed.id, claimed.execution_id, self.elapsed, age, d.delay, d.reason, d.fields, d.attempt, claimed.keyed
        )


@dataclass(slots=True)
class _OpenTurn:
    token: int
    outcomes: list[PendingOutcome]
    queues: list[str]
    slots: FreeSlots
    begun: list[tuple[str, str]]
    claim_filter: ClaimFilter


@dataclass(frozen=True, slots=True)
class _ReadyTurn:
    """The next turn, prepared ahead, and its encoded call."""

    turn: _OpenTurn
    sender: tuple[str, str]
    call: TurnCall


class Outbox:
    """Keeps outcomes until Redis has committed them.

    - a turn without a reply is repeated word for word under its token, since Redis may have executed it; outcomes that come meanwhile wait
      for the next turn;
    - an outcome that a broken key refused is sent again for a while: an operator may repair the key.

    A turn is exchanged blocking (`exchange`), or without waiting (`send_async`, then `receive_reply`). Nothing here decides anything.
    """

    def __init__(self, broker: Broker, link: RedisLink, settings: Settings) -> None:
        self._broker, self._link = broker, link
        #: The connection for turns sent without waiting. It has no other use.
        self.line = broker.turn_line()
        self._lease, self._worker_ttl = settings.lease, settings.worker_ttl
        #: True if the order of the queues is a rank for a whole turn, and not a ring.
        self._listed = settings.order in ("listed", "weighted")
        self._outcomes: list[PendingOutcome] = []
        self._late: list[tuple[float, PendingOutcome]] = []
        #: When a postponed outcome is sent again.
        self.next_at = inf
        #: Job ids and executions that have begun, see `report_begun`.
        self._begun: list[tuple[str, str]] = []
        self._open: _OpenTurn | None = None
        #: True if nothing waits to be sent and no turn is under way. Postponed outcomes do not count.
        self.flushed = True
        #: True while a turn is under way.
        self.turn_open = False
        self._ready: _ReadyTurn | None = None
        self._token = 0
        #: Outages that had begun when a turn was last sent without waiting.
        self._outages = 0

    @property
    def committed(self) -> bool:
        """True if all outcomes are committed. Postponed ones do not count; a turn without outcomes may be under way."""
        return not self._outcomes and not self._begun and not (self._open and self._open.outcomes)

    def uncommitted(self) -> list[Claimed]:
        """Jobs that have run and whose outcomes are not committed: this worker still holds their leases."""
        late = [outcome for _, outcome in self._late]
        return [r.claimed for r in (*self._outcomes, *late, *(self._open.outcomes if self._open else ()))]

    def postpone(self, outcome: PendingOutcome) -> bool:
        """Keep a refused outcome, to send it again later. False after five times: the job runs again when its lease expires."""
        outcome.backoff = outcome.backoff or Backoff(_PAUSE, inf)
        pause = outcome.backoff.next()
        if outcome.backoff.failures > _OFFERS:
            return False
        self._postpone(time.monotonic() + pause, outcome)
        return True

    def _postpone(self, at: float, outcome: PendingOutcome) -> None:
        self._late.append((at, outcome))
        self.next_at = min(self.next_at, at)

    def retry_commits(self, now: float) -> None:
        """Add the postponed outcomes that are due by `now` to the next turn."""
        if not self._late:
            return
        self._outcomes += [outcome for at, outcome in self._late if at <= now]
        self._changed()
        self._late = [(at, outcome) for at, outcome in self._late if at > now]
        self.next_at = min((at for at, _ in self._late), default=inf)

    def _changed(self) -> None:
        self.turn_open = self._open is not None
        self.flushed = not (self._outcomes or self._begun or self.turn_open)

    def renumber(self) -> None:
        """Give a turn under way a new token, after Redis forgot this worker. The old token would give other jobs execution ids that were
        already used."""
        if self._open is not None:
            self._token += 1
            self._open.token = self._token

    def add(self, claimed: Claimed, decision: Decision, elapsed: float, peak: int = 0) -> None:
        """Add a job's outcome to the next turn."""
        self._outcomes.append(PendingOutcome(claimed, decision, time.monotonic(), elapsed, peak))
        if self._begun:
            self._begun = [begun for begun in self._begun if begun[1] != claimed.execution_id]
        self.flushed = False

    def add_signaled(
        self, claimed: Claimed, decision: Decision, elapsed: float, instead: Decision, signaled: float, peak: int = 0
    ) -> None:
        """Add the outcome of a process that received a signal at the monotonic time `signaled`. It waits a moment: if this worker received
        the signal too, the outcome is `instead`."""
        outcome = PendingOutcome(claimed, decision, time.monotonic(), elapsed, peak, instead=instead, signaled=signaled)
        self._postpone(signaled + SIGNAL_WINDOW, outcome)

    def worker_signaled(self, at: float) -> None:
        """Record that this worker received a signal at that monotonic time."""
        for _, outcome in self._late:
            if outcome.instead is not None and abs(outcome.signaled - at) <= SIGNAL_WINDOW:
                outcome.decision, outcome.instead = outcome.instead, None

    def report_begun(self, claimed: Claimed) -> None:
        """Report with the next turn that a prefetched job runs: if this worker dies, the job counts as lost."""
        self._begun.append((claimed.id, claimed.execution_id))
        self.flushed = False

    def begin(self, queues: Sequence[str], slots: FreeSlots, claim_filter: ClaimFilter | None = None) -> None:
        """Build a turn from the outcomes and a request for jobs. Do nothing if a turn is under way, or if there is nothing to send."""
        if self._open is None and (self._outcomes or slots.floors or slots.ahead or self._begun):
            self._token += 1
            outcomes, self._outcomes = self._first()
            self._open = _OpenTurn(self._token, outcomes, list(queues), slots, self._begun, claim_filter or ClaimFilter())
            self._begun = []
            self._changed()

    def _first(self) -> tuple[list[PendingOutcome], list[PendingOutcome]]:
        """The outcomes that the next turn carries, and those that wait for another."""
        if len(self._outcomes) * (_BOUND + 1) <= _MOST:
            return self._outcomes, []
        weight = 0
        for nth, outcome in enumerate(self._outcomes):
            weight += _BOUND if outcome.claimed.fields.get(b"ties") else 1
            weight += outcome.decision.kind != "finished"
            if weight > _MOST:
                return self._outcomes[:nth], self._outcomes[nth:]
        return self._outcomes, []

    def prepare(self, queues: Sequence[str], slots: FreeSlots, claim_filter: ClaimFilter, name: str, incarnation: str) -> None:
        """Encode the next turn ahead, without outcomes, if that is not done yet. It is used if the next turn is the same, word for word."""
        token = self._token + 1
        if self._ready is None or self._ready.turn.token != token:
            turn = _OpenTurn(token, [], list(queues), slots, [], claim_filter)
            call = self._make_call(turn, name, incarnation)
            call.encode()
            self._ready = _ReadyTurn(turn, (name, incarnation), call)

    def exchange(self, name: str, incarnation: str) -> tuple[Turn, list[PendingOutcome]]:
        """Send the turn under way and wait for the reply. Return it with the outcomes that it answers.

        RedisAway: the turn is kept. The reply `unregistered` keeps it too: register, then call again.
        """
        assert self._open is not None
        if self.line.busy:
            self.line.drop()  # the turn in flight is repeated
        return self._received(self._open, self._link.attempt(self._call(self._open, name, incarnation)))

    def send_async(self, name: str, incarnation: str) -> bool:
        """Send the turn under way without waiting. RedisAway: the turn is kept.

        False if `exchange` is to be used: after a failed attempt, turns go over the main connection until one succeeds.
        """
        assert self._open is not None
        if self._link.away_since is not None:
            return False
        if self._outages != self._link.outages:
            self.line.drop()  # it may have died in the outage unnoticed, and would look like another outage
            self._outages = self._link.outages
        return self._link.attempt(partial(self.line.send, self._call(self._open, name, incarnation)))

    def receive_reply(self, name: str, incarnation: str) -> tuple[Turn, list[PendingOutcome]]:
        """Receive the reply to `send_async`, and return as `exchange` does.

        RedisAway, with the turn kept, if none came in time, or if other calls found Redis away: two connections must not disagree.
        """
        assert self._open is not None
        if self._link.away_since is not None:
            self.line.drop()
            raise RedisAway
        reply = partial(self._reply, self._open, name, incarnation)
        return self._received(self._open, self._link.attempt(reply, since=self._outages))

    def _reply(self, sent: _OpenTurn, name: str, incarnation: str) -> Turn:
        try:
            return self.line.answer()
        except NoScriptError:
            return self._call(sent, name, incarnation)()

    def _received(self, sent: _OpenTurn, turn: Turn) -> tuple[Turn, list[PendingOutcome]]:
        if turn.status == "unregistered":
            self.renumber()
        else:
            self._open = None
            self._changed()
            if sent.begun:
                failpoint("ahead.told")
        return turn, sent.outcomes

    def _call(self, sent: _OpenTurn, name: str, incarnation: str) -> TurnCall:
        ready = self._ready
        if ready is not None and ready.turn == sent and ready.sender == (name, incarnation):
            return ready.call
        return self._make_call(sent, name, incarnation)

    def _make_call(self, sent: _OpenTurn, name: str, incarnation: str) -> TurnCall:
        now = time.monotonic()
        request = TurnRequest(
            name,
            incarnation,
            sent.token,
            commits=[outcome.commit(now) for outcome in sent.outcomes],
            queues=sent.queues,
            slots=sent.slots.floors + [ANY] * sent.slots.ahead,
            lease=self._lease,
            worker_ttl=self._worker_ttl,
            ahead=sent.slots.ahead,
            begun=sent.begun,
            claim_filter=sent.claim_filter,
            listed=self._listed,
        )
        return self._broker.turn_call(request)
