"""The account at the end of the demo: every job accounted for, from Redis's side and from the sandbox's."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import urlopen

from tools.demo.chaos import Toll, counts

if TYPE_CHECKING:
    from redis import Redis

    from fusion.job import Job

#: Events that end a job.
_ENDS = frozenset(("completed", "failed", "expired", "canceled", "stopped"))
_CHUNK = 500
_NAMES = {2: "HIGH", 1: "MODERATE", 0: "LOW"}


@dataclass(frozen=True)
class DemoReport:
    """`waits`: seconds from enqueue to start by priority; `delivered`: what the sandbox got, by (channel, priority); `attempts`: runs that
    failed; `events`: what the event log has, by status; `once`: jobs that ended exactly once, by the event log; `counted`: jobs that ended,
    by the counters of the queues; `toll`: of a demo with chaos, who was killed."""

    accepted: int
    statuses: Counter[str]
    reasons: Counter[str]
    waits: dict[int, list[float]]
    delivered: dict[tuple[str, int], int]
    distinct: int
    duplicates: int
    seconds: float
    attempts: int
    events: Counter[str]
    once: int
    counted: int
    toll: Toll | None = None

    @property
    def logged(self) -> bool:
        """True if the event log says the same as the jobs themselves, and the counters of the queues do."""
        if not self.once == self.counted == self.accepted:
            return False
        if self.toll is not None:
            return True
        runs = self.statuses["finished"] + self.attempts
        retries = self.attempts - self.statuses["failed"]
        told = {"completed": self.statuses["finished"], "failed": self.statuses["failed"], "retry": retries, "processing": runs}
        told["queued"] = self.accepted + retries  # a retry that is due is queued again
        return all(self.events[status] == count for status, count in told.items())

    @property
    def lost(self) -> int:
        """Jobs that were accepted and have not ended."""
        return self.accepted - self.statuses["finished"] - self.statuses["failed"]

    @property
    def adds_up(self) -> bool:
        """Every job ended, every finished one was delivered once, and the event log has the same. Where runs were killed, one may have
        delivered before that and another have done so again."""
        if self.toll is not None:
            return self.lost == 0 and self.distinct >= self.statuses["finished"] and self.logged
        delivered_once = self.duplicates == 0 and self.distinct == self.statuses["finished"] == sum(self.delivered.values())
        return self.lost == 0 and delivered_once and self.logged

    @classmethod
    def collect(cls, connection: Redis, ids: Sequence[str], sandbox: str, events: Path, toll: Toll | None = None) -> DemoReport:
        """Count what happened to these jobs: in Redis, in the sandbox's statistics, in the file of events."""
        from fusion.job import Job
        from fusion.store.access import inspector_of

        statuses: Counter[str] = Counter()
        reasons: Counter[str] = Counter()
        waits: dict[int, list[float]] = {}
        times: list[datetime] = []
        attempts = 0
        queues = set[str]()
        status_of: dict[str, str] = {}
        for start in range(0, len(ids), _CHUNK):
            for job in Job.fetch_many(ids[start : start + _CHUNK], connection):
                if job is not None:
                    _count(job, statuses, reasons, waits, times)
                    attempts += job.attempts
                    queues.add(job.origin)
                    status_of[job.id] = str(job.get_status(refresh=False))
        with urlopen(f"{sandbox}/_stats", timeout=10) as answer:
            stats = json.load(answer)
        both = stats["by_channel_and_priority"]
        delivered = {(channel, int(priority)): count for channel, row in both.items() for priority, count in row.items()}
        seconds = (max(times) - min(times)).total_seconds() if times else 0.0
        logged = {line["id"]: line for line in map(json.loads, events.read_text().splitlines())}  # what was told twice has one id
        told = Counter(line["event"] for line in logged.values())
        ends: dict[str, list[str]] = {}
        for line in logged.values():
            if line["event"] in _ENDS:
                ends.setdefault(line["job_id"], []).append(line["event"].replace("completed", "finished"))
        once = sum(ends.get(job_id) == [status_of.get(job_id)] for job_id in ids)
        counters = [inspector_of(connection).counters(queue).totals for queue in sorted(queues)]
        counted = sum(found["completed"] + found["failed"] for found in counters)
        return cls(
            accepted=len(ids),
            statuses=statuses,
            reasons=reasons,
            waits=waits,
            delivered=delivered,
            distinct=stats["jobs"],
            duplicates=stats["duplicates"],
            seconds=seconds,
            attempts=attempts,
            events=told,
            once=once,
            counted=counted,
            toll=toll,
        )


