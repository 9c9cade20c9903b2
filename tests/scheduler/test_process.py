"""The process itself: how it starts and ends, its name, its entry, its flags and its probes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import redis
from click.testing import CliRunner

from fusion.cli.main import cli
from fusion.cron.scheduler import Scheduler
from tests.kit.process import ROOT
from tests.kit.schedulers import Schedulers
from tests.kit.waiting import eventually
from tests.scheduler.harness import NOOP, due_since, mark_of, now, schedulers_of
from tests.scheduler.test_declaring import Module


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT])
def test_a_signal_ends_it_at_once_and_its_entry_goes(schedulers: Schedulers, conn: redis.Redis, number: int) -> None:
    scheduler = schedulers.start()
    assert schedulers_of(conn)[scheduler.name].alive
    scheduler.signal(number)
    assert scheduler.wait(2) == 0
    assert schedulers_of(conn) == {}
    assert list(conn.scan_iter("rq:scheduler:*")) == []
    assert scheduler.output.splitlines()[-1].endswith(f"scheduler {scheduler.name} ended")


@pytest.mark.long
def test_a_killed_scheduler_is_listed_as_dead_and_removed_later(schedulers: Schedulers, conn: redis.Redis) -> None:
    scheduler = schedulers.start("--name", "first", "--lease", "1", "--app", "shop", "--app-version", "1.2")
    found = schedulers_of(conn)["first"]
    assert (found.pid, found.app, found.version, found.alive) == (scheduler.pid, "shop", "1.2", True)
    scheduler.kill()
    eventually(lambda: not schedulers_of(conn)["first"].alive)
    two_minutes_ago = int(now(conn) * 1000) - 120_000
    conn.hset("rq:scheduler:process:first", "beat_ms", two_minutes_ago)
    conn.zadd("rq:schedulers", {"first": two_minutes_ago})
    schedulers.start("--name", "second", "--lease", "1")
    assert set(schedulers_of(conn)) == {"second"}


@pytest.mark.long
def test_schedulers_of_one_name_get_numbers_and_reuse_dead_ones(schedulers: Schedulers, conn: redis.Redis) -> None:
    first = schedulers.start("--name", "box", "--lease", "1")
    second = schedulers.start("--name", "box", "--lease", "1")
    assert (first.name, second.name) == ("box", "box.1")
    assert set(schedulers_of(conn)) == {"box", "box.1"}
    first.kill()
    eventually(lambda: not schedulers_of(conn)["box"].alive)
    assert schedulers.start("--name", "box").name == "box"


def test_a_scheduler_without_redis_fails_with_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "run_worker.py", "scheduler", f"--url=unix://{tmp_path}/none.sock"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "can't be reached" in done.stderr
    assert "FUSION_REDIS_URL (or --url)" in done.stderr


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--app-version", "1.x"), "use whole numbers joined by dots, like 12 or 1.10.2"),
        (("--app", "a b"), "use 1 to 64 of the characters A-Z a-z 0-9 _ . -"),
        (("--name", "a b"), "use 1 to 128 of the characters"),
        (("--lease", "soon"), "--lease"),
        (("--probe-port", "70000"), "--probe-port"),
        (("--no-such-flag",), "--no-such-flag"),
        (("-v", "-q"), "--verbose and --quiet exclude each other"),
        (("queue",), "unexpected extra argument"),
    ],
)
def test_a_wrong_flag_is_refused_with_the_fix(redis_url: str, flags: tuple[str, ...], says: str) -> None:
    result = CliRunner().invoke(cli, ["scheduler", *flags])
    assert result.exit_code == 2
    assert says in result.stderr


def test_probes_say_that_it_lives_and_when_it_is_ready(schedulers: Schedulers, tmp_path: Path) -> None:
    module, gate = Module(tmp_path / "app"), tmp_path / "gate"
    gate.touch()
    module.write(f"import os, time\nwhile os.path.exists({str(gate)!r}): time.sleep(0.005)\n")
    scheduler = schedulers.start(*module.flags, "--probe-port", "0")
    url = scheduler.output.split("probes: ")[1].split("/livez")[0]
    with urllib.request.urlopen(f"{url}/livez?json", timeout=5) as answer:
        assert json.load(answer) == {"status": "ok", "reasons": [], "scheduler": scheduler.name, "pid": scheduler.pid}
    with pytest.raises(urllib.error.HTTPError, match="503"):
        urllib.request.urlopen(f"{url}/readyz", timeout=5)
    gate.unlink()

    def ready() -> bool:
        try:
            return bool(urllib.request.urlopen(f"{url}/readyz", timeout=5).status == 200)
        except urllib.error.HTTPError:
            return False

    eventually(ready)


@pytest.mark.long
def test_log_lines_are_for_people_or_for_machines(schedulers: Schedulers, cron: Scheduler, conn: redis.Redis) -> None:
    plain, quiet = schedulers.start("--name", "plain"), schedulers.start("-q", ready=False)
    as_json = schedulers.start("--name", "json", "--log-json")
    eventually(lambda: len(schedulers_of(conn)) == 3)
    for round_ in range(8):  # whoever is first with one of them says so
        ticks = due_since(cron, conn, f"e{round_}")
        eventually(lambda ticks=ticks, round_=round_: mark_of(conn, f"e{round_}") == ticks[-1])  # type: ignore[misc]
    for scheduler in (plain, quiet, as_json):
        scheduler.signal(signal.SIGTERM)
        assert scheduler.wait() == 0
    assert all(line[2] == line[5] == ":" and line[8] == " " for line in plain.output.splitlines()), plain.output
    documents = [json.loads(line) for line in as_json.output.splitlines()]
    assert {document["logger"] for document in documents} == {"fusion.scheduler"}
    assert documents[0]["message"].startswith("scheduler json (pid ")
    assert documents[-1]["message"] == "scheduler json ended"
    assert quiet.output == ""
    assert NOOP not in plain.output
