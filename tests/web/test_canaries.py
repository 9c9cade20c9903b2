"""What comes through where: a mark in each text that Redis holds; then each route, page and command that reads, asked by each scope.

canaries.json is the table of what came through before views were made, and of each deliberate change since. `zqb...` stands bare in its text,
`zqs...` behind `password=`. Nothing comes through where it is not in the table, and all that is in the table comes through.

Its `fields` are the fields of views that are not public: the class of each, and by scope what comes through in it. A dash: the field is missing.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, cast, get_args, get_origin, get_type_hints

import pytest
import redis
from click.testing import CliRunner

from fusion import Job, Queue
from fusion.audit import audited
from fusion.cli.main import cli
from fusion.dashboard.app import DashboardApp
from fusion.jobs.failure_groups import group_id
from fusion.kernel.timeutil import now, to_iso
from fusion.store.read import search_inspector
from fusion.views.base import Shown, View, definition
from fusion.views.delivery import CallbacksView
from fusion.views.job import JobsView, RunningView, ScheduledView
from fusion.views.job_sheet import JobView
from fusion.views.revealed import RevealedView
from fusion.views.trash import TrashView
from fusion.web.api import Api
from fusion.web.auth import new_actor
from tests.browser.house import addresses
from tests.dashboard.browser import Browser
from tests.dashboard.test_every_page import THEIRS
from tests.views.test_classes import VIEWS
from tests.web.strangers import MARKER, TASK, Caller, deliveries, strangers

TABLE = Path(__file__).with_name("canaries.json")
ROUTES = [route for route in Api(cast(Any, None), ()).routes() if route.method == "GET"]
JOB_TEXTS = (
    *("description", "meta", "reason", "result", "exc_info", "error_class", "error_frame", "log_tag", "callback_error", "data"),
    *(
        "fair_key",
        "quarantined",
        "result_error",
        "worker_name",
        "original_queue",
        "cursor",
        "progress",
        "history",
        "cron",
        "nonce",
    ),
    *("on_success", "on_failure", "on_stopped", "success_task_handler", "failed_task_handler", "callback_url", "takes"),
    *("unique_key", "headers", "trace_id", "source", "a_field_of_others"),
)
HASHES = {
    f"rq:worker:{MARKER}-worker.1": ("hostname", "throttled", "unloaded", "version", "quiet_by", "a_field_of_others"),
    f"rq:batch:{MARKER}-batch": ("name", "a_field_of_others"),
    f"rq:cron:entry:{MARKER}-entry": ("error", "declared_error", "app", "version", "a_field_of_others"),
    f"rq:operation:{MARKER}-operation": ("by", "reason", "carrier", "canceled_by", "a_field_of_others"),
    f"rq:limit:{MARKER}-key": ("paused_by", "paused_why", "a_field_of_others"),
    "rq:sink:log": ("error", "last_event", "a_field_of_others"),
}
STATES = ("failed", "started", "blocked", "scheduled", "kept")
INCLUDES = ("", "events", "result", "arguments", "trace", "events,arguments", "log")
NAMES = {"id": f"{MARKER}-failed", "name": MARKER, "key": f"{MARKER}-key"}
OTHER: dict[str, dict[str, str]] = {
    "batch": {"id": f"{MARKER}-batch"},
    "batch_graph": {"id": f"{MARKER}-batch"},
    "operation_show": {"id": f"{MARKER}-operation"},
    "failure": {"id": group_id("zqberrorclasskx password=zqserrorclasskx", "zqberrorframekx password=zqserrorframekx")},
    "cron_entry": {"id": f"{MARKER}-entry"},
    "worker": {"name": f"{MARKER}-worker.1"},
}
COMMANDS = (
    *(
        "info",
        "top",
        "stats",
        f"stats {MARKER}",
        "jobs",
        "failures",
        "scheduled",
        "audit",
        "trash list",
        f"trash show {MARKER}-kept",
    ),
    *(
        f"job show {MARKER}-failed",
        f"job show {MARKER}-failed --trace",
        f"job show {MARKER}-blocked",
        f"job show {MARKER}-started",
    ),
    *(
        f"tree {MARKER}-failed",
        "batches",
        f"batch show {MARKER}-batch",
        "limit list",
        f"limit show {MARKER}-key",
        "queue show",
    ),
    *("operations list", f"operations show {MARKER}-operation", "cron list", f"cron history {MARKER}-entry", "callbacks list"),
    *(f"batch graph {MARKER}-batch", "doctor", "events stats"),
)
#: The views of documents that have a field which is not public.
DOCUMENTS = {
    "job show": (JobView,),
    "scheduled": (ScheduledView,),
    "trash list": (TrashView,),
    "callbacks list": (CallbacksView,),
    "jobs": (JobsView,),
    "top": (RunningView,),
}
#: Asked by POST, as it is written to the audit; no other answer has its fields.
REVEAL = "/api/v1/jobs/{id}/reveal"
#: Only a request over HTTP can ask for these.
RAW = ("JobView.callback_error", "JobView.reason", "JobView.result", "JobView.runs")
#: Pages besides the one of each route: other states of a job, and lists that are narrowed.
PAGES = (
    *(f"/jobs/{MARKER}-{state}" for state in ("started", "blocked", "scheduled", "kept")),
    *(
        f"/jobs?q=queue:{MARKER}",
        f"/jobs/{MARKER}-failed/copy",
        f"/audit?who=token:{MARKER}",
        "/limits?stuck=1",
        "/relay?status=failed",
    ),
)
SCOPES = {"read": ("read",), "operate": ("read", "operate"), "admin": ("read", "operate", "admin")}


def mark(kind: str, field: str) -> str:
    word = re.sub(r"[^a-z]", "", f"{kind}{field}")
    return f"zqb{word}kx password=zqs{word}kx"


def plant(conn: redis.Redis) -> None:
    strangers(conn)
    for state in STATES[:-1]:
        texts = {field: mark("", field) for field in JOB_TEXTS if not (state == "started" and field == "worker_name")}
        texts["meta"] = json.dumps({"note": mark("", "meta"), "password": "zqpmetakx"})
        texts["result"] = json.dumps({"note": mark("", "result"), "password": "zqpresultkx"})
        texts["data"] = json.dumps([TASK, None, [mark("", "data")], {"password": "zqpdatakx"}])
        texts["progress"] = json.dumps({"done": 1, "total": 2, "note": mark("", "progress")})
        texts["callback_url"] = f"https://hooks.{MARKER}.example/{mark('', 'callback_url').split()[0]}"
        texts["history"] = json.dumps({"outcome": "failed", "worker": f"{MARKER}-worker.1", "error": mark("", "history")})
        if state == "scheduled":
            texts |= {"deliveries": "1", "started_at": to_iso(now())}
            texts["history"] = json.dumps(json.loads(texts["history"]) | {"start": texts["started_at"]})
        conn.hset(f"rq:job:{MARKER}-{state}", mapping=texts)
        said = {"event": "log", "source": "log", "job_id": f"{MARKER}-{state}", "message": mark("", "event")}
        conn.xadd("rq:events", cast(Any, said))
    Queue(MARKER, conn).enqueue(TASK, job_id=f"{MARKER}-kept")
    conn.hset(f"rq:job:{MARKER}-kept", mapping={field: mark("kept", field) for field in ("reason", "description", "quarantined")})
    Job(f"{MARKER}-kept", {}, conn).delete()
    for key, fields in HASHES.items():
        conn.hset(key, mapping={field: mark(key.split(":")[1], field) for field in fields})
    conn.hset(f"rq:worker:{MARKER}-worker.1", "lease_ms", 3_600_000)  # it lives, however slow this machine is
    for one in deliveries(conn, MARKER):
        conn.hset(
            f"rq:job:{one}", mapping={field: mark("delivery", field) for field in ("answer", "secret", "headers", "reason")}
        )
        data = json.loads(cast(bytes, conn.hget(f"rq:job:{one}", "data")))
        if told := conn.hget(f"rq:job:{data[3]['job_id']}", "callback_url"):  # so that the job's page finds its delivery
            data[3]["url"] = cast(bytes, told).decode()
        conn.hset(f"rq:job:{one}", "data", json.dumps(data))
    with audited(conn, mark("audit", "who"), "stop", mark("audit", "target"), (MARKER,), reason=mark("audit", "reason")):
        pass


def asked(conn: redis.Redis) -> Iterator[tuple[str, str]]:
    """What each call is called in the table, and its path."""
    ids = OTHER | {"callback": {"id": deliveries(conn, MARKER)[0]}}
    for route in ROUTES:
        path = route.path.format(**{**NAMES, **ids.get(route.action, {})})
        if route.action != "job":
            yield route.path, path
            continue
        for state in STATES:
            for include in INCLUDES:
                name = f"{route.path} {state}" + (f" {include}" if include else "")
                yield name, f"/api/v1/jobs/{MARKER}-{state}" + (f"?include={include}" if include else "")


def marks(said: str) -> str:
    return " ".join(sorted(set(re.findall(r"zq[a-z]+kx", said))))


def over_http(conn: redis.Redis, scope: str) -> tuple[dict[str, str], dict[str, str]]:
    """What comes through by route, and by field of a view that is not public."""
    caller = Caller(conn, scopes=SCOPES[scope])
    seen: dict[str, str] = {}
    by_field: defaultdict[str, set[str]] = defaultdict(set)
    for name, path in asked(conn):
        answer = caller.ask("GET", path)
        if found := marks(answer.body.decode()):
            seen[name] = found
        if answer.status == 200:
            note(by_field, next(route.answer for route in ROUTES if route.path == name.split()[0]), answer.json)
    revealed = caller.ask("POST", REVEAL.format(id=f"{MARKER}-failed"))
    assert revealed.status == (200 if scope == "admin" else 403)
    if revealed.status == 200:
        seen[REVEAL] = marks(revealed.body.decode())
        note(by_field, RevealedView, revealed.json)
    return seen, {name: " ".join(sorted(found)) for name, found in by_field.items()}


def note(by_field: defaultdict[str, set[str]], view: Any, document: Any) -> None:
    for kind, one, value in fields_in(view, document):
        if one.holds != "public":
            by_field[f"{kind.__name__}.{one.attribute}"].update(marks(json.dumps(value)).split())


@cache
def hints(kind: type[View]) -> dict[str, Any]:
    return get_type_hints(kind)


def fields_in(kind: Any, value: Any) -> Iterator[tuple[type[View], Shown, Any]]:
    """Each field of a view, and of those in it, that a value in JSON has."""
    args = get_args(kind)
    if isinstance(kind, type) and issubclass(kind, View):
        for one in kind.FIELDS if isinstance(value, dict) else ():
            if one.name in value:
                yield kind, one, value[one.name]
                yield from fields_in(hints(kind)[one.attribute], value[one.name])
    elif isinstance(value, list) and get_origin(kind) in (list, tuple):
        for part in value:
            yield from fields_in(args[0], part)
    elif isinstance(value, dict) and get_origin(kind) is dict:
        for part in value.values():
            yield from fields_in(args[1], part)
    elif value is not None:
        for arg in args:
            yield from fields_in(arg, value)


def closed_fields() -> dict[str, str]:
    """The class of each field of a view that is not public."""
    return {
        f"{kind.__name__}.{one.attribute}": " ".join([one.holds, *sorted(one.scopes)])
        for kind in VIEWS.values()
        for one in kind.FIELDS
        if one.holds != "public"
    }


def on_pages(conn: redis.Redis, scope: str) -> dict[str, str]:
    browser = Browser(DashboardApp(conn, lambda request: new_actor("somebody", scope)))
    return {path: found for path in (*addresses(THEIRS), *PAGES) if (found := marks(browser.get(path).html))}


def on_the_command_line() -> tuple[dict[str, str], dict[str, str]]:
    """What comes through by command, and by field in `--json`."""
    seen: dict[str, str] = {}
    by_field: defaultdict[str, set[str]] = defaultdict(set)
    for command in COMMANDS:
        for form in ("", " --json"):
            if command == "top" and not form:
                continue  # needs a terminal
            result = CliRunner().invoke(cli, f"{command}{form}".split(), prog_name="run_worker.py")
            assert result.exit_code != 2, (command, result.output)
            if found := marks(result.stdout + result.stderr):
                seen[command + form] = found
            if form and result.exit_code == 0:
                for view in DOCUMENTS.get(command.partition(f" {MARKER}")[0], ()):
                    note(by_field, view, json.loads(result.stdout))
    return seen, {name: " ".join(sorted(found)) for name, found in by_field.items()}


def table() -> dict[str, dict[str, Any]]:
    return cast(dict[str, dict[str, Any]], json.loads(TABLE.read_text()))


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """No search is cut short on a busy machine."""
    monkeypatch.setattr(search_inspector, "LOOKING", 60.0)


@pytest.mark.parametrize("scope", SCOPES)
def test_nothing_comes_through_a_route_where_it_came_not_before(conn: redis.Redis, scope: str) -> None:
    plant(conn)
    seen, by_field = over_http(conn, scope)
    assert seen == table()[scope]
    assert by_field == {name: one[scope] for name, one in table()["fields"].items() if one[scope] != "-"}


def test_each_field_that_is_not_public_has_its_class_and_shows_what_that_allows() -> None:
    """Who gives a field another class changes the table too, and so says that it was meant."""
    rows = table()["fields"]
    assert closed_fields() == {name: one["class"] for name, one in rows.items()}
    declared = {f"{kind.__name__}.{one.attribute}": (kind, one) for kind in VIEWS.values() for one in kind.FIELDS}
    for name, row in rows.items():
        kind, one = declared[name]
        assert (one.name in definition(kind)["properties"]) == (one.holds != "stored"), name
        for scope, given in SCOPES.items():
            entitled = not one.scopes.isdisjoint(given)
            assert (row[scope] == "-") == (one.holds == "stored" or (one.holds == "details" and not entitled)), (name, scope)
            if one.how is not None and not (one.holds == "masked" and entitled):
                assert "zqs" not in row[scope], f"{name}: a secret is masked"
        assert (row["--json"] == "-") == (one.holds == "stored" or name in RAW or kind is RevealedView), name


def test_no_page_shows_what_no_route_gives() -> None:
    known = table()
    for scope in SCOPES:
        given = set(" ".join(known[scope].values()).split())
        for path, seen in known[f"pages {scope}"].items():
            assert set(seen.split()) <= given, (scope, path)


@pytest.mark.parametrize("scope", SCOPES)
def test_nothing_comes_through_a_page_where_it_came_not_before(conn: redis.Redis, scope: str) -> None:
    plant(conn)
    seen = on_pages(conn, scope)
    assert seen == table()[f"pages {scope}"]
    assert len(seen) > 10, "some texts are shown to whoever may look"


def test_nothing_comes_through_a_command_where_it_came_not_before(conn: redis.Redis, redis_url: str) -> None:
    plant(conn)
    seen, by_field = on_the_command_line()
    assert seen == table()["command line"]
    assert by_field == {name: one["--json"] for name, one in table()["fields"].items() if one["--json"] != "-"}
    assert len(seen) > 10, "some texts are shown to whoever may look"
