"""Where the jobs of a query may be: the sets that hold them, in display order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fusion.kernel.states import ENDED
from fusion.store.layout.keys import Keys
from fusion.store.layout.names import LIST_QUEUES
from fusion.store.query.fields import WITHIN
from fusion.store.query.grammar import Query

#: States that have one set for all queues.
SHARED = frozenset({"failed", "scheduled"})
#: States shown by descending score: the last to end, or the next to run, comes first.
_GREATEST_FIRST = frozenset({*ENDED, "queued"})
#: Stages that don't belong to one state: single ids; the members of a batch.
DIRECT, BATCH = "direct", "batch"


@dataclass(frozen=True, slots=True)
class KeySource:
    """A key whose members may match. `kind`: `zset`, `list`, `hash` (ids are its fields), `string` (it holds the id), `id` (a job's own key).
    `state` and `queue` hold for all jobs in it; each is empty if they differ."""

    key: str
    kind: str
    state: str = ""
    queue: str = ""


@dataclass(frozen=True, slots=True)
class Stage:
    """Sources whose members are shown together: those of one state, or `direct`, or `batch`. `descending`: the greatest score first. `exact`:
    all sound members of these sources match, so no job needs to be examined."""

    name: str
    sources: tuple[KeySource, ...]
    descending: bool = False
    exact: bool = False

    @property
    def state(self) -> str:
        """The state that a job of this stage must have; empty for any."""
        return "" if self.name in (DIRECT, BATCH) else self.name


@dataclass(frozen=True, slots=True)
class Known:
    """Facts about the data: all `queues`, those whose jobs wait in a key of their own (`fifos`), and the sets of blocked jobs
    (`waits`)."""

    queues: tuple[str, ...] = ()
    fifos: frozenset[str] = LIST_QUEUES
    waits: tuple[str, ...] = ()


def sources(query: Query, keys: Keys, known: Known) -> list[KeySource]:
    """Return all keys in which a matching job may be, each once."""
    found = (source for stage in stages(query, keys, known) for source in stage.sources)
    return list(dict.fromkeys(found))


def stages(query: Query, keys: Keys, known: Known) -> list[Stage]:
    """Return the sources by stages, in display order. If an index covers the query, only the index is used."""
    if ids := query.values("id"):
        return [Stage(DIRECT, tuple(KeySource(keys.job(job_id), "id") for job_id in ids), exact=True)]
    if batches := query.values("batch"):
        members = tuple(KeySource(keys.batch_members(batch), "zset") for batch in batches)
        return [Stage(BATCH, members, exact=_only(query, "batch"))]
    found = []
    if owners := query.values("unique"):  # the job that holds it now is found in whatever state it is
        found.append(Stage(DIRECT, tuple(KeySource(keys.unique(name), "string") for name in owners)))
    names = {*known.queues, *query.values("queue"), *query.values(WITHIN)}
    queues = sorted(name for name in names if query.may_be_in(name))
    for state in query.implied:
        stage = _stage(state, query, keys, known, queues)
        if stage.sources:
            found.append(stage)
    return found


def _only(query: Query, *fields: str) -> bool:
    """Return True if the query has no conditions on other fields."""
    return all(term.field in fields for term in query.terms)


def _stage(state: str, query: Query, keys: Keys, known: Known, queues: list[str]) -> Stage:
    groups, limits = query.values("group"), query.values("key")
    if state == "failed" and groups:
        found: Iterable[KeySource] = (KeySource(keys.failure_jobs(group), "zset", state) for group in groups)
        exact = _only(query, "group", "state")
    elif state in SHARED:
        found = (KeySource(keys.failed if state == "failed" else keys.scheduled, "zset", state),)
        exact = _only(query, "state")
    elif state == "started" and query.values("worker"):
        found, exact = (KeySource(keys.worker_jobs(name), "hash", state) for name in query.values("worker")), False
    elif state in ("started", "queued") and limits:
        found, exact = (KeySource(keys.limit_held(name), "zset") for name in limits), False  # runs that lock it are among them
    elif state == "blocked" and (limits or query.asks_held):
        sets = (name for name in known.waits if limits or name.startswith("held:"))
        waits = [KeySource(keys.waiting(name), "zset", state, name.split(":")[1]) for name in sets]
        found = [
            *(KeySource(keys.limit_waiting(name), "zset", state) for name in limits),
            *(one for one in waits if one.queue in queues),
        ]
        return Stage(state, tuple(found), descending=True, exact=False)
    else:
        found, exact = _of_queues(state, keys, known, queues), _only(query, "state", "queue", WITHIN)
    return Stage(state, tuple(found), state in _GREATEST_FIRST, exact)


def _of_queues(state: str, keys: Keys, known: Known, queues: list[str]) -> Iterator[KeySource]:
    for queue in queues:
        if state != "queued":
            yield KeySource(keys.set_of(state, queue), "zset", state, queue)
        else:
            yield KeySource(keys.fifo(queue) if queue in known.fifos else keys.queue(queue), "zset", state, queue)
    if state == "queued":
        yield from (KeySource(keys.queue(queue), "list", state, queue) for queue in queues if queue in LIST_QUEUES)
