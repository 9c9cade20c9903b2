"""What goes on in a demo that stays open: a few jobs each second, some of which fail, and the words that say where to look."""

from __future__ import annotations

import itertools
import json
import os
import shlex
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from fusion.cli.child_flags import program

#: Seconds between two jobs.
_EVERY = 0.5
#: What the providers do from then on: whatever is sent by WhatsApp takes a while, so that something runs, and no push notification gets through,
#: so that something is tried again later.
_FAULTS: tuple[dict[str, Any], ...] = ({"channel": "whatsapp", "delay": 3.0}, {"channel": "pn", "status": 503})
#: What there is to try. Those that run until Ctrl-C come last.
_COMMANDS = ("info", "jobs state:failed", "failures", "stats sms", "doctor", "top", "events tail --follow")


class Trickle:
    """Enqueues a job now and then. `sandbox` is the address of the providers' sandbox."""

    def __init__(self, sandbox: str) -> None:
        for fault in _FAULTS:
            headers = {"Content-Type": "application/json"}
            urlopen(Request(f"{sandbox}/_faults", json.dumps(fault).encode(), headers), timeout=10).close()
        self._next, self._at = _endless(), 0.0

    def due(self, now: float) -> Callable[[], Any] | None:
        """The enqueue that is due, to be called; None if none is."""
        if now < self._at:
            return None
        self._at = now + _EVERY
        return next(self._next)


def _endless() -> Iterator[Callable[[], Any]]:
    from fusion import Retry

    wrapped = import_module("wrappers.task_queue")
    for n in itertools.count(1):
        number, code = f"+999400{n:06d}1", f"Your code is {n % 1_000_000:06d}"
        yield partial(wrapped.enqueue_sms, {"to": number, "text": code}, "SMS_OTP")
        yield partial(
            wrapped.enqueue_email, {"to": f"a{n}@example.com", "subject": "Tomorrow", "text": "At ten."}, "EMAIL_REMINDER"
        )
        yield partial(wrapped.enqueue_sms, {"to": "+9994000000", "text": "To a number that is no subscriber's"}, "SMS_NOTICE")
        yield partial(wrapped.enqueue_whatsapp, {"to": number, "text": "This takes a while"}, "WHATSAPP_NOTICE")
        yield partial(wrapped.enqueue_sms, {"to": number, "text": "Later"}, "SMS_REMINDER", enqueue_in="2m")
        yield partial(wrapped.enqueue_webhook, {"url": "https://example.com/gone", "json": {"n": n}}, "WEBHOOK_EVENT")
        retried = Retry(max=3, interval=[20, 40, 60])
        yield partial(wrapped.enqueue_pn, {"to": f"device-{n}", "title": "Hello", "text": "Again"}, "PN_NOTICE", retry=retried)
        yield partial(wrapped.enqueue_email, {"to": "nobody", "subject": "No address", "text": "..."}, "EMAIL_NOTICE")


def what_to_try(url: str, dashboard: str) -> str:
    """Name where the dashboard is (empty: nowhere) and the commands for another terminal, each as it can be pasted."""
    run = shlex.join(_near(word) for word in program())
    lines = [f"  {run} {command} -u {shlex.quote(url)}" for command in _COMMANDS]
    head = "Everything goes on until Ctrl-C: two new jobs a second, some of which fail."
    seen = [f"See them in the dashboard, {dashboard}"] if dashboard else []
    return "\n".join([head, *seen, "In another terminal, in this directory:", *lines])


def _near(word: str) -> str:
    """A path below this directory as seen from here."""
    path, here = Path(word), Path.cwd()
    return os.path.relpath(path, here) if path.is_absolute() and path.is_relative_to(here) else word
