"""Calls to Redis of queues of both kinds, and the bytes of an enqueue: calls that are encoded here and made by others.

The functions encode the arguments of an enqueue and read its reply. `QueueCalls` makes calls of them, and of the other scripts that a Queue
and an AsyncQueue need: a `..._call` is one call, `..._steps` are several.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from itertools import chain
from math import inf
from time import monotonic
from typing import Any, Self

from fusion.exceptions import (
    DependencyCycle,
    DuplicateJob,
    GraphDropped,
    QueueFull,
    UnknownDependency,
    batch_refusal,
)
from fusion.kernel.timeutil import EPOCH, from_iso
from fusion.store.client.adapter import client_of
from fusion.store.client.replication import Replication
from fusion.store.client.wire import is_ours, pack
from fusion.store.layout import codec, schema
from fusion.store.layout.compact import compact, expand
from fusion.store.layout.gates import gate_words, read_gate
from fusion.store.layout.pauses import QueuePause, pause_words, read_pause
from fusion.store.layout.records import Met, NewJob, Replicas, Room
from fusion.store.scripting.host import PipelineCall, ScriptCall, ScriptHost, Steps, to_ms, to_texts
from fusion.store.scripting.minutes import minute
from fusion.store.scripting.pipelined import PipelinedCall
from fusion.store.scripting.scripts import Script

#: Share of the server's memory in use above which deleted jobs are not kept.
_FULL = 0.8
#: An encoded enqueue, with time between its sending and its reply.
EnqueueAhead = PipelinedCall[str]


class QueueCalls(ScriptHost):
    """The calls of a Queue or an AsyncQueue. Nothing here sends anything."""

    # -- jobs that come in

    def enqueue_steps(
        self,
        queue: str,
        jobs: Sequence[NewJob],
        nonce: str = "",
        replicas: Replicas | None = None,
        room: Room | None = None,
    ) -> Steps[str]:
        """Accept all of `jobs` or none; returns the server's time of enqueueing. Raises DuplicateJob if a live job has one of the ids, and
        QueueFull. `nonce`, if given, replaces the jobs' own. With `replicas`, NotReplicated if too few have acknowledged in time."""
        replication = None if replicas is None else Replication(jobs, replicas, self.connection)
        args, rest = arguments(queue, jobs, nonce, room)
        while True:
            reply = yield ScriptCall(self, "enqueue", self._all_queues, args, rest, None, replication)
            at = accepted(reply, queue)
            if replication is None or replication.done():
                return at

    def enqueue_ahead(
        self, queue: str, jobs: Sequence[NewJob], replicas: Replicas | None = None, room: Room | None = None
    ) -> EnqueueAhead:
        """Encode an enqueue that leaves time between its sending and its reply."""
        ordinary, client = partial(self.enqueue_steps, queue, jobs, "", replicas, room), client_of(self.connection)
        if replicas is not None or not is_ours(client):
            return PipelinedCall(ordinary)
        script = self._script("enqueue")
        command = script.command(self._all_queues, *arguments(queue, jobs, "", room))
        packed = pack(("EVALSHA", script.sha, *command))
        return PipelinedCall(ordinary, partial(accepted, queue=queue), client, packed)

    def enqueue_script(self, args: Mapping[str, Any]) -> tuple[Script, tuple[Any, ...]]:
        """Return the script of an enqueue, and the words behind its name in a call, up to those of the jobs."""
        script = self._script("enqueue")
        return script, script.command(self._all_queues, args)

    # -- graphs of jobs, which come in several calls

    def part_call(self, queue: str, jobs: Sequence[NewJob], token: str, nth: int, room: Room | None = None) -> ScriptCall[str]:
        """Accept the `nth` part of a graph, counted from 0: all its jobs are deferred until its release. `room`: for those jobs of the graph
        that are to enter this queue then. GraphDropped, and the errors of an enqueue."""
        args, rest = arguments(queue, jobs, "", room, f"#{nth}.{token}")
        return ScriptCall(self, "enqueue", self._all_queues, args, rest, partial(accepted, queue=queue))

    def parents_call(self, job_id: str, token: str, nth: int, parents: Sequence[str]) -> ScriptCall[None]:
        """Make a job of a graph wait for more jobs, the `nth` hundred of these, counted from 1. GraphDropped, UnknownDependency."""
        args = {"id": job_id, "token": token, "nth": nth, "n_parents": len(parents)}
        return ScriptCall(self, "add_parents", {}, args, list(parents), _refuse_graph)

    def release_steps(self, token: str, queue: str, first: NewJob, replicas: Replicas | None = None) -> Steps[None]:
        """Start all jobs of a graph, after the last part was accepted. `first`: one of the jobs. GraphDropped. With `replicas`, NotReplicated
        if too few have all of it in time."""
        args = {"token": token, "queue": queue, "first": first.id, "nonce": first.nonce}
        replication = None if replicas is None else Replication([first], replicas, self.connection)
        while True:
            yield ScriptCall(self, "release_graph", {}, args, (), _refuse_graph, replication)
            if replication is None or replication.done():
                return

    def drop_call(self, token: str) -> ScriptCall[None]:
        """Drop a graph: its jobs are deleted."""
        return ScriptCall(self, "drop_graph", {}, {"token": token})

    # -- jobs that are not to run

    def cancel_call(self, job_id: str, dependents: bool = False) -> ScriptCall[str]:
        """Cancel a job. With `dependents` its children do not wait for it any more. Returns `canceled`, `pending` (it is running), `missing`, the
        terminal status it already has, or a status that only a newer version knows."""
        return ScriptCall(
            self,
            "cancel",
            {"job": self.keys.job(job_id)},
            {"id": job_id, "operation": "", "dependents": int(dependents)},
            (),
            codec.text,
        )

    def stop_call(self, job_id: str) -> ScriptCall[str]:
        """Stop a job. Returns `stopped`, `pending` (it is running, and its worker gets a command), or another answer of `cancel`."""
        return ScriptCall(self, "stop", {"job": self.keys.job(job_id)}, {"id": job_id, "operation": ""}, (), codec.text)

    def empty_call(self, queue: str, limit: int, keep: bool) -> ScriptCall[tuple[int, bool, int]]:
        """Delete up to `limit` waiting jobs, or a quarter as many if they are related to others; with `keep` put them into the trash. Returns
        how many, whether there are more, and how many of them the trash had room for."""
        args = {"queue": queue, "limit": limit, "keep": 1 if keep else ""}
        return ScriptCall(self, "empty", {}, args, (), lambda reply: (int(reply[0]), bool(reply[1]), int(reply[2])))

    def empty_steps(self, queue: str, *, purge: bool = False, seconds: float = inf) -> Steps[tuple[int, int, bool]]:
        """Delete all waiting jobs, or as many as it can in `seconds`, for good or into the trash. Returns how many, how many of them are in the
        trash, and whether there are more. One part is deleted however short the time is, so that who calls it again and again comes to an
        end."""
        until = monotonic() + seconds
        keep = not purge and (yield from self.may_keep_steps())
        deleted, kept, again = 0, 0, True
        while again:
            count, again, held = yield self.empty_call(queue, 100 if keep else 300, keep)
            deleted, kept = deleted + count, kept + held
            if monotonic() >= until:
                break
        return deleted, kept, again

    def may_keep_steps(self) -> Steps[bool]:
        """Return True if the server has the memory to keep deleted jobs: at most 80 % of its `maxmemory` is used. True without one."""
        commands = PipelineCall(self.connection)
        commands.pipe.info("memory")
        (found,) = yield commands
        most = int(found.get("maxmemory") or 0)
        return not most or int(found.get("used_memory") or 0) <= most * _FULL

    # -- locks of task code

    def lock_call(self, name: str, job_id: str, execution_id: str, call: str, *, last: bool) -> ScriptCall[str]:
        """Take the lock of a name for a run of a job, or stand in line for it. `call`: the same each time that the caller asks; `last`: then it
        leaves the line. Returns the number of the lock, `waits` and its place in line, or why it can't be had: see lock.lua."""
        args = {"name": name, "id": job_id, "execution": execution_id, "call": call, "last": int(last)}
        return ScriptCall(self, "lock", {}, args, (), codec.text)

    def unlock_call(self, name: str, job_id: str, execution_id: str, call: str) -> ScriptCall[bool]:
        """Give a lock back, or leave the line for it. False if that call of the run had none."""
        return ScriptCall(self, "unlock", {}, {"name": name, "id": job_id, "execution": execution_id, "call": call}, (), bool)

    # -- settings of one queue over the whole fleet, effective from the next claim or enqueue on

    def gate_call(
        self, queue: str, values: Mapping[str, str | int | None], *, of_setting: bool = False
    ) -> ScriptCall[dict[str, str]]:
        """Set these values of a queue, by name. None removes a value, others stay. Returns all that are set now.

        `of_setting`: these are all values that a setting has for the queue. Only values that differ from the last such call are set. A value
        that is no longer given is removed, unless a person has set another since.
        """
        return ScriptCall(self, "set_gate", {}, *gate_words(queue, values, of_setting), read_gate)

    def pause_call(self, queue: str, seconds: float | None = None, *, by: str = "", reason: str = "") -> ScriptCall[Any]:
        """Stop all claims of this queue's jobs from the moment this returns, for `seconds` or until `unpause`. `by`, `reason`: for people,
        `by` in one line."""
        return ScriptCall(self, "pause", {}, *pause_words(queue, seconds, by, reason))

    def unpause_call(self, queue: str) -> ScriptCall[QueuePause | None]:
        """Let workers claim from the queue again; returns the pause that ended, None if it was not paused."""
        return ScriptCall(self, "unpause", {}, {"queue": queue}, (), lambda was: read_pause(*was) if was else None)


