"""Writes the fields of an outcome frame. No function raises, whatever state the task left."""

from __future__ import annotations

import _thread
import os
import resource
import sys
from _frozen_importlib_external import SourceFileLoader
from types import TracebackType

from fusion.kernel import defaults
from fusion.kernel.bundled import public

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs every process 0.6 MB
    from typing import Any

MAX_LINE = 1024
#: ru_maxrss is bytes on macOS, KiB elsewhere.
_MAXRSS_UNIT = 1024 if sys.platform == "darwin" else 1
#: Its index in the result of `getrusage`. A look-up of names and modules would make a horse touch more pages.
_MAXRSS = 2
_getrusage, _SELF = resource.getrusage, resource.RUSAGE_SELF
#: Whether the interpreter writes errors by its own code. The module `traceback` takes 190 page faults of a process more, 700 if it is not loaded.
_SHOWS = sys.version_info < (3, 13)
_FROM_FILES = (SourceFileLoader, type(None))
_show, _count_threads, _traceback = sys.__excepthook__, _thread._count, BaseException.__dict__["__traceback__"]
_MAX_CLASSES = 64
_MAX_FRAME = 300
#: Most kinds of errors of a group in a frame, and most names of their classes.
_KINDS, _NAMES = 16, 60
_STDLIB = os.path.dirname(os.__file__) + "/"
_FUSION = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/"

