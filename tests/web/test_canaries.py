"""What comes through where: a mark in each text that Redis holds, and each route that reads, asked by each scope.

canaries.json is the table of what came through before views were made, and of each deliberate change since. `zqb...` stands bare in its text,
`zqs...` behind `password=`. Nothing comes through where it is not in the table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import redis
from click.testing import CliRunner

from fusion import Job, Queue
from fusion.audit import audited
from fusion.cli.main import cli
from fusion.jobs.failure_groups import group_id
from fusion.web.api import Api
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
STATES = ("failed", "started", "blocked", "kept")
INCLUDES = ("", "events", "result", "arguments", "trace")
NAMES = {"id": f"{MARKER}-failed", "name": MARKER, "key": f"{MARKER}-key"}
OTHER: dict[str, dict[str, str]] = {
    "batch": {"id": f"{MARKER}-batch"},
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
    *(f"tree {MARKER}-failed", "batches", f"batch show {MARKER}-batch", "limit list", f"limit show {MARKER}-key", "queue show"),
    *("operations list", f"operations show {MARKER}-operation", "cron list", f"cron history {MARKER}-entry", "callbacks list"),
    *("doctor", "events stats"),
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
        conn.hset(f"rq:job:{MARKER}-{state}", mapping=texts)
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


def over_http(conn: redis.Redis, scope: str) -> dict[str, str]:
    caller = Caller(conn, scopes=SCOPES[scope])
    return {name: found for name, path in asked(conn) if (found := marks(caller.ask("GET", path).body.decode()))}


def on_the_command_line() -> dict[str, str]:
    seen = {}
    for command in COMMANDS:
        for form in ("", " --json"):
            if command == "top" and not form:
                continue  # needs a terminal
            result = CliRunner().invoke(cli, f"{command}{form}".split(), prog_name="run_worker.py")
            assert result.exit_code != 2, (command, result.output)
            if found := marks(result.stdout + result.stderr):
                seen[command + form] = found
    return seen


def table() -> dict[str, dict[str, str]]:
    return cast(dict[str, dict[str, str]], json.loads(TABLE.read_text()))


@pytest.mark.parametrize("scope", SCOPES)
def test_nothing_comes_through_a_route_where_it_came_not_before(conn: redis.Redis, scope: str) -> None:
    plant(conn)
    seen = over_http(conn, scope)
    assert seen == table()[scope]
    assert len(seen) > 10, "some texts are shown to whoever may look"


def test_nothing_comes_through_a_command_where_it_came_not_before(conn: redis.Redis, redis_url: str) -> None:
    plant(conn)
    seen = on_the_command_line()
    assert seen == table()["command line"]
    assert len(seen) > 10, "some texts are shown to whoever may look"
