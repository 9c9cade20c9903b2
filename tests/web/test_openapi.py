"""The document of the API: valid, of the routes that there are, and true of what they answer."""

from __future__ import annotations

import json
import re
from typing import Any, cast

import pytest
import redis

from fusion.jobs.failure_groups import group_id
from fusion.web.api import Api
from fusion.web.openapi.document import document
from fusion.web.routing import Route, Router
from tests.architecture.source import ROOT, modules
from tests.web.strangers import MARKER, OWN, TASK, Caller, deliveries, settle, strangers

ROUTES = Api(cast(Any, None), ()).routes()
DOCUMENT = document(ROUTES)
#: What stands for the names in a path.
NAMES = {"id": f"{MARKER}-queued", "name": MARKER, "key": f"{MARKER}-key"}
STATES = ("finished", "failed", "started", "queued", "scheduled", "child", "held", "blocked", "canceled", "stopped")
#: Of actions whose path names something else.
OTHER: dict[str, dict[str, str]] = {
    "batch": {"id": f"{MARKER}-batch"},
    "batch_graph": {"id": f"{MARKER}-batch"},
    "operation_show": {"id": f"{MARKER}-operation"},
    "failure": {"id": group_id(f"{MARKER}.Error", f"{MARKER}.mod:fn")},
    "cron_entry": {"id": f"{MARKER}-entry"},
    "worker": {"name": f"{MARKER}-worker.1"},
}
#: Lists that may well be empty.
BARE = {"cron_entry", "sinks"}


def fits(schema: str | dict[str, Any], value: Any) -> list[str]:
    """What of a value does not fit a schema of the document."""
    own = {"$ref": f"#/components/schemas/{schema}"} if isinstance(schema, str) else schema
    made = {**own, "components": DOCUMENT["components"]}
    schemas = pytest.importorskip("openapi_schema_validator")
    found = schemas.OAS31Validator(made, format_checker=schemas.oas31_format_checker).iter_errors(value)
    return [f"{'/'.join(map(str, error.absolute_path))}: {error.message[:300]}" for error in found]


def test_it_is_valid() -> None:
    validator = pytest.importorskip("openapi_spec_validator")
    validator.validate(DOCUMENT)


def test_it_has_the_routes_and_no_others() -> None:
    told = {(method.upper(), path) for path, methods in DOCUMENT["paths"].items() for method in methods}
    assert told == {(route.method, route.path) for route in ROUTES}
    for route in ROUTES:
        operation = DOCUMENT["paths"][route.path][route.method.lower()]
        assert operation["summary"], route.action
        assert operation["security"] == ([] if route.scope is None else [{"token": []}])
        assert operation.get("x-scope") == route.scope
        in_path = {param["name"] for param in operation["parameters"] if param["in"] == "path"}
        assert in_path == set(re.findall(r"{(\w+)}", route.path))


def test_every_answer_and_every_body_has_a_schema() -> None:
    assert [route.action for route in ROUTES if route.answer is None] == ["openapi"]
    assert [route.action for route in ROUTES if route.body is not None and not route.body.schema] == []
    assert [route.action for route in ROUTES if route.method == "GET" and route.body] == []


def test_real_answers_fit(conn: redis.Redis) -> None:
    strangers(conn)
    settle(conn, OWN, "ours")
    caller = Caller(conn)
    (OTHER["callback"],) = [{"id": one} for one in deliveries(conn, MARKER)[:1]]
    for route in ROUTES:
        if route.method != "GET":
            continue
        path = route.path.format(**{**NAMES, **OTHER.get(route.action, {})})
        answer = caller.ask("GET", path)
        assert answer.status == 200, (path, answer.body)
        assert fits(route.answer_schema, answer.json) == [], path
        if route.rows and route.action not in BARE:
            assert answer.json[route.rows], f"{path}: a list without rows shows nothing"
    for path, name in (
        *((f"/api/v1/jobs/{MARKER}-{state}?include=events,result,arguments,trace", "Job") for state in STATES),
        (f"/api/v1/queues/{MARKER}/stats?since=1h", "QueueStats"),
        ("/api/v1/jobs/none", "Error"),
        ("/api/v1/queues?limit=x", "Error"),
    ):
        assert fits(name, caller.ask("GET", path).json) == [], path


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_a_route_refuses_a_query_parameter_that_it_does_not_have(conn: redis.Redis, route: Route) -> None:
    answer = Caller(conn).ask(route.method, f"{route.path.format(**NAMES)}?nosuch=1", {} if route.changes else None)
    there = DOCUMENT["paths"][route.path][route.method.lower()]["parameters"]
    names = " and ".join(one["name"] for one in there if one["in"] == "query") or "none"
    told = {"code": "invalid_value", "message": f"there is no query parameter nosuch here; there is {names}", "field": "nosuch"}
    assert (answer.status, answer.json) == (422, {"error": told})


def test_changes_answer_as_it_says(conn: redis.Redis) -> None:
    settle(conn, OWN, "ours")
    caller = Caller(conn)
    router = Router(ROUTES)
    for path, body in (
        ("/api/v1/jobs", {"queue": OWN, "func": TASK, "enqueue_in": "5m"}),
        ("/retryTask/", {"job_id": "ours-failed"}),
        ("/retryTask/", {"queue": OWN, "func": TASK}),
        ("/api/v1/jobs/ours-queued/stop", None),
        ("/api/v1/jobs/ours-scheduled/reschedule", {"when": "2h"}),
        ("/api/v1/jobs/ours-scheduled/cancel", None),
        ("/api/v1/jobs/ours-stopped/copy", {"args": [1], "priority": "high"}),
        ("/api/v1/jobs/ours-stopped/requeue", None),
        ("/api/v1/jobs/ours-canceled/delete", {"purge": True}),
        ("/api/v1/fleet/suspend", {"duration": "5m"}),
        ("/api/v1/fleet/resume", None),
        ("/api/v1/operations", {"action": "delete", "query": "state:finished", "purge": True}),
        (f"/api/v1/queues/{OWN}/pause", {"duration": "5m", "reason": "so"}),
        (f"/api/v1/queues/{OWN}/resume", None),
        ("/api/v1/keys/ours-key/limit", {"max_concurrent": 3, "rate": "100/60s"}),
        ("/api/v1/keys/ours-key/pause", {"duration": "5m"}),
        ("/api/v1/keys/ours-key/resume", None),
        ("/api/v1/keys/ours-key/limit", {"rate": None}),
        ("/api/v1/cron/ours-entry/pause", None),
        ("/api/v1/cron/ours-entry/resume", None),
        ("/api/v1/cron/ours-entry/run", {"force": True}),
        ("/api/v1/cron/ours-entry/remove", None),
        (f"/api/v1/callbacks/{deliveries(conn, 'ours')[0]}/retry", None),
        (f"/api/v1/queues/{OWN}/empty", None),
    ):
        answer = caller.ask("POST", path, body)
        assert answer.status < 300, (path, answer.body)
        route = router.choose(router.find(path)[0], "POST")
        assert fits(route.answer_schema, answer.json) == [], path


def test_an_answer_is_the_json_of_a_view() -> None:
    """Nothing else makes one, but what describes the API itself, and errors."""
    own = {"exchange.py", "document.py"}
    found = [path for path in modules("fusion") if path.parts[1] == "web" and path.name not in own]
    assert [str(path) for path in found if "Response.json(" in (ROOT / path).read_text()] == []


def test_it_is_served(conn: redis.Redis) -> None:
    assert Caller(conn).ask("GET", "/api/v1/openapi.json").json == json.loads(json.dumps(DOCUMENT))
