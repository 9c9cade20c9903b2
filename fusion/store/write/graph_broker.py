"""Jobs that wait for others: releasing them, and graphs of jobs that are sent in several calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fusion.exceptions import DependencyCycle, GraphDropped, UnknownDependency
from fusion.store.client.replication import Replication
from fusion.store.layout import codec, schema
from fusion.store.layout.records import NewJob, Replicas, Room
from fusion.store.scripting.host import ScriptHost, to_texts
from fusion.store.write import enqueue_codec


class GraphBroker(ScriptHost):
    """The part of the Broker for parents and children."""

    def release(self, limit: int = 25) -> tuple[int, float | None]:
        """Update jobs whose related jobs have changed, up to `limit` of them. Returns how many changed, and the seconds until there is more
        to do: 0 for now, None if nothing is left."""
        done, next_ms = self._script("release")({"releasing": self.keys.releasing}, {"limit": limit})
        return int(done), None if next_ms < 0 else next_ms / 1000

    def enqueue_part(self, queue: str, jobs: Sequence[NewJob], token: str, nth: int, room: Room | None = None) -> str:
        """Accept the `nth` part of a graph, counted from 0: all its jobs are deferred until `release_graph`. `room`: for those jobs of the
        graph that are to enter this queue then. GraphDropped, and the errors of `enqueue`."""
        words = part_words(queue, jobs, token, nth, room)
        return enqueue_codec.accepted(self._script("enqueue")({"queues": self.keys.queues}, *words), queue)

    def add_parents(self, job_id: str, token: str, nth: int, parents: Sequence[str]) -> None:
        """Make a job of a graph wait for more jobs, the `nth` hundred of these, counted from 1. GraphDropped, UnknownDependency."""
        refuse(self._script("add_parents")({}, *parents_words(job_id, token, nth, parents)))

    def release_graph(self, token: str, queue: str, first: NewJob, replicas: Replicas | None = None) -> None:
        """Start all jobs of a graph, after the last part was accepted. `first`: one of the jobs. GraphDropped. With `replicas`, NotReplicated
        if too few have all of it in time."""
        words = release_words(token, queue, first)
        replication = None if replicas is None else Replication([first], replicas, self.connection)
        while True:
            refuse(self._script("release_graph")({}, words, send=None if replication is None else replication.send))
            if replication is None or replication.done():
                return

    def drop_graph(self, token: str) -> None:
        """Drop a graph: its jobs are deleted."""
        self._script("drop_graph")({}, {"token": token})


# -- said and heard alike by those who wait and those who await


def part_words(queue: str, jobs: Sequence[NewJob], token: str, nth: int, room: Room | None) -> tuple[dict[str, Any], list[Any]]:
    """Return the arguments of `enqueue_part`."""
    return enqueue_codec.arguments(queue, jobs, "", schema.VERSION, room, f"#{nth}.{token}")


def parents_words(job_id: str, token: str, nth: int, parents: Sequence[str]) -> tuple[dict[str, Any], list[Any]]:
    """Return the arguments of `add_parents`."""
    return {"id": job_id, "token": token, "nth": nth, "n_parents": len(parents)}, list(parents)


def release_words(token: str, queue: str, first: NewJob) -> dict[str, Any]:
    """Return the arguments of `release_graph`."""
    return {"token": token, "queue": queue, "first": first.id, "nonce": first.nonce}


def refuse(answer: Any) -> None:
    """Raise the error in a reply to `add_parents` or `release_graph`; nothing for success."""
    if isinstance(answer, list):
        kind, *words = to_texts(answer)
        raise DependencyCycle.of(*words) if kind == "cycle" else UnknownDependency(*words)
    if codec.text(answer) != "ok":
        raise GraphDropped("it was given up")
