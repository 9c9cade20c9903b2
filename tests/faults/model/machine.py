"""Hypothesis' walk through the calls of a fleet of two workers, people, maintenance and a Redis that answers late or not at all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import redis
from hypothesis.stateful import RuleBasedStateMachine, rule

from tests.faults.model.model import Model
from tests.faults.model.scripts import Line, Mistake, broker_of, clock_at, limit_broker_of
from tests.faults.model.state import IDS, MAX_LOST, QUEUES, START, TERMINAL, Order, Told, Wish
from tests.faults.model.steps import STEPS, Step
from tests.faults.model.store import Store, Story, compare
from tests.kit.promises import promise

_UNORDERED = ("reap", "prune", "deregister")  # the order in which Redis lists queues and workers is its own


_NO_WISH = Wish()


class Hand:
    """What a worker knows: the executions it was handed, and the turn that got no answer. It repeats that one until it has one."""

    def __init__(self, name: str) -> None:
        self.name, self._lives = name, 0
        self.start()

    def start(self) -> None:
        """A process of this name, new."""
        self._lives += 1
        self.incarnation, self.token = f"{self.name}{self._lives}", 0
        self.held: dict[str, str] = {}
        self.unanswered: tuple[Any, ...] | None = None


class StoreMachine(RuleBasedStateMachine):
    """Each step is a call, answered and carried out as the model says, or the test fails."""

    conn: ClassVar[redis.Redis]
    mistakes: ClassVar[tuple[Mistake, ...]] = ()
    _tools: ClassVar[dict[Any, tuple[Line, Store]]] = {}

    def __init__(self) -> None:
        super().__init__()
        key = (id(self.conn), self.mistakes)
        if key not in self._tools:
            line = Line.like(self.conn)
            self._tools.clear()
            broker = broker_of(line, self.mistakes, max_lost=MAX_LOST)
            self._tools[key] = line, Store(line, broker, limit_broker_of(line, self.mistakes))
        self._line, self._store = self._tools[key]
        self._line.begin(("FLUSHDB",), clock_at(START))
        self._model, self._story = Model(START), Story()
        self._hands = {name: Hand(name) for name in "AB"}
        self._calls: list[tuple[str, tuple[Any, ...]]] = []
        self._nonces = 0
        for hand in self._hands.values():
            self._call("register", hand.name, hand.incarnation)

    @promise("P1", "P4", "P5", "P6", "P10")
    def _do(self, name: str, *args: Any) -> Any:
        """A call on both; what the model says is what must come of it."""
        self._model.begin()
        wanted = getattr(self._model, name)(*args)
        found = getattr(self._store, name)(*args)
        assert found == wanted, f"{name}{args}: answered {found}, should be {wanted}"
        seen = self._line.look()
        compare(self._model, seen, in_order=name not in _UNORDERED and not self._model.settled)
        self._story.goes_on(seen.events)
        return wanted

    def _call(self, name: str, *args: Any) -> Any:
        """One that may be sent again."""
        self._calls.append((name, args))
        return self._do(name, *args)

    def _nonce(self) -> str:
        self._nonces += 1
        return f"n{self._nonces}"

    @rule(what=STEPS)
    def step(self, what: Step) -> None:
        """One rule that draws among the methods below, and not a rule each: how often each comes is decided in `model_steps`."""
        name, args, named = what
        getattr(self, name)(*args, **named)

    def _job(self, number: int) -> str:
        """One of those there are; the last number is that of none."""
        there = sorted(self._model.jobs)
        return there[number % len(there)] if there and number < 11 else "none"

    # -- producers

    def enqueue(self, queue: str, *orders: Order, clash: bool = False, room: int | None = None) -> None:
        """Under ids that are free, unless it is to `clash`; if no more than `room` would wait there."""
        if not clash:
            live = {job.id for job in self._model.jobs.values() if job.status not in TERMINAL}
            free = [job_id for job_id in IDS if job_id not in live]
            kept = [order for order in orders if order.id in free]
            spare = iter([job_id for job_id in free if job_id not in {order.id for order in kept}])
            orders = tuple(order if order in kept else replace(order, id=next(spare, order.id)) for order in orders)
        self._call("enqueue", queue, orders, self._nonce(), room)

    def push(self, job_id: str) -> None:
        self._do("push", job_id)

    # -- workers

    def turn(
        self,
        name: str,
        *kinds: str,
        delay: int = 0,
        back: bool = False,
        keep: bool = False,
        queues: tuple[str, ...] = QUEUES,
        slots: tuple[int, ...] = (0,),
        answered: bool = True,
        wish: Wish = _NO_WISH,
    ) -> None:
        """Outcomes of what it holds, oldest first, and a claim for each slot. One that is not answered is repeated by the next turn."""
        hand = self._hands[name]
        call = hand.unanswered
        if call is None:
            hand.token += 1
            told = tuple(
                Told(self._fit(kind, job_id), job_id, execution, delay, back and kind == "retry", keep and kind == "retry")
                for kind, (job_id, execution) in zip(kinds, hand.held.items(), strict=False)
            )
            call = name, hand.incarnation, hand.token, told, queues, slots, wish
        status, answers, jobs = self._call("turn", *call)
        if status == "unregistered" and self._call("register", name, hand.incarnation):
            status, answers, jobs = self._call("turn", *call)
        hand.unanswered = call
        if answered and status != "unregistered":
            hand.unanswered = None
            for outcome, _ in zip(call[3], answers, strict=False):
                hand.held.pop(outcome.id, None)
            hand.held |= {job_id: execution for _, job_id, execution in jobs}

    def _fit(self, kind: str, job_id: str) -> str:
        """The time of jobs without a key is the queue's, and not a matter of this walk."""
        job = self._model.jobs.get(job_id)
        return "later" if kind == "limited" and (job is None or job.key is None) else kind

    def beat(self, name: str, gives_up: bool = False) -> None:
        """What it has lost it kills, or goes on with: its outcome comes all the same, later."""
        hand = self._hands[name]
        _, answers = self._call("extend", name, hand.incarnation, tuple(hand.held.items()))
        if gives_up:
            hand.held = {pair[0]: pair[1] for pair, answer in zip(hand.held.items(), answers, strict=True) if answer != "lost"}

    def restart(self, name: str, seen: bool = False) -> None:
        """Its process dies, which its supervisor may have seen, and another takes the name, if it can have it."""
        if seen:
            self.prune(name)
        self._hands[name].start()
        self._call("register", name, self._hands[name].incarnation)

    def leave(self, name: str) -> None:
        self._call("deregister", name, self._hands[name].incarnation)

    # -- people

    def cancel(self, number: int) -> None:
        self._call("cancel_job", self._job(number))

    def stop(self, number: int) -> None:
        self._call("stop_job", self._job(number))

    def delete(self, *numbers: int) -> None:
        self._call("delete", tuple(map(self._job, numbers)))

    def empty(self, queue: str, limit: int = 500) -> None:
        self._call("empty", queue, limit)

    def requeue(self, *numbers: int, keep_place: bool | str = False, quarantined: bool = True, delay: int = 0) -> None:
        """Of those that failed, were canceled or stopped, if there are any."""
        ended = sorted(job.id for job in self._model.jobs.values() if job.status in ("failed", "canceled", "stopped"))
        ids = [ended[number % len(ended)] if ended and number < 9 else self._job(number) for number in numbers]
        self._call("requeue", tuple(ids), self._nonce(), keep_place, quarantined, delay)

    def reschedule(self, number: int, due: int) -> None:
        self._call("reschedule", self._job(number), START + due)

    def quarantine(self, number: int) -> None:
        """One that failed, if there is any: it would seldom be met."""
        failed = sorted(job.id for job in self._model.of("failed"))
        self._call("quarantine", (failed[number % len(failed)] if failed else self._job(number),))

    def pause(self, queue: str, stop: bool = True) -> None:
        self._call("pause" if stop else "unpause", queue)

    def gate(self, queue: str, limit: int | None = None, rate: tuple[int, int] | None = None) -> None:
        """At most this many at once; one start in this many ms, and this many after a rest."""
        self._call("gate", queue, limit, rate)

    def pin(self, key: str, most: int | None = None) -> None:
        self._call("pin", key, most)

    def halt(self, key: str, ms: int | None = None) -> None:
        """None of its jobs starts, for a time or until it goes on."""
        self._call("halt", key, ms)

    def go_on(self, key: str) -> None:
        self._call("go_on", key)

    def release_slot(self, key: str, number: int) -> None:
        self._call("release_slot", key, self._job(number))

    def suspend(self, stop: bool = True) -> None:
        self._call("suspend" if stop else "resume")

    # -- maintenance

    def watch(self, rounds: int, step: int, alive: str = "") -> None:
        """Time passes under the eyes of the fleet, of which these are alive."""
        for _ in range(rounds):
            self.pass_time(step)
            for name in alive:
                self.beat(name)
            self._call("reap")
        self._call("promote", 100)

    def prune(self, name: str = "") -> None:
        """All that are silent, or one that its supervisor saw die."""
        self._call("prune", name, self._hands[name].incarnation if name else "")

    def promote(self, limit: int = 100) -> None:
        self._call("promote", limit)

    def expire(self, limit: int = 100) -> None:
        self._call("expire", limit)

    def clean(self) -> None:
        self._call("clean")

    # -- the world

    def pass_time(self, ms: int) -> None:
        """Or the clock is set."""
        self._model.now += ms
        self._store.set_clock(self._model.now)

    def forget_scripts(self) -> None:
        self._do("flush_scripts")

    def forget_worker(self, name: str) -> None:
        self._do("forget_worker", name)

    def hear(self, queue: str) -> None:
        self._do("hear", queue)

    def resend(self, back: int) -> None:
        """A call from before comes once more: the first was carried out, its answer lost; or it was late. Nobody reads this answer."""
        name, args = self._calls[-1 - back % len(self._calls)]
        self._do(name, *args)
