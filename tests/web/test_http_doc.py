"""docs/http.md: every example of it runs, and its tables are those of the code."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, cast

import pytest
import redis

from fusion import Job
from fusion.web import exchange
from fusion.web.api import Api
from tests.faults.rig.conservation import check_conservation
from tests.kit.process import ROOT
from tests.web.conftest import Fail
from tests.web.harness import ServerProcess, Tokens

DOC = (ROOT / "docs" / "http.md").read_text()


def _blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", DOC, re.MULTILINE | re.DOTALL)


@pytest.mark.skipif(shutil.which("curl") is None, reason="the examples are for curl, which is not installed here")
def test_every_example_runs(service: ServerProcess, tokens: Tokens, conn: redis.Redis, fail: Fail) -> None:
    fail("failed-1")
    script = "set -e\n" + "\n".join(_blocks("sh"))
    assert script.count("curl") == 8
    ran = subprocess.run(
        ["sh", "-c", script],
        env={"PATH": "/usr/bin:/bin:/usr/local/bin", "FUSION_URL": service.url, "TOKEN": tokens.by_scope["operate"]},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    enqueued, back, anew, job, result, queues, stats, health = map(json.loads, ran.stdout.splitlines())
    assert (enqueued["status"], enqueued["priority"], Job.fetch(enqueued["job_id"], conn).func_name) == (
        "queued",
        2,
        "tasks.sms.sendSMS",
    )
    assert (back["job_id"], job["status"], anew["status"]) == ("failed-1", "scheduled", "scheduled")
    assert {"reason", "result"} <= set(result)
    assert [queue["name"] for queue in queues["queues"]] == ["sms"]
    assert stats["queue_length"] == 1
    assert health == {"status": "ok"}
    check_conservation(conn, ["failed-1", enqueued["job_id"], anew["job_id"]])


def test_the_python_example_answers(redis_url: str, tokens: Tokens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = _blocks("python")
    (tmp_path / "tokens.txt").write_text(tokens.path.read_text())
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102
    request = exchange.Request(
        "GET", "/api/v1/queues", {"host": "fusion.example.com", "authorization": f"Bearer {tokens.by_scope['read']}"}
    )
    assert names["app"].handle(request).status == 200
    assert callable(names["asgi"])


def test_the_table_of_calls_names_every_kind_of_path_and_the_reference_names_all_calls() -> None:
    table = DOC.split("| path | look: `read` | change |")[1].split("\n\n")[0]
    listed = {"/" + path.split("/")[1] for row in table.splitlines()[2:] for path in re.findall(r"`(/[^`]+)`", row.split("|")[1])}
    routes = {(route.method, route.path) for route in Api(cast(Any, None), ()).routes()}
    kinds = {"/" + path.split("/")[3] for _, path in routes if path.startswith("/api/v1/")}
    assert listed == kinds - {"/openapi.json"}
    parts = {f"/{path.rsplit('/', 1)[1]}" for _, path in routes}
    shown = {part for row in table.splitlines()[2:] for part in re.findall(r"`(/[a-z]+)`", "|".join(row.split("|")[2:]))}
    assert len(shown) > 15 and shown <= parts
    reference = (ROOT / "docs" / "http-reference.md").read_text()
    assert [path for method, path in routes if f"{method} {path}" not in reference] == []


def test_every_code_of_an_error_is_listed() -> None:
    used: set[tuple[int, str]] = set()
    for path in (ROOT / "fusion" / "web").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "HttpError":
                status, code = node.args[:2]
                if isinstance(status, ast.Constant) and isinstance(code, ast.Constant):
                    used.add((status.value, code.value))
    rows = re.findall(r"^\| (\d{3}) \| ([^|]+) \|", DOC, re.MULTILINE)
    listed = {(int(status), code) for status, codes in rows for code in re.findall(r"`(\w+)`", codes)}
    from fusion.web.waitress_server import _REFUSALS

    assert used <= listed
    assert {(status, code) for status, (code, _) in _REFUSALS.items()} <= listed
    assert listed - used <= {(431, "headers_too_large"), (501, "not_implemented"), (409, "duplicate_job"), (409, "key_reused")}
    assert {status for status, _ in listed} <= set(exchange.REASONS)
