"""Writes deploy/grafana/fusion.json: a board for Grafana 9 and newer, for its "Dashboards, Import". A test checks every query."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TARGET = Path(__file__).resolve().parents[1] / "deploy" / "grafana" / "fusion.json"
#: A board is 24 columns wide.
WIDTH, HEIGHT = 24, 8
SOURCE = {"type": "prometheus", "uid": "${datasource}"}

#: Rows of panels: title, unit, and each query with its legend. `FLEET` in a query: the fleets that are chosen.
Panel = tuple[str, str, list[tuple[str, str]]]
FLEET = 'fleet=~"$fleet"'


def fleet(name: str, more: str = "") -> str:
    """A metric of the fleet: every server that is scraped has the same figure, so one of them counts."""
    return f"{name}{{{FLEET}{more}}}"


def rate(name: str) -> str:
    return f"rate({name}{{{FLEET}}}[$__rate_interval])"


def quantile(share: float, name: str) -> str:
    return f"histogram_quantile({share}, sum by (priority, le) ({rate(f'{name}_bucket')}))"


WAITING = f"max by (fleet, queue, priority) ({fleet('fusion_queue_waiting')})"
ROWS: list[tuple[str, list[Panel]]] = [
    (
        "Queues",
        [
            ("Waiting, by priority", "short", [(f"sum by (priority) ({WAITING})", "{{priority}}")]),
            (
                "Oldest waiting job, by priority",
                "s",
                [(f"max by (priority) ({fleet('fusion_queue_oldest_age_seconds')})", "{{priority}}")],
            ),
            ("Waiting, the ten longest queues", "short", [(f"topk(10, sum by (queue) ({WAITING}))", "{{queue}}")]),
            (
                "In and out",
                "ops",
                [
                    (f"sum(max by (fleet, queue) ({fleet(f'fusion_queue_{what}_per_second')}))", what)
                    for what in ("enqueued", "ended", "failed")
                ],
            ),
            (
                "Jobs by status",
                "short",
                [
                    (f"sum by (status) (max by (fleet, queue, status) ({fleet('fusion_jobs')}))", "{{status}}"),
                    (f"sum(max by (fleet) ({fleet('fusion_failed_jobs')}))", "failed"),
                    (f"sum(max by (fleet) ({fleet('fusion_scheduled_jobs')}))", "scheduled"),
                ],
            ),
            ("Paused queues", "short", [(f"sum(max by (fleet, queue) ({fleet('fusion_queue_paused')}))", "paused")]),
        ],
    ),
    (
        "Jobs",
        [
            (
                "Runs that ended, per second",
                "ops",
                [(f"sum({rate(f'fusion_jobs_{what}_total')})", what) for what in ("finished", "failed", "retried", "lost")],
            ),
            (
                "Runs that ended, in the whole range",
                "short",
                [
                    (f"sum(increase(fusion_jobs_{what}_total{{{FLEET}}}[$__range]))", what)
                    for what in ("finished", "failed", "retried", "lost")
                ],
            ),
            (
                "Wait, 95 % at most",
                "s",
                [(quantile(0.95, "fusion_job_wait_seconds"), "{{priority}}")],
            ),
            ("Run, 95 % at most", "s", [(quantile(0.95, "fusion_job_run_seconds"), "{{priority}}")]),
            (
                "Finished by task (needs --probe-metrics full)",
                "ops",
                [(f"topk(10, sum by (task) ({rate('fusion_task_finished_total')}))", "{{task}}")],
            ),
            (
                "Errors by class (needs --probe-metrics full)",
                "ops",
                [(f"topk(10, sum by (error_class) ({rate('fusion_failures_total')}))", "{{error_class}}")],
            ),
        ],
    ),
    (
        "Processes",
        [
            ("Workers by state", "short", [(f"sum by (state) (max by (fleet, state) ({fleet('fusion_workers')}))", "{{state}}")]),
            (
                "Slots",
                "short",
                [(f"sum(fusion_worker_busy{{{FLEET}}})", "busy"), (f"sum(fusion_worker_slots{{{FLEET}}})", "all")],
            ),
            ("Memory of workers", "bytes", [(f"sum(fusion_worker_memory_bytes{{{FLEET}}})", "without jobs")]),
            (
                "Lateness",
                "s",
                [
                    (f"max({fleet('fusion_scheduler_lateness_seconds')})", "scheduled jobs"),
                    (f"max({fleet('fusion_cron_lateness_seconds')})", "cron"),
                ],
            ),
            ("Sinks: oldest event", "s", [(f"max by (sink) ({fleet('fusion_sink_oldest_age_seconds')})", "{{sink}}")]),
            ("Callbacks not delivered", "short", [(f"sum(max by (fleet) ({fleet('fusion_callbacks_waiting')}))", "waiting")]),
        ],
    ),
    (
        "Redis",
        [
            (
                "Memory",
                "bytes",
                [
                    (f"sum(max by (fleet) ({fleet('fusion_redis_memory_bytes')}))", "used"),
                    (f"sum(max by (fleet) ({fleet('fusion_redis_memory_limit_bytes')}))", "limit"),
                ],
            ),
            ("CPU", "percentunit", [(f"max by (fleet) ({rate('fusion_redis_cpu_seconds_total')})", "{{fleet}}")]),
            ("Age of the samples", "s", [(f"min by (fleet) ({fleet('fusion_sample_age_seconds')})", "{{fleet}}")]),
        ],
    ),
]


def panel(number: int, at: dict[str, int], title: str, unit: str, queries: list[tuple[str, str]]) -> dict[str, Any]:
    targets = [
        {"refId": chr(65 + nth), "datasource": SOURCE, "expr": expr, "legendFormat": legend}
        for nth, (expr, legend) in enumerate(queries)
    ]
    fields = {"defaults": {"unit": unit, "min": 0}, "overrides": []}
    stat = "[$__range]" in queries[0][0]
    return {
        "id": number,
        "type": "stat" if stat else "timeseries",
        "title": title,
        "datasource": SOURCE,
        "gridPos": at,
        "fieldConfig": fields,
        "targets": targets,
    }


def board() -> dict[str, Any]:
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in ROWS:
        grid = {"x": 0, "y": top, "w": WIDTH, "h": 1}
        panels.append({"id": len(panels) + 1, "type": "row", "title": title, "collapsed": False, "gridPos": grid, "panels": []})
        top += 1
        for nth, (name, unit, queries) in enumerate(row):
            at = {"x": nth % 3 * WIDTH // 3, "y": top + nth // 3 * HEIGHT, "w": WIDTH // 3, "h": HEIGHT}
            panels.append(panel(len(panels) + 1, at, name, unit, queries))
        top += -(-len(row) // 3) * HEIGHT
    variables = [
        {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"},
        {
            "name": "fleet",
            "type": "query",
            "label": "Fleet",
            "datasource": SOURCE,
            "query": {"query": "label_values(fusion_redis_up, fleet)", "refId": "fleet"},
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
            "refresh": 2,
        },
    ]
    return {
        "uid": "fusion",
        "title": "Fusion",
        "tags": ["fusion"],
        "schemaVersion": 37,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": variables},
        "panels": panels,
    }


def text() -> str:
    return json.dumps(board(), indent=1) + "\n"


if __name__ == "__main__":
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(text())
    print(f"wrote {TARGET.name}")
