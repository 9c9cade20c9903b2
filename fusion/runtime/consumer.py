"""The one turn loop: whoever claims jobs and commits outcomes, worker or courier, does it by this."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from math import inf

from fusion.execution.completion import Decision
from fusion.runtime.doorbells import Doorbells
from fusion.runtime.free_slots import FreeSlots
from fusion.runtime.history import History
from fusion.runtime.job_log import JobLog
from fusion.runtime.maintenance import Maintenance
from fusion.runtime.membership import Membership, WorkerListing
from fusion.runtime.outbox import Outbox, Result
from fusion.runtime.redis_link import RedisAway
from fusion.runtime.served_queues import ServedQueues
from fusion.runtime.shared import Shared
from fusion.runtime.supervised import SupervisorLine
from fusion.runtime.timers import Tick, Timers
from fusion.store.layout.records import Claimed, Turn, Wishes

#: Turns in a row before anything else is looked at.
MAX_TURNS = 10
#: Jobs that one turn asks for: with as many outcomes about 10 ms of the server's one thread, if each has a key, a batch and callbacks.
MOST_SLOTS = 32


class Consumer:
    """A member of the fleet that takes jobs. Its owner says how many, runs them, and settles each with one decision.

    A turn is one exchange with Redis: `send` puts down the outcomes and the free slots, `receive` has Redis answer; or `ask` sends it, and
    `hear` is called when the answer is there. One turn at a time; one that got no answer is repeated word for word. The owner takes turns
    while one is `wanted` and none is `asked` for:

    - an outcome waits, the answer before said that there is more, a doorbell rang, a closed queue opens for which it waits, or nobody asked
      for `idle_wait` seconds.

    `floors` below are the lowest priorities of the free slots.
    """

    def __init__(
        self,
        shared: Shared,
        served_queues: ServedQueues,
        job_log: JobLog,
        line: SupervisorLine,
        *,
        kind: str = "worker",
    ) -> None:
        """`kind`: the word for it in the log."""
        settings, broker, link = shared.settings, shared.broker, shared.link
        self._shared, self._served_queues, self._kind = shared, served_queues, kind
        self.job_log = job_log
        self.outbox = Outbox(broker, link, settings)
        listing = WorkerListing(settings, broker, served_queues, line)
        self.membership = Membership(link, listing, settings.name, settings.lease / 3, self.outbox.renumber)
        self.history = History(broker, link, self.membership, settings.lease / 3, shared.log)
        self.doorbells = Doorbells(shared)
        self.maintenance = Maintenance(settings, broker, link, served_queues, shared.log)
        #: The last answer to a turn, None if that was none; and how many jobs the turn committed or claimed, whichever is more.
        self.turn: Turn | None = None
        self.moved = 0
        self._wanted = self._has_room = False
        self._look_at, self._opens_at = 0.0, inf

    @property
    def name(self) -> str:
        """The registered name; `.1`, `.2` ... is appended if another live worker has the configured one."""
        return self.membership.name

    def schedule(self, timers: Timers, renew: Tick, work: Tick, hear: Tick | None = None) -> None:
        """Add what a consumer waits for. `renew` gives its sign of life, with what it holds; `work` takes turns, `hear` ends those that were
        asked for.

        Leases come first: a turn with large results may not get through for long.
        """
        timers.when(self.doorbells, self.doorbells.tick)
        timers.when(self.membership, renew, redis=True)
        timers.when(self.outbox, self.outbox.offer_late)
        if hear is not None:
            timers.when(self.outbox.line, hear)
        timers.when(self, work, redis=True)
        timers.when(self.history, self.history.tick, redis=True)
        timers.when(self.maintenance, self.maintenance.tick, redis=True)

    def enter(self, *, patient: bool = True) -> None:
        """Register, see `Membership.enter`; the first turn is wanted from then on."""
        self.membership.enter(patient=patient)
        self._wanted = True

    # -- turns

    @property
    def wanted(self) -> bool:
        """There is something to tell Redis, or to ask."""
        return self._wanted or not self.outbox.settled

    @property
    def asked(self) -> bool:
        """A turn was asked for and not heard."""
        return self.outbox.line.busy

    @property
    def heard(self) -> bool:
        """The answer to the turn that was asked for has come, or what is in its place: `hear` has something to take."""
        return not self.outbox.line.next_at

    @property
    def next_at(self) -> float:
        """When the owner is to take a turn: at once if one is wanted or a doorbell rang, else when it is time to look all the same. Never while
        one is asked for."""
        if self.asked:
            return inf
        if self._wanted or self.doorbells.rung or not self.outbox.settled:
            return 0.0
        return min(self._look_at, self._opens_at) if self._has_room else inf

    def want(self) -> None:
        """Ask for a turn."""
        self._wanted = True

    def look(self, now: float, floors: Sequence[int]) -> None:
        """Want a turn if a doorbell rang for a free slot, or none did for long; name wildcards to Redis. RedisAway if it does not answer."""
        # A turn under way may bring jobs for these slots: until it ends nobody knows if the token is another's to have.
        if self.doorbells.rung and not self.outbox.is_sending and self.doorbells.answer(floors):
            self._wanted = True
        self._has_room = bool(floors)
        if self._has_room and now >= self._opens_at:
            self._opens_at, self._wanted = inf, True
        if self._has_room and now >= self._look_at:
            wait = self._shared.settings.idle_wait
            self._look_at = now + wait
            if self._served_queues.patterns:  # else it asks nobody, and would prove nothing
                survey = partial(self._served_queues.refresh, self._shared.broker.survey, wait / 2)
                if self._shared.link.attempt(survey, look=True):
                    self._look_at = now
            self._wanted = True

    @property
    def rung(self) -> bool:
        """A doorbell rang, and there is nothing to tell: a turn that was made ready may answer it."""
        return self.doorbells.rung and self.outbox.settled

    def make_ready(self, slots: FreeSlots, wishes: Wishes) -> None:
        """Encode the turn that would take jobs for `slots` now, if that is not done yet: so much less is to do when one is wanted."""
        self.outbox.prepare(self._served_queues.turn, slots.first(MOST_SLOTS), wishes, self.name, self.membership.incarnation)

    def send(self, slots: FreeSlots, wishes: Wishes | None = None) -> None:
        """Begin a turn: all outcomes that wait, and a request for jobs for `slots`. One that is under way still goes first."""
        self._wanted = False
        self.outbox.send(self._served_queues.turn, slots.first(MOST_SLOTS), wishes)

    def receive(self) -> list[Claimed]:
        """End the turn that `send` began: one round trip. Return the jobs it brought; `turn` is the whole answer.

        RedisAway: the turn is kept. An entry that is gone is made anew, and the turn is kept, too.
        """
        self.turn, self.moved = None, 0
        if not self.outbox.is_sending:
            return []
        return self._take_in(*self.outbox.receive(self.name, self.membership.incarnation))

    def ask(self) -> bool:
        """Send the turn that `send` began, and wait for nothing; False if it is to be ended by `receive`. RedisAway: the turn is kept."""
        return self.outbox.is_sending and self.outbox.ask(self.name, self.membership.incarnation)

    def hear(self) -> list[Claimed]:
        """End the turn that was asked for, as `receive` does."""
        self.turn, self.moved = None, 0
        return self._take_in(*self.outbox.hear(self.name, self.membership.incarnation))

    def _take_in(self, turn: Turn, results: list[Result]) -> list[Claimed]:
        if turn.status == "unregistered":
            self._shared.log.warning("this %s's registration is gone from Redis; registering again", self._kind)
            self.membership.renew()
            return []
        for result, answer in zip(results, turn.answers, strict=False):
            if answer == "over":
                result.give_up()
                answer = "ok"
            again = answer.startswith("error:") and self.outbox.refused(result)
            self.job_log.committed(result.claimed, result.decision, answer, again=again)
            if answer == "ok":
                self.history.note(result)
        for queue, error in turn.bad:
            self.job_log.bad_queue(queue, error)
        for claimed in turn.jobs:
            self._served_queues.served(claimed.queue)
        self.job_log.suspended(turn.status == "suspended")
        self._opens_at = inf if turn.opens_in is None else time.monotonic() + turn.opens_in
        if turn.next_in is not None:
            self.maintenance.due(time.monotonic() + turn.next_in)
        if turn.releases:
            self.maintenance.releases()
        if turn.again or len(turn.jobs) >= MOST_SLOTS:  # what was wanted since it was sent still is; there may be slots left
            self._wanted = True
        self.turn, self.moved = turn, max(len(results), len(turn.jobs))
        return turn.jobs

    def hand_on(self) -> None:
        """No slot is free for long: have another wait for the queues that open when their rates let them, if this one does."""
        if self._opens_at == inf or self._shared.link.away_since is not None:
            return
        self._opens_at = inf
        with suppress(RedisAway):  # whoever looks next finds that nobody waits
            self._shared.link.attempt(partial(self._shared.broker.ring, waiter=self.name))

    def settle(self, claimed: Claimed, decision: Decision, elapsed: float) -> None:
        """Say what became of a job; the next turn tells Redis. `elapsed`: seconds it ran."""
        self.outbox.add(claimed, decision, elapsed)

    # -- waiting

    def listen(self, queues: Sequence[str], floors: Sequence[int]) -> None:
        """Wait at the doorbells of these queues while a slot is free, no turn is wanted or asked for and Redis answers; keep the loop in step with
        the connections."""
        self._has_room = bool(floors)
        if self._has_room and not self._wanted and not self.asked and self._shared.link.away_since is None:
            self.doorbells.arm(queues, floors)
        self.doorbells.follow()
        self.follow()

    def follow(self) -> None:
        """Keep the loop in step with the connection on which turns are asked for."""
        loop, line = self._shared.loop, self.outbox.line
        loop.follow("turn", fd := line.fileno(), line.receive)
        if fd is not None and line.wants_write:
            loop.want_write(fd, self._on_writable)

    def _on_writable(self) -> None:
        line = self.outbox.line
        line.flush()
        if not line.wants_write and (fd := line.fileno()) is not None:
            self._shared.loop.want_write(fd, None)
