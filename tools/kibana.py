"""Writes deploy/kibana/fusion.ndjson: data views and a dashboard of saved objects, for Kibana's "Stack Management, Saved Objects, Import"."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TARGET = Path(__file__).resolve().parents[1] / "deploy" / "kibana" / "fusion.ndjson"
STREAM, CLASSIC, DASHBOARD = "fusion-data-stream", "fusion-classic", "fusion-jobs"
#: Columns and rows of a dashboard: 48 wide.
HALF, WHOLE, HIGH = 24, 48, 12


def saved(kind: str, name: str, attributes: dict[str, Any], references: list[dict[str, str]]) -> dict[str, Any]:
    return {"id": name, "type": kind, "attributes": attributes, "references": references}


def data_view(name: str, title: str, shown: str, moment: str) -> dict[str, Any]:
    return saved("index-pattern", name, {"title": title, "name": shown, "timeFieldName": moment}, [])


def source(query: str) -> str:
    found = {
        "query": {"query": query, "language": "kuery"},
        "filter": [],
        "indexRefName": "kibanaSavedObjectMeta.searchSourceJSON.index",
    }
    return json.dumps(found)


def on_stream(name: str = "kibanaSavedObjectMeta.searchSourceJSON.index") -> list[dict[str, str]]:
    return [{"name": name, "type": "index-pattern", "id": STREAM}]


def chart(name: str, title: str, kind: str, buckets: list[dict[str, Any]], query: str = "", metric: Any = None) -> dict[str, Any]:
    """A visualization by aggregations, which Kibana has had since 5 and still opens. `buckets` in their order."""
    count = {"id": "1", "enabled": True, "type": "count", "schema": "metric", "params": {}}
    aggs = [metric or count, *({"id": str(n), "enabled": True, **bucket} for n, bucket in enumerate(buckets, 2))]
    params = {"type": kind, "addTooltip": True, "addLegend": True, "legendPosition": "right"}
    if kind == "table":
        params = {"perPage": 10, "showTotal": False, "totalFunc": "sum"}
    attributes = {
        "title": title,
        "visState": json.dumps({"title": title, "type": kind, "params": params, "aggs": aggs}),
        "uiStateJSON": "{}",
        "description": "",
        "version": 1,
        "kibanaSavedObjectMeta": {"searchSourceJSON": source(query)},
    }
    return saved("visualization", name, attributes, on_stream())


def over_time() -> dict[str, Any]:
    return {
        "type": "date_histogram",
        "schema": "segment",
        "params": {"field": "@timestamp", "interval": "auto", "min_doc_count": 1},
    }


def by(field: str, schema: str, size: int = 10) -> dict[str, Any]:
    return {"type": "terms", "schema": schema, "params": {"field": field, "size": size, "order": "desc", "orderBy": "1"}}


def charts() -> list[dict[str, Any]]:
    ends = "event.action: (completed or failed or expired or canceled or stopped)"
    duration = {"id": "1", "enabled": True, "type": "percentiles", "schema": "metric"}
    duration["params"] = {"field": "event.duration", "percents": [50, 95, 99]}
    return [
        chart("fusion-events", "Events", "histogram", [over_time(), by("event.action", "group")]),
        chart("fusion-outcomes", "Outcomes", "pie", [by("event.outcome", "segment", 3), by("event.action", "segment", 5)], ends),
        chart("fusion-durations", "Duration of runs (ns)", "line", [over_time()], "event.action: completed", duration),
        chart("fusion-tasks", "Tasks", "table", [by("fusion.func", "bucket", 20), by("event.action", "bucket", 5)]),
        chart(
            "fusion-errors",
            "Errors",
            "table",
            [by("error.type", "bucket", 20), by("fusion.func", "bucket", 5)],
            "event.outcome: failure",
        ),
        chart("fusion-queues", "Queues", "horizontal_bar", [by("fusion.queue", "segment"), by("event.action", "group")]),
    ]


def failures() -> dict[str, Any]:
    attributes = {
        "title": "Failed, retried and expired jobs",
        "description": "",
        "columns": ["event.action", "fusion.job_id", "fusion.queue", "fusion.func", "fusion.attempts", "message"],
        "sort": [["@timestamp", "desc"]],
        "version": 1,
        "kibanaSavedObjectMeta": {"searchSourceJSON": source("event.outcome: failure")},
    }
    return saved("search", "fusion-failures", attributes, on_stream())


def dashboard(parts: list[dict[str, Any]]) -> dict[str, Any]:
    panels, references = [], []
    for n, part in enumerate(parts):
        last = n == len(parts) - 1
        place = {"x": 0 if last or n % 2 == 0 else HALF, "y": n // 2 * HIGH, "w": WHOLE if last else HALF, "h": HIGH, "i": str(n)}
        panels.append({"panelIndex": str(n), "gridData": place, "embeddableConfig": {}, "panelRefName": f"panel_{n}"})
        references.append({"name": f"panel_{n}", "type": part["type"], "id": part["id"]})
    attributes = {
        "title": "Fusion: jobs",
        "description": "How jobs ended, from the data stream logs-fusion.job-*",
        "panelsJSON": json.dumps(panels),
        "optionsJSON": json.dumps({"useMargins": True, "hidePanelTitles": False}),
        "timeRestore": True,
        "timeFrom": "now-24h",
        "timeTo": "now",
        "version": 1,
        "kibanaSavedObjectMeta": {"searchSourceJSON": json.dumps({"query": {"query": "", "language": "kuery"}, "filter": []})},
    }
    return saved("dashboard", DASHBOARD, attributes, references)


def objects() -> list[dict[str, Any]]:
    views = [
        data_view(STREAM, "logs-fusion.job-*", "Fusion: events (data stream)", "@timestamp"),
        data_view(CLASSIC, "active-fusion-logs*", "Fusion: events (classic index)", "log_time"),
    ]
    parts = [*charts(), failures()]
    return [*views, *parts, dashboard(parts)]


def text() -> str:
    return "".join(json.dumps(one, sort_keys=True) + "\n" for one in objects())


if __name__ == "__main__":
    TARGET.write_text(text())
