"""The worker's side: sends envelopes of jobs by Sentry's own transport, and makes those of runs whose process was killed."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import Any

from sentry_sdk import Client
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import HttpTransport
from sentry_sdk.utils import BadDsn

from fusion.contrib.sentry.facts import MESSAGE, check_in, context_of, entry_of, fingerprint_of, tags_of
from fusion.contrib.sentry.reports import sample_rate
from fusion.exceptions import ConfigurationError
from fusion.kernel.redaction import masked_text
from fusion.worker.telemetry import DeadRun

#: An end that is no failure.
_STOPPED = "fusion.exceptions.JobStopped"


class _InThisThread:
    """Stands for the transport's own thread and queue: the worker has both, and counts what it drops."""

    def submit(self, callback: Callable[[], Any]) -> bool:
        callback()
        return True

    def full(self) -> bool:
        return False

    def flush(self, timeout: float, callback: object = None) -> None: ...

    def kill(self) -> None: ...


class _Counting(HttpTransport):
    """Sentry's transport; counts what it loses."""

    lost = 0

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options)
        self._worker = _InThisThread()  # type: ignore[assignment]

    def record_lost_event(self, reason: str, data_category: Any = None, item: Any = None, *, quantity: int = 1) -> None:
        """Count an item."""
        if item is not None:
            self.lost += 1


class Sender:
    """Sends to the project of SENTRY_DSN. ConfigurationError if that is missing or no DSN."""

    def __init__(self) -> None:
        dsn = os.environ.get("SENTRY_DSN", "").strip()
        if not dsn:
            raise ConfigurationError(
                "SENTRY_DSN is not set; set it to your project's DSN, or take fusion.contrib.sentry.Sentry out of the setting middleware",
                code="FUS-222",
            )
        sample_rate()
        try:
            self._client = Client(
                dsn=dsn,
                transport=_Counting,
                default_integrations=False,
                auto_enabling_integrations=False,
                auto_session_tracking=False,
                enable_backpressure_handling=False,
                send_client_reports=False,
            )
        except BadDsn as error:
            raise ConfigurationError(f"SENTRY_DSN is no DSN: {error}", code="FUS-222") from None
        assert isinstance(self._client.transport, _Counting)
        self._transport = self._client.transport
        assert self._transport.parsed_dsn is not None
        self.shown = f"Sentry at {self._transport.parsed_dsn.host}"

    def send(self, records: Sequence[bytes]) -> int:
        """Send envelopes; return how many were lost. Sentry's transport repeats none, and keeps its rate limits itself."""
        invalid, before = 0, self._transport.lost
        for record in records:
            try:
                self._transport.capture_envelope(Envelope.deserialize(record))
            except Exception:  # its process runs foreign code
                invalid += 1
        return min(len(records), invalid + self._transport.lost - before)

    def dead(self, run: DeadRun) -> list[bytes]:
        """Return the event of a run whose process is gone, and its check-in."""
        options, found = self._client.options, list[Envelope]()
        if run.kind and run.kind != _STOPPED and run.failed:
            envelope = Envelope(headers={"event_id": uuid.uuid4().hex})
            envelope.add_event(self._event(run, envelope.headers["event_id"]))
            found.append(envelope)
        if (entry := entry_of(run.job_id)) is not None:
            envelope = Envelope()
            status = "error" if run.kind else "ok"
            envelope.add_checkin(check_in(entry, run.execution_id, status, run.seconds, options))
            found.append(envelope)
        return [envelope.serialize() for envelope in found]

    def _event(self, run: DeadRun, event_id: str) -> Any:
        module, _, name = run.kind.rpartition(".")
        options = self._client.options
        return {
            "event_id": event_id,
            "timestamp": datetime.now(timezone.utc).isoformat(),
            "platform": "python",
            "level": "error",
            "transaction": run.task,
            "server_name": options["server_name"],
            "environment": options["environment"],
            "release": options["release"],
            "exception": {
                "values": [
                    {
                        "type": name,
                        "module": module,
                        "value": masked_text(run.why, MESSAGE),
                        "mechanism": {"type": "fusion", "handled": False},
                    }
                ]
            },
            "tags": tags_of(run.fields, run.queue, run.task),
            "contexts": {"fusion": context_of(run.fields, run.job_id, run.queue, run.task)},
            "fingerprint": fingerprint_of(run.kind, run.frame, run.task),
        }
