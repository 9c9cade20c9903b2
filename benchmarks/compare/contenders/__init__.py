"""The service on each library, as that library's documentation advises for jobs that must not be lost.

Each module has `PACKAGE`, its distribution; `commands()`, the arguments of its processes after the interpreter; `ENV`, their environment besides; and
`enqueue(kind, job, seconds)` with the kinds `otp`, `mail`, `told` (a mail that a webhook follows) and `poison`.

There are four places for jobs; one of them is kept for OTPs.
"""

from __future__ import annotations

import os

URL = os.environ.get("COMPARE_REDIS_URL", "redis://127.0.0.1:6379/0")
#: Seconds from TERM until a process ends by itself what it has in hand; the runner kills it two seconds later.
GRACE = 8
NAMES = ("fusion", "rq", "celery", "dramatiq", "huey", "saq", "taskiq")
