"""Jobs of a soak that are more than themselves: with a unique key, in steps, wanted no more, bound to others; drawn from its seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from fusion.retry import Retry
from tests.faults.soak.plan import QUEUES, TASKS, TIMEOUT, Job

#: Ordinary jobs for each group.
EVERY = 4

#: Unique keys, and what all jobs that want one say of it. Seconds.
UNIQUE: dict[str, dict[str, Any]] = {
    "alive": {},
    "alive-and-after": {"unique_window": 0.7},
    "waiting": {"unique_until": "start"},
    "waiting-and-after": {"unique_until": "start", "unique_window": 0.7},
    "accepted": {"unique_until": "accept", "unique_window": 0.7},
    "newest": {"on_duplicate": "replace"},
    "newest-that-waits": {"unique_until": "start", "on_duplicate": "replace"},
    "debounced": {"unique_until": "start", "on_duplicate": "replace", "enqueue_in": 0.6, "max_delay": 2},
}


@dataclass(frozen=True)
class Group:
    """Jobs that are sent by one call each, or by one call all. `batch`: they are members of that, but for those that it calls back; `inner`: of
    one inside it, from the third on."""

    jobs: tuple[Job, ...]
    together: bool = False
    batch: str = ""
    inner: str = ""


def group(seed: int, n: int) -> Group:
    """The n-th group: the same whoever asks."""
    chance = random.Random(f"{seed}:group:{n}")
    return _MIX[chance.choices(range(len(_MIX)), [weight for weight, _ in _MIX])[0]][1](chance, f"g{n:05d}")


def groups(seed: int, jobs: int) -> list[Group]:
    """All of a run with this many ordinary jobs."""
    return [group(seed, n) for n in range(jobs // EVERY)]


def _job(chance: random.Random, job_id: str, kind: str, function: str, *args: Any, **more: Any) -> Job:
    options = {"result_ttl": 86400, "log_tag": f"SOAK_{kind.upper()}", **more.pop("options", {})}
    return Job(job_id, kind, chance.choice(QUEUES), f"{TASKS}.{function}", more.pop("ends", "finished"), args, options, **more)


def _unique(chance: random.Random, name: str) -> Group:
    """A few that want one key."""
    key = chance.choice(list(UNIQUE))
    jobs = []
    for letter in "abc"[: chance.choice((1, 2, 3))]:
        options = {"unique_key": key, **UNIQUE[key]}
        retry: dict[str, Any] = {}
        function, args = "effect", (chance.uniform(0, 0.5),)
        if chance.random() < 0.2:
            options["retry"] = Retry(max=3, interval=[0.1, 0.3])
            function, args, retry = "flaky", (1,), {"failures": 1}
        may_end = ("canceled",) if "on_duplicate" in options else ()
        jobs.append(_job(chance, f"{name}{letter}", "unique", function, *args, options=options, may_end=may_end, **retry))
    return Group(tuple(jobs), together=chance.random() < 0.3)


def _steps(chance: random.Random, name: str) -> Group:
    """Goes on where its last run got to: of that length that some strike will meet it."""
    count = chance.choice((20, 60, 150))
    return Group((_job(chance, name, "steps", "steps", count, 0.02),))


def _wanted_no_more(chance: random.Random, name: str) -> Group:
    """A person wants it to end, at a time when it waits, runs, or has just ended."""
    wish = chance.choice(("stop", "stop", "stop", "cancel"))
    kind = chance.choice(("short", "short", "flaky", "later", "deaf", "steps"))
    running = chance.random() < 0.6
    after = chance.uniform(0, 0.7 if running else 1.0)
    ends = ("stopped" if wish == "stop" else "canceled",)
    more: dict[str, Any] = {"wish": wish, "wish_running": running, "wish_after": after, "may_end": ends}
    if chance.random() < 0.7:
        more["options"] = {"on_stopped": f"{TASKS}.heard"}
    if kind == "flaky":
        more |= {"failures": 2, "options": {**more.get("options", {}), "retry": Retry(max=3, interval=[0.1, 0.5])}}
        return Group((_job(chance, name, "wanted", "flaky", 2, **more),))
    if kind == "later":
        return Group((_job(chance, name, "wanted", "effect", 0.1, later=chance.uniform(0.2, 1.2), **more),))
    if kind == "deaf":
        return Group((_job(chance, name, "wanted", "deaf", chance.uniform(0.2, 2), **more),))
    if kind == "steps":
        return Group((_job(chance, name, "wanted", "steps", 40, 0.02, **more),))
    return Group((_job(chance, name, "wanted", "effect", chance.uniform(0, 1.0), **more),))


def _graph(chance: random.Random, name: str) -> Group:
    """A chain, a diamond or anything without a circle; some of it fails, some is wanted no more."""
    shape, size = chance.choice(("chain", "diamond", "any")), chance.randint(3, 9)
    together = chance.random() < 0.5
    jobs: list[Job] = []
    for n in range(size):
        above = {"chain": range(n - 1, n), "diamond": range(1, n) if n == size - 1 else range(1)}.get(shape)
        if above is None:
            above = range(0, n, chance.randint(1, 4)) if n else range(0)
        parents = tuple((jobs[m].id, chance.choice(("fail", "fail", "ignore"))) for m in above if 0 <= m < n)
        made = _node(chance, f"{name}-{n}")
        jobs.append(replace(made, parents=parents, queue=jobs[0].queue if jobs and together else made.queue))
    return Group(tuple(jobs), together)


def _node(chance: random.Random, name: str) -> Job:
    kind = chance.choices(("effect", "refuse", "flaky", "steps", "wanted"), (75, 8, 5, 4, 8))[0]
    if kind == "refuse":
        return _job(chance, name, "graph", "refuse", ends="failed", failures=1, reason="ValueError")
    if kind == "flaky":
        retry = {"retry": Retry(max=3, interval=[0.1])}
        return _job(chance, name, "graph", "flaky", 1, failures=1, options=retry)
    if kind == "steps":
        return _job(chance, name, "graph", "steps", 20, 0.02)
    if kind == "wanted":
        made = _wanted_no_more(chance, name).jobs[0]
        return replace(made, wish_running=False)  # it may never run
    later = chance.uniform(0.1, 1) if chance.random() < 0.1 else 0.0
    return _job(chance, name, "graph", "effect", chance.uniform(0, 0.3), later=later)


def _batch(chance: random.Random, name: str) -> Group:
    """What follows a batch, follows once; that may be canceled, and have another one in it."""
    canceled, inner = chance.random() < 0.25, f"{name}-in" if chance.random() < 0.3 else ""
    jobs = []
    for n in range(chance.randint(2, 8)):
        made = replace(_node(chance, f"{name}-{n}"), batch=inner if inner and n >= 2 else name)
        jobs.append(replace(made, may_end=(*made.may_end, "canceled")) if canceled else made)
    if canceled:
        jobs[0] = replace(jobs[0], wish="cancel batch", wish_running=False, wish_after=chance.uniform(0, 0.5))
    for when in ("complete", "success"):
        back = _job(chance, f"{name}-{when}", "callback", "effect", 0.01)
        jobs.append(replace(back, batch=name, batch_as=when, may_end=("canceled",) if when == "success" else ()))
    return Group(tuple(jobs), batch=name, inner=inner)


def _chain(chance: random.Random, name: str) -> Group:
    """Each is given what the one before it returned; some fail, or are wanted no more."""
    jobs: list[Job] = []
    for n in range(chance.randint(2, 5)):
        made = _node(chance, f"{name}-{n}")
        if n:
            fate = chance.choices(("", "refuse", "flaky"), (84, 8, 8))[0]
            more: dict[str, Any] = {"takes": True, "parents": ((jobs[-1].id, "fail"),)}
            if fate == "refuse":
                more |= {"ends": "failed", "failures": 1, "reason": "ValueError"}
            elif fate:
                more |= {"failures": 1, "options": {"retry": Retry(max=3, interval=[0.1])}}
            made = _job(chance, made.id, "chain", "link", chance.uniform(0, 0.3), fate, **more)
        jobs.append(replace(made, queue=jobs[0].queue) if jobs else made)
    return Group(tuple(jobs), together=True)


#: What happens to a job in one call with others: how often, and what it has to come to in the end.
_FATES: dict[str, tuple[int, dict[str, Any]]] = {
    "": (66, {}),
    "refuse": (8, {"ends": "failed", "failures": 1, "reason": "ValueError"}),
    "flaky": (8, {"failures": 1, "options": {"retry": Retry(max=3, interval=[0.1])}}),
    "silent": (6, {}),
    "break": (4, {"ends": "failed", "failures": 1, "reason": "RuntimeError"}),
    "leave": (4, {"ends": "failed", "failures": 1, "reason": "exit"}),
    "hang": (4, {"ends": "failed", "failures": 1, "reason": "JobTimeoutException", "options": {"job_timeout": TIMEOUT}}),
}


def _shared(chance: random.Random, name: str) -> Group:
    """Some that stand one behind the other and go to one call of their task, which some of them end for all."""
    fates = chance.choices(list(_FATES), [often for often, _ in _FATES.values()], k=chance.randint(3, 9))
    jobs = []
    for n, fate in enumerate(fates):
        more = dict(_FATES[fate][1])
        if not fate and chance.random() < 0.12:
            more |= {"wish": "stop", "wish_running": True, "wish_after": chance.uniform(0, 0.4), "may_end": ("stopped",)}
        made = _job(chance, f"{name}-{n}", "shared", "share", chance.uniform(0, 0.1), fate, **more)
        jobs.append(replace(made, queue=jobs[0].queue) if jobs else made)
    return Group(tuple(jobs), together=True)


_MIX: tuple[tuple[int, Callable[[random.Random, str], Group]], ...] = (
    (5, _unique),
    (2, _steps),
    (4, _wanted_no_more),
    (3, _graph),
    (2, _batch),
    (3, _chain),
    (3, _shared),
)
