"""The signature of a job: HMAC-SHA256 over everything that decides what it does. docs/security.md says what it protects against, and what
not. It covers the job's full fields, even those that are not stored (`fusion.store.layout.compact`). It uses only HMAC of the standard
library: whoever can enqueue can also sign, so there is one level of trust.
Only HMAC of the standard library: whoever can enqueue can also sign, there is one kind of trust.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from hmac import compare_digest, digest

from fusion.exceptions import DeserializationError
from fusion.kernel.compression import plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: Field of the job's hash: `v1.<key id>.<base64url of the HMAC, without padding>`.
SIGNATURE = "signature"
#: The covered fields, in this order; the id, the queue and the priority are covered, too.
COVERED = (
    "data",
    "serializer",
    "timeout",
    "retry",
    "on_success",
    "on_failure",
    "success_task_handler",
    "failed_task_handler",
    "callback_url",
    "on_lost",
    "ttl",
)
#: Covered fields that were added later: a job without them has the same signature as before.
LATER = ("on_stopped", "takes", "gather")
_COVERED = tuple(name.encode() for name in COVERED)
_LATER = tuple(name.encode() for name in LATER)
_SIGNATURE = SIGNATURE.encode()
_VERSION = b"v1"
#: Kinds of signed names: a job's own id; or a cron entry's id, since the process that makes its jobs has no key.
_JOB, _ENTRY = b"job", b"entry"
_OF_ENTRY = re.compile(r"cron-(.+)-(?:\d{8}T\d{6}Z|manual-\d+)", re.ASCII)
_KEY_ID = re.compile(rb"[A-Za-z0-9_-]{1,32}")

MISSING = (
    "it has no signature: its producer has no secret_keys, or it was enqueued before there were any, or another program wrote it. To let a "
    "backlog through see docs/security.md, introducing keys"
)
_ALTERED = (
    "its signature does not fit: the job was altered, or written under another id or into another queue, by something that has no key. "
    "Enqueue it anew, and find out who can write to this Redis"
)
_MALFORMED = (
    "its signature is none of this version (v1.<key id>.<hmac>): it was altered, or this worker is older than its producer"
)


class Keyring:
    """Keys by id. The first one signs; all of them verify, so that keys can be rotated."""

    __slots__ = ("_first", "_keys")

    def __init__(self, keys: Iterable[str]) -> None:
        """Parse `id:secret` texts as in the setting `secret_keys`. The secret's own characters are the key."""
        parts = [key.partition(":") for key in keys]
        self._keys = {name.encode(): secret.encode() for name, _, secret in parts}
        self._first = parts[0][0].encode()

    def __repr__(self) -> str:
        return f"Keyring({', '.join(self.ids)})"

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the keys, the signing one first."""
        return tuple(name.decode() for name in self._keys)

    # -- producers

    def sign(self, job_id: str, queue: str, priority: int, fields: Mapping[str, Any]) -> str:
        """Return the signature of a job with these fields; fields that are None count as absent."""
        return self._sign(_JOB, job_id, queue, priority, fields)

    def sign_entry(self, entry_id: str, queue: str, priority: int, fields: Mapping[str, Any]) -> str:
        """Return the one signature of all jobs of a cron entry."""
        return self._sign(_ENTRY, entry_id, queue, priority, fields)

    def _sign(self, kind: bytes, name: str, queue: str, priority: int, fields: Mapping[str, Any]) -> str:
        values = [_stored(fields.get(field)) for field in COVERED]
        values += _named((name, _stored(fields.get(name.decode()))) for name in _LATER)
        return self._seal(self._first, envelope(kind, name, queue, _stored(priority), values)).decode()

    # -- workers

    def flaw(self, job_id: str, queue: str, fields: Mapping[bytes, bytes]) -> str:
        """Check a claimed job. Returns why it must not run, with the remedy, or an empty text. `queue` is the one it was claimed from."""
        given = fields.get(_SIGNATURE)
        if not given:
            return MISSING
        version, _, rest = given.partition(b".")
        key_id = rest.partition(b".")[0]
        if version != _VERSION or not _KEY_ID.fullmatch(key_id):
            return _MALFORMED
        if key_id not in self._keys:
            known = ", ".join(self.ids)
            return (
                f"it is signed with the key {key_id.decode()!r}, which is none of this worker's ({known}): add it to secret_keys and reload "
                "the workers, or enqueue the job anew (for a cron entry: declare it again)"
            )
        try:
            values = [_meant(name, fields) for name in _COVERED]
            values += _named((name, fields.get(name)) for name in _LATER)
        except DeserializationError:
            return _ALTERED
        priority = fields.get(b"priority")
        if compare_digest(self._seal(key_id, envelope(_JOB, job_id, queue, priority, values)), given):
            return ""
        entry = _OF_ENTRY.fullmatch(job_id)
        if entry and compare_digest(self._seal(key_id, envelope(_ENTRY, entry[1], queue, priority, values)), given):
            return ""
        return _ALTERED

    def _seal(self, key_id: bytes, text: bytes) -> bytes:
        mac = urlsafe_b64encode(digest(self._keys[key_id], text, "sha256")).rstrip(b"=")
        return b"%b.%b.%b" % (_VERSION, key_id, mac)


def envelope(kind: bytes, name: str, queue: str, priority: bytes | None, values: Iterable[bytes | None]) -> bytes:
    """Return the bytes to sign: each part follows its length, so that no two jobs share them; an absent field differs from an empty one."""
    parts = (b"fusion-job-1", kind, name.encode(), queue.encode(), priority, *values)
    return b"".join([b"-," if part is None else b"%d:%b," % (len(part), part) for part in parts])


def _named(values: Iterable[tuple[bytes, bytes | None]]) -> list[bytes | None]:
    """Return name and value of each present field."""
    return [part for name, value in values if value is not None for part in (name, value)]


def as_claimed(fields: Mapping[str, Any]) -> dict[bytes, bytes]:
    """Return a producer's fields in the form in which a worker claims them, for `Keyring.flaw`."""
    stored = {name.encode(): _stored(fields.get(name)) for name in (*COVERED, *LATER, SIGNATURE, "priority")}
    return {name: value for name, value in stored.items() if value is not None}


def _meant(name: bytes, fields: Mapping[bytes, bytes]) -> bytes | None:
    """Return the value that was signed: for a call, its uncompressed form."""
    value = fields.get(name)
    if name == b"data" and value and fields.get(b"serializer") in (None, b"", b"json"):
        return plain(value)
    return value


def _stored(value: Any) -> bytes | None:
    """Return the bytes of a value as Redis will store them; None for an absent one."""
    if value is None or isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else repr(value).encode()
