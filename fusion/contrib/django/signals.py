"""Signals of the integration."""

from __future__ import annotations

from django.dispatch import Signal

#: Sent when jobs that were enqueued in a transaction are not accepted after its commit, once for each enqueueing call, before the error is
#: raised. Arguments: `error` (StoreUnavailable, QueueFull, DuplicateJob ...), `job_ids` (the ids that its jobs were to have), `using` (the
#: alias of the database) and `held`, whose `send()` tries it again. Errors of receivers are logged.
enqueue_failed = Signal()
