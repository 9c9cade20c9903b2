"""Jobs of one call that wait for each other: sorts each behind its parents, and splits them into parts that a server takes in one call."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fusion.enqueue.build import JobData
from fusion.exceptions import (
    BatchClosed,
    DependencyCycle,
    DuplicateJob,
    GraphDropped,
    NoSuchBatchError,
    QueueFull,
    UnknownDependency,
)
from fusion.store.layout.records import Met, NewJob, Replicas, Room
from fusion.store.scripting.host import Pause, Steps
from fusion.store.write.queue_calls import QueueCalls, in_graph, met_in

#: Jobs and parents of one call: takes a server about two milliseconds.
_JOBS, _PARENTS = 30, 60
#: Parents of a job that are sent with it, and in each further call.
MOST_PARENTS = 100
#: How often a graph is sent, and about how many seconds pass between two tries.
_TRIES, _PAUSE = 20, 0.25


def _token() -> str:
    return str(secrets.randbelow(10**18) + 10**18)


def parents_of(new: NewJob) -> list[str]:
    """Return the members of its list of parents."""
    found: list[str] = json.loads(new.fields.get("parents") or "[]")
    return found


def is_graph(datas: Sequence[JobData]) -> bool:
    """Return True if one of them waits for others."""
    return any("parents" in data.new.fields for data in datas)


def in_order(datas: Sequence[JobData]) -> list[JobData]:
    """Return the jobs in their order, but each behind those that it waits for. DependencyCycle."""
    at = {data.new.id: nth for nth, data in enumerate(datas)}
    children: dict[str, list[int]] = {}
    left = [0] * len(datas)
    for nth, data in enumerate(datas):
        for member in parents_of(data.new):
            if (parent := member.lstrip("?~")) in at:
                children.setdefault(parent, []).append(nth)
                left[nth] += 1
    if all(at[parent] < child for parent, found in children.items() for child in found):
        return list(datas)
    ready = [nth for nth, count in enumerate(left) if not count]
    order: list[int] = []
    for nth in ready:
        order.append(nth)
        for child in children.get(datas[nth].new.id, ()):
            left[child] -= 1
            if not left[child]:
                ready.append(child)
    if len(order) < len(datas):
        waiting = sorted(data.new.id for nth, data in enumerate(datas) if left[nth])
        raise DependencyCycle(f"{len(waiting)} jobs wait for each other, or for such: {', '.join(waiting[:5])}")
    return [datas[nth] for nth in order]


@dataclass(frozen=True, slots=True)
class Graph:
    """Jobs that are sent in several calls, and accepted all or none. `more`: by job the parents that are sent after it, a hundred at a time.
    `queues`: by job its queue, unless all go to the queue of the call. `most`: how many jobs may wait in a queue, as the call says."""

    token: str
    jobs: list[NewJob]
    more: dict[str, list[list[str]]]
    queues: Mapping[str, str] = field(default_factory=dict)
    most: int | None = None

    @classmethod
    def of(cls, jobs: Sequence[NewJob], queues: Mapping[str, str] | None = None, most: int | None = None) -> Graph:
        """Make a graph of jobs, in their order."""
        made, more = [], {}
        for job in jobs:
            parents = parents_of(job)
            fields = {**job.fields, "ties": "".join(sorted({*str(job.fields.get("ties", "")), "p"}))}
            if len(parents) > MOST_PARENTS:
                fields["parents"] = json.dumps(parents[:MOST_PARENTS], separators=(",", ":"))
                starts = range(MOST_PARENTS, len(parents), MOST_PARENTS)
                more[job.id] = [parents[start : start + MOST_PARENTS] for start in starts]
            made.append(replace(job, fields=fields))
        return cls(_token(), made, more, queues or {}, most)

    @staticmethod
    def is_needed(jobs: Sequence[NewJob]) -> bool:
        """Return True if the jobs don't fit into one call."""
        edges = [len(parents_of(job)) for job in jobs if "parents" in job.fields]
        return bool(edges) and (len(jobs) > _JOBS or sum(edges) > _PARENTS or max(edges) > MOST_PARENTS)

    @property
    def parts(self) -> Iterator[list[NewJob]]:
        """Yield the jobs of each call."""
        part: list[NewJob] = []
        edges = 0
        for job in self.jobs:
            count = len(parents_of(job))
            apart = part and self.queues.get(job.id) != self.queues.get(part[0].id)
            if part and (apart or len(part) == _JOBS or edges + count > _PARENTS or part[-1].id in self.more):
                yield part
                part, edges = [], 0
            part.append(job)
            edges += count
        yield part

    def room(self, queue: str) -> Room | None:
        """Return the room that it requires in one of its `queues` ("": the queue of the call): for jobs that wait neither for others nor for
        a time."""
        own = [job for job in self.jobs if self.queues.get(job.id, "") == queue]
        first = sum(not job.fields.get("parents") and job.due is None and not job.delay for job in own)
        return Room(self.most, first) if first else None