def _refuse_graph(reply: Any) -> None:
    """Raise the error in a reply to `add_parents` or `release_graph`; nothing for success."""
    if isinstance(reply, list):
        kind, *words = to_texts(reply)
        raise DependencyCycle.of(*words) if kind == "cycle" else UnknownDependency(*words)
    if codec.text(reply) != "ok":
        raise GraphDropped("it was given up")


# -- the bytes of an enqueue


class AcceptedInPart(str):
    """The server's time of enqueueing, with further facts about some of the jobs."""

    #: `discarded`: ids of jobs canceled at once, as their key had no slot. `met`: by id, jobs whose unique key another job had. `deferred`:
    #: ids of jobs that wait for others.
    __slots__ = ("deferred", "discarded", "met")
    discarded: frozenset[str]
    met: Mapping[str, Met]
    deferred: frozenset[str]

    def __new__(cls, at: str, discarded: Iterable[str], met: Mapping[str, Met], deferred: Iterable[str]) -> Self:
        made = super().__new__(cls, at)
        made.discarded, made.met, made.deferred = frozenset(discarded), met, frozenset(deferred)
        return made


def arguments(
    queue: str, jobs: Sequence[NewJob], nonce: str, room: Room | None = None, graph: str = ""
) -> tuple[dict[str, Any], list[Any]]:
    """Make ARGV of enqueue.lua: the named arguments and the rest. `nonce`, if given, replaces the jobs' own. `graph`:
    `#`, the number of the call, a point, and the graph's token. Numbers are texts, as they are sent."""
    rest: list[Any] = []
    tied = unique = ""
    for job in jobs:
        fields = compact(job.fields)
        if fields is None:
            fields = {name: value for name, value in job.fields.items() if value is not None and name != "func"}
        if "ties" in job.fields:
            tied = "k"
        if "unique_key" in job.fields:
            unique = "u"
        ttl = "" if job.ttl is None else str(to_ms(job.ttl))
        rest += (job.id, nonce or job.nonce, str(job.priority), _place(job), ttl, str(2 * len(fields)))
        rest += chain.from_iterable(fields.items())
    if room is not None:
        rest += ("" if room.length is None else str(room.length), str(room.to_come))
    number, text = minute()
    args = {"queue": queue, "n_jobs": str(len(jobs)), "needs": f"{schema.FIRST}{tied}{unique}{graph}"}
    return {**args, "minute": number, "minute_text": text}, rest


