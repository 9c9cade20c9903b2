"""Whoever sends a text decides how long it is: reading eight times as much takes about eight times as long, whatever it says."""

from __future__ import annotations

import base64
import gc
import json
import os
import pickle
import time
import zlib
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import pytest
from redis.exceptions import ResponseError

from fusion.callbacks import check_url
from fusion.cli import tables
from fusion.cron import clock
from fusion.cron.plan import Plan
from fusion.dashboard import access, filters, static_files
from fusion.delivery import answers, message, targets
from fusion.delivery import post as delivery_post
from fusion.delivery import signing as delivery_signing
from fusion.enqueue import unmasking
from fusion.events import document, wording
from fusion.execution import frames
from fusion.jobs.attempts import parse_history
from fusion.jobs.failure_groups import group_id
from fusion.kernel import messages, redaction, secret_names, signing, timeutil
from fusion.kernel.importing import check_path
from fusion.kernel.progress import parse_progress
from fusion.kernel.rates import Rate
from fusion.kernel.serializers import JSONSerializer, PickleSerializer, dumps_call
from fusion.settings import mask_url, readers
from fusion.sinks import es_documents, es_options
from fusion.store.client import resp, sentinel
from fusion.store.client.classify import one_line
from fusion.store.layout.calls import function_of
from fusion.store.layout.codec import number
from fusion.store.query.grammar import Query
from fusion.store.read import audit_inspector
from fusion.store.read.cursor import Cursor
from fusion.store.stream import details as event_details
from fusion.web import asgi, auth, calls, exchange, hosts, idempotency, wsgi

GROWTH = 8
#: Linear is 8, quadratic is 64; what lies between is a loaded machine, and caches that no longer hold everything.
MOST = 24
#: Seconds below which nothing is a danger, and a clock says little.
LEAST = 0.001
#: Seconds after which nothing is tried again.
FAR_TOO_LONG = 2.0
SIZE = 12_000

#: All whole numbers that are a multiple of it have the same hash.
MODULUS = (1 << 61) - 1

Case = tuple[Callable[[int], Any], Callable[[Any], Any]]
_json = JSONSerializer()


