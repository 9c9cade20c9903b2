"""Sorts Redis's errors: wait and try again, correct something, or a bug of Fusion. Also words them for people."""

from __future__ import annotations

import errno
import re
import ssl
from typing import Literal

from redis import exceptions as errors
from redis.sentinel import MasterNotFoundError

from fusion.exceptions import ConfigurationError, StoreUnavailable
from fusion.settings import mask_url
from fusion.store.client.room import is_full

#: What to do about a key under our prefix that holds data which Fusion does not write there.
OTHERS_DATA = "another program's data, an RQ queue perhaps; drain it there, or give this fleet a prefix of its own"

Kind = Literal["transient", "configuration", "bug"]

#: Error replies that pass by themselves, or once the operator has acted. redis-py has no class for half of them.
_TRANSIENT = frozenset(
    "BUSY LOADING READONLY MASTERDOWN CLUSTERDOWN TRYAGAIN MOVED ASK NOREPLICAS MISCONF OOM UNBLOCKED NOMASTERLINK INPROG BUSYKEY".split()
)
_CONFIGURATION = frozenset("NOAUTH WRONGPASS NOPERM DENIED CROSSSLOT NOPROTO".split())
#: A script that lacks a permission gets a plain error; the words are those of Redis 6.2, 7 and Valkey.
_PERMISSION_TEXT = re.compile(r"can't run this command|can't access at least one of the keys|no permission|ACL failure")
_CONFIGURATION_TEXT = re.compile(r"unknown command|DB index is out of range|(?:invalid|without any) password|no password is set")
#: The reply of a server that requires a login to a command of more than ten words; the connection never gets as far as NOAUTH.
_UNAUTHENTICATED = "Protocol error: unauthenticated"
_CONFIGURATION_TYPES = (
    errors.AuthenticationError,
    errors.AuthorizationError,
    errors.NoPermissionError,
    errors.ClusterCrossSlotError,
    ConfigurationError,
)
_TRANSIENT_TYPES = (
    errors.ConnectionError,
    errors.TimeoutError,
    errors.ReadOnlyError,
    errors.OutOfMemoryError,
    errors.ClusterDownError,
    errors.AskError,  # MOVED, too
    errors.TryAgainError,
    StoreUnavailable,
    OSError,
)


def classify(error: BaseException) -> Kind:
    """Sort an error: `transient` (the same call may work later), `configuration` (a person must act), or `bug` (neither)."""
    for cause in _chain(error):
        # A refused certificate or a forbidden socket file reaches us inside a ConnectionError that says "try again".
        if isinstance(cause, ssl.SSLCertVerificationError) or getattr(cause, "reason", "") in (
            "WRONG_VERSION_NUMBER",
            "UNKNOWN_PROTOCOL",
        ):
            return "configuration"
        if isinstance(cause, OSError) and cause.errno in (errno.EACCES, errno.EPERM):
            return "configuration"
    if isinstance(error, _CONFIGURATION_TYPES) or str(error).startswith(_UNAUTHENTICATED):
        return "configuration"
    if isinstance(error, _TRANSIENT_TYPES):
        return "transient"
    if isinstance(error, errors.ResponseError):
        code = reply_code(error)
        if code in _TRANSIENT:
            return "transient"
        if code in _CONFIGURATION or _PERMISSION_TEXT.search(str(error)) or _CONFIGURATION_TEXT.search(str(error)):
            return "configuration"
    return "bug"


def is_moving(error: BaseException) -> bool:
    """Return True for the reply of a node that is still moving keys of the call to another node of the cluster."""
    return isinstance(error, (errors.TryAgainError, errors.AskError)) and not isinstance(error, errors.MovedError)


def reply_code(error: BaseException) -> str:
    """Return the first word of an error reply (`BUSY`, `WRONGTYPE`), also where redis-py cut it off; empty if there is none."""
    text = str(error)
    inner = _WRAPPED.sub("", text)
    code = (getattr(error, "status_code", None) if inner == text else None) or inner.partition(" ")[0]
    return code if code.isupper() else ""


def unwrapped(error: errors.ResponseError) -> errors.ResponseError:
    """Return the error that a command in a script met, where a server before Redis 7 answers that the script failed; else the error itself."""
    text = _WRAPPED.sub("", str(error))
    if text == str(error):
        return error
    code, _, rest = text.partition(" ")
    return _BY_CODE[code](rest) if code in _BY_CODE else errors.ResponseError(text)