def accepted(answer: Any, queue: str) -> str:
    """Read the server's time of enqueueing from the reply. Returns `AcceptedInPart` if there are further facts. Raises DuplicateJob,
    QueueFull, UnknownDependency, GraphDropped, or the error for a batch that takes no more."""
    if isinstance(answer, bytes):
        return answer.decode()
    if answer[0] != b"ok":
        raise _refusal(answer, queue)
    at: str = answer[1].decode()
    if len(answer) == 2:
        return at
    return AcceptedInPart(at, to_texts(answer[2]), dict(map(_met, answer[3])), to_texts(answer[4]))


def _refusal(answer: Any, queue: str) -> Exception:
    if answer[0] == b"full":
        return QueueFull(queue, *map(int, answer[1:]))
    if answer[0] == b"batch":
        return batch_refusal(codec.text(answer[1]), codec.text(answer[2]))
    if answer[0] == b"dropped":
        return GraphDropped("it was given up")
    if answer[0] == b"missing":
        return UnknownDependency(*to_texts(answer[1:]))
    if answer[0] == b"cycle":
        return DependencyCycle.of(*to_texts(answer[1:]))
    return DuplicateJob(*to_texts(answer[1:]))


def _met(row: Sequence[Any]) -> tuple[str, Met]:
    job_id, other, how = to_texts(row[:3])
    if how == "replaced":
        return job_id, Met(other, False, status=codec.text(row[3]))
    pairs = row[3] if len(row) > 3 else ()  # none of a job of the same call
    return job_id, Met(
        other, True, fields=expand({codec.text(name): value for name, value in zip(pairs[::2], pairs[1::2], strict=True)})
    )


