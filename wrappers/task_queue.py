"""The service's jobs: one table of task types, one function per channel to enqueue them.

from wrappers.task_queue import enqueue_sms
enqueue_sms({"to": "+4915112345678", "text": "Your code is 123456"}, "SMS_OTP")
enqueue_email({"to": "anna@example.com", "subject": "Tomorrow", "text": "..."}, "EMAIL_REMINDER", enqueue_in="1d")
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from fusion import PriorityQueue, StoreUnavailable

if TYPE_CHECKING:
    from redis import Redis

    from fusion.enqueue.build import JobData
    from fusion.job import Job

HIGH, MODERATE, LOW = PriorityQueue.PRIORITY_HIGH, PriorityQueue.PRIORITY_MODERATE, PriorityQueue.PRIORITY_LOW

#: Seconds after which a one-time password that was not sent is worth nothing: it expires instead of arriving late.
OTP_TTL = 300
#: Prepared jobs of one queue that are sent to Redis together.
_CHUNK = 150
#: Options that are none of a job.
_OF_THE_CALL = ("durability", "replicas", "replicas_timeout")


@dataclass(frozen=True, slots=True)
class TaskType:
    """The queue and options of a type of task. `ttl` (seconds, None = no limit): a job that has not started in that time expires."""

    queue: str
    function: str
    priority: int
    log_tag: str
    ttl: int | None = None

    def options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The options of an enqueue: the type's, then the caller's."""
        own: dict[str, Any] = {"priority": self.priority, "log_tag": self.log_tag}
        if self.ttl is not None:
            own["ttl"] = self.ttl
        return {**own, **given}


def _types(queue: str, function: str, **priorities: int) -> dict[str, TaskType]:
    names = {f"{queue.upper()}_{kind}": (kind, priority) for kind, priority in priorities.items()}
    return {
        name: TaskType(queue, function, priority, name, OTP_TTL if kind == "OTP" else None)
        for name, (kind, priority) in names.items()
    }


#: Task type -> queue, function, priority. The name is the log tag too: `SMS_OTP` is task SMS, type OTP.
TASK_TYPES: dict[str, TaskType] = {
    **_types("sms", "tasks.sms.sendSMS", OTP=HIGH, REMINDER=HIGH, NOTICE=MODERATE, CAMPAIGN=LOW),
    **_types("email", "tasks.email.sendEmail", OTP=HIGH, REMINDER=HIGH, NOTICE=MODERATE, CAMPAIGN=LOW),
    **_types("pn", "tasks.pn.sendPN", REMINDER=HIGH, NOTICE=MODERATE, CAMPAIGN=LOW),
    **_types("webhook", "tasks.webhook.sendWebhook", EVENT=MODERATE, CAMPAIGN=LOW),
    **_types("whatsapp", "tasks.whatsapp.sendWhatsapp", OTP=HIGH, REMINDER=HIGH, NOTICE=MODERATE, CAMPAIGN=LOW),
}


def task_type_of(name: str, queue: str | None = None) -> TaskType:
    """The table's entry. ValueError if there is none, or if it belongs to another queue."""
    known = TASK_TYPES.get(name)
    if known is None or (queue is not None and known.queue != queue):
        names = [key for key, value in TASK_TYPES.items() if queue in (None, value.queue)]
        raise ValueError(f"unknown task type {name!r}{f' for {queue}' if queue else ''}; use one of {', '.join(names)}")
    return known


def enqueue_sms(payload: Mapping[str, Any], task_type: str = "SMS_OTP", **options: Any) -> Job:
    """Enqueue a text message; `options` are those of `Queue.enqueue_call`, `enqueue_at=` and `enqueue_in=` for later among them, and
    `connection`. The payload: `tasks.sms.sendSMS`."""
    return _enqueue("sms", payload, task_type, options)


def enqueue_email(payload: Mapping[str, Any], task_type: str = "EMAIL_NOTICE", **options: Any) -> Job:
    """Enqueue an e-mail. The payload: `tasks.email.sendEmail`."""
    return _enqueue("email", payload, task_type, options)


def enqueue_pn(payload: Mapping[str, Any], task_type: str = "PN_NOTICE", **options: Any) -> Job:
    """Enqueue a push notification. The payload: `tasks.pn.sendPN`."""
    return _enqueue("pn", payload, task_type, options)


def enqueue_webhook(payload: Mapping[str, Any], task_type: str = "WEBHOOK_EVENT", **options: Any) -> Job:
    """Enqueue a webhook call. The payload: `tasks.webhook.sendWebhook`."""
    return _enqueue("webhook", payload, task_type, options)


def enqueue_whatsapp(payload: Mapping[str, Any], task_type: str = "WHATSAPP_NOTICE", **options: Any) -> Job:
    """Enqueue a WhatsApp message. The payload: `tasks.whatsapp.sendWhatsapp`."""
    return _enqueue("whatsapp", payload, task_type, options)


def enqueue_bulk(
    messages: Iterable[tuple[str, Mapping[str, Any]]], *, connection: Redis | None = None, **options: Any
) -> list[Job]:
    """Enqueue many (task type, payload), 150 of a queue in one round trip; the order inside each queue is kept.

    `options` go for all of them, also `enqueue_at=` or `enqueue_in=` for later. Not one transaction: if it raises, the chunks before it
    are enqueued; the `repeat()` of a StoreUnavailable goes on from there.
    """
    wish: dict[str, Any] = {name: options.pop(name) for name in _OF_THE_CALL if name in options}
    return _send([], _chunks(messages, options), connection, wish)


def _chunks(messages: Iterable[tuple[str, Mapping[str, Any]]], options: dict[str, Any]) -> Iterator[tuple[str, list[JobData]]]:
    waiting: dict[str, list[JobData]] = {}
    for name, payload in messages:
        known = task_type_of(name)
        chunk = waiting.setdefault(known.queue, [])
        chunk.append(PriorityQueue.prepare_data(known.function, (dict(payload),), **known.options(options)))
        if len(chunk) == _CHUNK:
            yield known.queue, waiting.pop(known.queue)
    yield from waiting.items()


def _send(
    done: list[Job], chunks: Iterable[tuple[str, list[JobData]]], connection: Redis | None, wish: dict[str, Any]
) -> list[Job]:
    left = iter(chunks)
    for queue, chunk in left:
        try:
            done += PriorityQueue(queue, connection).enqueue_many(chunk, **wish)
        except StoreUnavailable as error:
            error.repeat_with(partial(_go_on, done, (queue, chunk), left, connection, wish))
            raise
    return done


def _go_on(done: list[Job], chunk: tuple[str, list[JobData]], left: Iterator[Any], *others: Any) -> list[Job]:
    return _send([*done], chain([chunk], left), *others)


def _enqueue(queue: str, payload: Mapping[str, Any], name: str, options: dict[str, Any]) -> Job:
    known = task_type_of(name, queue)
    connection = options.pop("connection", None)
    return PriorityQueue(queue, connection).enqueue_call(known.function, (dict(payload),), **known.options(options))
