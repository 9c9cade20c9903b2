"""An edited copy of an ended job: a new job with the same options, and other arguments. The old one stays as it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fusion.callbacks import hooks
from fusion.enqueue.build import JobData, check_options, identity, payload_url, sealed
from fusion.enqueue.call import terms_of
from fusion.enqueue.kinds import number
from fusion.enqueue.options import NONE
from fusion.enqueue.sending import Chunk
from fusion.enqueue.ties import tie
from fusion.enqueue.unmasking import restored
from fusion.exceptions import BadSignature, DeserializationError, InvalidJobOperation, NoSuchJobError
from fusion.jobs.masked import masked_arguments
from fusion.kernel import defaults
from fusion.kernel.compression import plain
from fusion.kernel.nonces import new_nonce
from fusion.kernel.serializers import join_call, part_call
from fusion.kernel.signing import as_claimed
from fusion.settings import Settings, get_settings
from fusion.status import FOREIGN_JOB, TERMINAL
from fusion.store.access import broker_of, inspector_of
from fusion.store.layout.codec import number as whole
from fusion.store.layout.codec import text
from fusion.store.layout.names import check_queue_name, is_reserved
from fusion.store.layout.records import NewJob
from fusion.store.layout.score import check_priority

if TYPE_CHECKING:
    from redis import Redis

    from fusion.job import Job

#: Fields that a copy takes unchanged. Facts that belong to one job only are not among them: a unique key, a batch, parents, a cron entry.
_TAKEN = (
    *("failure_ttl", "log_tag", "on_lost", "isolate", "retry", "on_success", "on_failure", "on_stopped", "concurrency_key"),
    *("max_concurrent", "rate", "on_conflict", "limit_duration", "fair_key", "keep_logs"),
)


@dataclass(frozen=True, slots=True)
class Edit:
    """The changes to the original; None: unchanged. Masked arguments that come back as they were shown stand for the original's values."""

    args: list[Any] | None = None
    kwargs: dict[str, Any] | None = None
    queue: str | None = None
    priority: int | str | None = None


def original(connection: Redis, job_id: str) -> dict[str, bytes]:
    """Return the record of a job that can be copied. NoSuchJobError; InvalidJobOperation if it has not ended, is another program's, or was
    pickled; BadSignature if there are keys, and none of them signed it."""
    row = inspector_of(connection).job(job_id)
    if not row:
        raise NoSuchJobError(f"no job {job_id!r}: it never existed, was deleted, or its result_ttl is over")
    status = text(row.get("status"))
    if "seq" not in row and "raw_id" not in row:
        raise InvalidJobOperation(f"job {job_id} is {FOREIGN_JOB}")
    if status not in TERMINAL:
        raise InvalidJobOperation(f"job {job_id} is {status}; only one that has ended is copied: cancel or stop it first")
    if is_reserved(text(row.get("original_queue")) or text(row.get("origin"))):
        raise InvalidJobOperation(f"job {job_id} is one of Fusion's own; `callbacks retry` tries a delivery again")
    if text(row.get("serializer"), "json") not in ("", "json"):
        raise InvalidJobOperation(
            f"job {job_id} can't be copied: its arguments are a pickle, which is not looked into; enqueue it anew from code"
        )
    _check_signature(job_id, row)
    return row


def _check_signature(job_id: str, row: Mapping[str, bytes]) -> None:
    """Check the original's signature. The copy signs what it takes over, so copying a forged job would give it a valid signature."""
    keyring = get_settings().keyring
    if keyring is not None and (flaw := keyring.flaw(job_id, text(row.get("origin")), as_claimed(row))):
        raise BadSignature(f"job {job_id} can't be copied: {flaw}")
    if keyring is None and "signature" in row:
        raise BadSignature(
            f"job {job_id} can't be copied here: it is signed, and this process has no secret_keys to sign the copy with"
        )


