"""The audit log: records each change that a person makes, and each look at masked values, once before it is made and once after."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from redis import Redis
from redis.exceptions import RedisError, ResponseError

from fusion.exceptions import FusionError, NotAudited, SchemaMismatch
from fusion.kernel.actions import ACTIONS
from fusion.kernel.nonces import new_nonce
from fusion.kernel.redaction import cut, masked_text, printable
from fusion.store.access import audit_broker_of
from fusion.store.client.classify import reply_code

log = logging.getLogger("fusion.audit")

#: Most characters of the actor, the action, the target and each detail.
_WHO, _ACTION, _TARGET, _DETAIL = 128, 64, 300, 200
#: Most details of an entry, and most queues that it names.
_DETAILS, _QUEUES = 12, 50
#: Redis errors that refuse this entry only, and not the caller's change: a broken key, no permission for it, no room.
_REFUSED = ("WRONGTYPE", "NOPERM", "OOM")


class AuditedChange:
    """A change in progress. Collects its details, and writes them with the outcome."""

    def __init__(self, connection: Redis, who: str, action: str, target: str = "", queues: Iterable[str] = (), **details: object):
        self._connection, self._nonce, self._ended = connection, new_nonce(), False
        self.who, self.action, self.target, self.queues = who, action, target, tuple(queues)
        self.count: int | None = None
        self._details = details

    def changed(self, count: int) -> None:
        """Add `count` to the number of changed jobs or other things; several calls add up."""
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
        """Write the entry that the change was requested. If Redis refuses the entry, log that and go on; raise NotAudited for a `strict`
        action. Raises StoreUnavailable and ConfigurationError where the change itself would."""
        told = {"nonce": self._nonce, "who": cut(printable(self.who), _WHO), "action": cut(printable(self.action), _ACTION)}
        try:
            self._write(self._nonce, told | self._about() | _told(self._details))
        except SchemaMismatch:
            if self._is_strict:
                raise
            return  # the change itself will fail for the same reason, and report it
        except (FusionError, ResponseError) as error:
            cause = error.__cause__ if isinstance(error.__cause__, RedisError) else error
            if isinstance(error, FusionError) and reply_code(cause) not in _REFUSED:
                raise
            if self._is_strict:
                raise NotAudited(
                    f"{self.action} is refused, because the audit can't be written: {error}; mend the audit, then try again"
                ) from error
            log.warning("audit: %s is not written down: %s", self.action, error)

    @property
    def _is_strict(self) -> bool:
        return self.action in ACTIONS and ACTIONS[self.action].strict

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
    """Return a detail as text: bounded, on one line, with anything that looks secret masked."""
    if isinstance(value, bool | int | float):
        return str(value)
    text = " ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
    return masked_text(text, _DETAIL) if "://" in text or "=" in text else cut(printable(text), _DETAIL)


@contextmanager
def audited(
    connection: Redis, who: str, action: str, target: str = "", queues: Iterable[str] = (), **details: object
) -> Iterator[AuditedChange]:
    """Record a change: the request now, and at the end of the block its result, `ok` or the error. If the process is killed in between, the
    entry has no result. `queues`: the queues it concerns; a viewer limited to some queues sees the entry only if all are among them.
    `details` must not hold arguments of jobs."""
    entry = AuditedChange(connection, who, action, target, queues, **details)
    entry.asked()
    try:
        yield entry
    except BaseException as error:
        entry.done(outcome=outcome_of(error))
        raise
    entry.done()


def outcome_of(error: BaseException) -> str:
    """Return the outcome as text: `ok` for a program that exits with 0, its exit code, `interrupted`, or the name of the error."""
    if isinstance(error, SystemExit) and error.code == 130:
        return "interrupted"
    if isinstance(error, SystemExit):
        return "ok" if not error.code else f"exit code {error.code}"
    if isinstance(error, KeyboardInterrupt) or type(error).__name__ == "Abort":
        return "interrupted"
    return type(error).__name__
