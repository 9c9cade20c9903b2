"""What producers and people do to the store, as the model has it."""

from __future__ import annotations

from tests.faults.model.keys import Keyed
from tests.faults.model.state import INBOX, TERMINAL, Job, Order, State


def weight_of(job: Job | None) -> int:
    """As much as it counts in a call that takes this many jobs."""
    return 4 if job is not None and job.key is not None else 1


class People(Keyed):
    """The part of `Model` that no worker takes part in."""

    def enqueue(self, queue: str, orders: tuple[Order, ...], nonce: str, room: int | None = None) -> tuple[str, ...]:
        fresh: list[Order] = []
        first = self.iso
        for order in orders:
            job = self.jobs.get(order.id)
            if job and job.nonce == nonce:
                first = State(job.created).iso
            elif order.id in {other.id for other in fresh} or (job and job.status not in TERMINAL):
                return "duplicate", order.id, job.status if job else "queued"
            else:
                fresh.append(order)
        now = [
            order for order in fresh if (self.now + order.delay * 1000 if order.delay is not None else order.at or 0) <= self.now
        ]
        length = self._length(queue)
        if room is not None and now and length + len(now) > room:
            return "full", str(length), str(len(now))
        for order in fresh:
            self.known_queues.add(queue)
            seq = self.next_seq()
            due = order.at if order.delay is None else self.now + order.delay * 1000
            later = due is not None and due > self.now
            job = Job(order.id, queue, "", None, order.priority, nonce, self.now, order.result_ttl, order.ttl, order.on_lost)
            job.fair, job.key, job.most, job.rate, job.discard = order.fair, order.key, order.most, order.rate, order.discard
            self.jobs[order.id] = job
            if later:
                assert due is not None
                self.schedule(job, due / 1000)
                job.arrival = seq
                job.front = order.front
            elif order.front:
                self.to_front(job)
            else:
                self.line_up(job, seq)
            if order.ttl is not None:
                job.expires = (due if later and due else self.now) + order.ttl * 1000
            self.emit("scheduled" if later else "queued", job)
            self.count("enqueued", job)
            if not later:
                self.arrive(job, named=True)
        return "ok", self.iso if fresh else first

    def push(self, job_id: str) -> None:
        """An outsider puts an id into the inbox."""
        self.inbox.append(job_id)

    def cancel_job(self, job_id: str) -> str:
        job = self.jobs.get(job_id)
        if job is None:
            return "missing"
        if job.status == "started":
            job.cancel = job.cancel or "canceled"
            return "pending"
        return self._call_off(job, "canceled")

    def stop_job(self, job_id: str) -> str:
        job = self.jobs.get(job_id)
        if job is None:
            return "missing"
        if job.status == "started":
            job.cancel = "stopped"
            return "pending"
        return self._call_off(job, "stopped")

    def _call_off(self, job: Job, status: str) -> str:
        if job.status in TERMINAL:
            return job.status
        self._out_of_inbox(job)
        self.call_off(job, status)
        return status

    def delete(self, ids: tuple[str, ...]) -> list[str]:
        return [self._delete(job_id) for job_id in ids]

    def _delete(self, job_id: str) -> str:
        job = self.jobs.get(job_id)
        if job is None:
            return "missing"
        if job.status == "started":
            return "started"
        self._out_of_inbox(job)
        self.forget(job)
        return "deleted"

    def _out_of_inbox(self, job: Job) -> None:
        """Its entries stay, and lead nowhere."""
        if job.queue == INBOX and job.status == "queued" and job.boxed and self.inbox:
            self.struck.setdefault("", 0)
            self.struck[job.id] = self.struck[""] + len(self.inbox)
            self.struck.pop(">" + job.id, None)

    def _length(self, queue: str) -> int:
        """How many take room in a queue."""
        length = len(self.waiting(queue)) + len([*self.of("blocked", queue)])
        return length + len(self.inbox) - max(0, len(self.struck) - 1) if queue == INBOX else length

    def passed(self, count: int) -> None:
        """This many ids have left the inbox."""
        if self.struck:
            left = self.struck[""] + count
            self.struck = {job_id: upto for job_id, upto in self.struck.items() if upto > left}
            if self.struck:
                self.struck[""] = left

    def empty(self, queue: str, limit: int) -> tuple[int, bool]:
        """Up to `limit` of them; a job that has a key counts as several."""
        deleted, left = 0, limit
        blocked = sorted(self.of("blocked", queue), key=lambda job: (job.wait_until, job.id))
        for status in ("blocked", "queued"):
            jobs = blocked if status == "blocked" else self.waiting(queue)[::-1]
            for job in jobs[:limit]:
                if left <= 0:
                    return deleted, True
                if job.status == status:  # it may have got the slot of another of them, or given up its own
                    left -= weight_of(job)
                    self.forget(job)
                    deleted += 1
            if len(jobs) >= limit:
                return deleted, True
        if queue != INBOX:
            return deleted, False
        count = 0
        for job_id in self.inbox[:limit]:
            if left <= 0:
                break
            left -= weight_of(self.jobs.get(job_id))
            count += 1
        taken, self.inbox = self.inbox[:count], self.inbox[count:]
        self.passed(len(taken))
        for job_id in taken:
            found = self.jobs.get(job_id)
            if found and found.status == "queued" and found.queue == INBOX:
                self.forget(found)
                deleted += 1
        return deleted, bool(self.inbox)

    def requeue(self, ids: tuple[str, ...], nonce: str, keep_place: bool | str, quarantined: bool, delay: int) -> list[str]:
        return [self._requeue(job_id, nonce, keep_place, quarantined, delay) for job_id in ids]

    def _requeue(self, job_id: str, nonce: str, keep_place: bool | str, quarantined: bool, delay: int) -> str:
        job = self.jobs.get(job_id)
        if job is None:
            return "missing"
        if job.requeue_nonce == nonce:
            return "ok"
        if job.status not in ("failed", "canceled", "stopped"):
            return job.status
        if job.quarantined and not quarantined:
            return "quarantined"
        if job.corrupt:
            return "corrupt"
        self.known_queues.add(job.queue)
        if delay:
            self.schedule(job, (self.now + delay * 1000) / 1000)
            if keep_place is not True:
                job.seq, job.arrival = None, self.next_seq()
        elif keep_place == "front":
            self.to_front(job)
        elif keep_place:
            self.to_place(job)
        else:
            self.line_up(job)
        job.requeue_nonce, job.lost, job.requeued = nonce, 0, job.requeued + 1
        job.reason = job.quarantined = job.discard = job.wanted = False
        job.front = bool(delay) and keep_place == "front"
        job.cancel = ""
        job.held_since = job.execution = job.expires = None
        job.suspect, job.spared = False, 0
        if job.ttl is not None:
            job.expires = self.now + (delay + job.ttl) * 1000
        self.emit("scheduled" if delay else "queued", job)
        self.count("requeued", job)
        if not delay:
            self.arrive(job)
        return "ok"

    def reschedule(self, job_id: str, due_ms: int) -> str:
        job = self.jobs.get(job_id)
        if job is None:
            return "missing"
        if job.status != "scheduled":
            return job.status
        if job.due != due_ms / 1000:
            self.schedule(job, due_ms / 1000)
            if job.ttl is not None and not job.reason:
                job.expires = max(due_ms, self.now) + job.ttl * 1000
            self.emit("scheduled", job)
        return "ok"

    def quarantine(self, ids: tuple[str, ...]) -> list[str]:
        answers = []
        for job_id in ids:
            job = self.jobs.get(job_id)
            answers.append("missing" if job is None else "ok" if job.status == "failed" else job.status)
            if job and job.status == "failed":
                job.quarantined = True
        return answers

    def gate(self, queue: str, limit: int | None, rate: tuple[int, int] | None) -> None:
        for values, value in ((self.limits, limit), (self.rates, rate)):
            if value is None:
                values.pop(queue, None)  # type: ignore[attr-defined]
            else:
                values[queue] = value  # type: ignore[index]
        if limit is None and rate is None:
            self.tats.pop(queue, None)
        elif self.room(queue) >= 1:
            self.wake_for(queue)

    # -- switches, and the world

    def pause(self, queue: str) -> None:
        self.paused.setdefault(queue, self.iso)

    def unpause(self, queue: str) -> bool:
        was = queue in self.paused
        self.paused.pop(queue, None)
        self.wake_for(queue)
        return was

    def suspend(self) -> None:
        self.suspended = True

    def resume(self) -> bool:
        was, self.suspended = self.suspended, False
        for queue in self.known_queues:
            self.wake_for(queue)
        return was

    def flush_scripts(self) -> None:
        """Redis was restarted, or told to forget them."""

    def hear(self, queue: str) -> None:
        """A worker took the tokens out of its doorbells."""

    def forget_worker(self, name: str) -> None:
        """Its registration expired."""
        self.workers.pop(name, None)
