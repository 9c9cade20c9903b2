"""Settings that must agree: of what jobs run in, and how many at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fusion.kernel import defaults
from fusion.settings import readers

if TYPE_CHECKING:
    from fusion.settings.settings import Settings

#: Executors whose processes run many jobs at once, each with its setting of how many, and the number if none is given.
CROWDED = {"thread": ("threads", defaults.THREADS), "asyncio": ("concurrency", defaults.CONCURRENCY)}


def settle_executor(settings: Settings, refuse: Callable[[str, str], None]) -> None:
    """Fill in `executor`, `horses`, `slots` and how many jobs a process runs; `refuse`, by the name of one and a rule, what contradicts."""
    kind = settings.executor or ("process" if settings.horses is None else "pool")

    def put(name: str, value: Any) -> None:
        object.__setattr__(settings, name, value)

    for other, (name, _) in CROWDED.items():
        if other != kind and settings.origin_of(name).startswith(("environment", "module")):
            put(name, None)  # said for a fleet, of which this process is one of another kind
        elif other != kind and getattr(settings, name) is not None:
            refuse(name, f"it is for the executor {other}, and executor is {kind}; say executor {other}, or leave {name} out")
    places = 1
    if kind in CROWDED:
        name, number = CROWDED[kind]
        places = getattr(settings, name) or number
        put(name, places)
        if settings.max_job_memory is not None:
            refuse(
                "max_job_memory",
                f"jobs that share a process can't be measured one by one; use max_horse_rss with executor {kind}",
            )
    if kind == "process" and settings.horses is not None:
        refuse("horses", "executor is process, which has none; say executor pool, or leave horses out")
    if kind != "process":
        horses = settings.horses or (readers.cpus() if kind == "pool" else 1)
        slots = horses * places
        if settings.slots != slots and (settings.slots != 1 or "slots" in settings.origins):
            if kind in CROWDED:
                name = CROWDED[kind][0]
                refuse(
                    "slots",
                    f"executor {kind} has horses times {name}, {horses} times {places}; leave slots out, or say {name} in its place",
                )
            refuse("horses", f"slots is {settings.slots} (from {settings.origin_of('slots')}); give one of the two")
        put("horses", horses)
        put("slots", slots)
    elif settings.slots > readers.PROCESSES:
        refuse("slots", f"use at most {readers.PROCESSES} processes, or executor thread or asyncio")
    put("executor", kind)
