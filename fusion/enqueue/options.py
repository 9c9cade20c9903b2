"""The options of an enqueue, each declared once: its name, type and meaning, how it is stored, how it is spelled as text, who takes it.

The fields of POST /api/v1/jobs, the flags of `enqueue`, the typed signatures (`fusion.enqueue.typed`), the checks of names and the tables in
the documents are made from this. To add an option, add a line in `EnqueueOptions` and run `make reference`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import Any

from fusion.callbacks import Callback, as_callback
from fusion.dependency import parents
from fusion.enqueue import kinds
from fusion.enqueue.kinds import AnyBatch, Reader
from fusion.retry import Retry

Func = str | Callable[..., Any]
#: Who takes an option besides the calls for one job: cron entries and `prepare_data`; `prepare_data`; none, as it concerns the call.
ENTRY, JOB, CALL = "entry", "job", "call"


@dataclass(frozen=True, slots=True)
class Spelling:
    """An option, or a part of one, in its text form: a field of HTTP's JSON and a flag of the command line."""

    field: str
    reads: Reader
    meaning: str
    flag: str


@dataclass(frozen=True, slots=True)
class Option:
    """A declared option. `store` converts a given value to the stored field `stored`; None: the job's record has no field for it."""

    name: str
    type: str
    meaning: str
    takes: str
    of: str
    spellings: tuple[Spelling, ...]
    stored: str
    store: Callable[[str, Any], Any] | None


def _option(
    meaning: str,
    reads: Reader | str | tuple[tuple[str, Reader, str], ...],
    *,
    of: str = ENTRY,
    store: Callable[[str, Any], Any] | None = None,
    field_name: str = "",
    flag: str = "",
    default: Any = None,
) -> Any:
    """Declare an option. `reads`: a reader for its text form; or its parts, each (name, reader, meaning), if no single text can express it;
    or the values it takes, if only Python can give it. `field_name`, `flag`: its name over HTTP and in the record, and on the command line,
    if they differ."""
    return field(default=default, metadata={"declared": (meaning, reads, of, store, field_name, flag)})