def repeated(piece: str, before: str = "", after: str = "") -> Callable[[int], str]:
    return lambda size: before + piece * (size // len(piece)) + after


def raw(make: Callable[[int], str]) -> Callable[[int], bytes]:
    return lambda size: make(size).encode()


def tagged(kind: str, make: Callable[[int], Any]) -> Callable[[int], bytes]:
    return lambda size: json.dumps({"__fusion__": [kind, make(size)]}).encode()


def doubled(size: int) -> bytes:
    return ("{" + "".join(f'"{n}":1,' for n in range(size // 9)) + '"x":1,"x":2}').encode()


def call_of(make: Callable[[int], Any]) -> Callable[[int], bytes]:
    return lambda size: dumps_call(_json, "tasks.sms.sendSMS", (make(size),), {}, 1 << 24)


def _request(query: str = "", **headers: str) -> exchange.Request:
    return exchange.Request("POST", "/api/v1/jobs", headers, query)


def _answered(stream: bytes) -> list[Any]:
    """As the reader takes it from the socket, 64 KiB at a time."""
    import hiredis

    reader, found = hiredis.Reader(), []
    for at in range(0, len(stream), resp._CHUNK):
        reader.feed(stream[at : at + resp._CHUNK])
        while (reply := reader.gets()) is not False:
            found.append(reply)
    return found


def _framed(stream: bytes) -> None:
    reader = frames.FrameReader(1 << 24)
    for at in range(0, len(stream), 64):
        reader.feed(stream[at : at + 64])
        while reader.next():
            pass


def _asgi(pairs: list[tuple[bytes, bytes]]) -> Any:
    return asgi._request({"headers": pairs, "path": "/", "method": "GET"}, 1)


_ENQUEUE = {"func": "tasks.sms.sendSMS"}
_KEY = "abcdefghijklmnopqrstuvwxyz0123456789"
_HOOK = "whsec_" + "A" * 32

JSON: dict[str, Case] = {
    "a key twice": (doubled, _json.parse),
    "many keys twice": (raw(repeated('"a":1,', "{", '"a":1}')), _json.parse),
    "deep": (raw(repeated("[")), _json.parse),
    "deep objects": (raw(repeated('{"a":')), _json.parse),
    "broad": (raw(repeated("[1],", "[", "1]")), _json.parse),
    "escapes": (raw(repeated("\\u12ab", '"', '"')), _json.parse),
    "a long whole number": (raw(repeated("1")), _json.parse),
    "long whole numbers": (raw(repeated("1" * 4300 + ",", "[", "1]")), _json.parse),
    "a long fraction": (raw(repeated("1", "1.")), _json.parse),
    "a long exponent": (raw(repeated("1", "1e")), _json.parse),
    "spaces": (raw(repeated(" ", "", "x")), _json.parse),
    "no end": (raw(repeated("a", '"')), _json.parse),
    "a set of one hash": (tagged("set", lambda size: [n * MODULUS for n in range(size // 20)]), _json.loads),
    "a frozenset of one hash": (tagged("frozenset", lambda size: [n * MODULUS for n in range(size // 20)]), _json.loads),
    "a dict of one hash": (tagged("dict", lambda size: [[n * MODULUS, 0] for n in range(size // 20)]), _json.loads),
    "a set alike in low bits": (tagged("set", lambda size: [n << 40 for n in range(size // 20)]), _json.loads),
    "a long decimal": (tagged("decimal", repeated("1")), _json.loads),
    "the hash of a decimal": (tagged("set", lambda size: [{"__fusion__": ["decimal", "1" * size]}]), _json.loads),
    "a long class": (tagged("enum", lambda size: ["os:" + "a." * (size // 2), "b"]), _json.loads),
    "a long time": (tagged("datetime", lambda size: ["2030-01-01T" + "0" * size, None, 0]), _json.loads),
    "tags": (lambda size: tagged("tuple", lambda size: [{"__fusion__": ["tuple", []]}] * (size // 30))(size), _json.loads),
}
BYTES: dict[str, Case] = {
    "a large pickle": (lambda size: zlib.compress(pickle.dumps(os.urandom(size * 40))), PickleSerializer()._inflate),
    "a bomb": (lambda size: zlib.compress(b"0" * size * 80), PickleSerializer()._inflate),
    "the first text of a pickle": (lambda size: pickle.dumps([1] * size), PickleSerializer().first_text),
    "a frame": (lambda size: frames.pack({b"%d" % n: b"" for n in range(size // 12)})[4:], frames.unpack),
    "frames in pieces": (lambda size: frames.pack({b"a": b"b"}) * (size // 20), _framed),
    "a frame in pieces": (lambda size: frames.pack({b"a": b"b" * size}), _framed),
    "replies": (lambda size: b":1\r\n" * (size // 4), _answered),
    "a reply of many": (lambda size: b"*%d\r\n" % (size // 8) + b"$1\r\na\r\n" * (size // 8), _answered),
    "a reply without end": (lambda size: b"+" + b"a" * size, _answered),
}
WORDS: dict[str, Case] = {
    "cron list": (repeated("10,", "", "1 * * * *"), clock.parse.__wrapped__),
    "cron ranges": (repeated("0-59,", "", "1 * * * *"), clock.parse.__wrapped__),
    "cron steps": (repeated("*/2,", "", "1 * * * *"), clock.parse.__wrapped__),
    "cron names": (repeated("MON#2,", "* * * * ", "MON"), clock.parse.__wrapped__),
    "cron equal ends": (lambda size: f"* * * * {'a' * size}-{'a' * size}b", clock.parse.__wrapped__),
    "cron fields": (repeated("* "), Plan.cron),
    "cron digits": (repeated("1", "", " * * * *"), Plan.cron),
    "a stored plan": (repeated("[", '{"cron":'), Plan.from_json),
    "a zone": (repeated("a/"), lambda text: Plan.cron("* * * * *", text)),
    "duration, digits": (repeated("1", "", "x"), readers.seconds(0)),
    "duration, fraction": (repeated("1", "1.", "x"), readers.seconds(0)),
    "duration, spaces": (repeated(" ", "1", "x"), readers.seconds(0)),
    "seconds": (repeated("1", "", "s"), timeutil.parse_seconds),
    "a time": (repeated("0", "2030-01-01T"), timeutil.parse_moment),
    "a stored time": (repeated("0", "2030-01-01T", "Z"), timeutil.from_iso),
    "a size": (repeated("1", "", "x"), readers.size),
    "a percentage": (repeated("1", "", "."), readers.percent),
    "a whole number": (repeated("1"), readers.whole(0)),
    "names": (repeated("a,"), readers.names),
    "different names": (lambda size: ",".join(map(str, range(size // 6))), readers.names),
    "ports": (repeated("80,", "", "80"), readers.ports),
    "a mapping": (doubled, lambda text: readers.mapping(text.decode())),
    "a redis url": (repeated("a", "redis://"), readers.redis_url),
    "a sentinel url": (repeated("a@", "redis+sentinel://", "/"), sentinel._parse),
    "sentinels": (repeated("sentinel.example.com:26379,", "redis+sentinel://", "b"), sentinel._parse),
    "secrets in a url": (repeated("://a:"), mask_url),
    "secrets in lines": (repeated("://a:\n"), mask_url),
    "options of a url": (repeated("token"), mask_url),
    "many options of a url": (repeated("token=a&"), mask_url),
    "keys": (lambda size: ",".join(f"k{n}:{_KEY}" for n in range(size // 40)), readers.secret_keys),
    "a key with spaces": (repeated("a ", "k:", "x"), readers.secret_keys),
    "secrets of callbacks": (repeated(", "), readers.callback_secrets),
    "a tokens file": (repeated(f"a:read:{'0' * 64}\n"), lambda text: auth.parse_tokens(text, "here")),
    "scopes": (repeated("read,", "a:", f"x:{'0' * 64}"), lambda text: auth.parse_tokens(text, "here")),
    "a task's path": (repeated("a."), check_path),
    "an id that cron may have made": (repeated("-manual-1", "cron-a", "x"), signing._OF_ENTRY.fullmatch),
    "a signature": (
        lambda size: b"v1." + b"a" * size,
        lambda text: signing.Keyring([f"k:{_KEY}"]).flaw("a", "b", {b"signature": text}),
    ),
    "a webhook's signatures": (
        lambda size: {"webhook-id": "a", "webhook-timestamp": str(int(time.time())), "webhook-signature": "v1,a " * (size // 5)},
        lambda found: delivery_signing.verify(found, b"", _HOOK),
    ),
    "a stored number": (repeated("1"), number),
}
WEB: dict[str, Case] = {
    "a body": (
        doubled,
        lambda body: exchange.Request(
            "POST", "/", {"content-type": "application/json"}, length=len(body), read=lambda size: body, max_body=1 << 24
        ).json(),
    ),
    "a query": (repeated("a=1&"), lambda text: _request(text).args()),
    "a query of one field": (repeated("%41", "a="), lambda text: _request(text).args()),
    "fields of a call": (
        lambda size: _ENQUEUE | {f"f{n}": 1 for n in range(size // 10)},
        lambda body: calls.read_call(body, ["tasks"]),
    ),
    "arguments": (lambda size: _ENQUEUE | {"args": [1] * (size // 2)}, lambda body: calls.read_call(body, ["tasks"])),
    "arguments with a tag": (
        lambda size: _ENQUEUE | {"args": [{"__fusion__": 1}] * (size // 40)},
        lambda body: calls.read_call(body, ["tasks"]),
    ),
    "intervals": (
        lambda size: _ENQUEUE | {"retry_max": 3, "retry_interval": [1] * (size // 2)},
        lambda body: calls.read_call(body, ["tasks"]),
    ),
    "a key of a request": (
        lambda size: {f"{n}": n for n in range(size // 10)},
        lambda body: idempotency.once(_request(**{"idempotency-key": "k"}), body),
    ),
    "a host": (repeated("a.", "", ":80"), hosts.host_of),
    "one header often": (lambda size: [(b"a", b"bcdefghijklmnopq")] * (size // 4), _asgi),
    "many headers": (lambda size: [(b"%d" % n, b"") for n in range(size // 6)], _asgi),
    "headers of WSGI": (
        lambda size: {f"HTTP_{n}": "" for n in range(size // 10)} | {"REQUEST_METHOD": "GET"},
        lambda environ: wsgi._request(environ, 1),
    ),
    "a line of the log": (repeated("\0"), exchange.plain),
    "a url of a job": (repeated(".", "https://a"), lambda url: check_url("callback_url", url, False)),
    "a url of a callback": (repeated(".", "https://a"), lambda url: targets.parse_target(url, targets.Policy())),
    "headers of a callback": (
        lambda size: {f"X-{n}": "a" for n in range(size // 10)},
        delivery_post.check_headers,
    ),
    "Retry-After": (repeated("1-"), answers.parse_retry_after),
    "Retry-After in brackets": (repeated("("), answers.parse_retry_after),
    "an answer": (repeated("a"), lambda text: answers.excerpt(text.encode(), [f"https://host/{'abcdefgh/' * 20}"])),
}
EVENTS: dict[str, Case] = {
    "arguments of long words": (
        call_of(lambda size: ["a" * 4095 + " b c"] * (size // 4000)),
        lambda data: redaction.masked_call(data, limit=1 << 20),
    ),
    "arguments of many": (call_of(lambda size: [{"a": n} for n in range(size // 10)]), redaction.masked_call),
    "a result": (call_of(lambda size: {f"k{n}": n for n in range(size // 10)}), redaction.masked_result),
    "nested arguments": (raw(repeated('{"a":', '["f",null,')), redaction.masked_call),
    "a worker's name": (repeated(".1", "", "x"), event_details._without_numbers),
    "a function's name": (raw(repeated("a.", ' [ "')), event_details._FUNCTION.match),
    "in full": (call_of(lambda size: ["a"] * (size // 4)), lambda data: event_details._in_full(data, call=True)),
    "a number": (repeated("1"), lambda text: wording.whole_of({"n": text}, "n")),
    "seconds": (repeated("1"), lambda text: wording.seconds_of({"n": text}, "n", 1e3)),
    "an event's class": (repeated("A.", "", "!"), es_documents._CLASS.match),
    "a callback's class": (repeated("A.", "", "!"), message._CLASS.match),
    "an index": (repeated("a", "", "*"), es_options._INDEX.fullmatch),
    "a parked event": (lambda size: {f"k{n}": n for n in range(size // 10)} | {"id": "1"}, document.from_document),
}
_NOW = datetime(2026, 1, 31, tzinfo=timezone.utc)


def _matches(query: str, field: str) -> Callable[[str], Any]:
    known = {"status": b"failed", "origin": b"sms", "func": b"tasks.sms.sendSMS"}
    return lambda text: Query.parse(query).matches("job-1", known | {field: text.encode()}, _NOW)


def _nested(size: int) -> Any:
    found: Any = [0] * (size // 4)
    for _ in range(50):
        found = [found]
    return found


JOBS: dict[str, Case] = {
    "a name with dots": (repeated("a."), _matches("func:*b", "func")),
    "a name without": (repeated("a"), _matches("func:*a?a*b", "func")),
    "names in data": (repeated("a.", '["', '",null,[],{}]'), lambda text: function_of({"data": text.encode()})),
    "a tag": (repeated("a"), _matches("tag:*aaaaaaaaaaaaaaaaaaab*", "log_tag")),
    "a key": (repeated("a"), _matches("key:*a*a*a*b", "concurrency_key")),
    "an error": (repeated("a."), _matches("error:*a.a*b", "error_class")),
    "bases of an error": (repeated("a.b\n"), _matches("error:*c", "error_bases")),
    "a description": (repeated("a "), _matches("nothing", "description")),
    "a queue": (repeated("a"), _matches("queue:*a*ab", "origin")),
    "a query of values": (repeated("a,", "queue:", "a"), Query.parse),
    "a query of backslashes": (repeated("\\a", "tag:"), Query.parse),
    "a query of quotes": (repeated('""', "tag:"), Query.parse),
    "a query of stars": (repeated("*a", "tag:"), Query.parse),
    "a query of fields": (repeated("a:b "), Query.parse),
    "a wildcard of the audit": (repeated("a"), lambda text: audit_inspector._like(text, "*aaaaaaaaaaaaaaaab*")),
    "where a page ends": (lambda size: base64.urlsafe_b64encode(b"[" * size).decode(), Cursor.read),
    "runs of a job": (repeated('{"start":"2026-01-31T00:00:00Z"}\n'), parse_history),
    "progress": (repeated("[", '{"done":'), parse_progress),
    "a group of failures": (repeated(":1"), lambda text: group_id("a", text)),
    "a rate": (repeated("1", "", "/"), Rate.of_stored),
    "cookies": (repeated("a=b;"), lambda text: access.cookie_of(_request(cookie=text), "c")),
    "encodings": (repeated("a;b,"), lambda text: static_files.accepts_gzip(_request(**{"accept-encoding": text}))),
    "changed arguments": (_nested, lambda value: unmasking.restored("args", value, [*value, 1], value)),
    "an error reply": (repeated(" script: "), lambda text: one_line(ResponseError(text))),
    "words on a terminal": (repeated("a "), tables.folded),
    "a word on a terminal": (repeated("a"), lambda text: tables.cut(text, 20)),
    "a table": (repeated("a\u0301"), lambda text: tables.table(("A", "B"), [(text, text)], within=80)),
    "a cell of a page": (repeated("a "), filters.text),
    "a block of a page": (repeated("a\n"), filters.block),
}
# What people and programs write goes through the same masks, whole: `masked_text` alone looks at a beginning only.
for _name, _piece in {
    "urls": "a://",
    "logins": "http://a@b@",
    "names": "token=bearer ",
    "open quotes": 'token="',
    "schemes": "basic ",
    "prefixes": "sk-aaaaaaaa",
    "half prefixes": "xox",
    "letters": "aA",
    "dots": "a.",
    "spaces": "a" + " " * 100,
}.items():
    EVENTS[f"message: {_name}"] = (repeated(_piece), messages.mask_message)
    EVENTS[f"argument: {_name}"] = (repeated(_piece), redaction._mask_strictly)
    EVENTS[f"key: {_name}"] = (repeated(_piece), secret_names._says_secret)
    EVENTS[f"beginning: {_name}"] = (repeated(_piece), lambda text: redaction._beginning(text + " a", len(text)))

_ALL = {
    f"{group}: {name}": case
    for group, cases in {"json": JSON, "bytes": BYTES, "words": WORDS, "web": WEB, "events": EVENTS, "jobs": JOBS}.items()
    for name, case in cases.items()
}


def took(read: Callable[[Any], Any], given: Any) -> float:
    """CPU seconds of this thread, so that what else runs on the machine does not count."""
    gc.disable()  # it goes through all that the test run holds, too
    begin = time.thread_time()
    try:
        read(given)
    except Exception:  # most of it is refused
        pass
    finally:
        gc.enable()
    return time.thread_time() - begin


@pytest.mark.long
@pytest.mark.parametrize("name", _ALL)
def test_eight_times_as_much_takes_about_eight_times_as_long(name: str) -> None:
    make, read = _ALL[name]
    small, large = make(SIZE), make(SIZE * GROWTH)
    took(read, small)  # imports
    tries = []
    for _ in range(6):
        short, long = max(LEAST, min(took(read, small) for _ in range(3))), took(read, large)
        tries.append(round(long / short, 1))
        if tries[-1] < MOST:
            return
        if long > FAR_TOO_LONG:
            break
    pytest.fail(f"{GROWTH} times as much takes {tries} times as long")
