"""The part of the Broker for callbacks: what a courier reads and writes, which is not a job's transition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fusion.kernel import defaults
from fusion.store.client.adapter import batch
from fusion.store.layout import codec
from fusion.store.scripting.host import ScriptHost

#: Fields of a job that a delivery repeats; `seq` shows that the job exists.
_VOUCHED = ("success_task_handler", "failed_task_handler", "callback_url", "ended_at", "status", "reason", "seq")


class CallbackBroker(ScriptHost):
    """The secret of deliveries, checks against their jobs' records, and endpoints that no longer accept callbacks."""

    def callbacks_refused(self) -> int:
        """Count the callbacks that were ever refused because too many waited."""
        found: Any = self.connection.get(self.keys.callbacks_refused)
        return codec.number(found)

    def callbacks_secret(self) -> bytes | None:
        """Read the key that signs deliveries; the first registered process made it."""
        found: Any = self.connection.get(self.keys.callbacks_secret)
        return found if found is None or isinstance(found, bytes) else str(found).encode()

    def agree(self, deliveries: Sequence[Mapping[str, Any]]) -> list[bool]:
        """Compare each delivery with the record of its job. True if the record agrees: the URL is one of the job's, and how and when it ended
        is the same."""
        rows = batch(
            self.connection,
            lambda pipe: [pipe.hmget(self.keys.job(str(sent.get("job_id"))), _VOUCHED) for sent in deliveries],
            raise_on_error=False,
        )
        return [_agrees(sent, row) for sent, row in zip(deliveries, rows, strict=True)]

    def endpoint_gone(self, url: str) -> bool:
        """Record that this URL accepts no more callbacks; False if that was known."""
        args = {"digest": codec.digest(url), "keep": defaults.GONE_MAX}
        return bool(self._script("endpoint_gone")({"gone": self.keys.callbacks_gone}, args))

    def gone(self, urls: Sequence[str]) -> list[bool]:
        """Return for each URL True if it accepts no more callbacks."""
        if not urls:
            return []
        found: Any = self.connection.zmscore(self.keys.callbacks_gone, [codec.digest(url) for url in urls])
        return [score is not None for score in found]

    def readmit_endpoint(self, url: str) -> bool:
        """Send this URL callbacks again; False if it was not recorded as refusing them."""
        self.check_writer()
        return bool(self.connection.zrem(self.keys.callbacks_gone, codec.digest(url)))


def _agrees(sent: Mapping[str, Any], row: Any) -> bool:
    if isinstance(row, Exception) or row[6] is None:
        return False
    *urls, ended_at, status, reason, _ = (codec.text(value) for value in row)
    ended = "expired" if (status, reason) == ("canceled", "expired") else status
    return sent.get("url") in urls and (sent.get("ended_at"), sent.get("status")) == (ended_at, ended)
