"""The jobs that a test has enqueued, and the assertions about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from fusion.job import Job
from fusion.kernel.importing import func_name_of
from fusion.kernel.timeutil import parse_seconds
from fusion.middleware import Enqueueing, Outgoing, ProducerMiddleware
from fusion.store.layout.score import check_priority


class Enqueued:
    """One job as the code under test has enqueued it: `task` (dotted path), `args`, `kwargs`, `queue`, `priority`, `at` (the time for which
    it was enqueued), `job`."""

    def __init__(self, outgoing: Outgoing, job: Job, now: float) -> None:
        self.job, self.queue, self.task, self.priority = job, outgoing.queue, outgoing.func_name, outgoing.priority
        self.args: tuple[Any, ...] = job.args if outgoing.args is None else outgoing.args
        self.kwargs: Mapping[str, Any] = job.kwargs if outgoing.kwargs is None else outgoing.kwargs
        options = outgoing.options
        #: Seconds after the enqueue, and Unix time.
        self._delay: float = options["enqueue_at"] - now if "enqueue_at" in options else options.get("enqueue_in", 0.0)
        self._due: float = now + self._delay

    @property
    def at(self) -> datetime:
        """The time for which it was enqueued, UTC."""
        return datetime.fromtimestamp(self._due, timezone.utc)

    def __repr__(self) -> str:
        args = [*map(repr, self.args), *(f"{name}={value!r}" for name, value in self.kwargs.items())]
        later = f" in {self._delay:.3g} s" if self._delay > 0 else ""
        return f"{self.task}({', '.join(args)}) on {self.queue}, priority {self.priority}{later}"

    def differs(
        self,
        args: Sequence[Any] | None,
        kwargs: Mapping[str, Any] | None,
        queue: str | None,
        at: datetime | timedelta | float | str | None,
        priority: int | None,
    ) -> list[str]:
        """Return the names of what is other than asked for."""
        found = []
        if args is not None and list(args) != list(self.args):
            found.append("args")
        if kwargs is not None and dict(kwargs) != dict(self.kwargs):
            found.append("kwargs")
        if queue is not None and queue != self.queue:
            found.append("queue")
        if priority is not None and priority != self.priority:
            found.append("priority")
        if at is not None and abs(self._distance(at)) > 1.0:
            found.append("at")
        return found

    def _distance(self, at: datetime | timedelta | float | str) -> float:
        if isinstance(at, datetime):
            return at.timestamp() - self._due
        return parse_seconds(at) - max(0.0, self._delay)


class Recorder(ProducerMiddleware):
    """Notes what is enqueued in this process, by queues of any kind."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.found: list[Enqueued] = []
        self.on_enqueued: Callable[[], None] = lambda: None

    def after_enqueue(self, enqueueing: Enqueueing, jobs: Sequence[Job]) -> None:
        """Note the jobs that were accepted: not one whose unique key another had."""
        now = self._now()
        for outgoing, job in zip(enqueueing.jobs, jobs, strict=True):
            if job.id == outgoing.id:
                self.found.append(Enqueued(outgoing, job, now))
        self.on_enqueued()

    def one(
        self,
        task: str | Callable[..., Any],
        args: Sequence[Any] | None,
        kwargs: Mapping[str, Any] | None,
        queue: str | None,
        at: datetime | timedelta | float | str | None,
        priority: int | str | None,
    ) -> Job:
        """See `Kit.assert_enqueued`."""
        name = func_name_of(task)
        level = None if priority is None else check_priority(priority)
        differ = {}
        for one in self.found:
            if one.task == name:
                differ[one] = one.differs(args, kwargs, queue, at, level)
                if not differ[one]:
                    return one.job
        asked = {"args": args, "kwargs": kwargs, "queue": queue, "at": at, "priority": priority}
        wanted = ", ".join(f"{key}={value!r}" for key, value in asked.items() if value is not None)
        raise AssertionError(f"{name} was not enqueued{f' with {wanted}' if wanted else ''}; {self._listed(differ)}")

    def none(self, task: str | Callable[..., Any] | None) -> None:
        """See `Kit.assert_not_enqueued`."""
        name = None if task is None else func_name_of(task)
        if any(name in (None, one.task) for one in self.found):
            raise AssertionError(f"{name or 'a job'} was enqueued; {self._listed({})}")

    def _listed(self, differ: Mapping[Enqueued, list[str]]) -> str:
        if not self.found:
            return "nothing was enqueued"
        lines = (f"  {one}" + (f"  <- other {' and '.join(differ[one])}" if differ.get(one) else "") for one in self.found)
        return "\n".join([f"what was enqueued ({len(self.found)}):", *lines])
