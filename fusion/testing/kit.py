"""The test kit: Fusion on a private Redis, for one test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import fields, replace
from datetime import datetime, timedelta, timezone
from types import ModuleType
from typing import Any, Self

from fusion import middleware
from fusion.cron.declared import Declarations
from fusion.cron.scheduler import Scheduler
from fusion.job import Job
from fusion.kernel.recurrence import declared
from fusion.kernel.timeutil import parse_seconds
from fusion.settings import Settings, get_settings, use_settings
from fusion.settings.groups import RedisSettings
from fusion.store.access import callback_inspector_of
from fusion.store.client.connections import get_current_connection
from fusion.store.read.callback_inspector import DeliveryInfo
from fusion.store.scripting.kit_clock import KitClock, check_test, empty, install, uninstall
from fusion.testing import server
from fusion.testing.drain import Drain, Run
from fusion.testing.enqueued import Enqueued, Recorder

#: The variable that processes of a test find its Redis by.
_VARIABLE = "FUSION_REDIS_URL"
#: How the names of settings begin that lead to another Redis.
_ELSEWHERE = ("redis_", "sentinel", "cluster_")
_in_use = False


@contextmanager
def on_private_redis(*, moved_clock: bool) -> Iterator[Settings]:
    """Have this process use an empty Redis of its own meanwhile, and the processes that it starts, too. All other settings stay, but that
    any task may run. RuntimeError outside of tests."""
    global _in_use
    check_test()
    if _in_use:
        raise RuntimeError("a test has one kit: fusion_worker, whose clock is the machine's, or one of the other fixtures")
    url, before = server.start().url, get_settings()
    changed: dict[str, Any] = {item.name: item.default for item in fields(RedisSettings) if item.name.startswith(_ELSEWHERE)}
    origins = {name: origin for name, origin in before.origins.items() if name not in changed and name != "tasks"}
    settings = replace(before, **changed | {"redis_url": url, "tasks": ("*",)}, origins=origins)
    variable, previous = os.environ.get(_VARIABLE), use_settings(settings)
    os.environ[_VARIABLE], _in_use = url, True
    try:
        connection = get_current_connection()
        empty(connection, server.pid())
        if moved_clock:
            install()
        yield settings
        connection.close()
    finally:
        _in_use = False
        uninstall()
        use_settings(previous)
        os.environ.pop(_VARIABLE, None)
        if variable is not None:
            os.environ[_VARIABLE] = variable


class Kit:
    """`with Kit() as kit:` has what this process enqueues go to an empty Redis of its own. Nothing runs there but by `kit()`.

    Called, it runs jobs in this process and thread, without a limit of time: a breakpoint in a task works. RuntimeError outside of tests.
    """

    def __init__(self) -> None:
        self._recorder = Recorder(self._seconds)
        self._eager = False
        self._seen = False

    def __enter__(self) -> Self:
        self._exits = ExitStack()
        settings = self._exits.enter_context(on_private_redis(moved_clock=True))
        connection = get_current_connection()
        self._clock = KitClock(connection)
        self._drain = Drain(settings, connection, self._clock)
        self._recorder.on_enqueued = self._on_enqueued
        middleware.register(self._recorder)
        return self

    def __exit__(self, *error: Any) -> None:
        middleware.unregister(self._recorder)
        self._drain.close()
        self._exits.close()

    # -- what was enqueued

    @property
    def enqueued(self) -> list[Enqueued]:
        """The jobs that this process has enqueued, in its order. It prints as a readable list."""
        return list(self._recorder.found)

    def assert_enqueued(
        self,
        task: str | Callable[..., Any],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        *,
        queue: str | None = None,
        at: datetime | timedelta | float | str | None = None,
        priority: int | str | None = None,
    ) -> Job:
        """Return the first job of the task that was enqueued so. AssertionError, which lists all that was enqueued, if there is none.

        What is None is not compared. `at`: the time for which it was enqueued, to the second: an aware datetime, or how long after the
        enqueue ("5m", 300, a timedelta; 0 for at once).
        """
        return self._recorder.one(task, args, kwargs, queue, at, priority)

    def assert_not_enqueued(self, task: str | Callable[..., Any] | None = None) -> None:
        """Raise AssertionError, which lists what was enqueued, if a job of the task was, or of any task."""
        self._recorder.none(task)

    # -- running it

    def __call__(self, span: float | str | timedelta = 0, *, limit: int = 10_000) -> list[Run]:
        """Run all that is due, in this process, the most urgent first: jobs, their retries and dependents, ticks of cron.

        With a `span` ("2h", seconds, a timedelta) the clock moves that far, and what comes due on the way runs at its time, as it does where
        workers are always there. Returns the runs in their order. RuntimeError after `limit` runs.
        """
        return self._drain.drain(_ms(span), limit)

    def travel(self, span: float | str | timedelta) -> None:
        """Move the kit's clock, as if no worker ran in that time. Nothing runs. Fusion's clock alone is moved: `datetime.now()` stays, see
        `now()`."""
        self._clock.move(_ms(span))

    def now(self) -> datetime:
        """Return the time by the kit's clock, UTC."""
        return datetime.fromtimestamp(self._seconds(), timezone.utc)

    def _seconds(self) -> float:
        return self._clock.now()

    def schedule(self, *what: Callable[..., Any] | ModuleType) -> list[str]:
        """Store the cron entries that `@recurring` declares for these functions, or in these modules, as a scheduler does; ticks after now
        are due. Returns their ids. ValueError if one of these declares none, or an entry has a mistake."""
        found, ids = Declarations(), list[str]()
        for one in what:
            theirs = [said for said in declared() if one in (said.func, _module_of(said.func))]
            if not theirs:
                raise ValueError(f"{one!r} declares no cron entry: mark a function with @recurring")
            for said in theirs:
                put = found.every if said.expr is None else found.cron
                ids.append(put(said.every if said.expr is None else said.expr, said.func, **said.options))
        if found.faults:
            raise ValueError("; ".join(f"{name}: {why}" for name, why in found.faults.items()))
        for name in ids:
            Scheduler().put(name, lambda name=name: found.entries[name])  # type: ignore[misc]
        return ids

    @property
    def runs(self) -> list[Run]:
        """All runs of this test, in their order."""
        return list(self._drain.runs)

    @property
    def failed(self) -> list[Run]:
        """The runs after which a job has failed for good, or whose task was not found."""
        self._seen = True
        return self._failed()

    def _failed(self) -> list[Run]:
        return [run for run in self._drain.runs if run.outcome in ("failed", "held")]

    @property
    def callbacks(self) -> list[DeliveryInfo]:
        """The callbacks to URLs that wait to be sent: the kit sends none. Each has its `url`, `job_id` and `job_status`."""
        return list(callback_inspector_of(get_current_connection()).find("waiting"))

    # -- eager

    @contextmanager
    def eager(self) -> Iterator[None]:
        """Run what is enqueued meanwhile at once: each enqueue runs all that is due. A task's error stays in its job, as in production.
        AssertionError at the end if a job has failed, unless `failed` was read."""
        self._eager = True
        try:
            yield
        finally:
            self._eager = False
        if not self._seen and (failed := self._failed()):
            told = "\n\n".join(f"{run}\n{run.job.exc_info or ''}".rstrip() for run in failed)
            raise AssertionError(f"{len(failed)} job(s) failed, and the test did not read `failed`:\n\n{told}")

    def _on_enqueued(self) -> None:
        self._drain.new_queues = True
        if self._eager:
            self._drain.drain(0, 10_000)


def _module_of(func: Callable[..., Any]) -> Any:
    from sys import modules

    return modules.get(func.__module__)


def _ms(span: float | str | timedelta) -> int:
    seconds = parse_seconds(span)
    if seconds < 0:
        raise ValueError(f"{span!r}: the kit's clock does not go back")
    return round(seconds * 1000)
