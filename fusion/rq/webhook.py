"""RQ's `Webhook`, sent by Fusion's courier: after the outcome is stored, signed, again if it fails, and only to allowed addresses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from fusion.delivery.errors import DeliveryRefused
from fusion.delivery.post import check_headers
from fusion.delivery.targets import MAX_URL
from fusion.kernel.webhook_request import WebhookRequest, split_request, with_request
from fusion.rq.hints import missing, refused

if TYPE_CHECKING:
    from fusion.rq.job import Job

#: Seconds for one try; RQ's default stands for the courier's own `callback_timeout`.
_TIMEOUT = 10
_STATUSES, _METHODS = ("finished", "failed"), ("GET", "POST")


class Webhook:
    """A URL that is called when a job finished, or when it failed for good.

    The courier calls it after the outcome is stored, again if it fails, and only at allowed addresses (docs/callbacks.md). A POST sends its own
    document. `headers` are stored with the URL, and are shown nowhere. An enqueue refuses two for one status.
    """

    def __init__(self, url: Any, job_status: str, *, method: str = "GET", headers: Any = None, timeout: Any = _TIMEOUT) -> None:
        parsed = urlsplit(url) if isinstance(url, str) else None
        if parsed is None or parsed.scheme not in ("http", "https") or not parsed.netloc:
            raise ValueError(f"url must be an http:// or https:// URL, got {url!r}")
        if job_status not in _STATUSES:
            raise ValueError(f"job_status must be 'finished' or 'failed', got {job_status!r}")
        if method not in _METHODS:
            raise ValueError(f"method must be 'GET' or 'POST', got {method!r}")
        if headers and not isinstance(headers, dict):
            raise TypeError(f"headers must be a dict or None, got {type(headers).__name__}")
        if not isinstance(timeout, int) or timeout <= 0:
            raise ValueError(f"timeout must be a positive integer, got {timeout!r}")
        self.url, self.job_status, self.method, self.headers, self.timeout = url, job_status, method, headers, timeout

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Webhook) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((self.url, self.job_status, self.method))

    def __repr__(self) -> str:
        return f"Webhook({self.url.partition('?')[0]!r}, {self.job_status!r}, method={self.method!r})"

    def to_dict(self) -> dict[str, Any]:
        """Return its arguments."""
        return {
            "url": self.url,
            "job_status": self.job_status,
            "method": self.method,
            "headers": self.headers,
            "timeout": self.timeout,
        }

    def _stored(self) -> str:
        """Return the URL as a job's record has it. ValueError for headers that can't be sent, or are too long."""
        headers = dict(self.headers or {})
        try:
            check_headers(headers)
        except DeliveryRefused as error:
            raise ValueError(f"headers: {error}") from None
        text = with_request(self.url, WebhookRequest(self.method, headers, None if self.timeout == _TIMEOUT else self.timeout))
        if len(text) > MAX_URL:
            raise ValueError(f"url and headers: together they are over {MAX_URL} characters as they are stored; use shorter ones")
        return text

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Webhook:
        """Return the webhook with these arguments."""
        more = {name: data[name] for name in ("method", "headers", "timeout") if data.get(name) is not None}
        return cls(data["url"], data["job_status"], **more)

    def get_payload(self, job: Job, *, exc_string: str | None = None) -> dict[str, Any]:
        """Return the document that RQ would send. Fusion's courier sends its own."""
        payload: dict[str, Any] = {
            "job_id": job.id,
            "func_name": job.func_name,
            "status": self.job_status,
            "enqueued_at": job.enqueued_at.isoformat() if job.enqueued_at else None,
            "ended_at": job.ended_at.isoformat() if job.ended_at else None,
        }
        if self.job_status == "failed":
            payload["exc_info"] = exc_string
        return payload


def webhooks_of(urls: dict[str, str]) -> list[Webhook]:
    """Return the webhooks from the stored URL of each status."""
    found = []
    for status, text in urls.items():
        url, request = split_request(text)
        found.append(
            Webhook(
                url, status, method=request.method, headers=dict(request.headers) or None, timeout=request.timeout or _TIMEOUT
            )
        )
    return found


def urls_of(webhooks: Any) -> dict[str, str]:
    """Return the URL for each status, with its request. TypeError, or NotImplementedError for two of one status; ValueError for headers that
    can't be sent."""
    found: dict[str, str] = {}
    if not webhooks:
        return found
    if not isinstance(webhooks, Sequence) or not all(isinstance(one, Webhook) for one in webhooks):
        raise TypeError("webhooks must be a sequence of Webhook instances")
    for one in webhooks:
        if one.job_status in found:
            raise refused(f"a second Webhook for {one.job_status!r}", "have one URL call the others")
        found[one.job_status] = one._stored()
    return found


def __getattr__(name: str) -> Any:
    raise missing(__name__, name)
