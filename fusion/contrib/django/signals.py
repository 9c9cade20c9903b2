"""Signals of the integration."""

from __future__ import annotations

from django.dispatch import Signal

#: What was enqueued in a transaction was not accepted after its commit. Sent once for each call that enqueued, before the error is raised, with
#: `error` (StoreUnavailable, QueueFull, DuplicateJob ...), `job_ids` (those that its jobs were to have), `using` (the alias of the database)
#: and `held`, whose `send()` tries it again. What a receiver raises is logged.
enqueue_failed = Signal()
