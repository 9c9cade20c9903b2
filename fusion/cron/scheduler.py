"""Recurring jobs, as programs see them: entries made at run time, and what can be done with any entry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from redis import Redis

from fusion.cron.entry import Entry, default_id, revision
from fusion.cron.plan import Plan
from fusion.exceptions import EntryTaken, InvalidJobOperation, NoSuchEntryError
from fusion.job import Job
from fusion.kernel import defaults
from fusion.kernel.importing import func_name_of
from fusion.kernel.nonces import new_nonce
from fusion.settings import get_settings
from fusion.store.access import cron_broker_of, cron_inspector_of
from fusion.store.client.connections import get_current_connection
from fusion.store.client.errors import repeatable
from fusion.store.read.cron_inspector import EntryInfo, TickDecision

if TYPE_CHECKING:
    from typing import Unpack

    from fusion.enqueue.typed import EntryJobOptions

    class EntryOptions(EntryJobOptions, total=False):
        """Options of a cron entry besides its id, its plan and its function."""

        queue: str
        args: Iterable[Any]
        kwargs: Mapping[str, Any] | None
        misfire: str
        misfire_grace: float | str | None
        overlap: str
        jitter: float | str

    class DeclaredOptions(EntryOptions, total=False):
        """Options of `@recurring`: those of an entry, and its id and plan."""

        id: str | None
        timezone: str
        start: datetime | None
        end: datetime | None


_Func = str | Callable[..., Any]


class Planner:
    """Makes cron entries by `cron` and `every`. A subclass says by `put` where they go: into Redis, or into a collection."""

    def put(self, entry_id: str, make: Callable[[], Entry]) -> None:
        """Take the entry that `make` makes. `make` raises ValueError or SerializationError for one that can't be."""
        raise NotImplementedError

    def cron(
        self,
        expr: str,
        func: _Func,
        *,
        id: str | None = None,
        timezone: str = "UTC",
        queue: str = defaults.QUEUE,
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        misfire: str = "latest",
        misfire_grace: float | str | None = None,
        overlap: str = "allow",
        jitter: float | str = 0,
        start: datetime | None = None,
        end: datetime | None = None,
        **options: Unpack[EntryJobOptions],
    ) -> str:
        """Enqueue `func` at every tick of a cron expression, read by the clocks of `timezone`; returns the entry's id.

        - `misfire`, for ticks that nobody was there to run: `latest` runs the newest, `all` each (the newest 100), `skip` none. Whatever is
          more than `misfire_grace` seconds late is not run (None: any lateness is fine; with `skip` 10).
        - `overlap="skip"`: no tick runs while a job of the entry has not ended; a waiting retry has not. `"queue"`: one tick waits
          behind it, and runs when it has ended; further ones don't.
        - `jitter`: seconds over which the starts of ticks are spread.
        - other options as in `Queue.enqueue`: priority, job_timeout, ttl, result_ttl, retry, log_tag, description, meta ...

        The same id again changes the entry. Raises ValueError or SerializationError with nothing stored; `id` has to be given where one
        function has several entries. How clock changes are handled: docs/cron.md.
        """

        def make() -> Entry:
            plan = Plan.cron(expr, timezone=timezone, start=start, end=end)
            policy: dict[str, Any] = {"misfire": misfire, "misfire_grace": misfire_grace, "overlap": overlap, "jitter": jitter}
            policy |= {"id": id, "queue": queue, "args": args, "kwargs": kwargs}
            return Entry.make(func, plan, get_settings(), **policy, **options)

        return self._take(func, id, make)

    def every(
        self,
        interval: float | str | timedelta,
        func: _Func,
        *,
        id: str | None = None,
        start: datetime | None = None,
        end: datetime | None = None,
        **options: Unpack[EntryOptions],
    ) -> str:
        """Enqueue `func` every so often: seconds (whole ones), "5m", or a timedelta. Options as in `cron`, less the timezone.

        The ticks are start, start + interval, ... or, without a start, the multiples of the interval since 1970: neither restarts nor
        late runs shift them.
        """

        def make() -> Entry:
            return Entry.make(func, Plan.interval(interval, start=start, end=end), get_settings(), id=id, **options)

        return self._take(func, id, make)

    def _take(self, func: _Func, id: str | None, make: Callable[[], Entry]) -> str:
        entry_id = id if id is not None else default_id(self._name(func))
        self.put(entry_id, make)
        return entry_id

    def _name(self, func: _Func) -> str:
        return func_name_of(func)


