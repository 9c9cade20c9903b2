"""Of a soak's jobs that hand something on, share a call, hear that they were stopped, or wait for the tick before: what must hold of them."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tests.faults.soak.plan import Job
from tests.faults.soak.tasks import TOGETHER

#: The cron entry of which one tick waits for the one before it.
BEHIND = "behind"
#: What the error of a run begins with whose task ended as it was stopped.
_ENDED_ITSELF = "fusion.exceptions.JobStopped"
_ENDED = ("", "finished", "failed", "canceled", "stopped")


class Life(Protocol):
    """What is read of a job's history."""

    @property
    def status(self) -> str: ...
    @property
    def holder(self) -> str: ...
    @property
    def error(self) -> str: ...


@dataclass(frozen=True)
class Gift:
    """What a step of a chain said that it was given."""

    job_id: str
    execution: str
    given: str


@dataclass(frozen=True)
class Told:
    """What tasks told beside the witness file. `hearings`: jobs and executions whose `on_stopped` was called; `calls`: of each call for several jobs
    the executions."""

    gifts: Sequence[Gift] = ()
    hearings: Sequence[tuple[str, str]] = ()
    calls: Sequence[tuple[str, ...]] = ()


def told_beside(witness: Path) -> Told:
    """All that was told there."""
    rows = {name: _rows(witness.with_name(f"{witness.name}.{name}")) for name in ("given", "stopped", "calls")}
    return Told(
        [Gift(job_id, execution, given) for job_id, execution, given in rows["given"]],
        [(job_id, execution) for job_id, execution in rows["stopped"]],
        [tuple(row) for row in rows["calls"]],
    )


def _rows(path: Path) -> list[list[str]]:
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def wrong_gifts(gifts: Sequence[Gift], plan: Mapping[str, Job], lives: Mapping[str, Life]) -> Iterator[str]:
    """A step is given what the one before it returned, and that returned its execution: the one that was taken for its end."""
    for each in gifts:
        ((parent, _),) = plan[each.job_id].parents
        life = lives.get(parent)
        if life is None or life.status != "finished" or each.given != life.holder:
            yield f"{each.job_id}: {each.execution} was given {each.given}; {parent} is {life and (life.status, life.holder)}"


def wrong_hearings(
    hearings: Sequence[tuple[str, str]], plan: Mapping[str, Job], lives: Mapping[str, Life], ran: Container[str]
) -> Iterator[str]:
    """`on_stopped` is called once, for a job that a person wanted stopped and that is; and for each job that ended by itself at its stop."""
    heard: dict[str, str] = {}
    for job_id, execution in hearings:
        spec, life = plan[job_id], lives.get(job_id)
        if job_id in heard:
            yield f"{job_id}: heard of the stop of {heard[job_id]} and of that of {execution}"
        if spec.wish != "stop" or "on_stopped" not in spec.options or life is None or life.status != "stopped":
            yield f"{job_id}: heard of the stop of {execution}, and is {life and life.status}, wanted {spec.wish or 'no stop'}"
        heard[job_id] = execution
    for job_id, spec in plan.items():
        if "on_stopped" not in spec.options or job_id in heard or job_id not in ran or job_id not in lives:
            continue
        life = lives[job_id]
        if life.status == "stopped" and life.error.startswith(_ENDED_ITSELF):
            yield f"{job_id}: {life.holder} ended as it was stopped, and nobody heard of it"


def wrong_calls(
    calls: Sequence[Sequence[str]], jobs_of: Mapping[str, str], plan: Mapping[str, Job], alone: Container[str]
) -> Iterator[str]:
    """Who shares a call is of one task, queue and priority, and no more are in it than it takes; a suspect is alone."""
    for call in calls:
        ids = [jobs_of[execution] for execution in call if execution in jobs_of]
        if len(call) > TOGETHER:
            yield f"{ids[0]}: {len(call)} jobs shared a call that takes {TOGETHER}"
        if len({(spec.function, spec.queue, spec.options.get("priority")) for spec in map(plan.__getitem__, ids)}) > 1:
            yield f"{ids[0]}: {ids} shared a call, and are not alike"
        if len(call) > 1:
            yield from (
                f"{jobs_of.get(each, each)}: {each} was to run alone, and shared a call" for each in call if each in alone
            )


@dataclass
class Behind:
    """Follows the ticks of the entry `BEHIND`, transaction by transaction. `counts`: of those that there were, and of those that waited."""

    _live: set[str] = field(default_factory=set)
    _seen: set[str] = field(default_factory=set)
    _waited: set[str] = field(default_factory=set)
    _touched: bool = False

    def note(self, job_id: str) -> None:
        """The status of a job was written."""
        if job_id.startswith(f"cron-{BEHIND}-"):
            self._live.add(job_id)
            self._seen.add(job_id)
            self._touched = True

    def settle(self, states: Mapping[str, str]) -> list[str]:
        """A transaction is over: what is wrong with the ticks."""
        if not self._touched:
            return []
        self._touched = False
        self._live = {job_id for job_id in self._live if states[job_id] not in _ENDED}
        waiting = sorted(job_id for job_id in self._live if states[job_id] == "deferred")
        self._waited.update(waiting)
        going = sorted(self._live - set(waiting))
        wrong = [f"{going[0]}: {going} are under way at the same time"] if len(going) > 1 else []
        return wrong + ([f"{waiting[0]}: {waiting} wait for others at the same time"] if len(waiting) > 1 else [])

    @property
    def counts(self) -> tuple[int, int]:
        return len(self._seen), len(self._waited)
