"""What a soak has shown: the witnesses against Redis against the history of Redis."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from fusion.executors.prefetch import MOST
from tests.faults.rig.conservation import TERMINAL
from tests.faults.soak.fleet import SLOTS
from tests.faults.soak.history import History
from tests.faults.soak.monkey import Strike
from tests.faults.soak.plan import LEASE, REAP_INTERVAL, Job
from tests.faults.soak.relations import BY_PARENT, Ties, wrong_answers, wrong_batches, wrong_kin, wrong_meetings, wrong_steps
from tests.faults.soak.sharing import wrong_calls, wrong_gifts, wrong_hearings

#: What a job's reason says that ran so often without an end that nobody may expect one.
POISON = "poison pill"
_SHOWN = 10
#: Seconds by which a busy machine may be late with what is due.
_SLACK = 2.5


@dataclass
class Run:
    """One run, by the witness file. `began` more than once: an execution was started twice. `pid`: of its process."""

    job_id: str
    began: int = 0
    ended: int = 0
    pid: str = ""


def read_witness(path: Path) -> dict[str, Run]:
    runs: dict[str, Run] = {}
    for line in path.read_text().splitlines():
        what, job_id, execution, pid, _ = line.split()
        run = runs.setdefault(execution, Run(job_id, pid=pid))
        run.began += what == "begin"
        run.ended += what == "end"
    return runs


@dataclass
class Findings:
    """What there was to judge. `states`: id -> status at the end, checked against all sets; `delivered`: ids of events in the sink's
    files, repetitions included."""

    plan: dict[str, Job]
    acknowledged: list[str]
    tried: set[str]
    states: dict[str, str]
    history: History
    runs: dict[str, Run]
    strikes: list[Strike]
    delivered: list[str]
    ties: Ties = field(default_factory=Ties)


@dataclass
class Verdict:
    """`wrong`: broken promises, each with the ids it is about; none = the run has passed."""

    figures: dict[str, object] = field(default_factory=dict)
    wrong: list[tuple[str, list[str]]] = field(default_factory=list)

    def hold(self, what: str, offenders: Iterable[str], total: int | None = None) -> int:
        """Nobody may offend against `what`."""
        found = list(offenders)
        if found:
            self.wrong.append((what, found))
        return len(found)


def judge(found: Findings) -> Verdict:
    verdict = Verdict()
    lives, by_job = found.history.jobs, defaultdict(list)
    for execution, run in found.runs.items():
        by_job[run.job_id].append(execution)
    acknowledged = set(found.acknowledged)
    there = {job_id for job_id in found.states if not job_id.startswith("cron-")}
    unsure = found.tried - acknowledged
    claims_wrong = list(found.history.wrong)
    figures = verdict.figures
    figures["tried"] = len(found.tried)
    figures["acknowledged"] = len(acknowledged)
    figures["never acknowledged"] = f"{len(unsure)}, of them in Redis {len(unsure & there)}"
    figures["lost"] = verdict.hold("acknowledged, and in no set", sorted(acknowledged - there - found.ties.met.keys()))
    figures["unexpected"] = verdict.hold("never enqueued, and there", sorted(there - found.tried))
    figures["stuck"] = verdict.hold("neither ended nor failed", _stuck(found.states))
    figures["against the rules in the AOF"] = verdict.hold("the history of Redis breaks a rule", claims_wrong)
    verdict.hold("not in the state it had to reach", _wrong_ends(found))
    verdict.hold("failed without a reason a person can read", _without_reason(found))
    verdict.hold("finished, but not by a run that ended", _unfounded(found))
    verdict.hold("ran more often than failed and lost runs allow", _too_often(found, by_job))
    verdict.hold("one execution was begun twice", (f"{run.job_id} {e}" for e, run in found.runs.items() if run.began > 1))
    verdict.hold("a dead worker's job could be claimed later than lease and reap interval allow", _late(found))
    verdict.hold("ran without a claim", (run.job_id for e, run in found.runs.items() if not _was_claimed(lives, run.job_id, e)))
    verdict.hold("a tick of the cron entry is missing", _missing_ticks(found.states))
    verdict.hold("let off as beside another in its process, and was alone in it", _without_neighbours(found))
    _count_losses(verdict, found, by_job)
    _count_ahead(verdict, found)
    _check_events(verdict, found)
    _judge_ties(verdict, found)
    return verdict


def _judge_ties(verdict: Verdict, found: Findings) -> None:
    ties, replaced = found.ties, Counter(life.reason for life in found.history.jobs.values())["replaced"]
    verdict.figures["met another with their unique key"] = f"{len(ties.met)}, took the place of another {replaced}"
    verdict.hold("the call said another thing of a unique key than there is", wrong_meetings(ties.met, found.plan, found.states))
    verdict.hold("unique keys left over", found.history.uniques.left())
    said = Counter(f"{each.wish}: {each.said}" for each in ties.answers)
    verdict.figures["answers to people"] = ", ".join(f"{what} {count}" for what, count in sorted(said.items())) or "none"
    ends = Counter(found.states.get(each.job_id) for each in ties.answers if each.said == "pending")
    verdict.figures["of those that ran"] = ", ".join(f"{what} {count}" for what, count in ends.items())
    verdict.hold("not what people were told", wrong_answers(ties.answers, found.states))
    runs = {(step.job_id, step.execution) for step in ties.steps}
    jobs = {job_id for job_id, _ in runs}
    verdict.figures["jobs in steps"] = f"{len(jobs)}, {len(runs)} runs, {len(ties.steps)} steps"
    kin = [spec for spec in found.plan.values() if spec.parents]
    by_parent = sum(life.reason.startswith(BY_PARENT) for life in found.history.jobs.values())
    verdict.figures["jobs with parents"] = f"{len(kin)}, failed for their sake {by_parent}"
    reasons = {job_id: life.reason for job_id, life in found.history.jobs.items()}
    ran = {run.job_id for run in found.runs.values()}
    verdict.hold("not as their parents have it", wrong_kin(kin, found.states, reasons, ran))
    canceled = {found.plan[each.job_id].batch for each in ties.answers if each.wish == "cancel batch"}
    called = Counter(f"{spec.batch_as} {found.states.get(spec.id)}" for spec in found.plan.values() if spec.batch_as)
    verdict.figures["what followed batches"] = ", ".join(f"{what} {count}" for what, count in sorted(called.items()))
    verdict.hold("not as their batch has it", wrong_batches(found.plan.values(), found.states, canceled))
    verdict.hold("steps were left out", wrong_steps(ties.steps, found.plan, found.states, found.history))
    told, history = ties.told, found.history
    verdict.figures["steps of chains that were given something"] = len(told.gifts)
    verdict.hold("not given what the one before it returned", wrong_gifts(told.gifts, found.plan, history.jobs))
    verdict.figures["heard that their job was stopped"] = len(told.hearings)
    verdict.hold(
        "heard of a stop, or did not, otherwise than it was", wrong_hearings(told.hearings, found.plan, history.jobs, ran)
    )
    sizes = Counter(len(call) for call in told.calls)
    verdict.figures["calls for several jobs"] = ", ".join(f"of {size} {count}" for size, count in sorted(sizes.items())) or "none"
    jobs_of = {execution: run.job_id for execution, run in found.runs.items()}
    verdict.hold("shared a call wrongly", wrong_calls(told.calls, jobs_of, found.plan, history.alone))
    ticks, waited = history.behind.counts
    verdict.figures["ticks that wait for each other"] = f"{ticks}, of them waited {waited}"


def _stuck(states: dict[str, str]) -> list[str]:
    return [f"{job_id}: {status}" for job_id, status in states.items() if status not in TERMINAL]


def _without_neighbours(found: Findings) -> list[str]:
    """Where each job has a process to itself nobody is let off so. A neighbour that had not begun left no witness: any such one of the worker may
    have been it."""
    others = Counter(run.pid for run in found.runs.values())
    unbegun = {_worker_of(e) for life in found.history.jobs.values() for e, _ in life.ends if e not in found.runs}
    beside = found.history.beside
    return [
        f"{run.job_id} {e}"
        for e, run in found.runs.items()
        if e in beside and others[run.pid] < 2 and _worker_of(e) not in unbegun
    ]


def _worker_of(execution: str) -> str:
    return execution.partition(":")[0]


def _is_poison(found: Findings, job_id: str) -> bool:
    return POISON in found.history.jobs[job_id].reason


def _wrong_ends(found: Findings) -> Iterator[str]:
    """A job that was struck five times in a row fails for that; all others end as they were made to."""
    for job_id, status in found.states.items():
        spec, life = found.plan.get(job_id), found.history.jobs.get(job_id)
        if spec is None or life is None or status in spec.may_end:
            continue
        if spec.parents and life.reason.startswith(BY_PARENT):
            continue
        failures = life.count("failed", "retry")
        if status == "failed" and _is_poison(found, job_id):
            if life.lost < 5:
                yield f"{job_id}: a poison pill after {life.lost} losses"
        elif status != spec.ends or failures != spec.failures or (status == "failed" and spec.reason not in life.reason):
            yield (
                f"{job_id} ({spec.kind}): {status} after {failures} failures, reason {life.reason!r};"
                f" expected {spec.ends} after {spec.failures} {spec.reason}"
            )


def _without_reason(found: Findings) -> Iterator[str]:
    for job_id, status in found.states.items():
        reason = found.history.jobs[job_id].reason if job_id in found.history.jobs else ""
        if status == "failed" and not (reason and reason.isprintable()):
            yield f"{job_id}: {reason!r}"


def _unfounded(found: Findings) -> Iterator[str]:
    for job_id, status in found.states.items():
        if status == "finished":
            holder = found.history.jobs[job_id].holder
            run = found.runs.get(holder)
            if run is None or not run.ended:
                yield f"{job_id}: {holder} left no witness"


def _too_often(found: Findings, by_job: dict[str, list[str]]) -> Iterator[str]:
    for job_id, executions in by_job.items():
        life = found.history.jobs.get(job_id)
        if life is None:
            continue
        # A run that finished, or else the last failure, is the 1. What was claimed ahead and came back unbegun has led to no run.
        of_runs = Counter(outcome for execution, outcome in life.ends if execution in found.runs)
        allowed = 1 + sum(of_runs[outcome] for outcome in ("retry", "lost", "released"))
        if len(executions) > allowed:
            yield f"{job_id}: {len(executions)} runs, {allowed} allowed"


def _was_claimed(lives: dict[str, object], job_id: str, execution: str) -> bool:
    life = lives.get(job_id)
    return life is not None and any(execution == holder for holder, _ in life.ends)  # type: ignore[attr-defined]


def _missing_ticks(states: dict[str, str]) -> list[str]:
    ticks = sorted(job_id.rpartition("-")[2] for job_id in states if job_id.startswith("cron-tick-"))
    times = [datetime.strptime(f"{tick}+0000", "%Y%m%dT%H%M%SZ%z").timestamp() for tick in ticks]
    return [f"after {tick}: {b - a:g} s" for tick, (a, b) in zip(ticks, pairwise(times), strict=False) if b - a != 1]


def _count_losses(verdict: Verdict, found: Findings, by_job: dict[str, list[str]]) -> None:
    suicides = {job_id for job_id, spec in found.plan.items() if spec.kind == "suicide"}
    lives = {job_id: life for job_id, life in found.history.jobs.items() if job_id not in suicides}
    losses = sum(life.count("lost") for life in lives.values())
    extra = {}
    for job_id, executions in by_job.items():
        again = len(executions) - 1 - (lives[job_id].count("retry") if job_id in lives else 0)
        if job_id in lives and again > 0:
            extra[job_id] = again
    twice = [job_id for job_id in by_job if sum(found.runs[execution].ended > 0 for execution in by_job[job_id]) > 1]
    at_stake = sum(strike.at_stake for strike in found.strikes)
    figures = verdict.figures
    figures["runs"] = len(found.runs)
    figures["jobs begun again after a loss"] = (
        f"{len(extra)}, {sum(extra.values())} runs; the most for one job: {max(extra.values(), default=0)}"
    )
    figures["duplicated (done to the end more than once)"] = len(twice)
    figures["leases lost"] = f"{losses}, at stake in all strikes {at_stake}"
    figures["poison pills that are innocent"] = sum(_is_poison(found, job_id) for job_id in lives)
    figures["leases lost by workers that were not struck"] = len(by_chance := _unexplained(found, suicides))
    if len(by_chance) > 5 + at_stake // 10:
        verdict.hold("leases lost by workers that nobody had struck", by_chance)
    # Of what waits in the processes of a worker that is struck all may be done again: those are bounded below.
    let_off = found.history.let_off
    plain = [job_id for job_id in twice if sum(found.runs[e].ended > 0 for e in by_job[job_id] if e not in let_off) > 1]
    if len(plain) > len(found.strikes):
        verdict.hold(f"more jobs done twice than the {len(found.strikes)} strikes explain", plain)


def _count_ahead(verdict: Verdict, found: Findings) -> None:
    """What waited in a process that died has lost nothing, but for what that process had read at this moment."""
    history = found.history
    ahead = history.ahead
    if not ahead:
        return
    lives = history.jobs.values()
    back = sum(execution in ahead and outcome == "released" for life in lives for execution, outcome in life.ends)
    figures = verdict.figures
    figures["claimed ahead"] = f"{len(ahead)}, of them begun {len(ahead & found.runs.keys())}, given back {back}"
    figures["told begun"] = len(history.told_begun)
    figures["losses of those that waited, which counted for nothing"] = (
        f"{len(history.let_off)}, of them begun unnoticed {len(history.let_off & found.runs.keys())}"
    )
    unfair = [f"{history.holder_of(e)} {e}" for e in sorted(ahead & history.counted - history.told_begun - found.runs.keys())]
    figures["losses that counted, of jobs ahead that no witness saw begin"] = len(unfair)
    unnoticed = history.let_off & found.runs.keys()
    if len(unnoticed) > (MOST + 1) * SLOTS * len(found.strikes):
        verdict.hold(
            "more jobs done again that had waited than can wait in the processes of those that were struck", sorted(unnoticed)
        )
    if len(unfair) > len(found.strikes):
        verdict.hold(f"more losses counted of jobs that had not begun than the {len(found.strikes)} strikes explain", unfair)


def _unexplained(found: Findings, suicides: set[str]) -> list[str]:
    """A few there are on a machine that keeps a worker waiting for longer than a lease; many are a worker that does not renew."""
    struck = {str(strike.pid) for strike in found.strikes if strike.at_stake}
    return [
        f"{event.job_id}: lost by {event.worker}"
        for event in found.history.events
        if event.event == "abandoned"
        and event.job_id not in suicides | found.history.jobs_beside
        and event.worker.rpartition(".")[2] not in struck
    ]


def _check_events(verdict: Verdict, found: Findings) -> None:
    """The sink against the stream as the AOF has it: each event, none besides."""
    written = Counter(int(event_id.rpartition("-")[2]) for event_id in found.delivered)
    numbers = {event.number for event in found.history.events}
    repeated = sum(written.values()) - len(written)
    verdict.figures["events"] = f"{len(numbers)}, of them in the file {len(written)}, written again {repeated}"
    verdict.hold("events that did not reach the file", map(str, sorted(numbers - written.keys())))
    verdict.hold("events in the file that never were", map(str, sorted(written.keys() - numbers)))
    verdict.hold("events without a number of their own", map(str, sorted(set(range(1, len(numbers) + 1)) ^ numbers)))


def delivered(path: Path) -> list[str]:
    """Ids of the events in the sink's file and those it has begun anew."""
    return [
        json.loads(line)["id"]
        for file in path.parent.glob(f"{path.name}*")
        if not file.name.endswith(".lock")
        for line in file.read_text().splitlines()
    ]