#: Terminal escapes, line separators and text-direction overrides, which would let an exception's message rewrite a log.
_CODES = [
    *range(0x09),
    *range(0x0B, 0x20),
    *range(0x7F, 0xA0),
    0x2028,
    0x2029,
    *range(0x202A, 0x202F),
    *range(0x2066, 0x206A),
]
_ESCAPES = {code: (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}") for code in _CODES}
_LINE_ESCAPES = {**_ESCAPES, 0x09: " ", 0x0A: "\\n"}


def failed(error: BaseException, tb: TracebackType | None, max_exc_info: int = defaults.MAX_EXC_INFO) -> dict[bytes, bytes]:
    """Return the fields that describe an exception. `tb`: where the traceback should begin (without Fusion's own frames)."""
    fields = {
        b"kind": b"failed",
        b"exc_info": _cut(_printable(_format(error, tb), _ESCAPES, max_exc_info), max_exc_info),
        b"exc_line": exc_line(error),
        b"exc_classes": exc_classes(error),
        **asked_delay(error),
        **error_frame(tb),
    }
    if issubclass(type(error), BaseExceptionGroup):
        try:
            fields |= _of_group(error, tb)
        except BaseException:  # then its own class must do
            return fields
    return fields


def own_fault(error: BaseException) -> dict[bytes, bytes]:
    """Return the outcome of a run in which Fusion's own code failed: a task may have changed what it depends on."""
    fields = failed(error, BaseException.__dict__["__traceback__"].__get__(error))
    line = one_line(
        f"fusion.exceptions.WorkHorseTerminated: Fusion's own code failed in its process: {fields[b'exc_line'].decode()}"
    )
    return {
        **fields,
        b"own": b"1",
        b"exc_line": line,
        b"exc_classes": b"fusion.exceptions.WorkHorseTerminated\nbuiltins.Exception",
    }


def _of_group(group: BaseException, tb: TracebackType | None) -> dict[bytes, bytes]:
    """Return the fields that differ for a group of errors. `tb`: the traceback of the group.

    The first error names the group. `exc_group` contains the classes of the group and of each kind of error in it, for the retry policy.
    """
    from fusion.execution.error_groups import MOST, errors_in, traceback_of

    errors = errors_in(group)
    first, own = errors[0], exc_classes(group)
    kinds = list(dict.fromkeys(exc_classes(error) for error in errors[:MOST]))
    # An empty entry is retried only by a policy for any error.
    rest = [b""] if len(errors) > MOST or len(kinds) > _KINDS else []
    names = list(dict.fromkeys(name for kind in kinds[:_KINDS] for name in kind.split(b"\n")))[:_NAMES]
    line = f"{exc_line(first).decode()} (the first in {exc_line(group).decode()})"
    return {
        b"exc_line": one_line(line),
        b"exc_classes": b"\n".join(dict.fromkeys((*names, *own.split(b"\n")))),
        b"exc_group": b"\n\n".join([own, *kinds[:_KINDS], *rest]),
        **_longest_delay([group, *errors[:MOST]]),
        **(error_frame(traceback_of(first)) or error_frame(tb)),
    }


def _longest_delay(errors: list[BaseException]) -> dict[bytes, bytes]:
    asked = [delay for error in errors if (delay := asked_delay(error).get(b"retry_after"))]
    return {b"retry_after": max(asked, key=float)} if asked else {}


def asked(policy: str, said: str) -> dict[bytes, bytes]:
    """Return the outcome of a task that returned a `Retry`: it runs again by that policy."""
    line = f"fusion.retry.RetryLater: the task returned {said}".encode()
    return {
        b"kind": b"failed",
        b"exc_info": line,
        b"exc_line": line,
        b"exc_classes": b"fusion.retry.RetryLater\nbuiltins.Exception",
        b"retry": policy.encode(),
    }


def asked_delay(error: BaseException) -> dict[bytes, bytes]:
    """Return the delay that an error asks for: its `retry_after` in seconds, or the Retry-After of its HTTP response. Empty without one."""
    try:
        wish = getattr(error, "retry_after", None)
        if wish is None:
            wish = _retry_after(getattr(error, "response", None))
        seconds = float("nan") if wish is None or isinstance(wish, bool) else _seconds(wish)
        return {b"retry_after": b"%.3f" % max(0.0, seconds)} if seconds == seconds else {}
    except BaseException:  # attributes may be properties that raise
        return {}


def _retry_after(response: Any) -> Any:
    """Return the Retry-After of a response of requests, httpx or urllib's errors, or of botocore's dict."""
    if isinstance(response, dict):
        headers = response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    else:
        headers = getattr(response, "headers", None)
    if not headers:
        return None
    return headers.get("Retry-After") or headers.get("retry-after")


def _seconds(wish: Any) -> float:
    """Return the seconds of a number or an HTTP date."""
    try:
        return float(wish)
    except ValueError:
        import time
        from email.utils import parsedate_to_datetime

        return max(0.0, parsedate_to_datetime(wish).timestamp() - time.time())


def error_frame(tb: TracebackType | None) -> dict[bytes, bytes]:
    """Return the place of the error in the user's code, `module:function:line`.

    That is the last frame that is not of a library or Fusion, or the first frame if all are.
    """
    own = tb
    try:
        step = tb
        while step is not None:
            if _is_own(step.tb_frame.f_code.co_filename):
                own = step
            step = step.tb_next
        if own is None:
            return {}
        frame = own.tb_frame
        where = f"{public(str(frame.f_globals.get('__name__', '?')))}:{frame.f_code.co_qualname}:{own.tb_lineno}"
        return {b"error_frame": _cut(where.translate(_LINE_ESCAPES), _MAX_FRAME)}
    except BaseException:  # a module's globals may hold anything
        return {}


def task_frame(name: str, function: Any) -> dict[bytes, bytes]:
    """Return the place where a task begins, for an error before it: `module:function:line`."""
    try:
        line = int(function.__code__.co_firstlineno)
    except BaseException:  # a callable that is no function
        line = 0
    module, _, attribute = name.rpartition(".")
    return {b"error_frame": _cut(f"{module}:{attribute}:{line}".translate(_LINE_ESCAPES), _MAX_FRAME)}


def _is_own(path: str) -> bool:
    if path.startswith(("<frozen ", _FUSION)) or "/site-packages/" in path or "/dist-packages/" in path:
        return False
    return not path.startswith(_STDLIB)


def held(error: BaseException, task: str | None) -> dict[bytes, bytes]:
    """Return the outcome of a job whose task this worker does not have (yet)."""
    return {b"kind": b"held", b"exc_line": exc_line(error), b"exc_classes": exc_classes(error), b"task": (task or "").encode()}


def exc_line(error: BaseException) -> bytes:
    """Return `pkg.Class: message` on one line of at most 1 KiB."""
    name, message = dotted(type(error)).removeprefix("builtins."), _message(error)
    return _cut(_printable(f"{name}: {message}" if message else name, _LINE_ESCAPES, MAX_LINE), MAX_LINE)


def exc_classes(error: BaseException) -> bytes:
    """Return the dotted names of the exception's MRO, one on each line, for rules that match by name."""
    names = [dotted(kind) for kind in type.mro(type(error)) if kind is not object]
    return "\n".join(names[:_MAX_CLASSES]).encode("utf-8", "backslashreplace")


def dotted(kind: type) -> str:
    """Return `module.Qualname`, even if a metaclass overrides these attributes."""
    try:
        module = type.__getattribute__(kind, "__module__")
        name = type.__getattribute__(kind, "__qualname__")
        return f"{public(str(module))}.{name!s}".translate(_LINE_ESCAPES)[:200]
    except BaseException:
        return "unknown.Exception"


def _message(error: BaseException) -> str:
    try:
        text = str(error)
        # A subclass of str may override the methods used next.
        return text if type(text) is str else str.__str__(text)
    except BaseException as bad:
        return f"<its __str__ raised {dotted(type(bad)).removeprefix('builtins.')}>"


def _printable(text: str, escapes: dict[int, str], limit: int) -> str:
    # Cut before escaping, as a message may have 10 MiB.
    if len(text) > 2 * limit:
        text = text[:limit] + "\n" + text[-limit:]
    return text.translate(escapes)


def _cut(text: str, limit: int) -> bytes:
    """Cut to at most `limit` bytes. Keep head and tail: the head has the cause, the tail the most relevant line."""
    raw = text.encode("utf-8", "backslashreplace")
    if len(raw) <= limit:
        return raw
    note = f" ...[{len(raw) - limit} bytes cut]... ".encode()
    head = (limit - len(note)) // 2
    tail = limit - len(note) - head
    kept = raw[:head].decode("utf-8", "ignore").encode() + note + raw[len(raw) - tail :].decode("utf-8", "ignore").encode()
    return kept[:limit]


def _format(error: BaseException, tb: TracebackType | None) -> str:
    try:
        if tb is not None and _SHOWS and not _count_threads() and _is_in_files(tb) and (text := _shown(error, tb)):
            return text
        import traceback

        return "".join(traceback.format_exception(type(error), error, tb))
    except BaseException as bad:  # an exception class with properties that raise, or no memory left
        return _format_plainly(error, tb, bad)


def _is_in_files(tb: TracebackType | None) -> bool:
    """Return True if all code of a traceback was loaded from files, so that their lines can be read from there."""
    while tb is not None:
        if type(tb.tb_frame.f_globals.get("__loader__")) not in _FROM_FILES:
            return False
        tb = tb.tb_next
    return True


class _Sink:
    """Collects what is written to it."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.write = self.texts.append

    def flush(self) -> None:
        """Do nothing."""


def _shown(error: BaseException, tb: TracebackType) -> str:
    """Return the text that the interpreter itself writes for an error: that of the module `traceback`, in fewer steps, and without loading it. No
    other thread may run: it could write into the text."""
    sink, before, whole = _Sink(), sys.stderr, _traceback.__get__(error)
    _traceback.__set__(error, tb)
    sys.stderr = sink
    try:
        _show(type(error), error, tb)
    finally:
        sys.stderr = before
        _traceback.__set__(error, whole)
    return "".join(sink.texts)


def _format_plainly(error: BaseException, tb: TracebackType | None, bad: BaseException) -> str:
    lines = ["Traceback (most recent call last):"]
    while tb is not None and len(lines) < 200:
        code = tb.tb_frame.f_code
        lines.append(f'  File "{code.co_filename}", line {tb.tb_lineno}, in {code.co_name}')
        tb = tb.tb_next
    lines.append(f"{dotted(type(error)).removeprefix('builtins.')}: {_message(error)[:10000]}")
    lines.append(f"(short form: formatting the whole traceback raised {dotted(type(bad)).removeprefix('builtins.')})")
    return "\n".join(lines) + "\n"


def one_line(text: Any) -> bytes:
    """Return any text as one printable line of at most 1 KiB."""
    return _cut(_printable(str(text), _LINE_ESCAPES, MAX_LINE), MAX_LINE)


def used() -> dict[bytes, bytes]:
    """Return the peak memory of this process, for an outcome frame."""
    return {b"maxrss": b"%d" % (_getrusage(_SELF)[_MAXRSS] // _MAXRSS_UNIT)}