_HANDLED = (GraphDropped, DuplicateJob, QueueFull, UnknownDependency, DependencyCycle, BatchClosed, NoSuchBatchError)


def write(graph: Graph, queue: str, calls: QueueCalls, replicas: Replicas | None = None) -> Steps[str]:
    """Accept a graph; returns the server's time, with facts about some of the jobs. If it is refused, or was dropped meanwhile, none of it
    is left. Raises DuplicateJob, UnknownDependency, QueueFull, and what the calls do; GraphDropped if it was dropped several times;
    NotReplicated if too few `replicas` have it in time."""
    for left in reversed(range(_TRIES)):
        try:
            return (yield from _parts(graph, queue, calls, replicas))
        except _HANDLED as error:
            yield calls.drop_call(graph.token)  # delete what is left of it: until then it can't be sent again
            if not (left and _may_come_anew(error)):
                raise
            graph = replace(graph, token=_token())
            yield Pause(_PAUSE * (0.5 + secrets.randbelow(1000) / 1000))  # two graphs that collide separate
    raise AssertionError("unreachable")


def _may_come_anew(error: Exception) -> bool:
    return isinstance(error, GraphDropped) or (isinstance(error, DuplicateJob) and error.status == "coming")


def _parts(graph: Graph, queue: str, calls: QueueCalls, replicas: Replicas | None) -> Steps[str]:
    at, met, asked = "", dict[str, Met](), set[str]()
    instead = dict[str, str]()  # by the id of a skipped job: the job that has its unique key
    first: NewJob | None = None
    nth = 0
    for part in graph.parts:
        name = graph.queues.get(part[0].id, "")
        room = None if name in asked else graph.room(name)  # the first part for a queue reserves room for all
        asked.add(name)
        part = [_renamed(job, instead) for job in part]
        at = yield calls.part_call(name or queue, part, graph.token, nth, room)
        met |= (found := met_in(at))
        instead |= {job_id: other.other for job_id, other in found.items() if other.skipped}
        came = [job for job in part if job.id not in instead]
        first = first or next(iter(came), None)
        nth += first is not None  # the graph begins with the first part of which a job was accepted
        for job in came:
            for further, parents in enumerate(_further(graph, job, instead), 1):
                yield calls.parents_call(job.id, graph.token, further, parents)
    if first is not None:
        yield from calls.release_steps(graph.token, queue, first, replicas)
    return in_graph(at, met, (job.id for job in graph.jobs if "parents" in job.fields))


def _renamed(job: NewJob, instead: Mapping[str, str]) -> NewJob:
    """Return the job with its parents renamed: a skipped parent is replaced by the job that has its unique key."""
    members = parents_of(job) if instead else []
    if all(member.lstrip("?~") not in instead for member in members):
        return job
    named: dict[str, str] = {}
    for member in members:
        sign, parent = _split(member, instead)
        named[parent] = sign  # if one is named twice, the last policy holds
    listed = json.dumps([sign + parent for parent, sign in named.items()], separators=(",", ":"))
    return replace(job, fields={**job.fields, "parents": listed})


def _further(graph: Graph, job: NewJob, instead: Mapping[str, str]) -> Iterator[list[str]]:
    """Yield the parents of a job with many, for the calls after it; each parent is named once."""
    lists = graph.more.get(job.id, ())
    if not instead:
        yield from lists
        return
    named = {_split(member, instead)[1] for member in parents_of(job)}
    for members in lists:
        left = []
        for member in members:
            sign, parent = _split(member, instead)
            if parent not in named:
                named.add(parent)
                left.append(sign + parent)
        if left:
            yield left


def _split(member: str, instead: Mapping[str, str]) -> tuple[str, str]:
    parent = member.lstrip("?~")
    return member[: len(member) - len(parent)], instead.get(parent, parent)
