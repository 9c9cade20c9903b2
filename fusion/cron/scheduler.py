"""The API of recurring jobs: make entries at run time, and manage any entry."""

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
    """Makes cron entries with `cron` and `every`. A subclass stores them with `put`: in Redis, or in a collection."""

    def put(self, entry_id: str, make: Callable[[], Entry]) -> None:
        """Store the entry that `make` returns. `make` raises ValueError or SerializationError for an invalid one."""
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

        - `misfire`, for ticks that were due while no scheduler ran: `latest` runs the newest, `all` each (the newest 100), `skip` none. A
          tick that is more than `misfire_grace` seconds late does not run (None: no limit; with `skip` 10).
        - `overlap="skip"`: no tick runs while a job of the entry has not ended (a job that waits for a retry has not). `"queue"`: one tick
          waits until that job has ended, and then runs; further ticks don't.
        - `jitter`: seconds over which the starts of ticks are spread.
        - other options as in `Queue.enqueue`: priority, job_timeout, ttl, result_ttl, retry, log_tag, description, meta ...

        A second call with the same id changes the entry. Give `id` if one function has several entries. ValueError or SerializationError if
        it is invalid; then nothing is stored. For clock changes see docs/cron.md.
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
        """Enqueue `func` at equal intervals: whole seconds, "5m", or a timedelta. Options as in `cron`, without the timezone.

        The ticks are start, start + interval, ... or, without a start, the multiples of the interval since 1970. Restarts and late runs
        don't shift them.
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
    """Cron entries in Redis.

    Entries made by this class stay until `remove`, whatever code declares. The process `fusion scheduler` runs them; any number of
    it may run.

    If the entries are always the same, better declare them in code: by `@recurring`, or in a module given to the scheduler.
    """

    def __init__(self, connection: Redis | None = None) -> None:
        self._connection = connection

    @property
    def connection(self) -> Redis:
        """The connection given to the constructor, else the current one."""
        return self._connection if self._connection is not None else get_current_connection()

    def put(self, entry_id: str, make: Callable[[], Entry]) -> None:
        """Store the entry. EntryTaken if an app declares that id; errors of `make` pass through."""
        entry = make()
        plan, spec = entry.plan.to_json(), entry.spec()
        answer = cron_broker_of(self.connection).cron_put(entry.id, plan, spec, revision(plan, spec))
        if answer.startswith("taken"):
            raise EntryTaken(
                f"cron entry {entry.id!r} is declared by app {answer.removeprefix('taken ')!r}; choose another id, or change it there"
            )

    # -- reading

    def ids(self) -> list[str]:
        """Return the ids of all entries, sorted."""
        return cron_inspector_of(self.connection).entry_ids()

    def entries(self) -> list[EntryInfo]:
        """Return all entries, declared or made at run time, by id."""
        return cron_inspector_of(self.connection).entries()

    def get(self, entry_id: str) -> EntryInfo:
        """Return an entry by its id. NoSuchEntryError if there is none."""
        found = cron_inspector_of(self.connection).entry(entry_id)
        if found is None:
            raise _missing(entry_id)
        return found

    def history(self, entry_id: str, limit: int = 20) -> list[TickDecision]:
        """Return the decisions about its last ticks, the newest first; up to 50 are kept."""
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
        """Remove an entry; its jobs stay. An entry that code declares comes back when a scheduler starts. NoSuchEntryError."""
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
