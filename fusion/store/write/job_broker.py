"""The part of the Broker for jobs: accepted, canceled, changed, deleted and restored; and what their runs report."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from fusion.kernel import defaults
from fusion.store.layout import codec
from fusion.store.layout.records import LogLine, NewJob, Replicas, Report, Room, RunLog
from fusion.store.scripting.host import run, to_ms, to_texts
from fusion.store.write.queue_calls import QueueCalls

#: Reports that one call records.
_REPORTS = 200


class JobBroker(QueueCalls):
    """Writes jobs. What the methods do that a `..._call` or `..._steps` describes is described there."""

    def enqueue(
        self,
        queue: str,
        jobs: Sequence[NewJob],
        nonce: str = "",
        replicas: Replicas | None = None,
        room: Room | None = None,
    ) -> str:
        """Do what `enqueue_steps` describes."""
        return run(self.enqueue_steps(queue, jobs, nonce, replicas, room))

    def enqueue_part(self, queue: str, jobs: Sequence[NewJob], token: str, nth: int, room: Room | None = None) -> str:
        """Do what `part_call` describes."""
        return self.part_call(queue, jobs, token, nth, room)()

    def add_parents(self, job_id: str, token: str, nth: int, parents: Sequence[str]) -> None:
        """Do what `parents_call` describes."""
        self.parents_call(job_id, token, nth, parents)()

    def release_graph(self, token: str, queue: str, first: NewJob, replicas: Replicas | None = None) -> None:
        """Do what `release_steps` describes."""
        run(self.release_steps(token, queue, first, replicas))

    def drop_graph(self, token: str) -> None:
        """Do what `drop_call` describes."""
        self.drop_call(token)()

    def cancel(self, job_id: str, dependents: bool = False) -> str:
        """Do what `cancel_call` describes."""
        return self.cancel_call(job_id, dependents)()

    def stop(self, job_id: str) -> str:
        """Do what `stop_call` describes."""
        return self.stop_call(job_id)()

    def reschedule(self, job_id: str, due: float) -> str:
        """Change the time that a scheduled job waits for, in Unix seconds. Returns `ok`, `missing`, or the status it has instead."""
        return codec.text(self._script("reschedule")({"job": self.keys.job(job_id)}, {"id": job_id, "due_ms": round(due * 1000)}))

    def requeue(
        self,
        job_ids: Sequence[str],
        nonce: str,
        *,
        keep_place: bool = False,
        at_front: bool = False,
        quarantined: bool = True,
        delay: float = 0,
    ) -> list[str]:
        """Requeue ended jobs. Returns an answer per id: `ok`, `missing`, `corrupt`, `quarantined` (unless `quarantined` allows those),
        `error: ...` (a broken key), `duplicate <id>` (that job has its unique key), or the status that can't be requeued. With a `delay` in
        seconds they are scheduled, and queued when it is over by the server's clock."""
        args = {
            "nonce": nonce,
            "keep_place": "front" if at_front else int(keep_place),
            "quarantined": int(quarantined),
            "retry_count": defaults.RETRY_COUNT_START,
            "delay_ms": to_ms(delay),
            "operation": "",
        }
        return self._to_each("requeue", {"queues": self.keys.queues}, args, job_ids)

    def quarantine(self, job_ids: Sequence[str], reason: str) -> list[str]:
        """Quarantine failed jobs. Returns an answer per id: `ok`, `missing`, `error: ...` (a broken key), or the status that is not failed."""
        return self._to_each("quarantine", {}, {"reason": reason, "operation": ""}, job_ids)

    def delete(self, job_ids: Sequence[str]) -> list[str]:
        """Delete jobs for good. Returns an answer per id: `deleted`, `missing`, `started` (a running job is not deleted), or a status that
        only a newer version knows."""
        return self._to_each("delete", {}, {"keep": "", "operation": ""}, job_ids)

    def note_copy(self, job_id: str, copy: str) -> str:
        """Record in a job the id of its copy. Returns `ok`, `missing`, or `foreign`."""
        return codec.text(self._script("note_copy")({"job": self.keys.job(job_id)}, {"copy": copy}))

    def save_meta(self, job_id: str, meta: bytes | str, execution_id: str = "") -> str:
        """Replace a job's meta. Returns `ok`, `missing`, or `stale` if an execution is named that does not hold the job."""
        return codec.text(self._script("save_meta")({"job": self.keys.job(job_id)}, {"execution": execution_id, "meta": meta}))

    def lock(self, name: str, job_id: str, execution_id: str, call: str, *, last: bool = False) -> str:
        """Do what `lock_call` describes."""
        return self.lock_call(name, job_id, execution_id, call, last=last)()

    def unlock(self, name: str, job_id: str, execution_id: str, call: str) -> bool:
        """Do what `unlock_call` describes."""
        return self.unlock_call(name, job_id, execution_id, call)()

    def log_event(self, lines: Sequence[LogLine], nonce: str) -> int:
        """Add lines to the event stream; returns how many were new."""
        rest = chain.from_iterable(
            (line.event, line.job_id, line.queue, line.log_tag, line.worker, to_ms(line.age), line.dropped, line.message)
            for line in lines
        )
        return int(self._script("log_event")({"said": self.keys.said(nonce)}, {"n_lines": len(lines)}, [*rest]))

    # -- runs, only while the reporting execution holds its job

    def report(self, worker: str, reports: Sequence[Report]) -> list[str]:
        """Record the reports of this worker's running jobs. Returns an answer per report: `ok`, `stale` if the execution does not hold the
        job, or `error: ...` (a broken key)."""
        answers = list[str]()
        for first in range(0, max(1, len(reports)), _REPORTS):
            rest: list[object] = []
            part = reports[first : first + _REPORTS]
            for report in part:
                rest += (report.job_id, report.execution_id, report.progress, report.cursor, report.said)
            answers += to_texts(self._script("report")({}, {"worker": worker, "n_jobs": len(part)}, rest))
        return answers

    def write_logs(self, logs: Sequence[RunLog]) -> list[str]:
        """Replace the logs of these runs' jobs. Returns an answer per run: `ok`, `missing`, `stale` if another execution holds the job, or
        `error: ...` (a broken key). ResponseError if Redis is full."""
        rest = chain.from_iterable((log.job_id, log.execution_id, log.attempt, log.left_out, log.lines) for log in logs)
        return to_texts(self._script("write_logs")({}, {"n_jobs": len(logs)}, [*rest]))

    # -- the trash: deleted jobs, kept for an hour

    def restore(self, job_ids: Sequence[str], nonce: str) -> list[str]:
        """Restore jobs from the trash. Returns an answer per id: `restored`, `missing` (it is not there, or no longer), `taken` (a job of
        this id lives), `duplicate <id>` (that job has its unique key), `full` (its queue takes no more), `expired` (its ttl is over), `error:
        ...` (a broken key)."""
        return self._to_each("restore", {"queues": self.keys.queues}, {"nonce": nonce}, job_ids)

    def empty_trash(self, limit: int = 300) -> tuple[int, bool]:
        """Delete up to `limit` jobs in the trash for good; returns how many, and whether there are more."""
        dropped, again = self._script("empty_trash")({}, {"limit": limit})
        return int(dropped), bool(again)

    def empty_to_trash(self, queue: str, limit: int = 100) -> tuple[int, bool, int]:
        """Do what `empty` does, but put the jobs into the trash; returns also for how many of them it had room."""
        return self.empty_call(queue, limit, keep=True)()

    def delete_to_trash(self, job_ids: Sequence[str]) -> list[str]:
        """Do what `delete` does, but put the jobs into the trash: `kept` in place of `deleted` for those for which it had room."""
        return self._to_each("delete", {}, {"keep": 1, "operation": ""}, job_ids)

    def may_keep(self) -> bool:
        """Do what `may_keep_steps` describes."""
        return run(self.may_keep_steps())