def in_part(at: str) -> AcceptedInPart | None:
    """Return a reply of `enqueue` that has more than the time; None for most."""
    return at if type(at) is AcceptedInPart else None


def met_in(at: str) -> Mapping[str, Met]:
    """Return by id the jobs of such a reply whose unique key another job had."""
    return at.met if isinstance(at, AcceptedInPart) else {}


def in_graph(at: str, met: Mapping[str, Met], deferred: Iterable[str]) -> AcceptedInPart:
    """Return the reply of the last call of a graph, with the facts about all its jobs."""
    return AcceptedInPart(at, (), met, deferred)


def waits(job: NewJob, at: str) -> bool:
    """Return True if a job that was accepted `at` that time waits for its own time: the script decided so, by the same clock."""
    if job.due is None:
        return job.delay is not None and to_ms(job.delay) > 0
    moment = from_iso(at)
    return moment is not None and _due_ms(job.due) > (moment - EPOCH) // timedelta(milliseconds=1)


def _place(job: NewJob) -> str:
    fair_key = job.fields.get("fair_key")
    turn = "" if fair_key is None else f"={fair_key}"
    if job.due is None and job.delay is None:
        return f"front{turn}" if job.front else f"back{turn}"
    front = "f" if job.front else ""
    if job.due is not None:
        return f"@{_due_ms(job.due)}{front}{turn}"
    return f"+{max(0, to_ms(job.delay or 0))}{front}{turn}"


def _due_ms(due: float) -> int:
    return max(0, round(due * 1000))
