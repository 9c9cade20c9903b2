"""A Flask application that shows the progress of its jobs."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from tests.kit.servers import free_port
from tests.kit.waiting import eventually, unhurried
from tests.rq_apps.harness import App, app, flask
from tests.rq_suite.__main__ import TARGET, sources

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
Call = Callable[..., tuple[int, Any]]


def _calls(port: int) -> Call:
    def call(method: str, path: str, **body: Any) -> tuple[int, Any]:
        data = json.dumps(body).encode() if body else None
        asked = urllib.request.Request(
            f"http://127.0.0.1:{port}{path}", data, {"Content-Type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(asked, timeout=30) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read() or b"null")

    return call


def _visit(found: App) -> list[Any]:
    """What somebody at a browser sees, from the first click to the last."""
    port = free_port()
    call, seen, upload = _calls(port), list[Any](), str(found.home / "upload")

    def status(task: str, wanted: str) -> Any:
        eventually(
            lambda: call("GET", f"/task/{task}")[1]["status"] == wanted, unhurried(60.0), why=f"{task} is {wanted}\n{found.log}"
        )
        return call("GET", f"/task/{task}")

    found.start("-m", "flask", "--app", "web", "run", "--port", str(port))

    def is_up() -> bool:
        try:
            return call("GET", "/tasks")[0] == 200
        except OSError:
            return False

    eventually(is_up, unhurried(60.0), why=f"the site is up\n{found.log}")
    seen.append(call("POST", "/export", id="one", user="ann", posts=4, upload=upload))
    seen.append(call("POST", "/export", id="two", user="bob", posts=2, upload=upload))
    seen.append(call("POST", "/mail", id="unwanted", to="c@example.com", retries=0))
    seen.append(call("GET", "/task/one"))
    seen.append(call("POST", "/task/unwanted/cancel"))
    seen.append(call("POST", "/task/unwanted/cancel"))
    seen.append(call("GET", "/tasks"))
    found.start("worker.py")
    eventually(lambda: call("GET", "/task/one")[1]["progress"] == 50, unhurried(60.0), why=f"half of it is done\n{found.log}")
    seen.append(status("one", "started"))
    seen.append(call("GET", "/tasks"))
    Path(upload).touch()
    seen.append(status("one", "finished"))
    seen.append(status("two", "finished"))
    for name, to, retries in (("well", "d@example.com", 0), ("bad", "nobody", 0), ("late", "late@example.com", 2)):
        seen.append(call("POST", "/mail", id=name, to=to, retries=retries))
        seen.append(status(name, "failed" if name == "bad" else "finished"))
    seen.append(call("GET", "/tasks"))
    seen.append(call("DELETE", "/task/bad"))
    seen.append(call("GET", "/task/bad"))
    seen.append(call("GET", "/task/never"))
    return seen


def test_the_same_pages_with_rq_and_with_fusion(redis_url: str, tmp_path: Path) -> None:
    try:
        sources(TARGET), flask()
    except (subprocess.CalledProcessError, OSError) as error:
        pytest.skip(f"the package index gives no source distribution of RQ, or no Flask: {error}")
    seen = []
    for fusion in (False, True):
        with app("progress", fusion, tmp_path / f"app{int(fusion)}", redis_url, flask()) as found:
            seen.append(json.loads(json.dumps(_visit(found)).replace(str(found.home), "HOME")))
            with Redis.from_url(redis_url) as client:
                client.delete("app:failed")
    stock, ours = seen
    for nth, (before, now) in enumerate(zip(stock, ours, strict=True)):
        assert now == before, f"answer {nth}"
    assert stock[7][1] | {"meta": None} == {
        "id": "one", "status": "started", "progress": 50, "meta": None, "result": None, "error": None, "description": "export of ann",
        "finished": False, "function": "tasks.export_posts", "queue": "microblog-tasks",
    }  # fmt: skip