class Recovery(NamedTuple):
    """`seconds` from a SIGKILL at a worker to when a job it held could be claimed again; what else was struck at `meanwhile`, or up to
    a lease before, when Redis may just have come back."""

    seconds: float
    job_id: str
    meanwhile: tuple[str, ...]

    @property
    def outage(self) -> bool:
        """Then it may take longer: nobody is given up for a lease after Redis was away."""
        return any(strike in ("kill Redis", "stop Redis", "drop all clients") for strike in self.meanwhile)


def recovery(found: Findings) -> list[Recovery]:
    """Shortest first."""
    kills = {strike.pid: strike.at for strike in found.strikes if strike.what in ("kill horse+worker", "kill worker")}
    every = []
    for event in found.history.events:
        pid = event.worker.rpartition(".")[2]
        if event.event == "abandoned" and pid.isdigit() and int(pid) in kills:
            at = kills[int(pid)]
            meanwhile = tuple(strike.what for strike in found.strikes if at - LEASE < strike.at < event.at and strike.at != at)
            every.append(Recovery(max(0.0, event.at - at), event.job_id, meanwhile))
    return sorted(every)


def _late(found: Findings) -> list[str]:
    limit = LEASE + REAP_INTERVAL + _SLACK
    return [f"{each.job_id}: {each.seconds:.1f} s" for each in recovery(found) if not each.outage and each.seconds > limit]


def told(found: Findings, verdict: Verdict) -> Iterator[str]:
    """For people: what is wrong, with the history of the offending jobs."""
    for what, offenders in verdict.wrong:
        yield f"WRONG: {what}: {len(offenders)}"
        for offender in offenders[:_SHOWN]:
            yield f"  {offender}"
            job_id = offender.replace(":", " ").split()[0] if offender.strip() else ""
            life = found.history.jobs.get(job_id)
            for step in life.steps if life else ():
                yield f"      {step}"