#: What a server before Redis 7 puts before the error that a command in a script met; those that redis-py has classes for.
_WRAPPED = re.compile(r"^Error running script \(call to f_[0-9a-f]{40}\): (?:@\S+ (?:\d+: )?)*-(?=[A-Z]+ )")
_BY_CODE = {"OOM": errors.OutOfMemoryError, "READONLY": errors.ReadOnlyError}
_PLACE = re.compile(r"\.? script: (?:[0-9a-f]{40}, )?on @\S+$| \(fusion/store/lua/\S+\)$")
_FULL = "is full and takes no more: raise its maxmemory, or make room there"
_NO_ROOM = {"OOM": _FULL, "MISCONF": "can't save its data and refuses to write: look at its log and at the room on its disk"}


def without_place(text: str) -> str:
    """Return the text of an error without the line of the script that raised it, which helps only where the script is wrong."""
    return _PLACE.sub("", text)


def one_line(error: BaseException, where: str | None = None) -> str:
    """Word an error in one line for a person: what happened, to which Redis (`where`: its url), and what to do. No passwords, no line breaks."""
    text = " ".join(mask_url(str(error)).split()).rstrip(".") or type(error).__name__
    text = re.sub(r",? with args beginning with:.*", "", text)  # what was sent: the server quotes it
    text = re.sub(r"^Error \S+ (?:connecting to|while \w+ \w+) \S+\. ", "", text)
    if isinstance(error, (ConfigurationError, StoreUnavailable)):
        return text
    server = f"Redis at {mask_url(where)}" if where else "Redis"
    code = reply_code(error)
    kind = classify(error)
    if kind == "bug":
        return f"{server} answered with an error Fusion did not expect: {type(error).__name__}: {text}"
    text = without_place(text)
    if kind == "configuration":
        return f"{server} {_configuration(error, code, text)}"
    if code in _NO_ROOM or isinstance(error, errors.OutOfMemoryError):
        return f"{server} {_NO_ROOM.get(code, _FULL)}: {text}"
    if isinstance(error, errors.MovedError) and not (where or "").startswith(("redis+cluster:", "rediss+cluster:")):
        return (
            f"{server} is one node of a cluster, and another one serves these keys: {text}; use redis+cluster://host:port:"
            " then Fusion finds that node"
        )
    if isinstance(error, errors.ResponseError) or code in _TRANSIENT:
        return f"{server} can't do this just now: {code + ' ' if code and not text.startswith(code) else ''}{text}; try again"
    if is_full(error):
        return (
            f"{server} was not asked: {text}; enqueue from fewer threads, greenlets or tasks at once, or allow more connections: "
            "?max_connections=500 at the end of the url"
        )
    if isinstance(error, MasterNotFoundError):
        return f"{server} can't be reached: {_without_master(str(error))}"
    # A server without TLS does not refuse a TLS greeting, it waits for the rest of it.
    running = "is it running with TLS" if where and where.startswith("rediss") else "is it running"
    return f"{server} can't be reached: {text}; {running}, and is FUSION_REDIS_URL (or --url) right?"


def _without_master(text: str) -> str:
    """Return redis-py's text about Sentinels, without the objects that it prints for those that do not answer."""
    name = re.match(r"No master found for ('[^']*'|\"[^\"]*\")", text)
    silent = ", ".join(f"{host}:{port}" for host, port in re.findall(r"\bhost=([^,()\s]+),port=(\d+)", text))
    told = f"no Sentinel names a healthy master{f' {name[1]}' if name else ''}"
    told += (
        f"; no answer of {silent}: are the Sentinels running, and are their addresses"
        if silent
        else "; is it running, and is its name"
    )
    return f"{told} right (FUSION_REDIS_URL, --url or the setting sentinel)?"


def _configuration(error: BaseException, code: str, text: str) -> str:
    if isinstance(error, errors.NoPermissionError) or _PERMISSION_TEXT.search(text):
        return f"refused a command: {text}; grant the ACL user what docs/operations.md lists"
    if (
        isinstance(error, (errors.AuthenticationError, errors.AuthorizationError))
        or code in ("NOAUTH", "WRONGPASS")
        or text.startswith(_UNAUTHENTICATED)
    ):
        return f"refused the login: {text}; correct user and password in FUSION_REDIS_URL (or --url), or the password's file"
    if code == "CROSSSLOT" or isinstance(error, errors.ClusterCrossSlotError):
        return f"is a cluster: {text}; use a prefix with a hash tag: FUSION_PREFIX='rq:{{fusion}}:'"
    if any(isinstance(cause, ssl.SSLError) for cause in _chain(error)):
        return f"failed the TLS handshake: {text}; check rediss://, redis_ssl_ca_certs and the host name in the certificate"
    return f"does not allow this: {text}; correct the server's set-up or FUSION_REDIS_URL (or --url)"


def _chain(error: BaseException) -> list[BaseException]:
    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in chain:
        chain.append(current)
        current = current.__cause__ or current.__context__
    return chain
