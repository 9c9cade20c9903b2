"""The writer of cron entries and of the list of schedulers: one script per step, one method per script."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

from fusion.store.layout import codec
from fusion.store.layout.records import CronLook, NewJob, StoredEntry, Tick
from fusion.store.scripting.host import ScriptHost, to_ms, to_texts


class CronBroker(ScriptHost):
    """Writes cron entries and the list of schedulers. Every method is one round trip and safe to repeat, as the Broker's are."""

    # -- entries

    def cron_put(self, entry: str, plan: str, spec: str, rev: str, *, app: str = "", version: str = "", error: str = "") -> str:
        """Store an entry. Returns `new`, `changed`, `same`, `faulty` (with an `error`: the stored entry stays, and shows the error),
        `outdated` (a scheduler of a higher version of the app is alive), or `taken` and the app it belongs to, empty for one made at run
        time."""
        keys = {"due": self.keys.cron_due, "marks": self.keys.cron_marks}
        args = {"entry": entry, "plan": plan, "spec": spec, "rev": rev, "app": app, "version": version, "error": error}
        return codec.text(self._script("cron_put")(keys, args))

    def cron_retire(self, app: str, version: str, declared: Sequence[str]) -> tuple[str, list[str], list[str]]:
        """Remove the app's entries that are not `declared`, if `version` is higher than the one before. Returns `ok` or `outdated`, the
        removed entries, and those left."""
        keys = {"due": self.keys.cron_due, "apps": self.keys.cron_apps}
        args = {"app": app, "version": version, "n_entries": len(declared)}
        status, removed, left = self._script("cron_retire")(keys, args, declared)
        return codec.text(status), to_texts(removed), to_texts(left)

    def cron_remove(self, entry: str) -> bool:
        """Remove an entry; False if there is none. Its jobs stay."""
        return bool(self._script("cron_remove")({}, {"entry": entry}) == b"ok")

    def cron_pause(self, entry: str) -> bool:
        """Pause an entry; False if there is none."""
        keys = {"entry": self.keys.cron_entry(entry), "due": self.keys.cron_due}
        return bool(self._script("cron_pause")(keys, {"id": entry}) == b"ok")

    def cron_resume(self, entry: str) -> str:
        """Resume a paused entry: `ok`, `running` (it was not paused) or `missing`."""
        keys = {"entry": self.keys.cron_entry(entry), "due": self.keys.cron_due, "marks": self.keys.cron_marks}
        return codec.text(self._script("cron_resume")(keys, {"id": entry}))

    def cron_run(self, entry: str, rev: str, job: NewJob, queue: str, nonce: str, *, overlap: str) -> tuple[str, str]:
        """Enqueue a job of the entry now. Returns `ok` and its id; `overlap` and the job that has not ended; `duplicate` and the job that has
        its unique key; `stale` (read the entry again) or `missing`."""
        pairs = codec.to_pairs(job.fields)
        args = {"id": entry, "rev": rev, "nonce": nonce, "overlap": overlap, **_template(job, queue), "n_pairs": len(pairs)}
        status, job_id = to_texts(self._script("cron_run")({"entry": self.keys.cron_entry(entry)}, args, pairs))
        return status, job_id

    # -- schedulers

    def cron_due(self, limit: int = 50) -> CronLook:
        """Read the entries that are due for a decision now, and the time of the next one."""
        keys = {"due": self.keys.cron_due, "marks": self.keys.cron_marks}
        now_ms, next_ms, rows = self._script("cron_due")(keys, {"limit": limit})
        next_in = 0.0 if len(rows) == limit else None if next_ms < 0 else next_ms / 1000
        return CronLook(now_ms / 1000, next_in, [StoredEntry(*to_texts(row)) for row in rows])

    def cron_tick(
        self, entry: StoredEntry, tick: Tick, job: NewJob, queue: str, nonce: str, *, overlap: str
    ) -> tuple[str, int, int]:
        """Decide ticks. Returns `ok`, `taken <id>` (one did not run, as a job of that id exists that is not the entry's), `stale`, `early` or
        `error: ...`; the number of jobs enqueued; and the ticks skipped for a job that has not ended.

        `job` is the template of each job; its id is not used.
        """
        pairs = codec.to_pairs(job.fields)
        args = {
            "id": entry.id,
            "rev": entry.rev,
            "mark": entry.mark,
            "nonce": nonce,
            "overlap": overlap,
            **_template(job, queue),
            "upto": tick.upto,
            "next": "" if tick.next is None else tick.next,
            "missed": tick.missed,
            "n_pairs": len(pairs),
            "n_ticks": len(tick.runs),
        }
        rest = [part for at, delay in tick.runs for part in (at, tick_name(at), to_ms(delay))]
        keys = {"entry": self.keys.cron_entry(entry.id), "due": self.keys.cron_due, "marks": self.keys.cron_marks}
        status, enqueued, skipped = self._script("cron_tick")(keys, args, [*pairs, *rest])
        return codec.text(status), int(enqueued), int(skipped)

    def cron_fault(self, entry: StoredEntry, error: str) -> bool:
        """Record why the entry can't be planned, and check it again later; False if it has changed."""
        keys = {"entry": self.keys.cron_entry(entry.id), "due": self.keys.cron_due}
        return bool(self._script("cron_fault")(keys, {"id": entry.id, "rev": entry.rev, "error": error}) == b"ok")

    def scheduler_beat(self, name: str, incarnation: str, lease: float, ttl: float, fields: dict[str, Any]) -> bool:
        """Register a scheduler, or renew its heartbeat; False if a live other has the name."""
        pairs = codec.to_pairs(fields)
        args = {"name": name, "incarnation": incarnation, "lease_ms": to_ms(lease), "ttl": int(ttl), "n_pairs": len(pairs)}
        return bool(self._script("scheduler_beat")(self._presence(name), args, pairs) == b"ok")

    def scheduler_leave(self, name: str, incarnation: str) -> bool:
        """Unregister a scheduler; False if another has the name by now."""
        return bool(self._script("scheduler_leave")(self._presence(name), {"name": name, "incarnation": incarnation}) == b"ok")

    def _presence(self, name: str) -> dict[str, str]:
        return {"scheduler": self.keys.scheduler(name), "schedulers": self.keys.schedulers}


def tick_name(tick: int) -> str:
    """Write a tick in the form used in its job's id: `20261120T090000Z`."""
    return datetime.fromtimestamp(tick, timezone.utc).strftime("%Y%m%dT%H%M%SZ")


def _template(job: NewJob, queue: str) -> dict[str, Any]:
    return {"queue": queue, "priority": job.priority, "ttl_ms": "" if job.ttl is None else to_ms(job.ttl)}
