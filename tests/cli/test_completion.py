"""What shells are offered: commands and flags, names out of Redis, and nothing when that is away."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
import redis

from fusion import Queue
from fusion.cli.candidates import BUDGET, ask
from fusion.cli.completion import completion
from tests.cli.conftest import ROOT, Fail, Hands, Invoke

Complete = Callable[..., list[str]]
TASK = "tasks.sms.sendSMS"


def completed(url: str, *words: str) -> list[str]:
    """What is offered for the last word."""
    environment = {
        **os.environ,
        "FUSION_REDIS_URL": url,
        "_RUN_WORKER_PY_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(["run_worker.py", *words]),
        "COMP_CWORD": str(len(words)),
    }
    command = [sys.executable, str(ROOT / "run_worker.py")]
    ended = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    return [line.partition(",")[2] for line in ended.stdout.splitlines() if line]


@pytest.fixture
def offered(redis_url: str) -> Complete:
    def retried(*words: str) -> list[str]:
        """What there is; on a busy machine a fifth of a second may pass without an answer."""
        return next((found for _ in range(5) if (found := completed(redis_url, *words))), [])

    return retried


def test_commands_and_flags(offered: Complete) -> None:
    assert offered("re") == ["relay", "requeue", "reprioritise", "reschedule", "resume", "redis"]
    assert "--only-workers" in offered("info", "--only")
    assert offered("cron", "li") == ["list"]
    assert offered("completion", "z") == ["zsh"]


def test_queues(conn: redis.Redis, redis_url: str, offered: Complete) -> None:
    for name in ("sms", "sms.otp", "email"):
        Queue(name, conn).enqueue(TASK)
    assert offered("info", "sm") == ["sms", "sms.otp"]
    assert offered("info", "sms", "sm") == ["sms.otp"], "not what is there already"
    assert offered("worker", "--customq", "sms,e") == ["sms,email"]
    assert offered("cancel", "--queue", "e") == ["email"]
    assert completed(redis_url, "pause", "--prefix", "other", "s") == [], "the line says which Redis, and whose keys"


def test_jobs_and_workers(conn: redis.Redis, offered: Complete, fail: Fail, hands: Hands) -> None:
    fail("sms", 2)
    Queue("email", conn).enqueue(TASK, job_id="email-waits")
    Queue("email", conn).enqueue_in(60, TASK, job_id="email-due")
    Queue("pn", conn).enqueue(TASK, job_id="pn-runs")
    worker = hands("pn", name="web1.7").register()
    worker.turn(slots=1)
    assert offered("requeue", "sms-") == ["sms-001", "sms-000"], "the newest failure first"
    assert offered("cancel", "email-") == ["email-waits", "email-due"]
    assert offered("cancel", "pn") == ["pn-runs"]
    assert offered("quiet", "web") == ["web1.7"]


HOSTILE = ["$(touch /tmp/x)", "a b", "x;reboot", "\x1b[2J", "a\nb", "\u202ea", "x" * 1_000_000, b"\xff\xfe"]


@pytest.mark.long
def test_names_that_a_shell_could_take_for_more_are_not_offered(conn: redis.Redis, offered: Complete) -> None:
    names = [name.encode() if isinstance(name, str) else name for name in HOSTILE]
    conn.zadd("rq:queue:failed", {**dict.fromkeys(names, 1), b"good": 2})
    conn.sadd("rq:queues", "rq:queue:sms", *(b"rq:queue:" + name for name in names))
    conn.set("rq:wip:sms", "no set")
    assert offered("requeue", "") == ["good"]
    assert offered("info", "") == ["sms"]


@pytest.mark.long
def test_what_a_config_module_prints_is_not_offered(conn: redis.Redis, redis_url: str, offered: Complete, tmp_path: Path) -> None:
    file = tmp_path / "noisy.py"
    file.write_text("import sys\nprint('plain,boo')\nsys.stderr.write('boo')\n")
    Queue("sms", conn).enqueue(TASK)
    assert offered("info", "-P", str(file.parent), "-c", "noisy", "s") == ["sms"]
    file.write_text("raise SystemExit('no')\n")
    assert completed(redis_url, "info", "-P", str(file.parent), "-c", "noisy", "s") == []


@pytest.fixture
def mute() -> Iterator[str]:
    """A Redis that accepts and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"redis://127.0.0.1:{server.getsockname()[1]}/0"


@pytest.mark.long
def test_silent_and_short_when_redis_is_away(mute: str) -> None:
    assert completed("redis://127.0.0.1:1/0", "info", "s") == []
    started = time.monotonic()
    with click.Context(completion, info_name="completion") as ctx:
        ctx.params["url"] = mute
        assert ask(ctx, lambda glance: glance.queues()) == []
    assert time.monotonic() - started < BUDGET + 5, "a fifth of a second, on a machine that is busy otherwise"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_each_shell(invoke: Invoke, shell: str) -> None:
    said = invoke("completion", shell).stdout
    assert f"_RUN_WORKER_PY_COMPLETE={shell}_complete" in said
    if path := shutil.which(shell):
        flag = "--no-execute" if shell == "fish" else "-n"
        assert subprocess.run([path, flag], input=said, text=True, check=False).returncode == 0


def test_bash_completes_with_it(conn: redis.Redis, redis_url: str, tmp_path: Path) -> None:
    Queue("sms", conn).enqueue(TASK)
    program = tmp_path / "fusion"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom fusion.cli.main import main\nmain()\n"
    )
    program.chmod(0o755)
    script = (
        'eval "$(fusion completion bash)"; COMP_WORDS=(fusion info s); COMP_CWORD=2\n'
        '_fusion_completion fusion; echo "offered ${COMPREPLY[*]}"\n'
    )
    environment = {**os.environ, "FUSION_REDIS_URL": redis_url, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    ended = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, timeout=30, check=False)
    assert (ended.stdout, ended.stderr) == ("offered sms\n", "")