def copied(
    job_id: str, row: Mapping[str, bytes], edit: Edit, settings: Settings, new_id: str = "", nonce: str = ""
) -> tuple[str, JobData]:
    """Return the queue and the copy, checked and encoded as for an enqueue; nothing is written. OptionError, PayloadTooLarge,
    SerializationError, or InvalidJobOperation if its own arguments can't be read."""
    name, args, kwargs = _arguments(job_id, row, edit)
    stored: dict[str, Any] = {
        "data": join_call(name, args, kwargs, max_payload=settings.max_payload),
        "description": text(row.get("description")) or name,
        "timeout": _figure(row, "timeout", settings.job_timeout),
        "result_ttl": _figure(row, "result_ttl", settings.result_ttl),
        "retryCount": defaults.RETRY_COUNT_START,
        **_urls(row, args, kwargs, settings),
        **{field: text(row[field]) for field in _TAKEN if field in row},
    }
    if "meta" in row:
        stored["meta"] = _meta(job_id, row["meta"])
    ttl = _figure(row, "ttl", 0)
    if ttl > 0:
        stored["ttl"] = ttl
    stored["copied_from"] = job_id
    tie(name, stored)
    size = check_options(name, stored, settings.max_payload)
    queue = check_queue_name(edit.queue or text(row.get("original_queue")) or text(row.get("origin")))
    priority = check_priority(whole(row.get("priority"), 1) if edit.priority is None else edit.priority)
    own = new_id or identity()
    new = NewJob(own, priority, stored, ttl=ttl or None, nonce=nonce or own)
    return queue, JobData(name, new, len(stored["data"]) + size)


def _arguments(job_id: str, row: Mapping[str, bytes], edit: Edit) -> tuple[str, list[Any], dict[str, Any]]:
    raw = row.get("data", b"")
    try:
        name, args, kwargs = part_call(plain(raw))
        shown = json.loads(masked_arguments(raw))
        known = shown["args"], shown["kwargs"]
    except (DeserializationError, ValueError, TypeError, KeyError):
        raise InvalidJobOperation(f"job {job_id} can't be copied: its arguments can't be read") from None
    if "takes" in row and edit.args is None:
        raise InvalidJobOperation(
            f"job {job_id} is a step of a chain, which was given what the one before returned: name all of its arguments (args)"
        )
    return (
        name,
        args if edit.args is None else restored("args", edit.args, known[0], args),
        kwargs if edit.kwargs is None else restored("kwargs", edit.kwargs, known[1], kwargs),
    )


def _figure(row: Mapping[str, bytes], name: str, default: float) -> float:
    try:
        found = float(text(row.get(name)))
    except ValueError:
        found = default
    return number(found) if abs(found) <= defaults.FURTHEST else number(default)


def _urls(row: Mapping[str, bytes], args: list[Any], kwargs: dict[str, Any], settings: Settings) -> dict[str, Any]:
    """Return the URLs that are called when it ends. If the original's came from its payload, the new payload's is used."""
    success, failure, url = (
        text(row.get(name)) or None for name in ("success_task_handler", "failed_task_handler", "callback_url")
    )
    try:
        _, before, named = part_call(plain(row.get("data", b"")))
        if url is not None and url == payload_url(before, named):
            url = payload_url(args, kwargs)
    except DeserializationError:
        pass
    return hooks(success, failure, url or payload_url(args, kwargs), settings)


def _meta(job_id: str, raw: bytes) -> str:
    try:
        return plain(raw).decode()
    except (DeserializationError, UnicodeDecodeError):
        raise InvalidJobOperation(f"job {job_id} can't be copied: its meta can't be read") from None


def copy_job(connection: Redis, job_id: str, edit: Edit) -> Job:
    """Enqueue an edited copy of an ended job, and record its id in the original. Errors are those of `original`, `copied` and an enqueue."""
    queue, data = copied(job_id, original(connection, job_id), edit, get_settings(), nonce=new_nonce())
    return send(connection, job_id, queue, data)


def send(connection: Redis, job_id: str, queue: str, data: JobData) -> Job:
    """Enqueue a copy, and record its id in the original; sending the same copy again changes nothing. Errors are those of an enqueue."""
    settings, broker = get_settings(), broker_of(connection)
    terms = terms_of(NONE, settings)
    jobs = sealed(queue, [data.new], settings)
    accepted = broker.enqueue(queue, jobs, data.new.nonce, terms.replicas, terms.room)
    (job,) = Chunk(queue, jobs, terms).accepted(accepted, connection)
    note_copy(connection, job_id, job.id)
    return job


def note_copy(connection: Redis, job_id: str, copy_id: str) -> None:
    """Record a copy's id in a job; nothing is recorded if the job is gone."""
    broker_of(connection).note_copy(job_id, copy_id)
