"""What the service does, whatever library runs it.

Each run leaves lines in the file COMPARE_WITNESS: `start KIND ID SECONDS PID`, and one for its end."""

from __future__ import annotations

import os
import signal
import time
from urllib.request import Request, urlopen

#: Seconds that a webhook's receiver may take.
WEBHOOK_TIMEOUT = 15.0


def witness(what: str, kind: str, job: str) -> None:
    """Append a line, by one write."""
    file = os.open(os.environ["COMPARE_WITNESS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, f"{what} {kind} {job} {time.time():.6f} {os.getpid()}\n".encode())
    finally:
        os.close(file)


def otp(job: str) -> None:
    """Send a one-time password: 20 ms."""
    witness("start", "otp", job)
    time.sleep(0.02)
    witness("end", "otp", job)


def mail(job: str, seconds: float) -> None:
    """Send one mail of a campaign."""
    witness("start", "mail", job)
    time.sleep(seconds)
    witness("end", "mail", job)


def webhook(job: str) -> None:
    """Tell the shop that a mail was sent. Raises what urllib raises if the shop does not take it."""
    witness("start", "webhook", job)
    body = Request(os.environ["COMPARE_SHOP"], data=job.encode(), headers={"webhook-id": job})
    urlopen(body, timeout=WEBHOOK_TIMEOUT).close()
    witness("end", "webhook", job)


def poison(job: str) -> None:
    """Kill the process that runs it, as a crash in C code or the kernel's killer does when memory ends."""
    witness("start", "poison", job)
    os.kill(os.getpid(), signal.SIGKILL)


def tick() -> None:
    """The recurring job of each minute."""
    witness("start", "tick", "tick")
