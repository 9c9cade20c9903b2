"""Housekeeping that an operator runs now and then, by hand, by cron, or as a job."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any


def run_maintenance_on_failed_queue(max_age_hours: float = 24, max_times: int = 3, limit: int = 10_000) -> dict[str, Any]:
    """Put back what failed for a transient reason, and set aside what keeps coming back.

    Transient is what the default policy retries: the network, an overloaded provider. Jobs that failed so within `max_age_hours` and were
    put back fewer than `max_times` go to their queues again, `limit` of them at most; any job that failed again after it was put back
    `max_times` is quarantined. Returns `{"requeued", "quarantined", "left", "refused"}`: three counts, and why others could not be moved,
    by id. As a job it needs to find the Redis its worker uses: ConfigurationError if it does not.
    """
    # Imported here: task modules are loaded before the fork, and no other task needs Redis.
    from fusion import FailedFilter, FailedQueue
    from fusion.retry import RETRYABLE

    _check_redis()
    queue = FailedQueue()
    since = datetime.now(timezone.utc) - timedelta(hours=max_age_hours)
    back: list[str] = []
    aside: list[str] = []
    left = 0
    for failure in queue.failures(FailedFilter()):
        if failure.problem:
            left += 1
        elif failure.requeued >= max_times:
            aside.append(failure.id)
        elif not failure.is_a(RETRYABLE) or failure.failed_at is None or failure.failed_at < since or len(back) >= limit:
            left += 1
        else:
            back.append(failure.id)
    requeued = queue.requeue_many(back)
    set_aside = queue.quarantine(aside, f"failed again after it was put back {max_times} times")
    refused = requeued.refused | set_aside.refused
    return {"requeued": requeued.moved, "quarantined": set_aside.moved, "left": left, "refused": refused}


def _check_redis() -> None:
    """In a job, check that the Redis found is the one that the job came from: else another fleet's jobs would be moved."""
    from fusion import Job, get_current_job
    from fusion.exceptions import ConfigurationError

    job = get_current_job()
    if job is not None and not Job.exists(job.id):
        raise ConfigurationError(
            "maintenance found another Redis than its worker's; start the worker with FUSION_REDIS_URL (and FUSION_PREFIX) in its environment"
        )
