"""Fusion's own sentences that are stored in Redis and shown later: templates, whose values are masked by their kind.

Fill one with `format`. The name of a slot states the kind of its value, see `SLOTS`; such a value is shown. Texts of others have no slot:
write them before or after the sentence, where they are masked like every message.
"""

from __future__ import annotations

_URL = r"(?:https?://[A-Za-z0-9.-]{1,253}(?::\d{1,5})?|https?://\[[0-9A-Fa-f:.]{2,45}\](?::\d{1,5})?)"  # scheme, host and port
#: Each kind of value, as a regular expression. The name of a slot begins with its kind: `s_grace` is a number of seconds.
SLOTS = {
    "s": r"\d{1,9}(?:\.\d{1,3})?(?:e\+\d\d)?",  # seconds: a setting, or a clock
    "n": r"\d{1,12}",  # bytes, MiB, ports, counts: settings, or measured
    "ports": r"\d{1,5}(?:, \d{1,5}){0,100}",  # a setting
    "worker": r"[A-Za-z][\w.-]{0,250}",  # its name: a setting, or host and process
    "url": _URL,
    "urls": f"{_URL}(?:, {_URL}){{0,20}}",
}

TIMED_OUT = "did not end within its timeout of {s} s"
GRACE = "plus {s} s grace and was killed"
EXCEEDED = "exceeded maximum timeout value ({s} seconds)"
HELD_MEMORY = "held {n} MiB, more than --max-job-memory {n_limit},"
PEAK = "(peak memory {n} MiB)"
AGAIN = "again in {s} s"
RATE = "nothing of its kind for {s} s"
SHARED_CALL = "the call that it shared did not end within {s} s"
RESULT_SIZE = "the result of {n} bytes was dropped; the limit is {n_limit} (max_result, FUSION_MAX_RESULT)"
FIELD_SIZE = "takes {n} bytes; the limit is {n_limit}"
FIELDS_SIZE = "take {n} bytes; the limit is {n_limit}"
DIED = "worker {worker} died"
SILENT = "worker {worker} stopped giving signs of life"
GONE = "lease expired; worker {worker} is gone or cut off"
PROCESS = "(pid {n}, {worker})"
PROCESS_ALONE = "(pid {n})"
PORT = "port {n} is none of the ports for callbacks: {ports}"
BODY = "the callback's body has {n} bytes; at most {n_most} are sent"
HEADERS = "headers are over {n} bytes"
ANSWERED = "{url} answered"
NO_CONNECTION = "no connection to {url}: "
NO_ANSWER = "no answer of {url}: "
UNREACHED = "{urls} can't be reached: "
UNANSWERED = "{urls} did not answer in time"
BUSY = "{url} is busy with others"
MEMORY_LIMIT = "it uses {n} MiB, --max-memory {n_limit}"

TEMPLATES = tuple(value for name, value in sorted(globals().items()) if name.isupper() and name not in ("SLOTS", "_URL"))
