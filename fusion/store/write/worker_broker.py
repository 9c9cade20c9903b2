"""The part of the Broker for workers: their registration, their turns, and the statistics of the jobs that they ran."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

from fusion.store.layout import codec
from fusion.store.layout.history import MOST_NAMES
from fusion.store.layout.records import Claimed, Turn, TurnRequest
from fusion.store.layout.slots import tag_of
from fusion.store.scripting.host import ScriptCall, ScriptHost, to_ms, to_texts
from fusion.store.scripting.script_line import ScriptLine
from fusion.store.write import turn_codec

#: Leases that one call renews.
_LEASES = 500
#: A prepared turn.
TurnCall = ScriptCall[Turn]
#: For each queue ("queue", name) and function ("function", name): minutes ago, field, count; or, in place of the count, the most of
#: `history.SLOWEST` or `PEAK`. For ("keyless", function) one row (0, "", count).
Series = Mapping[tuple[str, str], Sequence[tuple[int, str, int]]]


class WorkerBroker(ScriptHost):
    """Writes workers and what they do with jobs."""

    def register(self, name: str, incarnation: str, lease: float, worker_ttl: float, fields: dict[str, Any]) -> bool:
        """Register a worker. False if a live other, or a dead one that still holds jobs, has the name."""
        pairs = codec.to_pairs(fields)
        args = {
            "name": name,
            "incarnation": incarnation,
            "lease_ms": to_ms(lease),
            "worker_ttl": int(worker_ttl),
            "secret": secrets.token_hex(32),
            "n_pairs": len(pairs),
        }
        return bool(self._script("register")(self._worker(name), args, pairs) == b"ok")

    def deregister(self, name: str, incarnation: str) -> int:
        """Unregister a worker; returns how many jobs it still held and gave back. One round trip for each portion of them."""
        back, again = 0, 1
        while again:
            more, again = self._script("deregister")(self._worker(name), {"name": name, "incarnation": incarnation})
            back += int(more)
        return back

    def _worker(self, name: str) -> dict[str, str]:
        return {"worker": self.keys.worker(name), "workers": self.keys.workers}

    def turn_line(self) -> ScriptLine[Turn]:
        """Make a line on which turns are sent now and their replies read later."""
        return ScriptLine(self.connection)

    def turn(self, request: TurnRequest) -> Turn:
        """Make a turn at once, as `turn_call` describes it."""
        return self.turn_call(request)()

    def turn_call(self, request: TurnRequest) -> TurnCall:
        """Commit outcomes, then claim a job for each free slot. After a lost reply, call again with the same `token`; use a new one only
        after a reply."""
        args, rest = turn_codec.arguments(request)
        keys = {"worker": self.keys.worker(request.name)}
        self._script("turn")  # it asks the server for its version, if that is not known: before anything is sent
        return ScriptCall(self, "turn", keys, args, rest, partial(turn_codec.turn, len(request.commits)))

    def follow(
        self, name: str, incarnation: str, token: int, lease: float, leader: Claimed, most: int
    ) -> tuple[list[Claimed], bool]:
        """Claim up to `most` jobs that are next in the leader's queue, as long as they may share its call. Returns them, and whether the job
        that comes next may share it, too. A call with the same `token` is a resend."""
        fields = leader.fields
        args = {
            "name": name,
            "incarnation": incarnation,
            "token": token,
            "lease_ms": to_ms(lease),
            "queue": leader.queue,
            "class": fields.get(b"priority", b"1"),
            "execution": leader.execution_id,
            "n": most,
            "id": leader.id,
            "func": fields[b"func"],
            "gather": fields[b"gather"],
            "serializer": fields.get(b"serializer", b""),
        }
        _, more, *words = self._script("follow")({"worker": self.keys.worker(name), "suspended": self.keys.suspended}, args)
        return turn_codec.claims(words), bool(more)

    def hold_probation(self, host: str, incarnation: str, ttl: float, sets: Sequence[str], *, keep: bool = False) -> bool:
        """Request the right to run the jobs on probation of this worker's host for `ttl` seconds; True if this worker has it. It is granted
        if such a job waits in these sets, and kept if the worker says `keep`."""
        args = {"incarnation": incarnation, "ttl_ms": to_ms(ttl), "keep": int(keep), "n_sets": len(sets)}
        return bool(self._script("hold_probation")({"probation": self.keys.probation(host)}, args, sets))

    def extend(
        self, name: str, incarnation: str, held: Sequence[tuple[str, str]], lease: float, worker_ttl: float, state: str
    ) -> tuple[bool, list[str]]:
        """Renew the leases of (job id, execution id) pairs and this worker's registration.

        Returns whether the worker is still registered, and for each job `ok`, `canceled` or `stopped` (it was requested) or `lost`.
        """
        args = {
            "incarnation": incarnation,
            "lease_ms": to_ms(lease),
            "worker_ttl": int(worker_ttl),
            "state": state,
        }
        registered, answers = "", list[str]()
        for first in range(0, max(1, len(held)), _LEASES):
            part = held[first : first + _LEASES]
            rest = [*chain.from_iterable(part)]
            told = self._script("extend")({"worker": self.keys.worker(name)}, {**args, "n_jobs": len(part)}, rest)
            registered, *more = to_texts(told)
            answers += more
        return registered == "ok", answers

    def command(self, worker: str, payload: str) -> int:
        """Send a command to a worker; returns the number of workers that received it."""
        channel = self.keys.pubsub(worker)
        if tag_of(self.keys.prefix) and self._server_version() >= (7,):
            return int(self.connection.spublish(channel, payload))
        return int(self.connection.publish(channel, payload))

    # -- statistics, which are not part of a job's state

    def note_history(self, worker: str, number: int, series: Series) -> None:
        """Add a worker's counts and maxima for queues and functions. `number`: the number of the call, from 1 on while the worker is registered; a
        resend adds nothing."""
        args = {"number": number, "most": MOST_NAMES, "n_series": len(series)}
        rest: list[object] = []
        for name, rows in series.items():
            rest += (*name, len(rows))
            for row in rows:
                rest += row
        keys = {
            "worker": self.keys.worker(worker),
            "queues": self.keys.history_names("queue"),
            "functions": self.keys.history_names("function"),
            "keyless": self.keys.history("keyless"),
        }
        self._script("note_history")(keys, args, rest)

    def sample(self, interval: float, limit: int = 50) -> bool:
        """Record for up to `limit` queues how many jobs wait, and how long the oldest has waited; True if there are more queues. A pass
        begins when the last one began `interval` seconds ago."""
        keys = {"queues": self.keys.queues, "sample": self.keys.sample, "names": self.keys.history_names("queue")}
        args = {"interval_ms": to_ms(interval), "limit": limit, "most": MOST_NAMES, "duties": self.duties}
        return bool(self._script("sample")(keys, args))