# Neither this nor JobData is frozen: made for every job, each would take three times as long.
@dataclass(slots=True, kw_only=True)
class EnqueueOptions:
    """Everything a producer can set for a job besides its function and arguments. None = the default, mostly a setting's. Times are seconds,
    texts like "5m", or timedeltas."""

    priority: int | str | None = _option("Higher runs first.  [default: moderate]", kinds.PRIORITY)
    job_timeout: float | str | None = _option(
        "How long it may run: 30, 90s, 5m, 2h; -1 for no limit.", kinds.DURATION, store=kinds.limit, field_name="timeout"
    )
    result_ttl: float | str | None = _option("How long its result is kept; -1 for ever.", kinds.DURATION, store=kinds.keeping)
    ttl: float | str | None = _option("Expire it if it has not started within this time.", kinds.DURATION)
    failure_ttl: float | str | None = _option("How long it is kept when it fails.", kinds.DURATION, store=kinds.keeping)
    description: str | None = _option("What lists show instead of the function's name.", kinds.TEXT, store=kinds.given_text)
    job_id: str | None = _option("Its id.  [default: a new one]", kinds.JOB_ID, of=JOB)
    at_front: bool = _option("Put it before all others of its priority.", kinds.SWITCH, of=JOB, default=False)
    enqueue_in: float | str | timedelta | None = _option(
        "Delay it by this time: 30, 90s, 5m, 2h, 1d.", kinds.DURATION, of=JOB, flag="--schedule-in"
    )
    enqueue_at: datetime | None = _option(
        "Delay it until this time: 2030-01-31T09:00+01:00; the zone is needed.", kinds.MOMENT, of=JOB, flag="--schedule-at"
    )
    retry: Retry | None = _option(
        "When it is tried again after a failure.",
        (
            ("retry_max", kinds.RETRIES, "How often it is retried when it fails."),
            ("retry_interval", kinds.INTERVALS, "Wait before each retry; repeatable, the last one repeats."),
            ("retry_within", kinds.SPAN, "Retry for this time after the first failure."),
        ),
        store=kinds.policy,
    )
    on_success: Callback | Func | None = _option(
        "Called in the job's process when it succeeded.",
        "a function, its path, a Callback",
        store=lambda name, value: as_callback(value),
    )
    on_failure: Callback | Func | None = _option(
        "Called in the job's process when it failed.",
        "a function, its path, a Callback",
        store=lambda name, value: as_callback(value),
    )
    on_stopped: Callback | Func | None = _option(
        "Called in the job's process when it was stopped and its task has ended.",
        "a function, its path, a Callback",
        store=lambda name, value: as_callback(value),
    )
    meta: Mapping[str, Any] | None = _option("Your own data for it, as job.meta.", kinds.OBJECT, store=kinds.mapping)
    log_tag: str | None = _option("Task and type in the event log, e.g. SMS_OTP.", kinds.TAG, store=kinds.as_is)
    success_task_handler: str | None = _option("URL to call when it succeeds.", kinds.URL)
    failed_task_handler: str | None = _option("URL to call when it fails or expires.", kinds.URL)
    callback_url: str | None = _option("URL to call when it ends in any way.", kinds.URL)
    on_lost: str | None = _option(
        "When its worker is lost: run again (requeue), or fail.  [default: requeue]",
        kinds.words("requeue", "fail"),
        store=kinds.other_than("requeue", "fail"),
    )
    isolate: bool = _option(
        "Run it in a process of its own, even in a worker with warm processes.", kinds.SWITCH, store=kinds.switch, default=False
    )
    keep_logs: bool = _option(
        "Keep the last lines that it prints and logs also when it succeeds.", kinds.SWITCH, store=kinds.switch, default=False
    )
    concurrency_key: str | Callable[..., str] | None = _option(
        "Limit how many jobs with this key run at once.", kinds.KEY, store=kinds.key
    )
    max_concurrent: int | None = _option(
        "How many jobs of its key run at once; without a key, of its function.",
        kinds.whole(1, kinds.MOST_AT_ONCE),
        store=kinds.at_once,
    )
    max_queue_length: int | None = _option(
        "Refuse it if more jobs than that would wait in the queue.", kinds.whole(1, kinds.MOST), of=CALL
    )
    fair_key: str | Callable[..., str] | None = _option(
        "Fair share: in a queue, the keys of one priority take turns.", kinds.KEY, store=kinds.key
    )
    rate: str | None = _option(
        "How many jobs of its key, or without a key of its function, may start in a time: 100/60s.", kinds.RATE, store=kinds.rate
    )
    on_conflict: str | None = _option(
        "When its key is at its limit: wait (block), or be canceled at once (discard).  [default: block]",
        kinds.words("block", "discard"),
        store=kinds.other_than("block", "discard"),
    )
    limit_duration: float | str | None = _option(
        "How long it holds its slot after its start; it runs on without one.", kinds.DURATION, store=kinds.milliseconds
    )
    unique_key: str | Callable[..., str] | None = _option(
        "Only one job with this key is accepted until it ends, see unique_until.", kinds.KEY, store=kinds.key
    )
    unique: bool = _option("A unique key made of the function and its arguments.", kinds.SWITCH, default=False)
    unique_until: str | None = _option(
        "Until when it holds its unique key: it is accepted, starts, or ends.  [default: end]",
        kinds.words("accept", "start", "end"),
        store=kinds.other_than("end", "accept", "start"),
    )
    unique_window: float | str | None = _option(
        "How long the unique key stays taken after that.", kinds.DURATION, store=kinds.milliseconds
    )
    on_duplicate: str | None = _option(
        "When another job has its unique key: enqueue nothing (skip), refuse it (raise), or replace that one (replace).  [default: skip]",
        kinds.words("skip", "raise", "replace"),
        store=kinds.other_than("skip", "raise", "replace"),
    )
    max_delay: float | str | None = _option(
        "With on_duplicate replace: due at most this long after the first of the replaced jobs.",
        kinds.DURATION,
        of=JOB,
        store=kinds.milliseconds,
    )
    batch: AnyBatch | str | None = _option("The batch that it joins.", kinds.BATCH, of=JOB, store=kinds.batch_id)
    depends_on: Any = _option(
        "The job that it waits for; it fails if that one does not finish.",
        (("depends_on", kinds.JOB_IDS, "A job that it waits for; repeatable."),),
        of=JOB,
        store=parents,
        field_name="parents",
    )
    durability: str | None = _option(
        "Wait until replicas have it (replicated), or only the primary.", kinds.words("primary", "replicated"), of=CALL
    )
    replicas: int | None = _option("How many replicas must have it, with durability replicated.", kinds.whole(1, 100), of=CALL)
    replicas_timeout: float | str | None = _option("How long to wait for the replicas.", kinds.DURATION, of=CALL)
    on_commit: bool | None = _option(
        "Enqueue it when the database transaction is committed, if an integration tracks one.", "True, False", of=CALL
    )

    def over(self, base: EnqueueOptions) -> EnqueueOptions:
        """Return these options, with those of `base` where they are not set."""
        mine = {name: getattr(self, name) for name in OPTION_NAMES}
        # by identity: 0 is a priority and a result_ttl, and equal to False
        return EnqueueOptions(**{n: getattr(base, n) if own is None or own is False else own for n, own in mine.items()})


def _declared(name: str, kind: str, declared: Any) -> Option:
    meaning, reads, of, store, field_name, flag = declared
    stored = field_name or name
    if isinstance(reads, Reader):
        reads = ((stored, reads, meaning),)
    if isinstance(reads, str):
        return Option(name, kind, meaning, reads, of, (), stored, store)
    spellings = tuple(Spelling(part, reader, text, flag or "--" + part.replace("_", "-")) for part, reader, text in reads)
    takes = spellings[0].reads.takes if len(spellings) == 1 else kind.partition(" ")[0]
    return Option(name, kind, meaning, takes, of, spellings, stored, store)


OPTIONS = tuple(_declared(item.name, str(item.type), item.metadata["declared"]) for item in fields(EnqueueOptions))
OPTION_NAMES = tuple(option.name for option in OPTIONS)
#: Options of the call that sends jobs, not of the jobs.
OF_CALLS = tuple(option.name for option in OPTIONS if option.of == CALL)
#: Spellings by the name of their text form.
SPELLINGS = {spelling.field: spelling for option in OPTIONS for spelling in option.spellings}
_OF_FIELD = {spelling.field: option for option in OPTIONS for spelling in option.spellings}
#: No options: the most frequent case.
NONE = EnqueueOptions()


def spelling_of(name: str) -> Spelling | None:
    """Return the spelling of an option by its Python name; None if it has none, or several parts."""
    found = [option.spellings for option in OPTIONS if option.name == name]
    return found[0][0] if found and len(found[0]) == 1 else None


def from_text(read: Mapping[str, Any]) -> EnqueueOptions:
    """Return options from the values that the readers of `SPELLINGS` made."""
    options = {_OF_FIELD[name].name: value for name, value in read.items()}
    options.pop("retry", None)  # has parts
    within = read.get("retry_within")
    if (retries := read.get("retry_max")) or within:
        options["retry"] = Retry(retries or None, read.get("retry_interval") or 0, within=within)
    return EnqueueOptions(**options)
