"""The pause of a queue, as `rq:paused:<queue>` holds it: `<since> <by>`, and the reason in the next line. Any other text is a pause too."""

from __future__ import annotations

import getpass
import socket
from dataclasses import dataclass
from datetime import datetime, timedelta

from fusion.kernel.timeutil import from_iso, to_iso
from fusion.store.layout import codec


@dataclass(frozen=True, slots=True)
class QueuePause:
    """A pause of a queue. `since` is None if it was set by hand; `left`: seconds until it ends by itself, None for never."""

    since: datetime | None = None
    left: float | None = None
    by: str = ""
    reason: str = ""

    def document(self, at: datetime) -> dict[str, str | None]:
        """As JSON shows it; `until` is null if it does not end by itself."""
        until = None if self.left is None else to_iso(at + timedelta(seconds=self.left))
        return {
            "since": None if self.since is None else to_iso(self.since),
            "until": until,
            "by": self.by or None,
            "reason": self.reason or None,
        }


def read_pause(stored: bytes | str | None, left_ms: int) -> QueuePause:
    """The pause of a key that exists. `left_ms`: what PTTL answers."""
    head, _, reason = codec.text(stored).partition("\n")
    since, _, by = head.partition(" ")
    return QueuePause(from_iso(since.encode()), left_ms / 1000 if left_ms >= 0 else None, by, reason)


def pause_words(queue: str, seconds: float | None, by: str, reason: str) -> tuple[dict[str, str], list[str]]:
    """The arguments of `pause`, and what follows them: nothing."""
    ms = "" if seconds is None else str(max(1, round(seconds * 1000)))
    return {"queue": queue, "ms": ms, "by": by, "reason": reason}, []


def this_user() -> str:
    """The user of this process and its host, like `deploy@web1`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        user = ""
    return f"{user}@{socket.gethostname()}"