class Scheduler(Planner):
    """Cron entries in Redis. Those made by this class stay until `remove`, whatever code declares; the process that runs them is
    `run_worker.py scheduler`, of which any number may run.

    Code that always has the same entries had better declare them: `@recurring`, or a module given to the scheduler.
    """

    def __init__(self, connection: Redis | None = None) -> None:
        self._connection = connection

    @property
    def connection(self) -> Redis:
        """The connection given at first, else the current one."""
        return self._connection if self._connection is not None else get_current_connection()

    def put(self, entry_id: str, make: Callable[[], Entry]) -> None:
        """Store the entry. EntryTaken if an app declares that id; else as `make`."""
        entry = make()
        plan, spec = entry.plan.to_json(), entry.spec()
        answer = cron_broker_of(self.connection).cron_put(entry.id, plan, spec, revision(plan, spec))
        if answer.startswith("taken"):
            raise EntryTaken(
                f"cron entry {entry.id!r} is declared by app {answer.removeprefix('taken ')!r}; choose another id, or change it there"
            )

    # -- looking

    def ids(self) -> list[str]:
        """Ids of all entries, sorted."""
        return cron_inspector_of(self.connection).entry_ids()

    def entries(self) -> list[EntryInfo]:
        """All entries, whoever declared them, by id."""
        return cron_inspector_of(self.connection).entries()

    def get(self, entry_id: str) -> EntryInfo:
        """An entry by its id. NoSuchEntryError if there is none."""
        found = cron_inspector_of(self.connection).entry(entry_id)
        if found is None:
            raise _missing(entry_id)
        return found

    def history(self, entry_id: str, limit: int = 20) -> list[TickDecision]:
        """The decisions about its last ticks, the newest first; up to 50 are kept."""
        self.get(entry_id)
        return cron_inspector_of(self.connection).history(entry_id, limit)

    # -- changing

    def pause(self, entry_id: str) -> None:
        """Stop the entry until `resume`. Ticks that pass meanwhile are not made up. NoSuchEntryError."""
        if not cron_broker_of(self.connection).cron_pause(entry_id):
            raise _missing(entry_id)

    def resume(self, entry_id: str) -> bool:
        """Run its ticks from now on; False if it was not paused. NoSuchEntryError."""
        answer = cron_broker_of(self.connection).cron_resume(entry_id)
        if answer == "missing":
            raise _missing(entry_id)
        return answer == "ok"

    def remove(self, entry_id: str) -> None:
        """Forget an entry; its jobs stay. One that code declares comes back when a scheduler starts. NoSuchEntryError."""
        if not cron_broker_of(self.connection).cron_remove(entry_id):
            raise _missing(entry_id)

    def run(self, entry_id: str, *, force: bool = False) -> Job:
        """Enqueue a job of the entry now, paused or not. Its ticks go on as planned.

        InvalidJobOperation if it must not overlap and a job of it has not ended, unless `force`; NoSuchEntryError.
        """
        nonce = new_nonce()
        return repeatable(lambda: self._run(entry_id, nonce, force))

    def _run(self, entry_id: str, nonce: str, force: bool) -> Job:
        broker = cron_broker_of(self.connection)
        while True:
            info = self.get(entry_id)
            if not info.rev:
                raise InvalidJobOperation(f"cron entry {entry_id!r} was declared with a mistake: {info.declared_error}")
            entry = Entry.of(info.id, info.plan, info.spec)
            overlap = "allow" if force else entry.overlap
            status, job_id = broker.cron_run(info.id, info.rev, entry.job, entry.queue, nonce, overlap=overlap)
            if status == "ok":
                return Job.fetch(job_id, self.connection)
            if status == "overlap":
                raise InvalidJobOperation(
                    f"job {job_id} of cron entry {entry_id!r} has not ended, and it must not overlap; use force"
                )
            if status == "duplicate":
                raise InvalidJobOperation(f"job {job_id} has the unique key of cron entry {entry_id!r}")
            if status == "missing":
                raise _missing(entry_id)


def _missing(entry_id: str) -> NoSuchEntryError:
    return NoSuchEntryError(f"no cron entry {entry_id!r}")
