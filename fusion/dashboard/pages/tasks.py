"""Tasks: the outcomes of the jobs of each function, how long these waited and ran."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import quote

from fusion.dashboard.charts import Chart, Steps
from fusion.dashboard.filters import term
from fusion.dashboard.page import Page, PageRequest
from fusion.dashboard.pages.overview import CLASSES, SPANS, ended_of, times_of, waits_of

_PAGE = 50
#: Jobs of a function that failed last, and that are read to tell its queues.
_FAILED, _SEEN = 10, 50
#: Seconds for which the list is cached.
_KEPT = 20.0
#: States for which a function's page has a link to the jobs.
_STATES = ("queued", "started", "failed", "blocked", "scheduled", "finished")


def tasks(view: PageRequest) -> dict[str, Any]:
    """Load a page of functions with their last day."""
    found = view.get("/functions", offset=view.args.get("offset", 0), limit=_PAGE, kept=_KEPT)
    return {"found": found, "limit": _PAGE}


def task(view: PageRequest) -> dict[str, Any]:
    """Load one function: its charts of `?since=`, its queues, and what failed last."""
    name, span = view.params["name"], view.args.get("since", "1h")
    span = span if span in SPANS else "1h"
    total, step, kept = SPANS[span]
    past = view.get(f"/functions/{quote(name, safe='')}", since=span, kept=kept)
    steps = Steps.of(past["history"], step, total, time.time())
    query = term("func", name)
    failed = view.get("/jobs", query=f"{query} state:failed", limit=_FAILED, kept=5.0)["jobs"]
    others = view.get("/jobs", query=f"{query} -state:failed", limit=_SEEN, kept=5.0)["jobs"]
    runs = steps.by_class(lambda row, one: row["run_p95"].get(one), CLASSES)
    ran = Chart(
        f"The longest run of 95 % of the jobs, by priority, in the last {span}", "", steps.at, steps.size, runs, durations=True
    )
    return {
        "name": name,
        "span": span,
        "spans": list(SPANS),
        "charts": [*ended_of(steps, span), waits_of(steps, span, lambda row, one: row["wait_p95"].get(one)), ("Run, p95", ran)],
        "most": past,
        "waited": times_of(past["seconds"], "wait"),
        "ran": times_of(past["seconds"], "run"),
        "queues": list(dict.fromkeys(one["queue"] for one in [*failed, *others])),
        "queries": [(state, f"{query} state:{state}") for state in _STATES],
        "failed": failed,
        "query": query,
    }


PAGES = (
    Page("/tasks", "tasks.html", "Tasks", tasks, nav="Tasks", fleet=True),
    Page("/tasks/{name}", "task.html", "Task", task, fleet=True),
)