def _count(job: Job, statuses: Counter[str], reasons: Counter[str], waits: dict[int, list[float]], times: list[datetime]) -> None:
    status = str(job.get_status(refresh=False))
    statuses[status] += 1
    if status == "failed":
        reasons[f"{job.origin}: {job.reason}"] += 1
    if job.enqueued_at and job.started_at and job.ended_at:
        waits.setdefault(job.priority, []).append((job.started_at - job.enqueued_at).total_seconds())
        times += (job.enqueued_at, job.ended_at)


def render(report: DemoReport) -> str:
    """The account as text."""
    lines = ["", f"{'delivered':<12}{'HIGH':>8}{'MODERATE':>10}{'LOW':>8}{'all':>8}"]
    channels = sorted({channel for channel, _ in report.delivered})
    for channel in [*channels, "all"]:
        row = [
            sum(n for (c, p), n in report.delivered.items() if p == priority and channel in (c, "all")) for priority in (2, 1, 0)
        ]
        lines.append(f"{channel:<12}{row[0]:>8}{row[1]:>10}{row[2]:>8}{sum(row):>8}")
    lines += ["", f"{'wait (ms)':<12}{'jobs':>8}{'p50':>10}{'p95':>10}{'p99':>10}"]
    for priority in sorted(report.waits, reverse=True):
        found = sorted(report.waits[priority])
        p50, p95, p99 = (f"{_percentile(found, q) * 1000:.1f}" for q in (0.50, 0.95, 0.99))
        lines.append(f"{_NAMES.get(priority, str(priority)):<12}{len(found):>8}{p50:>10}{p95:>10}{p99:>10}")
    ended = sum(report.statuses.values())
    rate = ended / report.seconds if report.seconds else 0.0
    lines += ["", f"{ended} jobs in {report.seconds:.1f} s, {rate:.0f} jobs/s, each in a process of its own"]
    lines += [
        f"accepted {report.accepted}, finished {report.statuses['finished']}, failed {report.statuses['failed']}, lost {report.lost}"
    ]
    lines += [f"  failed  {count} x {reason}" for reason, count in _sorted(report.reasons.items())]
    if report.toll is not None:
        lines += _of_chaos(report, report.toll)
    shown = ("queued", "processing", "retry", *(("abandoned", "released") if report.toll else ()), "completed", "failed")
    lines += ["", "event log     " + ", ".join(f"{report.events[status]} {status}" for status in shown)]
    verdict = "All adds up." if report.adds_up else _difference(report)
    return "\n".join([*lines, "", verdict])


def _of_chaos(report: DemoReport, toll: Toll) -> list[str]:
    return [
        "",
        f"killed        by the demo: {counts(toll.struck)}",
        f"              by others, you perhaps: {counts(toll.others)}",
        f"lost runs     {report.events['abandoned']}, vanished with what was killed: their jobs ran again",
        f"sent twice    {report.duplicates} messages: the run was killed after it had sent, before it could say so",
        f"ended once    {report.once} jobs by the event log, {report.counted} by the counters of the queues",
    ]


def _difference(report: DemoReport) -> str:
    if not report.logged:
        jobs = f"{dict(report.statuses)}, {report.attempts} attempts that failed"
        ended = f"{report.once} of {report.accepted} jobs ended once, the queues counted {report.counted} ends"
        return f"It does not add up: the event log has {dict(report.events)}, {ended}, the jobs are {jobs}"
    return (
        f"It does not add up: {report.statuses['finished']} finished, the sandbox has {report.distinct} jobs in "
        f"{sum(report.delivered.values())} deliveries ({report.duplicates} twice); states: {dict(report.statuses)}"
    )


def _percentile(values: Sequence[float], share: float) -> float:
    """Nearest rank."""
    return values[min(len(values) - 1, int(share * len(values)))]


def _sorted(counts: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    return sorted(counts, key=lambda item: (-item[1], item[0]))
