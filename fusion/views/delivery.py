"""A delivery of a callback, as every interface shows it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Literal, cast

from fusion.callbacks import shown_url
from fusion.kernel.redaction import masked_text
from fusion.views.base import ABSENT, View, masked, public, view

if TYPE_CHECKING:
    from typing import Self

    from fusion.store.read.callback_inspector import DeliveryInfo

Status = Literal["waiting", "retrying", "failed", "delivered", "canceled"]


@view
class CallbackView(View):
    """A delivery: a URL receives the end of a job."""

    id: str = public("Its id.", column="ID")
    status: Status = public("How far it is.", column="STATUS")
    to: str = masked("The host of its URL; the rest of a URL may hold a token.", shown_url, column="TO")
    job_id: str = public("The job whose end it reports; `doctor`, without a queue, for an alert.", column="JOB")
    queue: str = public("The queue of that job.")
    job_status: str = public("How that job ended; for an alert the verdict.", column="ENDED")
    tries: int = public("How often it was tried.", column="TRIES")
    answer: str | None = masked("The result of the last try.", masked_text, column="LAST ANSWER")
    created_at: datetime | None = public("When the job ended.", column="ACCEPTED")
    ended_at: datetime | None = public("When the delivery ended.")
    next_at: datetime | None = public("When it is tried next.", column="NEXT TRY")

    @classmethod
    def of(cls, one: DeliveryInfo) -> Self:
        """Make the view of a delivery."""
        return cls(
            id=one.id,
            status=cast(Status, one.status),
            to=one.url,
            job_id=one.job_id,
            queue=one.queue,
            job_status=one.job_status,
            tries=one.tries,
            answer=one.answer or None,
            created_at=one.created_at,
            ended_at=one.ended_at,
            next_at=one.next_at,
        )


@view
class CallbacksView(View):
    """A page of deliveries."""

    callbacks: list[CallbackView] = public("Open ones by their next try; ended ones by their end, the newest first.")
    offset: int = public("How many were left out before these.")
    more: bool = public("Whether there are more.")
    complete: bool = public("Whether all were read.", default=ABSENT)
    dropped: int = public("Deliveries ever lost because a key in Redis had a wrong type.", default=ABSENT)
    refused: int = public("Deliveries ever refused because too many waited.", default=ABSENT)
    gone: int = public("Endpoints that answered 410 and get no more callbacks.", default=ABSENT)


@view
class CallbackRetriedView(View):
    """A delivery that is tried again."""

    id: str = public("The delivery.")
    retried: bool = public("True.")
