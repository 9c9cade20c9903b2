"""Claims deliveries, has threads make them, commits what became of them. Whatever an endpoint does, the job stays as it is."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from redis import Redis

from fusion.courier.attempt import DeliveryAttempt, attempt, failure
from fusion.courier.delivery import ClaimedDelivery
from fusion.courier.hosts import Hosts
from fusion.courier.pool import Pool
from fusion.courier.secrets import Secrets
from fusion.courier.vouching import UNVOUCHED, Vouching
from fusion.delivery.errors import DeliveryRefused
from fusion.delivery.targets import Policy, Target, parse_target
from fusion.execution.completion import Decision
from fusion.kernel import defaults
from fusion.runtime.doorbell import Doorbell
from fusion.runtime.job_log import JobLog
from fusion.runtime.loop import Loop
from fusion.runtime.maintenance import Maintenance
from fusion.runtime.membership import Membership, WorkerListing
from fusion.runtime.outbox import Outbox
from fusion.runtime.redis_link import CallRefused, RedisAway, RedisLink, refusable
from fusion.runtime.served_queues import ServedQueues
from fusion.runtime.supervised import SupervisorLine
from fusion.settings import Settings
from fusion.store.client.connections import connect
from fusion.store.layout.keys import CALLBACKS
from fusion.store.layout.records import Claimed
from fusion.store.write.broker import Broker

log = logging.getLogger("fusion.courier")

T = TypeVar("T")

#: Due deliveries moved at a time.
_BATCH = 200
#: Turns in a row before anything else is looked at.
_TURNS = 10
#: Deliveries claimed at a time beyond what there is room for, at most.
_EXTRA = 256
#: Seconds that Redis gets at the end, beyond the deadline.
_LAST_WORDS = 3.0
#: Seconds until it goes on after an error that nobody foresaw.
_PAUSE = 1.0


class _Desk(ServedQueues):
    """The one queue that no worker may name."""

    def __init__(self) -> None:
        super().__init__(())
        self._line = [CALLBACKS]


class Courier:
    """Delivers callbacks in a thread of its own, as the worker `<host>.<pid>.courier`.

    - what it holds is leased, so it may be killed at any instant: another delivers that again, under the same id;
    - a host gets two at a time, and one that is slow holds up no other;
    - like every process of a fleet it moves what is due and gives back what dead workers held;
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
        self._hosts = Hosts()
        self._loop, self._link, self._job_log = Loop(), RedisLink(log, "deliveries under way go on"), JobLog(log, True)
        self._connection = connect(settings, role="worker")
        self._broker = Broker.of(self._connection, settings)
        self._vouching = Vouching(self._broker)
        name = f"{socket.gethostname()}.{os.getpid()}.courier"
        self._outbox = Outbox(self._broker, self._link, settings)
        listing = WorkerListing(settings, self._broker, _Desk(), SupervisorLine())
        self._membership = Membership(self._link, listing, name, settings.lease / 3, self._outbox.renumber)
        self._maintenance = Maintenance(settings, self._broker, self._link, lambda: [CALLBACKS], log, promote_batch=_BATCH)
        self._bell = Doorbell(self._connect_blocking, self._broker.keys, settings.idle_wait)
        self._ear, self._mouth = socket.socketpair()
        self._ear.setblocking(False)
        self._mouth.setblocking(False)
        self._pool: Pool[DeliveryAttempt] = Pool("callback", slots, self._wake)
        self._thread = threading.Thread(target=self._run, name="courier", daemon=True)
        #: Claimed, in this order: not sorted yet; waiting for their host; with a thread; tried, and Redis has to hear that the endpoint is gone.
        self._taken: list[ClaimedDelivery] = []
        self._line: list[tuple[ClaimedDelivery, Target]] = []
        self._under_way: dict[str, ClaimedDelivery] = {}
        self._gone: list[DeliveryAttempt] = []
        self._entered = self._wanted = False
        self._look_at = 0.0
        #: Deliveries claimed beyond what there is room for, as they are put off at once; and claimed last, if all that it asked for came.
        self._extra = self._claimed = 0
        self._refused: int | None = None
        self._stop_by: float | None = None
        self._said = ""

    @property
    def name(self) -> str:
        """Under which Redis knows it."""
        return self._membership.name

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        self._thread.start()

    def ask_to_stop(self, timeout: float) -> None:
        """Nothing is begun any more, what is under way may finish for `timeout` seconds, the rest goes back and is delivered by others."""
        self._stop_by = time.monotonic() + timeout
        self._wake()

    def stop(self, timeout: float) -> bool:
        """`ask_to_stop`, and wait until it has ended: at most a few seconds longer; False if it has not."""
        self.ask_to_stop(timeout)
        self._thread.join(timeout + _LAST_WORDS)
        return not self._thread.is_alive()

    # -- the loop

    def _connect_blocking(self) -> Redis:
        return connect(self._settings, role="blocking")

    def _wake(self) -> None:
        try:
            self._mouth.send(b"!")
        except OSError:
            pass  # full: it wakes anyway; closed: it has ended

    def _hear(self) -> None:
        try:
            while self._ear.recv(4096):
                pass
        except BlockingIOError:
            pass

    def _run(self) -> None:
        self._loop.watch(self._ear.fileno(), self._hear)
        try:
            while self._is_needed():
                try:
                    self._step()
                except RedisAway:
                    pass
                except Exception:
                    log.exception("the courier met an error that nobody foresaw, and goes on")
                    self._link.retry_at = time.monotonic() + _PAUSE
                self._listen()
                self._loop.run_once(self._timeout())
            self._leave()
        finally:
            self._pool.close()
            self._bell.drop()
            self._loop.unwatch(self._ear.fileno())
            self._connection.close()

    def _is_needed(self) -> bool:
        if self._stop_by is None:
            return True
        finished = not self._under_way and not self._gone and self._outbox.settled and not self._taken and not self._line
        return not finished and time.monotonic() < self._stop_by

    def _step(self) -> None:
        now = time.monotonic()
        self._collect()
        self._bell.tick(now)
        if self._link.open(now):
            self._talk(now)

    def _listen(self) -> None:
        """Whatever came of the step: a bell whose connection broke must not stay with the loop, which would call it without end."""
        if self._link.away_since is None and not self._wanted and self._free:
            self._bell.arm([CALLBACKS])
        self._loop.follow("doorbell", self._bell.fileno(), self._on_bell)

    def _timeout(self) -> float:
        now = time.monotonic()
        if self._wanted or self._taken or self._gone or not self._outbox.settled or not self._entered:
            redis_at = now
        else:
            look_at = self._look_at if self._free else float("inf")
            redis_at = min(self._membership.next_at, self._maintenance.next_at, self._outbox.next_at, look_at)
        stop_at = float("inf") if self._stop_by is None else self._stop_by
        return max(0.0, min(max(redis_at, self._link.retry_at), stop_at) - now)

    def _on_bell(self) -> None:
        if self._bell.receive() is not False:
            self._wanted = True

    @property
    def _free(self) -> int:
        """How many deliveries it may claim."""
        if self._stop_by is not None:
            return 0
        return self._slots - len(self._taken) - len(self._line) - len(self._under_way) - len(self._gone)

    # -- with Redis; whatever raises RedisAway here is done again

    def _talk(self, now: float) -> None:
        if not self._entered:
            self._link.attempt(partial(self._membership.enter, patient=False))
            self._entered = True
            log.info("courier %s delivers callbacks", self.name)
        if now >= self._look_at and self._free:
            self._look_at = now + self._settings.idle_wait
            self._wanted = True
        if now >= self._membership.next_at:
            self._renew(now)
        self._outbox.offer_late(now)
        for _ in range(_TURNS):
            self._tell_gone()
            if not self._wanted and self._outbox.settled:
                break
            self._turn()
            self._sort()
            self._collect()
        self._sort()
        if now >= self._maintenance.next_at:
            self._maintenance.tick(now)

    def _turn(self) -> None:
        free = max(0, self._free)
        slots = [0] * (free + (self._extra if free else 0))
        self._wanted = False
        answered = self._outbox.turn(self.name, self._membership.incarnation, [CALLBACKS], slots)
        if answered is None:
            return
        turn, results = answered
        if turn.status == "unregistered":
            log.warning("this courier's registration is gone from Redis; registering again")
            self._membership.renew()
            return
        for result, answer in zip(results, turn.answers, strict=False):
            again = answer.startswith("error:") and self._outbox.refused(result)
            if result.decision.kind != "later" or answer != "ok":
                self._job_log.committed(result.claimed, result.decision, answer, again=again)
        for queue, error in turn.bad:
            self._job_log.bad_queue(queue, error)
        self._job_log.suspended(turn.status == "suspended")
        for claimed in turn.jobs:
            self._open(claimed)
        self._claimed = len(turn.jobs) if len(turn.jobs) == len(slots) else 0
        if turn.next_in is not None:
            self._maintenance.due(time.monotonic() + turn.next_in)
        self._wanted = turn.again

    def _tell_gone(self) -> None:
        """Before the delivery itself ends, so that nobody learns of it later than from that."""
        while self._gone:
            tried = self._gone[0]
            self._ask(partial(self._broker.endpoint_gone, tried.delivery.url))
            self._gone.pop(0)
            self._outbox.add(tried.delivery.claimed, tried.decision, tried.elapsed)

    def _ask(self, call: Callable[[], T]) -> T | None:
        """About endpoints that are gone. None if the key of their list is broken: deliveries go on without it."""
        try:
            return self._link.attempt(refusable(call))
        except CallRefused as error:
            if str(error) != self._said:
                self._said = str(error)
                log.error("the list of endpoints that want no more can't be used, callbacks go on without it: %s", error)
            return None

    def _renew(self, now: float) -> None:
        parcels = (
            *self._taken,
            *(delivery for delivery, _ in self._line),
            *self._under_way.values(),
            *(t.delivery for t in self._gone),
        )
        held = [*(delivery.claimed for delivery in parcels), *self._outbox.held()]
        self._membership.beat(now, [(claimed.id, claimed.execution_id) for claimed in held])
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
        """What was claimed goes into its host's line, is put off, or is refused; then the lines move on."""
        if self._taken:
            self._secrets.refresh()
            doubted = self._vouching.doubts(self._taken, self._ask)
            gone = self._ask(lambda: self._broker.gone([delivery.url for delivery in self._taken]))
            taken, self._taken = self._taken, []
            put_off = sum(
                self._place(delivery, is_gone, delivery.id in doubted)
                for delivery, is_gone in zip(taken, gone or [False] * len(taken), strict=True)
            )
            # those for a busy host stand before others': past them with ever more at a time
            self._extra = min(_EXTRA, 2 * self._claimed) if 2 * put_off >= self._claimed else 0
        self._move_on()

    def _place(self, delivery: ClaimedDelivery, is_gone: bool, doubted: bool) -> bool:
        """Whether it was put off."""
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
            reason = (
                f"{target} answered 410 before: this endpoint wants no more callbacks (`callbacks retry --to` sends to it again)"
            )
            self._refuse(delivery.claimed, reason, DeliveryRefused(reason), target.host)
            return False
        delay = self._hosts.wait(target.host, time.monotonic())
        if delay:
            # without its place: what comes back would stand before others' deliveries again and again
            self._outbox.add(delivery.claimed, Decision("later", f"{target} is busy with others", delay, {"seq": ""}), 0.0)
        else:
            self._line.append((delivery, target))
        return bool(delay)

    def _refuse(self, claimed: Claimed, reason: str, error: Exception, host: str = "") -> None:
        self._outbox.add(claimed, Decision("failed", reason, fields=failure(reason, error, host)), 0.0)

    def _move_on(self) -> None:
        now = time.monotonic()
        waiting, self._line = self._line, []
        for delivery, target in waiting:
            if self._stop_by is not None:
                self._hosts.leave(target.host)
                self._outbox.add(delivery.claimed, Decision("release", "the courier ends"), 0.0)
            elif len(self._under_way) < self._slots and self._hosts.begin(target.host, now):
                self._under_way[delivery.id] = delivery
                self._pool.run(partial(attempt, delivery, target, self._policy, self._secrets))
            else:
                self._line.append((delivery, target))

    def _collect(self) -> None:
        """What the threads have finished."""
        for tried in self._pool.results():
            del self._under_way[tried.delivery.id]
            self._hosts.done(tried.target.host, time.monotonic(), tried.elapsed)
            if tried.gone:
                self._gone.append(tried)
            else:
                self._outbox.add(tried.delivery.claimed, tried.decision, tried.elapsed)
            self._wanted = True
        self._move_on()

    # -- the end

    def _leave(self) -> None:
        held: Sequence[ClaimedDelivery] = [*self._taken, *self._under_way.values(), *(tried.delivery for tried in self._gone)]
        if held:
            log.warning("%d callback(s) under way were not waited for; they are delivered again", len(held))
        try:
            self._outbox.offer_late(float("inf"))
            while self._entered and not self._outbox.settled:
                self._turn()
            if self._entered:
                self._membership.leave()
        except RedisAway:
            log.warning("Redis could not be told; what is left is delivered by others after %.0f s", self._settings.lease)
        log.info("courier %s ended", self.name)
