"""Events to Elasticsearch: the index `active-fusion-logs` in its classic form, or a data stream with ECS fields.

An event may be sent again, but is stored once: its document has the event's id, and only `create` is used.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from fusion.events.event import STATUSES, JobEvent
from fusion.events.sink import Rejected, SinkUnavailable
from fusion.kernel import program
from fusion.sinks.es_client import Link, Refused, explain
from fusion.sinks.es_documents import ENDS, LOGS, encode
from fusion.sinks.es_options import ElasticsearchOptions

_Document: TypeAlias = tuple[JobEvent, bytes]
#: Errors with status 400 about the index, not about a document. They must not park events, or all events of the stream would be parked.
_PLACE = frozenset(
    "index_closed_exception validation_exception invalid_index_name_exception invalid_alias_name_exception "
    "index_not_found_exception cluster_block_exception resource_already_exists_exception".split()
)
#: Most bytes of the line before a document.
_ACTION = 100
#: Bytes of the smallest batch: if a server refuses even this as too large, its set-up is wrong.
_TINY = 10_000
_ANSWER = "errors,items.*.status,items.*.error.type,items.*.error.reason"


class ElasticsearchSink:
    """The sink of Elasticsearch. ConfigurationError if the client library is missing or refuses the options. It connects only when it
    writes."""

    name = "elasticsearch"

    def __init__(self, options: ElasticsearchOptions) -> None:
        self.all_events = True
        self._wanted = None if options.data_stream else STATUSES | ENDS
        self._options = options
        self._link = Link(options)
        self._most = options.max_batch_bytes
        self._typeless = options.data_stream

    def write(self, events: Sequence[JobEvent]) -> Sequence[Rejected]:
        """Deliver a batch. After SinkUnavailable a part may be delivered: the whole batch comes again, and ids prevent duplicates."""
        wanted = [event for event in events if self._wanted is None or event.event in self._wanted]
        refused: list[Rejected] = []
        try:
            for batch in self._batches(wanted):
                refused += self._send(batch)
        except SinkUnavailable:
            self._link.forget()
            raise
        return refused

    def close(self) -> None:
        """Close the connections."""
        self._link.close()

    def _batches(self, events: Sequence[JobEvent]) -> Iterator[list[_Document]]:
        batch: list[_Document] = []
        size = 0
        for event in events:
            document = encode(event, self._options)
            needed = _ACTION + len(document)
            if batch and size + needed > self._most:
                yield batch
                batch, size = [], 0
            batch.append((event, document))
            size += needed
        if batch:
            yield batch

    def _send(self, batch: list[_Document]) -> list[Rejected]:
        typed = not self._typeless and (0, 0) < self._link.server().version < (8, 0)
        body = b"".join(_action(event, typed) + document for event, document in batch)
        # The server should give up before the client: an error answer says more than a timeout.
        params = {"filter_path": _ANSWER, "timeout": f"{max(1, int(self._options.timeout * 800))}ms"}
        try:
            answer = self._link.ask("PUT", f"/{self._options.target}/_bulk", body, media="x-ndjson", params=params)
        except Refused as refusal:
            if refusal.status == 413:
                return self._halve(batch, len(body))
            raise SinkUnavailable(f"{self._where} refuses the whole request: {refusal}") from None
        results = _results(answer)
        if len(results) != len(batch):
            raise SinkUnavailable(f"{self._where} answered for {len(results)} of {len(batch)} events")
        if typed and any("more than 1 type" in explain(result.get("error"))[1] for result in results):
            # Index or template have no types; servers of version 7 accept that as well.
            self._typeless = True
            return self._send(batch)
        return self._refused(batch, results)

    def _refused(self, batch: list[_Document], results: list[dict[str, Any]]) -> list[Rejected]:
        refused: list[Rejected] = []
        later: list[str] = []
        for (event, _), result in zip(batch, results, strict=True):
            status = int(result.get("status", 0))
            if 200 <= status < 300 or status == 409:
                continue
            kind, reason = explain(result.get("error"))
            why = f"{kind} ({status}): {reason}"
            if status != 400 or kind in _PLACE or "no write index" in reason:
                later.append(why)
            else:
                refused.append(Rejected(event, why))
        if later:
            hint = f"; run `{program.name()} events setup`" if "index_not_found" in later[0] else ""
            raise SinkUnavailable(f"{self._where} did not take {len(later)} of {len(batch)} events: {later[0]}{hint}")
        return refused

    def _halve(self, batch: list[_Document], size: int) -> list[Rejected]:
        if size < _TINY:
            raise SinkUnavailable(f"{self._where} takes not even {size} bytes (413); correct the proxy in front of it")
        if len(batch) == 1:
            why = f"{size} bytes are too many for the server (413); lower elasticsearch_max_document_bytes"
            return [Rejected(batch[0][0], why)]
        self._most = max(min(self._most, size) // 2, self._options.max_document_bytes)
        middle = len(batch) // 2
        return self._send(batch[:middle]) + self._send(batch[middle:])

    @property
    def _where(self) -> str:
        return f"{self._options.target} at {self._options.shown}"


def _action(event: JobEvent, typed: bool) -> bytes:
    action = {"_id": event.id, "_type": LOGS} if typed else {"_id": event.id}
    return json.dumps({"create": action}).encode() + b"\n"


def _results(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the result of each event, in order. SinkUnavailable if the answer has another form."""
    try:
        return [dict(result) for item in answer["items"] for result in item.values()]
    except (KeyError, TypeError, ValueError, AttributeError):
        raise SinkUnavailable("Elasticsearch's answer to a bulk request has another form than is known") from None
