"""Claims deliveries, sends them in threads, and commits their outcomes. No endpoint can change the job itself."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Generic, TypeVar

from fusion.courier.attempt import DeliveryAttempt, attempt, failure
from fusion.courier.delivery import UNVOUCHED, ClaimedDelivery, Vouching
from fusion.courier.host_limits import HostLimits
from fusion.courier.secrets import Secrets
from fusion.delivery.errors import DeliveryRefused
from fusion.delivery.targets import Policy, Target, parse_target
from fusion.execution.completion import Decision
from fusion.kernel import defaults
from fusion.kernel.sentences import ANSWERED, BUSY
from fusion.runtime.consumer import Consumer
from fusion.runtime.context import ProcessContext
from fusion.runtime.free_slots import ANY, NO_SLOTS, FreeSlots
from fusion.runtime.job_log import JobLog
from fusion.runtime.loop import Loop
from fusion.runtime.redis_link import CallRefused, RedisAway, RedisLink, refusable
from fusion.runtime.served_queues import ServedQueues
from fusion.runtime.supervised import SupervisorLine
from fusion.runtime.timers import Timers
from fusion.settings import Settings
from fusion.store.client.connections import connect
from fusion.store.layout.names import CALLBACKS
from fusion.store.layout.records import Claimed, Turn
from fusion.store.write.broker import Broker

if TYPE_CHECKING:
    from fusion.metrics.figures import Figures

log = logging.getLogger("fusion.courier")

T = TypeVar("T")

#: Most deliveries claimed at a time beyond the free slots.
_EXTRA = 256
#: Seconds that Redis gets at the end, beyond the deadline.
_LAST_WORDS = 3.0
#: Seconds to wait after an unexpected error.
_PAUSE = 1.0


class Threads(Generic[T]):
    """Runs calls in up to `size` threads. Each calls `ring` when it has a result for `results`."""

    def __init__(self, name: str, size: int, ring: Callable[[], None]) -> None:
        self._name, self._size, self._ring = name, size, ring
        self._calls: SimpleQueue[Callable[[], T] | None] = SimpleQueue()
        self._results: SimpleQueue[T] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._under_way = 0

    def run(self, call: Callable[[], T]) -> None:
        """Have a thread make the call, which must not raise."""
        self._under_way += 1
        if self._under_way > len(self._threads) < self._size:
            self._threads.append(threading.Thread(target=self._work, name=f"{self._name} {len(self._threads) + 1}", daemon=True))
            self._threads[-1].start()
        self._calls.put(call)

    def results(self) -> list[T]:
        """Take the results that have come since the last time."""
        found: list[T] = []
        try:
            while True:
                found.append(self._results.get_nowait())
        except Empty:
            self._under_way -= len(found)
            return found

    def close(self) -> None:
        """Start no more calls. Those under way end by themselves, and their results are dropped."""
        for _ in self._threads:
            self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            self._results.put(call())
            self._ring()


class _CallbackQueue(ServedQueues):
    """The one queue that no worker may name."""

    def __init__(self) -> None:
        super().__init__(())
        self.bells = [CALLBACKS]


class Courier:
    """Delivers callbacks in a thread of its own, as the worker `<host>.<pid>.courier`.

    - its deliveries are leased, so it may be killed at any time: another courier sends them again, under the same id;
    - a host gets two deliveries at a time, and a slow host delays no other;
    - like every process of a fleet it moves due jobs and gives back the jobs of dead workers;
    - while Redis is away, or does not let it work, it waits and goes on.
    """

    def __init__(self, settings: Settings, *, slots: int = defaults.CALLBACK_SLOTS) -> None:
        """ConfigurationError if the policy or a secret can't be used."""
        self._settings, self._slots = settings, slots
        self._policy = Policy(
            allow_http=settings.callback_allow_http,
            ports=settings.callback_ports,
            allowed_hosts=settings.callback_allowed_hosts or (),
        )
        self._secrets = Secrets(settings)
        self._hosts = HostLimits()
        self._loop, self._link = Loop(), RedisLink(log, "deliveries under way go on")
        self._connection = connect(settings, role="worker")
        self._broker = Broker.of(self._connection, settings)
        self._vouching = Vouching(self._broker)
        named = replace(settings, name=f"{socket.gethostname()}.{os.getpid()}.courier")
        process = ProcessContext(named, self._broker, self._link, self._loop, log)
        self._consumer = Consumer(process, _CallbackQueue(), JobLog(log, True), SupervisorLine(), self, kind="courier")
        if settings.probe_port is not None:
            from fusion.metrics.tally import JobTally

            self._consumer.history.tally = JobTally(full=False)
        self._timers = Timers(self._link)
        self._deadline = self._timers.at(inf, self._expire)
        self._timers.at(0.0, self._enter, redis=True)
        self._consumer.schedule(self._timers, self._renew, self._take_turns)
        self._woken, self._wakes = socket.socketpair()
        self._woken.setblocking(False)
        self._wakes.setblocking(False)
        self._threads: Threads[DeliveryAttempt] = Threads("callback", slots, self._wake)
        self._thread = threading.Thread(target=self._run, name="courier", daemon=True)
        #: Claimed deliveries, in this order: not sorted yet; waiting for their host; in a thread; tried, and the endpoint is to be reported
        #: gone.
        self._taken: list[ClaimedDelivery] = []
        self._line: list[tuple[ClaimedDelivery, Target]] = []
        self._under_way: dict[str, ClaimedDelivery] = {}
        self._gone: list[DeliveryAttempt] = []
        self._entered = self._stopping = self._expired = False
        #: Deliveries to claim beyond the free slots, as many are put off at once; and the number claimed last, if it got all it asked for.
        self._extra = self._claimed = 0
        self._refused: int | None = None
        self._logged = ""

    @property
    def name(self) -> str:
        """The registered name."""
        return self._consumer.name

    def is_alive(self) -> bool:
        """False once its thread has ended."""
        return self._thread.is_alive()

    def measure(self, figures: Figures) -> None:
        """Add the outcomes of callbacks, for `/metrics`."""
        if self._consumer.history.tally:
            self._consumer.history.tally.put_callbacks(figures)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def ask_to_stop(self, timeout: float) -> None:
        """Start no more deliveries. Those under way have `timeout` seconds to finish; the rest goes back, for other couriers."""
        self._deadline.next_at, self._stopping = time.monotonic() + timeout, True
        self._wake()

    def stop(self, timeout: float) -> bool:
        """`ask_to_stop`, and wait until it has ended: at most a few seconds longer; False if it has not."""
        self.ask_to_stop(timeout)
        self._thread.join(timeout + _LAST_WORDS)
        return not self._thread.is_alive()

    # -- the loop

    def _wake(self) -> None:
        try:
            self._wakes.send(b"!")
        except OSError:
            pass  # full: it wakes anyway; closed: it has ended

    def _hear(self) -> None:
        try:
            while self._woken.recv(4096):
                pass
        except BlockingIOError:
            pass

    def _expire(self, now: float) -> None:
        self._expired = True

    def _run(self) -> None:
        self._loop.watch(self._woken.fileno(), self._hear)
        try:
            while self._is_needed():
                try:
                    self._collect()
                    self._timers.tick(time.monotonic())
                except Exception:
                    log.exception("the courier met an error that nobody foresaw, and goes on")
                    self._link.retry_at = time.monotonic() + _PAUSE
                if self._taken or self._gone:  # Redis went away while they were handled
                    self._consumer.request_turn()
                # Also after an error: the loop would call a doorbell whose connection broke again and again.
                self._consumer.listen([CALLBACKS], self.free_slots().floors)
                self._loop.run_once(self._timers.pause())
            self._leave()
        finally:
            self._threads.close()
            self._consumer.doorbells.close()
            self._loop.unwatch(self._woken.fileno())
            self._connection.close()

    def _is_needed(self) -> bool:
        if not self._stopping:
            return True
        under_way = self._under_way or self._gone or self._taken or self._line or not self._consumer.outbox.flushed
        return bool(under_way) and not self._expired

    # -- with Redis; a step that raises RedisAway is repeated

    def _enter(self, now: float) -> None:
        self._link.attempt(partial(self._consumer.enter, patient=False))
        self._entered = True
        log.info("courier %s delivers callbacks", self.name)

    def _take_turns(self, now: float) -> None:
        self._report_gone()
        self._consumer.take_turns(now, blocking=True)
        self._sort()

    #: Deliveries run in threads of their own: a turn keeps none of them waiting.
    busy = False

    def free_slots(self) -> FreeSlots:
        """Slots for the deliveries it may claim, and for more that will be postponed, to get past them."""
        if self._stopping or not self._entered:
            return NO_SLOTS
        free = self._slots - len(self._taken) - len(self._line) - len(self._under_way) - len(self._gone)
        return FreeSlots([ANY] * (free + self._extra)) if free > 0 else NO_SLOTS

    def claim_filter(self, now: float) -> None:
        """Any delivery may be claimed."""

    def turn_sent(self, slots: FreeSlots) -> None:
        """Nothing is prepared."""

    def start_jobs(self, jobs: Sequence[Claimed]) -> None:
        """Open the claimed deliveries."""
        for claimed in jobs:
            self._open(claimed)

    def turn_ended(self, turn: Turn, slots: FreeSlots, *, seconds: float, moved: int) -> None:
        """Sort the new deliveries, and collect the results of the threads for the next turn."""
        self._claimed = len(turn.jobs) if len(turn.jobs) == len(slots.floors) else 0
        self._sort()
        self._collect()
        self._report_gone()

    def _report_gone(self) -> None:
        """Report endpoints as gone before the delivery ends, so that nobody sees the delivery's end first."""
        while self._gone:
            tried = self._gone[0]
            self._ask(partial(self._broker.endpoint_gone, tried.delivery.url))
            self._gone.pop(0)
            self._consumer.resolve(tried.delivery.claimed, tried.decision, tried.elapsed)

    def _ask(self, call: Callable[[], T]) -> T | None:
        """Ask about endpoints that are gone. None if the key of their list is broken: deliveries go on without it."""
        try:
            return self._link.attempt(refusable(call))
        except CallRefused as error:
            if str(error) != self._logged:
                self._logged = str(error)
                log.error("the list of endpoints that want no more can't be used, callbacks go on without it: %s", error)
            return None

    @property
    def _held(self) -> list[ClaimedDelivery]:
        """Return the deliveries that are claimed and not finished."""
        waiting = [delivery for delivery, _ in self._line]
        return [*self._taken, *waiting, *self._under_way.values(), *(tried.delivery for tried in self._gone)]

    def _renew(self, now: float) -> None:
        held = [*(delivery.claimed for delivery in self._held), *self._consumer.outbox.uncommitted()]
        self._consumer.membership.beat(now, [(claimed.id, claimed.execution_id) for claimed in held])
        refused = self._ask(self._broker.callbacks_refused) or 0
        if self._refused is not None and refused > self._refused:
            log.error(
                "%d callback(s) were not accepted: %d wait already (`callbacks list --status retrying` shows for whom)",
                refused - self._refused,
                defaults.CALLBACKS_MAX,
            )
        self._refused = refused

    # -- deliveries on their way through

    def _open(self, claimed: Claimed) -> None:
        try:
            self._taken.append(ClaimedDelivery.of(claimed))
        except ValueError as error:
            self._refuse(claimed, f"corrupt: {error}", error)

    def _sort(self) -> None:
        """Queue each claimed delivery for its host, put it off or refuse it; then start those whose turn has come."""
        if self._taken:
            self._secrets.refresh()
            doubted = self._vouching.doubts(self._taken, self._ask)
            gone = self._ask(lambda: self._broker.gone([delivery.url for delivery in self._taken]))
            taken, self._taken = self._taken, []
            put_off = sum(
                self._place(delivery, is_gone, delivery.id in doubted)
                for delivery, is_gone in zip(taken, gone or [False] * len(taken), strict=True)
            )
            # deliveries for a busy host block the queue: claim more each time, to get past them
            self._extra = min(_EXTRA, 2 * self._claimed) if 2 * put_off >= self._claimed else 0
        self._move_on()

    def _place(self, delivery: ClaimedDelivery, is_gone: bool, doubted: bool) -> bool:
        """Give a delivery its place; True if it was put off."""
        if doubted:
            log.error("callback %s is not sent: it is not of Fusion's making, or of a job that is gone", delivery.id)
            self._refuse(delivery.claimed, UNVOUCHED, DeliveryRefused(UNVOUCHED))
            return False
        try:
            target = parse_target(delivery.url, self._policy)
        except DeliveryRefused as error:
            self._refuse(delivery.claimed, str(error), error)
            return False
        if is_gone:
            reason = f"{ANSWERED.format(url=target)} 410 before: this endpoint wants no more callbacks (`callbacks retry --to` sends to it again)"
            self._refuse(delivery.claimed, reason, DeliveryRefused(reason), target.host)
            return False
        delay = self._hosts.wait(target.host, time.monotonic())
        if delay:
            # it loses its place: otherwise it would return ahead of the others again and again
            self._consumer.resolve(delivery.claimed, Decision("later", BUSY.format(url=target), delay, {"seq": ""}), 0.0)
        else:
            self._line.append((delivery, target))
        return bool(delay)

    def _refuse(self, claimed: Claimed, reason: str, error: Exception, host: str = "") -> None:
        self._consumer.resolve(claimed, Decision("failed", reason, fields=failure(reason, error, host)), 0.0)

    def _move_on(self) -> None:
        now = time.monotonic()
        waiting, self._line = self._line, []
        for delivery, target in waiting:
            if self._stopping:
                self._hosts.leave(target.host)
                self._consumer.resolve(delivery.claimed, Decision("release", "the courier ends"), 0.0)
            elif len(self._under_way) < self._slots and self._hosts.begin(target.host, now):
                self._under_way[delivery.id] = delivery
                self._threads.run(partial(attempt, delivery, target, self._policy, self._secrets))
            else:
                self._line.append((delivery, target))

    def _collect(self) -> None:
        """Collect the results of the threads."""
        for tried in self._threads.results():
            del self._under_way[tried.delivery.id]
            self._hosts.done(tried.target.host, time.monotonic(), tried.elapsed)
            if tried.gone:
                self._gone.append(tried)
            else:
                self._consumer.resolve(tried.delivery.claimed, tried.decision, tried.elapsed)
            self._consumer.request_turn()
        self._move_on()

    # -- the end

    def _leave(self) -> None:
        if held := self._held:
            log.warning("%d callback(s) under way were not waited for; they are delivered again", len(held))
        try:
            self._consumer.outbox.retry_commits(inf)
            while self._entered and not self._consumer.outbox.flushed:
                self._consumer.take_turn(NO_SLOTS, blocking=True)
            if self._entered:
                self._consumer.membership.leave()
        except RedisAway:
            log.warning(
                "could not report the end to Redis; other couriers deliver what is left after %.0f s", self._settings.lease
            )
        log.info("courier %s ended", self.name)
