"""Put an ended job back, to be tried again in two minutes. It needs no HTTP: `POST /retryTask/` is for callers outside.

from wrappers.retry_task import retry_task
retry_task("otp-4711")
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from fusion.kernel.timeutil import parse_seconds
from fusion.web.putback import DELAY, put_back

if TYPE_CHECKING:
    from redis import Redis


def retry_task(job_id: str, delay: float | str | timedelta = DELAY, *, connection: Redis | None = None) -> None:
    """Put a failed or canceled job back to the queue it came from, at its old priority, to run in `delay` (seconds, "5m", a timedelta).

    One script call; of two at once one puts it back. fusion.exceptions: NoSuchJobError if it is gone, InvalidJobOperation if it is in any other
    state, of two calls thus also for the second; DuplicateJob if another job has its unique key by now. ValueError for a delay that is none.
    """
    put_back(job_id, delay=parse_seconds(delay), connection=connection)
