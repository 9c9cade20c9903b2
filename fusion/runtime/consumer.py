"""The one turn loop: workers and couriers claim jobs and commit outcomes by it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from typing import Protocol

from fusion.execution.completion import Decision
from fusion.runtime.context import ProcessContext
from fusion.runtime.doorbells import Doorbells
from fusion.runtime.free_slots import FreeSlots
from fusion.runtime.history import History
from fusion.runtime.job_log import JobLog
from fusion.runtime.maintenance import Maintenance
from fusion.runtime.membership import Membership, WorkerListing
from fusion.runtime.outbox import Outbox, PendingOutcome
from fusion.runtime.redis_link import RedisAway
from fusion.runtime.served_queues import ServedQueues
from fusion.runtime.supervised import SupervisorLine
from fusion.runtime.timers import Tick, Timer, Timers
from fusion.store.layout.records import Claimed, ClaimFilter, Turn

#: Most turns in a row before the loop does anything else.
MAX_TURNS = 10
#: Most jobs that one turn asks for. With 32 outcomes too it takes about 10 ms of the server, if each job has a key, a batch and callbacks.
MOST_SLOTS = 32
#: Seconds for which a reply is awaited within a round, while running jobs are served.
_MOMENT = 0.002


class Answered(Protocol):
    """Takes a job whose outcome was committed or refused. `failed`: the job has failed by it, and does not run again."""

    def __call__(self, claimed: Claimed, *, failed: bool) -> None: ...


class TurnOwner(Protocol):
    """The worker or courier that a consumer takes turns for."""

    @property
    def busy(self) -> bool:
        """True while a job runs."""

    def free_slots(self) -> FreeSlots:
        """Return the jobs that can be taken now."""

    def claim_filter(self, now: float) -> ClaimFilter | None:
        """Return which blocked jobs may be claimed, and which tasks are missing; None: claim any job of the queues."""

    def turn_sent(self, slots: FreeSlots) -> None:
        """Called after a turn that answers a doorbell was sent, before its reply has come."""

    def start_jobs(self, jobs: Sequence[Claimed]) -> None:
        """Start the claimed jobs."""

    def turn_ended(self, turn: Turn, slots: FreeSlots, *, seconds: float, moved: int) -> None:
        """Called after the jobs of a turn were started.

        `slots`: what it asked for. `seconds`: time since it began. `moved`: jobs committed or jobs claimed by it, whichever is more.
        """


class Consumer:
    """A process that claims jobs. Its owner has free slots, runs the jobs and resolves each with one decision.

    A turn is one exchange with Redis: it carries outcomes and asks for jobs. There is one turn at a time. A turn without a reply is repeated
    word for word. A turn is due when:

    - an outcome waits, or the last reply said that there is more;
    - a doorbell rang for a free slot, or a queue opens whose rate limit closed it;
    - no turn was taken for `idle_wait` seconds.

    `floors` below are the lowest priorities of the free slots.
    """

    def __init__(
        self,
        process: ProcessContext,
        served_queues: ServedQueues,
        job_log: JobLog,
        line: SupervisorLine,
        owner: TurnOwner,
        *,
        kind: str = "worker",
    ) -> None:
        """`kind`: the word for it in the log."""
        settings, broker, link = process.settings, process.broker, process.link
        self._process, self._served_queues, self._owner, self._kind = process, served_queues, owner, kind
        self.job_log = job_log
        self.outbox = Outbox(broker, link, settings)
        listing = WorkerListing(settings, broker, served_queues, line)
        self.membership = Membership(link, listing, settings.name, settings.lease / 3, self.outbox.renumber)
        self.history = History(broker, link, self.membership, settings.lease / 3, process.log)
        #: Due when a doorbell has rung, see `claim_at_once`.
        self.rung = Timer()
        self.doorbells = Doorbells(process, self.rung)
        self.maintenance = Maintenance(settings, broker, link, served_queues, process.log)
        #: The reply to the last turn, None if there was none; and the jobs that it committed or claimed, whichever is more.
        self.turn: Turn | None = None
        self.moved = 0
        #: The connection that the loop watches for replies.
        self._watched: object | None = None
        #: Called with each job whose outcome has its final answer.
        self.answered: Answered | None = None
        self._requested = self._has_room = False
        self._poll_at, self._opens_at = 0.0, inf
        #: Of the turn under way: when it began, and what it asked for.
        self._began, self._slots = 0.0, FreeSlots([])

    @property
    def name(self) -> str:
        """The registered name; `.1`, `.2` ... is appended if another live worker has the configured one."""
        return self.membership.name

    def schedule(self, timers: Timers, renew_leases: Tick, take_turns: Tick | None = None) -> None:
        """Add a consumer's timers. `renew_leases` sends the heartbeat, with all jobs that this process holds; `take_turns`: in place of its own.

        Leases are renewed first: a turn with large results may keep failing for a long time.
        """
        self.doorbells.schedule(timers)
        timers.when(self.membership, renew_leases, redis=True)
        timers.when(self.outbox, self.outbox.retry_commits)
        timers.when(self.outbox.line, self.receive_reply)
        timers.when(self, take_turns or self.take_turns, redis=True)
        timers.when(self.history, self.history.tick, redis=True)
        timers.when(self.maintenance, self.maintenance.tick, redis=True)

    def enter(self, *, patient: bool = True) -> None:
        """Register, see `Membership.enter`; the first turn is due from then on."""
        self.membership.enter(patient=patient)
        self._requested = True

    def resolve(self, claimed: Claimed, decision: Decision, elapsed: float) -> None:
        """Commit a job's outcome with the next turn. `elapsed`: seconds that it ran."""
        self.outbox.add(claimed, decision, elapsed)

    # -- when a turn is due

    @property
    def turn_due(self) -> bool:
        """True if outcomes wait, or jobs should be asked for."""
        return self._requested or not self.outbox.flushed

    @property
    def in_flight(self) -> bool:
        """True if a turn was sent and its reply was not received."""
        return self.outbox.line.busy

    @property
    def next_at(self) -> float:
        """The time to take a turn: at once if one is due or a doorbell rang, else when polling is due. Never while one is in flight."""
        if self.outbox.line.busy:
            return inf
        if self._requested or self.doorbells.rung or not self.outbox.flushed:
            return 0.0
        return min(self._poll_at, self._opens_at) if self._has_room else inf

    def request_turn(self) -> None:
        """Make a turn due."""
        self._requested = True

    def poll(self, now: float, floors: Sequence[int]) -> None:
        """Make a turn due if a doorbell rang for a free slot, or none was taken for long. Look up which queues wildcards match.

        RedisAway if Redis does not answer.
        """
        # A turn under way may bring jobs for these slots. Until it ends nobody knows if the token is for another worker.
        if self.doorbells.rung and not self.outbox.turn_open and self.doorbells.answer(floors):
            self._requested = True
        self._has_room = bool(floors)
        if self._has_room and now >= self._opens_at:
            self._opens_at, self._requested = inf, True
        if self._has_room and now >= self._poll_at:
            wait = self._process.settings.idle_wait
            self._poll_at = now + wait
            if self._served_queues.patterns:  # without any it sends nothing: that would not prove that Redis answers
                survey = partial(self._served_queues.refresh, self._process.broker.survey, wait / 2)
                if self._process.link.attempt(survey, look=True):
                    self._poll_at = now
            self._requested = True

    # -- turns

    def take_turns(self, now: float, *, blocking: bool = False, rung: bool = False) -> None:
        """Commit outcomes and claim jobs for the free slots, turn after turn while one is due. RedisAway: the turn is kept.

        `blocking`: wait for each reply. `rung`: a doorbell rang and nothing runs, so a job is likely in the first turn: `turn_sent` of the
        owner is called.
        """
        slots = self._owner.free_slots()
        self.poll(now, slots.floors)
        for nth in range(MAX_TURNS):
            if self.outbox.line.busy or not self.turn_due:
                break
            self.take_turn(self._owner.free_slots() if nth else slots, blocking=blocking, rung=rung and not nth)

    def take_turn(self, slots: FreeSlots, *, blocking: bool, rung: bool = False) -> None:
        """Take one turn. If not `blocking`, its reply is received now if it comes within a moment, else when the line's timer is due."""
        self._began = time.monotonic()
        self.begin_turn(slots, self._owner.claim_filter(self._began))
        if blocking or not self.send_async():
            self.exchange()
            return
        if rung:
            self._owner.turn_sent(self._slots)
        if self._reply_comes_soon():
            self.receive_reply()

    def claim_at_once(self, now: float) -> None:
        """Answer a doorbell before all else, if no job runs and no outcome waits.

        The reply is not waited for: meanwhile the process is woken that gets the job.
        """
        self.rung.next_at = inf
        if self.doorbells.rung and self.outbox.flushed and not self._owner.busy:
            self.take_turns(now, rung=True)

    def prepare_turn(self, slots: FreeSlots, claim_filter: ClaimFilter | None) -> None:
        """Encode the turn that would claim jobs for `slots` now, if that is not done yet. It saves the time when a doorbell rings."""
        name, incarnation = self.membership.name, self.membership.incarnation
        self.outbox.prepare(self._served_queues.turn, _at_most(slots), claim_filter or ClaimFilter(), name, incarnation)

    def begin_turn(self, slots: FreeSlots, claim_filter: ClaimFilter | None = None) -> None:
        """Build a turn from the waiting outcomes and a request for jobs for `slots`. A turn that is already under way goes first."""
        self._requested, self._slots = False, _at_most(slots)
        self.outbox.begin(self._served_queues.turn, self._slots, claim_filter)

    def exchange(self) -> list[Claimed]:
        """Send the turn, wait for its reply, and start the jobs that it brought; return them. `turn` is the whole reply.

        RedisAway: the turn is kept. If this process is no longer registered, it registers again, and the turn is kept, too.
        """
        self.turn, self.moved = None, 0
        if not self.outbox.turn_open:
            return []
        return self._end_turn(*self.outbox.exchange(self.membership.name, self.membership.incarnation))

    def send_async(self) -> bool:
        """Send the turn without waiting. False if `exchange` is to be used. RedisAway: the turn is kept."""
        return self.outbox.turn_open and self.outbox.send_async(self.membership.name, self.membership.incarnation)

    def receive_reply(self, now: float = 0.0) -> list[Claimed]:
        """Receive the reply to `send_async`; start and return the jobs as `exchange` does."""
        self.turn, self.moved = None, 0
        return self._end_turn(*self.outbox.receive_reply(self.membership.name, self.membership.incarnation))

    def _reply_comes_soon(self) -> bool:
        """Serve only running jobs for a moment. Most replies come within it; a whole round would take as long as some turns."""
        until, loop, line = time.monotonic() + _MOMENT, self._process.loop, self.outbox.line
        self._watch_reply()
        while (left := until - time.monotonic()) > 0:
            loop.run_once(left)
            if not line.next_at:  # the reply has come
                return True
        return False

    def _end_turn(self, turn: Turn, outcomes: list[PendingOutcome]) -> list[Claimed]:
        """Use a reply: start its jobs, and note the outcomes that it answers. If it answers none, the jobs start first."""
        if turn.status == "unregistered":
            self._process.log.warning("this %s's registration is gone from Redis; registering again", self._kind)
            self.membership.renew()
            return []
        with self.job_log.batch:
            if turn.jobs and not outcomes:
                self._owner.start_jobs(turn.jobs)
            self._note_answers(turn, outcomes)
            if turn.jobs and outcomes:
                self._owner.start_jobs(turn.jobs)
        self._owner.turn_ended(turn, self._slots, seconds=time.monotonic() - self._began, moved=self.moved)
        return turn.jobs

    def _note_answers(self, turn: Turn, outcomes: list[PendingOutcome]) -> None:
        for outcome, answer in zip(outcomes, turn.answers, strict=False):
            if answer == "failed":
                outcome.fail()
                answer = "ok"
            again = answer.startswith("error:") and self.outbox.postpone(outcome)
            self.job_log.committed(outcome.claimed, outcome.decision, answer, again=again)
            if answer == "ok":
                self.history.note(outcome)
            if self.answered is not None and not again:
                self.answered(outcome.claimed, failed=answer == "ok" and outcome.decision.kind == "failed")
        for queue, error in turn.bad:
            self.job_log.bad_queue(queue, error)
        for claimed in turn.jobs:
            self._served_queues.served(claimed.queue, claimed.fields.get(b"priority", b""))
        if self.job_log.is_suspended or turn.status == "suspended":
            self.job_log.suspended(turn.status == "suspended")
        self._opens_at = inf if turn.opens_in is None else time.monotonic() + turn.opens_in
        if turn.next_in is not None:
            self.maintenance.due(time.monotonic() + turn.next_in)
        if turn.releases:
            self.maintenance.releases()
        if turn.again or len(turn.jobs) >= MOST_SLOTS:  # a turn requested while this one was in flight stays requested, too
            self._requested = True
        self.turn, self.moved = turn, max(len(outcomes), len(turn.jobs))

    # -- waiting

    def listen(self, queues: Sequence[str], floors: Sequence[int]) -> None:
        """Wait at the doorbells of these queues while a slot is free, no turn is due or in flight, and Redis answers."""
        self._has_room = bool(floors)
        if self._has_room and not self._requested and not self.outbox.line.busy and self._process.link.away_since is None:
            self.doorbells.arm(queues, floors)
        self.doorbells.follow()
        self._watch_reply()

    def wait(self, now: float, doorbells: Callable[[float], Sequence[str]]) -> None:
        """Wait at the doorbells while no turn is due or in flight; give up the wait for closed queues if no slot is free.

        If nothing runs, the turn that answers a doorbell is encoded now.
        """
        if self.turn_due or self.outbox.line.busy:
            self.listen((), ())
            return
        slots = self._owner.free_slots()
        if not slots.floors:
            if self._opens_at < inf:
                self.yield_wait()
            self.listen((), ())
            return
        self.listen(doorbells(now), slots.floors)
        if not self._owner.busy:
            self.prepare_turn(slots, self._owner.claim_filter(now))

    def yield_wait(self) -> None:
        """Hand over the wait for queues closed by their rates to another process, as no slot is free for long."""
        if self._opens_at == inf or self._process.link.away_since is not None:
            return
        self._opens_at = inf
        with suppress(RedisAway):  # the next worker that polls notices that nobody waits
            self._process.link.attempt(partial(self._process.broker.ring, waiter=self.name))

    def _watch_reply(self) -> None:
        """Have the loop watch the connection on which turns are sent, if it is open."""
        loop, line = self._process.loop, self.outbox.line
        channel = line.channel
        if channel is self._watched and not (channel is not None and channel.unsent):
            return
        self._watched = channel
        loop.follow("turn", fd := line.fileno(), line.receive)
        if fd is not None and line.wants_write:
            loop.want_write(fd, self._on_writable)

    def _on_writable(self) -> None:
        line = self.outbox.line
        line.flush()
        if not line.wants_write and (fd := line.fileno()) is not None:
            self._process.loop.want_write(fd, None)


def _at_most(slots: FreeSlots) -> FreeSlots:
    """Return as many of these slots as one turn may ask for."""
    return slots if len(slots.floors) + slots.ahead <= MOST_SLOTS else slots.first(MOST_SLOTS)
