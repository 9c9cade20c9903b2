"""The two forms of an event in Elasticsearch, each with the mapping of its fields.

No field is ever refused for its content: free texts are not indexed, long keywords are stored but not indexed, and fields without a mapping
are kept.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

from fusion.events.event import JobEvent
from fusion.kernel.timeutil import to_iso
from fusion.sinks.es_options import ElasticsearchOptions

#: The type of classic documents: a field today, and the mapping type (`_type`) of servers up to 7.
LOGS = "logs"
ECS_VERSION = "9.4.0"
_KEYWORD = {"type": "keyword", "ignore_above": 1024}
_OPAQUE = {"type": "text", "index": False}

CLASSIC_MAPPING: dict[str, Any] = {
    "dynamic": False,
    "properties": {
        **dict.fromkeys(("job_id", "task", "task_type", "status", "host", "type"), _KEYWORD),
        "log_time": {"type": "date"},
        "message": {"type": "text"},
        "payload": _OPAQUE,
        "job_result": _OPAQUE,
    },
}

ECS_MAPPING: dict[str, Any] = {
    "dynamic": False,
    "properties": {
        "@timestamp": {"type": "date"},
        "message": {"type": "match_only_text"},
        "data_stream": {
            "properties": {
                "type": {"type": "constant_keyword", "value": "logs"},
                "dataset": {"type": "constant_keyword", "value": "fusion.job"},
                "namespace": {"type": "constant_keyword"},
            }
        },
        "ecs": {"properties": {"version": _KEYWORD}},
        "error": {"properties": {"type": _KEYWORD, "message": {"type": "match_only_text"}}},
        "event": {
            "properties": {
                **dict.fromkeys(("action", "category", "dataset", "id", "kind", "module", "outcome", "type"), _KEYWORD),
                "duration": {"type": "long"},
            }
        },
        "host": {"properties": {"name": _KEYWORD}},
        "service": {"properties": {"name": _KEYWORD}},
        "fusion": {
            "properties": {
                **dict.fromkeys(
                    ("job_id", "queue", "task", "task_type", "func", "log_tag", "worker", "reason", "callback_error"), _KEYWORD
                ),
                "priority": {"type": "long"},
                "attempts": {"type": "long"},
                "delay": {"type": "double"},
                "payload": _OPAQUE,
                "result": _OPAQUE,
            }
        },
    },
}

#: Events that end a job but are none of the classic statuses: without them the job would stay `queued` for ever.
ENDS = frozenset({"expired", "canceled", "stopped"})
# It is unknown how a canceled or stopped job would have ended.
_OUTCOME = {
    **dict.fromkeys(("failed", "retry", "expired"), "failure"),
    **dict.fromkeys(("canceled", "stopped"), "unknown"),
    "completed": "success",
}
_TYPE = {"processing": "start", **dict.fromkeys(_OUTCOME, "end")}
# `ValueError`, `app.errors.Declined: ...`, `TimeoutError at tasks/sms.py:12`; not `worker was killed`.
_CLASS = re.compile(r"((?:\w+\.)*[A-Z]\w*)(?=$|:| at | in | \()")


def encode(event: JobEvent, options: ElasticsearchOptions) -> bytes:
    """Return the document of an event: a line of JSON of at most `max_document_bytes`. Its texts are cut until it fits."""
    form = _ecs if options.data_stream else _classic
    line = _line(form(event, options))
    # A quarter of the space for each text; the second try is for control characters, which take six bytes in JSON.
    for share in (4, 30):
        if len(line) <= options.max_document_bytes:
            break
        line = _line(form(_cut(event, options.max_document_bytes // share), options))
    return line


def _line(document: dict[str, Any]) -> bytes:
    # Elasticsearch refuses half a surrogate pair, which a Python str may contain.
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"


def _cut(event: JobEvent, most: int) -> JobEvent:
    def short(text: str) -> str:
        return text if len(text) <= most else f"{text[:most]}... [cut, {len(text)} characters]"

    return replace(
        event, payload=short(event.payload), result=short(event.result), message=short(event.message), reason=short(event.reason)
    )


def _classic(event: JobEvent, options: ElasticsearchOptions) -> dict[str, Any]:
    return {
        "job_id": event.job_id,
        "task": event.task,
        "task_type": event.task_type,
        "status": "failed" if event.event in ENDS and not options.more_statuses else event.event,
        "host": event.host,
        "log_time": to_iso(event.at),
        "message": event.message or event.reason,
        "payload": event.payload,
        "job_result": event.result,
        "type": LOGS,
    }


def _ecs(event: JobEvent, options: ElasticsearchOptions) -> dict[str, Any]:
    failed = _OUTCOME.get(event.event) == "failure"
    found = _CLASS.match(event.reason) if failed else None
    fields = {
        "job_id": event.job_id,
        "queue": event.queue,
        "task": event.task,
        "task_type": event.task_type,
        "func": event.func_name,
        "log_tag": event.log_tag,
        "worker": event.worker,
        "priority": event.priority,
        "attempts": event.attempts,
        "delay": event.delay,
        "reason": event.reason,
        "callback_error": event.callback_error,
    }
    document: dict[str, Any] = {
        "@timestamp": to_iso(event.at),
        "message": event.message or event.reason,
        "data_stream": {"type": "logs", "dataset": "fusion.job", "namespace": options.namespace},
        "ecs": {"version": ECS_VERSION},
        "event": {
            "id": event.id,
            "kind": "event",
            "category": ["process"],
            "type": [_TYPE.get(event.event, "info")],
            "action": event.event,
            "module": "fusion",
            "dataset": "fusion.job",
        },
        "service": {"name": options.service},
        "fusion": {name: value for name, value in fields.items() if value not in (None, "")},
    }
    document["fusion"] |= {"payload": event.payload, "result": event.result}
    if event.host:
        document["host"] = {"name": event.host}
    if event.event in _OUTCOME:
        document["event"]["outcome"] = _OUTCOME[event.event]
    if event.elapsed is not None:
        document["event"]["duration"] = round(event.elapsed * 1e9)
    if failed and event.reason:
        document["error"] = {"message": event.reason} | ({"type": found[1]} if found else {})
    return document
