"""Who changed what: every change that a person asks for by the command line or over HTTP is written down, before it is done and after."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from redis import Redis
from redis.exceptions import RedisError, ResponseError

from fusion.exceptions import FusionError, SchemaMismatch
from fusion.kernel.nonces import new_nonce
from fusion.kernel.redaction import cut, masked_text, printable
from fusion.store.access import audit_broker_of
from fusion.store.client.classify import reply_code

log = logging.getLogger("fusion.audit")

#: Characters of who asked, of what was done, of what it was done to, and of each detail.
_WHO, _ACTION, _TARGET, _DETAIL = 128, 64, 300, 200
#: Details of an entry, and queues that it names.
_DETAILS, _QUEUES = 12, 50
#: What Redis says that refuses this entry, and not whoever asks: a broken key, no right to it, no room.
_REFUSED = ("WRONGTYPE", "NOPERM", "OOM")


class AuditedChange:
    """A change that is being made. What becomes known of it on the way is told here, and written with its outcome."""

    def __init__(self, connection: Redis, who: str, action: str, target: str = "", queues: Iterable[str] = (), **details: object):
        self._connection, self._nonce, self._ended = connection, new_nonce(), False
        self.who, self.action, self.target, self.queues = who, action, target, tuple(queues)
        self.count: int | None = None
        self._details = details

    def changed(self, count: int) -> None:
        """So many jobs, or whatever it is about, were changed; several calls add up."""
        self.count = (self.count or 0) + count

    def done(self, count: int | None = None, outcome: str = "ok", **details: object) -> None:
        """Write the result, once: later calls do nothing."""
        if self._ended:
            return
        self._ended = True
        if count is not None:
            self.changed(count)
        told = {"of": self._nonce, "outcome": cut(printable(outcome), _DETAIL)}
        if self.count is not None:
            told["count"] = str(self.count)
        try:
            self._write(f"{self._nonce}:o", told | self._about() | _told(details))
        except (FusionError, RedisError, OSError) as error:
            log.warning("audit: the result of %s could not be written: %s", self.action, error)

    def asked(self) -> None:
        """Write down that it was asked for. An entry that Redis refuses does not hinder the change, and is logged; raises StoreUnavailable and
        ConfigurationError where the change itself would."""
        told = {"nonce": self._nonce, "who": cut(printable(self.who), _WHO), "action": cut(printable(self.action), _ACTION)}
        try:
            self._write(self._nonce, told | self._about() | _told(self._details))
        except SchemaMismatch:
            return  # the change itself is refused for the same reason, and says so
        except (FusionError, ResponseError) as error:
            cause = error.__cause__ if isinstance(error.__cause__, RedisError) else error
            if isinstance(error, FusionError) and reply_code(cause) not in _REFUSED:
                raise
            log.warning("audit: %s is not written down: %s", self.action, error)

    def _about(self) -> dict[str, str]:
        found = {"target": cut(printable(self.target), _TARGET)} if self.target else {}
        queues = [name for name in dict.fromkeys(self.queues) if name.isprintable() and " " not in name]
        if queues and len(queues) <= _QUEUES:
            found["queues"] = " ".join(queues)
        return found

    def _write(self, nonce: str, fields: dict[str, str]) -> None:
        audit_broker_of(self._connection).log_audit(nonce, fields)


def _told(details: dict[str, object]) -> dict[str, str]:
    said = {name: masked(value) for name, value in details.items() if value not in (None, "", False, ())}
    return {"details": json.dumps(dict([*said.items()][:_DETAILS]))} if said else {}


def masked(value: object) -> str:
    """A detail as text: bounded, on one line, without what looks secret."""
    if isinstance(value, bool | int | float):
        return str(value)
    text = " ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
    return masked_text(text, _DETAIL) if "://" in text or "=" in text else cut(printable(text), _DETAIL)


@contextmanager
def audited(
    connection: Redis, who: str, action: str, target: str = "", queues: Iterable[str] = (), **details: object
) -> Iterator[AuditedChange]:
    """Write who changes what: the request, and at the end of the block its result, `ok` or the error. Who is killed
    in between leaves an entry with no answer. `queues`: what it is about; who may see only some queues sees it if all are theirs. No
    `details` may hold arguments of jobs."""
    entry = AuditedChange(connection, who, action, target, queues, **details)
    entry.asked()
    try:
        yield entry
    except BaseException as error:
        entry.done(outcome=outcome_of(error))
        raise
    entry.done()


def outcome_of(error: BaseException) -> str:
    """In words: `ok` for a program that ends well, the name of an error, `interrupted`."""
    if isinstance(error, SystemExit) and error.code == 130:
        return "interrupted"
    if isinstance(error, SystemExit):
        return "ok" if not error.code else f"exit code {error.code}"
    if isinstance(error, KeyboardInterrupt) or type(error).__name__ == "Abort":
        return "interrupted"
    return type(error).__name__
