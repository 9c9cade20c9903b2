"""What a job calls, and what things are called: refused before anything is imported, and not a character too long."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import redis

from fusion import Queue
from fusion.cron.scheduler import Scheduler
from fusion.exceptions import InvalidName
from fusion.store.write.broker import Broker
from tests.faults.hostile.test_fields import ENV
from tests.kit.hands import new
from tests.kit.witnesses import field, status_of
from tests.kit.workers import Workers
from tests.web.harness import ServerProcess, Tokens

HERE = "tests.jobs.basic"
#: Paths that no worker may follow; `{}` is a module that leaves a file when it is imported.
PATHS = (
    "os.system", "posix.system", "nt.system", "subprocess.run", "builtins.eval", "eval", "exec", "__import__", "importlib.import_module",
    "pickle.loads", "{}.task", "{}", f"{HERE}.{{}}.task", f"{HERE}.os.system", f"{HERE}.os", f"{HERE}.__init__.__globals__",
    f"{HERE}.noop.__globals__", f"{HERE}.noop.__code__.replace", f"{HERE}.__builtins__.eval", f"{HERE}.__loader__.load_module",
    f"{HERE}.job", f"{HERE}.get_current_job", f"..{HERE}.noop", f".{HERE}.noop", "tests..jobs.basic.noop", "tests/jobs/basic.noop",
    "tests.jobs.basic:noop", "tests.jobs.b\u0430sic.noop", "tests.jobs.basic.n\u043eop", "\uff54ests.jobs.basic.noop", "tests.jobs.basic.noop\n",
    "tests.jobs.basic.noop()", " tests.jobs.basic.noop", "tests.jobs.basic.noop\x00.system", "tests.jobs.basic", "tests.jobs.basicx.noop",
    "tests.jobs.hostile.Custom", "tests.jobs.hostile.HostileResult.keys", "", ".", "a" * 100_000,
)  # fmt: skip


@pytest.fixture
def module(tmp_path: Path) -> tuple[str, Path]:
    """One that is there to be imported, and is among no worker's tasks; and the file that tells of it."""
    seen = tmp_path / "imported"
    (tmp_path / "leaves_a_file.py").write_text(f"open({str(seen)!r}, 'w').close()\ndef task(*args): pass\nclass Thing: pass\n")
    return "leaves_a_file", seen


@pytest.mark.timeout(120)
def test_a_worker_follows_no_path_but_those_of_its_tasks(
    workers: Workers, conn: redis.Redis, module: tuple[str, Path], tmp_path: Path
) -> None:
    name, seen = module
    touched = tmp_path / "touched"
    calls: list[tuple[str, dict[str, Any]]] = []
    for path in PATHS:
        path = path.format(name) if "{" in path else path
        calls.append(("failed", {"data": json.dumps([path, None, [f"touch {touched}"], {}])}))
        for end in ("on_success", "on_failure"):
            task = "noop" if end == "on_success" else "boom"
            ends = "finished" if end == "on_success" else "failed"
            calls.append((ends, {"data": f'["{HERE}.{task}",null,[],{{}}]', end: json.dumps({"func": path})}))
    for kind in ("enum", "flag", "dataclass"):
        for target in (f"{name}:Thing", "subprocess:Popen", "os:system", f"{HERE}:noop", "builtins:object"):
            tagged = {"__fusion__": [kind, [target, {"args": f"touch {touched}"}]]}
            calls.append(("failed", {"data": json.dumps([f"{HERE}.noop", None, [tagged], {}])}))
    calls.append(("failed", {"data": json.dumps([f"{HERE}.noop", {"py/object": "os.system"}, [], {}])}))
    for n, (_, fields) in enumerate(calls):
        Broker(conn).enqueue("sms", [new(f"h{n}", **fields)], f"n{n}")
        Queue("sms", conn).enqueue("tests.jobs.basic.add", 20, 3, job_id=f"p{n}")
    worker = workers.burst("sms", "-P", str(tmp_path), "--tasks", HERE, env=ENV, timeout=100)
    ended = [(fields, status_of(conn, f"h{n}"), field(conn, f"h{n}", "exc_info")) for n, (_, fields) in enumerate(calls)]
    assert [row for row, (wanted, _) in zip(ended, calls, strict=True) if row[1] != wanted] == [], worker.output
    assert {field(conn, f"p{n}", "result") for n in range(len(calls))} == {"23"}
    assert not seen.exists()
    assert not touched.exists()
    callbacks = [n for n, (_, fields) in enumerate(calls) if fields.get("on_success") or fields.get("on_failure")]
    assert all(re.search("TaskNot|NameTooLong", field(conn, f"h{n}", "callback_error")) for n in callbacks)
    assert "Traceback" not in worker.output


@pytest.mark.parametrize("over", [-1, 0, 1])
def test_the_length_of_names(conn: redis.Redis, service: ServerProcess, tokens: Tokens, over: int) -> None:
    def refused(call: Any, *args: Any, **options: Any) -> bool:
        try:
            call(*args, **options)
        except InvalidName as error:
            return "use 1 to " in str(error)
        return False

    longest = "x" * (128 + over)
    body = {"func": f"{HERE}.noop"}
    token = tokens.by_scope["operate"]
    found = [
        refused(Queue("q", conn).enqueue, f"{HERE}.noop", job_id=longest),
        refused(Queue, longest, conn),
        refused(Scheduler(conn).every, 60, f"{HERE}.noop", id="x" * (80 + over)),
        service.ask("POST", "/api/v1/jobs", {**body, "job_id": f"h{longest}"[: len(longest)]}, token=token).status == 422,
        service.ask("POST", "/api/v1/jobs", {**body, "queue": longest}, token=token).status == 422,
    ]
    assert found == [over > 0] * 5
