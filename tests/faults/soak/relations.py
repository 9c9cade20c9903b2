"""Of a soak's jobs that are more than themselves: what must have become of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.soak.history import History
from tests.faults.soak.people import Answer
from tests.faults.soak.plan import Job
from tests.faults.soak.sharing import Told

#: What the reason of a job says that failed as another did not finish.
BY_PARENT = "its parent "
_ENDED = ("finished", "failed", "canceled", "stopped")


@dataclass
class Step:
    """A step of a job, as its run told of it."""

    job_id: str
    execution: str
    number: int


@dataclass
class Ties:
    """What there was to judge. `met`: of an acknowledged job the one that its call returned in its place."""

    met: Mapping[str, str] = field(default_factory=dict)
    answers: Sequence[Answer] = ()
    steps: Sequence[Step] = ()
    told: Told = field(default_factory=Told)


def read_acknowledged(path: Path) -> tuple[list[str], dict[str, str]]:
    """Ids that the producer got an answer for; and whom they met."""
    rows = [line.split() for line in path.read_text().splitlines()]
    return [row[0] for row in rows], {row[0]: row[1] for row in rows if len(row) > 1}


def read_steps(path: Path) -> list[Step]:
    if not path.exists():
        return []
    rows = (line.split() for line in path.read_text().splitlines())
    return [Step(job_id, execution, int(number)) for job_id, execution, number in rows]


def wrong_meetings(met: Mapping[str, str], plan: Mapping[str, Job], there: Iterable[str]) -> Iterator[str]:
    """Who was kept out is not there; whom it met was, and had its key."""
    known = set(there)
    for job_id, other in met.items():
        if job_id in known:
            yield f"{job_id}: its call said that {other} has its key, and it is there"
        if other not in known and other not in met:
            yield f"{job_id}: met {other}, which is not there"
        if plan[job_id].options["unique_key"] != plan[other].options.get("unique_key"):
            yield f"{job_id}: met {other}, which has another key"


def wrong_answers(answers: Sequence[Answer], states: Mapping[str, str]) -> Iterator[str]:
    """What a stop or a cancel was told is what the job is in the end."""
    for each in answers:
        state = states.get(each.job_id, "missing")
        if each.wish == "cancel batch":
            continue
        wanted = "stopped" if each.wish == "stop" else "canceled"
        allowed = {wanted, "finished", "failed"} if each.said == "pending" else {each.said}
        if state not in allowed or (each.said not in _ENDED and each.said != "pending"):
            yield f"{each.job_id}: {each.wish} was told {each.said}, and it is {state}"


def wrong_steps(steps: Sequence[Step], plan: Mapping[str, Job], states: Mapping[str, str], history: History) -> Iterator[str]:
    """No step was left out; no run began before the cursor that was stored when it was claimed, and none behind what was done."""
    of_job: dict[str, dict[str, list[int]]] = defaultdict(dict)
    for step in steps:
        of_job[step.job_id].setdefault(step.execution, []).append(step.number)
    for job_id, runs in of_job.items():
        done = -1
        for execution, numbers in runs.items():
            first, cursor = numbers[0], history.cursor_at.get(execution, 0)
            if first != cursor:
                yield f"{job_id}: {execution} began with step {first}, the cursor was {cursor}"
            if first > done + 1:
                yield f"{job_id}: {execution} began with step {first}, {done} was the last that was done"
            if numbers != list(range(first, first + len(numbers))):
                yield f"{job_id}: {execution} left out steps: {numbers}"
            done = max(done, *numbers)
        if states.get(job_id) == "finished" and done + 1 != plan[job_id].args[0]:
            yield f"{job_id}: finished with {done + 1} of {plan[job_id].args[0]} steps done"


def wrong_kin(kin: Iterable[Job], states: Mapping[str, str], reasons: Mapping[str, str], ran: Container[str]) -> Iterator[str]:
    """Who failed for a parent's sake names one that it needed and that did not finish; a child of it did not run."""
    for spec in kin:
        state, reason = states.get(spec.id, "missing"), reasons.get(spec.id, "")
        broken = {
            parent: states.get(parent)
            for parent, policy in spec.parents
            if policy != "ignore" and states.get(parent) != "finished"
        }
        if state == "failed" and reason.startswith(BY_PARENT):
            if reason not in {f"{BY_PARENT}{parent} was {how}" for parent, how in broken.items()}:
                yield f"{spec.id}: {reason}; those that did not finish are {broken}"
        elif broken and state not in spec.may_end:
            yield f"{spec.id}: {state}, and its parents are {broken}"
        if broken and spec.id in ran:
            yield f"{spec.id}: ran, and its parents are {broken}"


def wrong_batches(plan: Iterable[Job], states: Mapping[str, str], canceled: Container[str] = ()) -> Iterator[str]:
    """What was to follow a batch has followed: any end, and the success of all; that not if a person has `canceled` it, even
    though all of its members ran by then, and finish."""
    members: dict[str, list[str]] = defaultdict(list)
    calls = {}
    for spec in plan:
        if spec.batch_as:
            calls[spec.batch, spec.batch_as] = spec.id
        elif spec.batch:
            members[spec.batch.removesuffix("-in")].append(states.get(spec.id, "never sent"))
    for (batch, when), job_id in calls.items():
        ends = set(members[batch]) - {"never sent"}
        state = states.get(job_id, "missing")
        if when == "complete" and state in ("canceled", "missing"):
            yield f"{job_id}: {state}, and is to follow each end of {batch}"
        if "never sent" in members[batch] or (batch in canceled and state == "canceled"):
            continue
        if when == "success" and (state == "canceled") != (ends != {"finished"}):
            yield f"{job_id}: {state}, and the members of {batch} are {ends}"
