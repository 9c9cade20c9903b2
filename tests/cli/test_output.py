"""Nothing that a stranger wrote into Redis steers the terminal of whoever looks."""

from __future__ import annotations

import ast
import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
import redis

from fusion import Queue, Scheduler
from fusion.cli.output import drawn, echo, shown, styled
from tests.architecture.source import ROOT, modules, parse
from tests.jobs import basic

#: Titles, the clipboard, an answerback, the screen, the cursor, an 8-bit introducer, a text direction, black on black.
EVIL = "\x1b]0;pwned\x07\x1b]52;c;cm0gLXJm\x07\x1b[5n\x1b[2J\x1b[1A\x9b31m\u202e\x1b[30m\x1b[8mhidden\x1b[95mpainted\nforged"
BAD = ("\x1b]", "\x1b[5", "\x1b[2J", "\x1b[1A", "\x9b", "\u202e", "\x07", "\x1b[30m", "\x1b[8m", "\x1b[95m")
#: A line of its own in a terminal; a page may show it, as text.
FORGED = "\nforged"


def on_a_terminal(url: str, *command: str) -> str:
    """All that the command writes to a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "run_worker.py"), *command],
        cwd=ROOT,
        env={**os.environ, "FUSION_REDIS_URL": url, "COLUMNS": "200"},
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    said = b""
    try:
        while part := os.read(ours, 65536):
            said += part
    except OSError:  # how Linux says that nobody holds the other end
        pass
    finally:
        os.close(ours)
        process.wait(30)
    return said.decode().replace("\r\n", "\n")


def plant(conn: redis.Redis) -> None:
    """A stranger's texts wherever a command looks."""
    job = Queue("sms").enqueue(basic.noop, job_id="j")
    conn.hset(
        "rq:job:j", mapping={"description": EVIL, "reason": EVIL, "exc_info": EVIL, "error_class": EVIL, "error_frame": EVIL}
    )
    conn.hset("rq:job:j", mapping={"status": "failed", "original_queue": EVIL, "ended_at": EVIL, "worker_name": EVIL})
    conn.zadd("rq:queue:failed", {job.id: 1, EVIL: 2})
    conn.hset("rq:job:" + EVIL, mapping={"status": EVIL, "reason": EVIL})
    conn.zadd("rq:scheduler:scheduled_jobs", {EVIL: 2e9, "j": 2e9})
    conn.sadd("rq:queues", "rq:queue:" + EVIL)
    conn.sadd("rq:workers", "rq:worker:" + EVIL)
    conn.hset(
        "rq:worker:" + EVIL, mapping={"state": EVIL, "queues": EVIL, "hostname": EVIL, "current_job": EVIL, "throttled": EVIL}
    )
    Scheduler().every(3600, basic.noop, id="e")
    conn.hset("rq:cron:entry:e", mapping={"error": EVIL, "declared_error": EVIL, "app": EVIL})
    Scheduler().every(3600, basic.noop, id="broken")
    conn.hset("rq:cron:entry:broken", mapping={"plan": json.dumps({"every": EVIL}, ensure_ascii=False), "spec": EVIL})
    conn.hset("rq:cron:entry:faulty", mapping={"declared_error": EVIL})
    conn.zadd("rq:cron:next", {"faulty": 0})
    Scheduler().every(3600, basic.noop, id="zone")
    conn.hset("rq:cron:entry:zone", "plan", json.dumps({"cron": "* * * * *", "timezone": EVIL}))
    Scheduler().every(3600, basic.noop, id="format")
    spec = json.loads(conn.hget("rq:cron:entry:format", "spec") or b"")
    conn.hset("rq:cron:entry:format", "spec", json.dumps({**spec, "format": EVIL}))
    conn.xadd("rq:events", {"event": EVIL, "job_id": EVIL, "queue": EVIL, "reason": EVIL, "worker": EVIL})
    conn.hset("rq:sink:log", mapping={"error": EVIL})
    conn.set("rq:schema", "1")


COMMANDS = [
    *("info", "info -R", "info -r", "failures", "scheduled", "cron list", "cron next zone", "cron run broken", "cron run format"),
    *("cron next faulty", "cron run faulty", "cron show faulty", "cron pause mistyped"),
    *(
        "cron history broken",
        "events stats",
        "events tail",
        "callbacks list",
        "requeue --all",
        "health --worker nobody",
        "schema",
    ),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_lets_escape_sequences_through(conn: redis.Redis, redis_url: str, command: str) -> None:
    plant(conn)
    said = on_a_terminal(redis_url, *command.split())
    assert said.strip(), "a command says something"
    assert [one for one in (*BAD, FORGED) if one in said] == []


def test_an_error_that_quotes_redis_shows_it_visibly(conn: redis.Redis, redis_url: str) -> None:
    plant(conn)
    assert "\\x1b]0;pwned" in on_a_terminal(redis_url, "cron", "next", "zone")
    assert "\\x1b]0;pwned" in on_a_terminal(redis_url, "cron", "run", "format")


def test_a_usage_error_that_quotes_a_file_shows_it_visibly(redis_url: str) -> None:
    said = on_a_terminal(redis_url, "enqueue", EVIL)
    assert [one for one in (*BAD, FORGED) if one in said] == []
    said = on_a_terminal(redis_url, EVIL)
    assert [one for one in (*BAD, FORGED) if one in said] == []


def test_own_colours_survive_escaping_and_line_breaks_do_not(capsys: pytest.CaptureFixture[str]) -> None:
    text = styled("red", fg="red") + "\nnext \x1b[2J"
    assert shown(shown(text)) == styled("red", fg="red") + " next \\x1b[2J"
    assert drawn(shown(text)) == click.style("red", fg="red") + " next \\x1b[2J"
    echo(text)
    assert capsys.readouterr().out == "red\nnext \\x1b[2J\n"  # no terminal: click leaves colours out


@pytest.mark.parametrize("code", [0, 1, 31, 32, 33, 92, "0;31", "1000000000;31"])
def test_colours_that_a_stranger_wrote_are_plain(code: object) -> None:
    theirs = f"\x1b[{code}m"
    assert drawn(shown(theirs)) == f"\\x1b[{code}m"
    assert drawn(shown(styled(f"state {theirs} of", fg="red"))) == click.style(f"state \\x1b[{code}m of", fg="red")


#: Where the screen itself is drawn, with nothing of a stranger's that was not shown() before.
DRAWS: dict[str, Callable[[str], bool]] = {
    "fusion/cli/output.py": lambda call: True,
    "fusion/cli/screen.py": lambda call: call.startswith(("click.echo(drawn(screen(", "click.echo(_ENTER", "click.echo(_LEAVE")),
}


def test_one_place_prints() -> None:
    found = [
        (str(path), call)
        for path in modules("fusion/cli")
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Call)
        and (call := ast.unparse(node)).startswith(
            ("click.echo", "click.secho", "print(", "sys.stdout.write", "sys.stderr.write")
        )
    ]
    assert [one for one in found if not DRAWS.get(one[0], lambda call: False)(one[1])] == []
    assert Path(ROOT / "fusion/cli/output.py").exists()
