"""The transitions of the store as the model has them: each call changes the state and returns what the store must answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.faults.model.lines import Lines
from tests.faults.model.state import (
    CANCELED_TTL,
    FAILURE_TTL,
    HOLD_MS,
    INBOX,
    LEASE_MS,
    PROBATION,
    RESULT_TTL,
    SPARED,
    Job,
    Told,
    Wish,
    Worker,
)
from tests.faults.model.upkeep import Upkeep

_TAKE_OVER = 20
_NO_WISH = Wish()


class Model(Upkeep):
    """Of each call an answer, as `model_store.Store` returns it of Redis."""

    # -- workers

    def register(self, name: str, incarnation: str) -> bool:
        worker = self.workers.get(name)
        if worker is None or worker.incarnation != incarnation:
            if worker and self._silence(worker) <= LEASE_MS:
                return False
            if any(not execution.startswith(f"{incarnation}:") for execution in self.index.get(name, {}).values()):
                self.listed.add(name)
                return False
            self.workers[name] = worker = Worker(incarnation, self.now)
        self.listed.add(name)
        worker.beat = self.now
        return True

    def deregister(self, name: str, incarnation: str) -> int:
        worker = self.workers.get(name)
        if worker is None or worker.incarnation != incarnation:
            return 0
        held = self._held_by(name)
        for job in held:
            job.spared += 1
            self.settle(job, lost=job.spared > SPARED)
        self._strike_off(name)
        return len(held)

    def _held_by(self, name: str) -> list[Job]:
        held = [(self.jobs.get(job_id), execution) for job_id, execution in self.index.get(name, {}).items()]
        return [job for job, execution in held if job and job.status == "started" and job.execution == execution]

    def _strike_off(self, name: str) -> None:
        self.workers.pop(name, None)
        self.index.pop(name, None)
        self.listed.discard(name)

    def extend(self, name: str, incarnation: str, held: tuple[tuple[str, str], ...]) -> tuple[bool, list[str]]:
        answers = []
        for job_id, execution in held:
            job = self.jobs.get(job_id)
            if job is None or job.status != "started" or job.execution != execution:
                answers.append("lost")
                continue
            job.lease = self.now + LEASE_MS
            answers.append(job.cancel or "ok")
        worker = self.workers.get(name)
        if worker is None or worker.incarnation != incarnation:
            return False, answers
        worker.beat = self.now
        return True, answers

    def turn(
        self,
        name: str,
        incarnation: str,
        token: int,
        told: tuple[Told, ...],
        queues: tuple[str, ...],
        slots: tuple[int, ...],
        wish: Wish = _NO_WISH,
    ) -> tuple[str, list[str], list[tuple[str, str, str]]]:
        worker = self.workers.get(name)
        if worker is None or worker.incarnation != incarnation:
            return "unregistered", [], []
        if token < worker.token:
            return "outdated", [], []
        prefix = f"{incarnation}:{token}:"
        if token == worker.token:
            given = [(queue, job_id, f"{prefix}{i}{mark}") for i, (queue, job_id, mark) in enumerate(worker.given, 1)]
            return "ok", worker.answers, [row for row in given if self._holds(row[1], row[2])]

        index = self.index.setdefault(name, {})
        worker.token, worker.answers, worker.given, self.unrung, self.settling = token, [], [], set(), set()
        for outcome in told:
            answer = self._commit(worker, outcome)
            worker.answers.append(answer)
            if answer == "ok" or index.get(outcome.id) == outcome.execution:
                index.pop(outcome.id, None)
        self._settle_all()
        jobs: list[tuple[str, str, str]] = []
        self.settling = set()
        self._claim(name, prefix, [] if self.suspended else queues, slots, jobs, wish)
        self._after_claims(() if self.suspended or not jobs else queues)
        worker.given = [(queue, job_id, "s" if wish.alone else "") for queue, job_id, _ in jobs]
        if not 0 <= self.now - worker.beat < 1000:
            worker.beat = self.now
        return "suspended" if self.suspended else "ok", worker.answers, jobs

    def _after_claims(self, told_of: tuple[str, ...]) -> None:
        unrung, self.unrung = self.unrung or set(), None
        for queue in unrung - set(told_of):
            self.wake_for(queue)
        self._settle_all()

    def _settle_all(self) -> None:
        keys, self.settling = self.settling or set(), None
        for key in keys:
            self.settle_key(key)

    def _holds(self, job_id: str, execution: str) -> bool:
        job = self.jobs.get(job_id)
        return job is not None and job.status == "started" and job.execution == execution

    def _commit(self, worker: Worker, told: Told) -> str:
        job = self.jobs.get(told.id)
        if job is None:
            return "gone"
        if job.execution != told.execution:
            return "stale"
        if job.status != "started":
            return "failed" if job.status == "failed" and told.kind != "failed" else "ok"
        if told.kind == "repeat" and not job.cancel:
            worker.finished += 1
            self._repeat(job, told.delay)
            return "ok"
        if told.kind in ("finished", "repeat"):
            worker.finished += 1
            self.end(job, "finished", RESULT_TTL if job.result_ttl is None else job.result_ttl)
            job.lost, job.reason, job.cancel = 0, False, ""
            job.held_since, job.wanted, job.suspect, job.spared = None, False, False, 0
            self.emit("completed", job)
            return "ok"
        if told.kind in ("release", "lost", "struck", "displaced", "suspect"):
            shared = told.kind == "struck" and not told.execution.endswith("s")
            self.settle(job, lost=told.kind != "release", shared=shared, kind=told.kind)
            if job.status != "failed":
                return "ok"
            worker.failed += 1
            return "failed"
        if told.kind == "limited":
            self.hold_key_back(job, self.now + told.delay * 1000)
        worker.failed += told.kind in ("failed", "retry")
        place = job.seq
        if told.back:
            job.seq = None  # given up, even if a cancel keeps it from lining up again
        if (job.cancel or told.kind == "stopped") and told.kind != "failed":
            self.call_off(job, "stopped" if told.kind == "stopped" else job.cancel)
            return "ok"
        since = (job.held_since or self.now) if told.kind == "held" else None
        job.held_since = since
        if told.kind in ("later", "limited") or (since is not None and self.now - since < HOLD_MS):
            if since is None:
                self.schedule(job, (self.now + told.delay * 1000) / 1000)
                self.leave(job)
            else:
                job.seq = self.next_seq() if job.seq is None else job.seq
                self.block(job, "held", since + HOLD_MS)
            job.reason = True
            self.emit("held", job)
            return "ok"
        job.held_since, job.suspect, job.spared = None, False, 0  # another hold has its own time
        job.attempts, job.lost = job.attempts + 1, 0
        if told.kind != "retry":
            self.fail(job)
            return "ok"
        job.reason = True
        self.emit("retry", job)
        if told.back and told.delay:
            job.arrival = place or 0
        if told.delay:
            self.schedule(job, (self.now + told.delay * 1000) / 1000)
            if not told.keep:
                self.leave(job)
        else:
            if told.back:
                job.seq = self.turn_of(job, self.next_seq())
            self.to_place(job)
            self.emit("queued", job)
            self.came_back(job)
        return "ok"

    def _repeat(self, job: Job, delay: int) -> None:
        """A run of it finished, and it is to run again."""
        place = job.seq
        job.lost, job.reason, job.held_since, job.wanted, job.suspect, job.spared = 0, False, None, False, False, 0
        if delay:
            self.schedule(job, (self.now + delay * 1000) / 1000)
            job.seq, job.arrival = None, place or 0
        else:
            job.seq = self.turn_of(job, self.next_seq())
            self.to_place(job)
        if job.ttl is not None:
            job.expires = self.now + (delay + job.ttl) * 1000
        self.count("requeued", job)
        self.emit("completed", job)
        self.leave(job)
        self.emit("scheduled" if delay else "queued", job)
        if not delay:
            self.arrive(job)

    def _claim(
        self, name: str, prefix: str, queues: Any, slots: tuple[int, ...], jobs: list[tuple[str, str, str]], wish: Wish
    ) -> None:
        open_queues = [queue for queue in queues if queue not in self.paused]
        order = list(queues)
        lines = Lines(self, wish if self.known_waits else replace(wish, kinds=()))
        for floor in slots:
            lines.wanted = len(slots) - len(jobs)
            job = self._claim_one([queue for queue in order if queue in open_queues and self.room(queue) >= 1], floor, lines)
            if job is None:
                continue
            order = order[order.index(job.queue) + 1 :] + order[: order.index(job.queue) + 1]
            self.unblock(job)
            self.spend(job.queue)
            job.status, job.execution, job.worker = "started", f"{prefix}{len(jobs) + 1}{'s' if wish.alone else ''}", name
            job.lease, job.deliveries = self.now + LEASE_MS, job.deliveries + 1
            self.index.setdefault(name, {})[job.id] = job.execution
            self.emit("processing", job)
            jobs.append((job.queue, job.id, job.execution))
        if jobs:
            for queue in open_queues:  # what is left wakes another worker, so it is looked for
                self._head(queue)
                self.wake_for(queue)

    def _claim_one(self, queues: list[str], floor: int, lines: Lines) -> Job | None:
        while True:
            heads = [head for queue in queues if (head := self._best(queue, lines)) and head.level >= floor]
            if not heads:
                return None
            job = max(heads, key=lambda head: head.level)  # the first of equals
            if job.expires is not None and job.expires <= self.now:
                self.unblock(job)
                self.end(job, "canceled", CANCELED_TTL)
                job.reason = True
                self.emit("expired", job)
            elif (job.status == "blocked" or not self._set_aside(job, lines.wish)) and self.take_slot(job):
                return job

    def _best(self, queue: str, lines: Lines) -> Job | None:
        """Of a queue and of its blocked jobs that this worker can serve."""
        heads = [head for kind in lines.wish.kinds if (head := lines.head(kind, queue))]
        if not lines.wish.only and (head := self._head(queue)):
            heads.insert(0, head)
        return min(heads, key=lambda head: head.rank, default=None)

    def _set_aside(self, job: Job, wish: Wish) -> bool:
        if job.lost >= PROBATION and job.on_lost != "again":
            self.block(job, "probation")
            self.emit("blocked", job)
        elif wish.lacks:
            if job.held_since is None:
                self.emit("blocked", job)
            job.held_since = job.held_since or self.now
            self.block(job, "held", job.held_since + HOLD_MS)
            job.reason = True
        else:
            return False
        return True

    def _head(self, queue: str) -> Job | None:
        if queue == INBOX and not self.waiting(queue):
            taken, self.inbox = self.inbox[:_TAKE_OVER], self.inbox[_TAKE_OVER:]
            for position, job_id in enumerate(taken, 1):
                self._take_over(job_id, position, len(taken))
            self.passed(len(taken))
        return next(iter(self.waiting(queue)), None)

    def _take_over(self, job_id: str, position: int, taken: int) -> None:
        job = self.jobs.get(job_id)
        left = self.struck.get("", 0)
        struck = left + position <= self.struck.get(job_id, -1)
        if job is None and (struck or ">" + job_id in self.struck):
            return
        if struck and job is not None and job.status == "queued" and job.boxed:
            if ">" + job_id not in self.struck:
                self.inbox.append(job_id)
                self.struck[">" + job_id] = left + taken + len(self.inbox)
        elif job is None:
            self.jobs[job_id] = job = Job(job_id, INBOX, "failed", None, corrupt=True, reason=True)
            self.end(job, "failed", FAILURE_TTL)
            self.emit("failed", job)
            self.count("enqueued", job)
        elif job.status == "queued" and job.boxed:
            job.seq, job.boxed = self.next_seq(), False
            self.known_queues.add(INBOX)
            self.arrive(job)

    # -- maintenance

    def reap(self) -> int:
        last, hold = self.last_reap, self.hold
        if last is not None and 0 <= self.now - last < 2500:
            return 0
        if last is None or self.now < last or self.now - last > LEASE_MS / 2:
            hold = self.now + LEASE_MS
        self.last_reap, self.hold = self.now, min(hold, self.now + LEASE_MS)
        self._sweep_waits()
        if self.now < self.hold:
            return 0
        far = self.now + 2 * LEASE_MS
        lost = [job for job in self.of("started") if job.lease <= self.now or job.lease >= far]
        for job in lost:
            self.recover(job)
            self.index.get(job.worker or "", {}).pop(job.id, None)
        return len(lost)

    def _sweep_waits(self) -> None:
        for waits_in, since in list(self.known_waits.items()):
            if self.now - since > 60_000 and not any(job.waits_in == waits_in for job in self.of("blocked")):
                del self.known_waits[waits_in]
        for job in [job for job in self.of("blocked") if job.wait_until <= self.now]:
            job.attempts, job.lost, job.held_since = job.attempts + 1, 0, None
            self.unblock(job)
            self.fail(job)

    def prune(self, name: str, incarnation: str) -> list[tuple[str, int]]:
        if name:
            worker = self.workers.get(name)
            return [] if incarnation and worker and worker.incarnation != incarnation else [(name, self._bury(name))]
        silent = [w for w in self.listed if w not in self.workers or self._silence(self.workers[w]) > LEASE_MS]
        last, hold = self.last_reap, self.hold
        if last is None or self.now < last or self.now - last > LEASE_MS / 2 or self.now < min(hold, self.now + LEASE_MS):
            return []
        return sorted((dead, self._bury(dead)) for dead in silent)

    def _silence(self, worker: Worker) -> int:
        """Since it gave a sign of life; since now, if the clock was set back behind that."""
        worker.beat = min(worker.beat, self.now)
        return self.now - worker.beat

    def _bury(self, name: str) -> int:
        held = self._held_by(name)
        for job in held:
            self.recover(job)
        self._strike_off(name)
        return len(held)
