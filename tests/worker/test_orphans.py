"""A fork server dies by SIGKILL: what its jobs' processes had disowned is gone before one of the jobs runs again (P8)."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import redis

from fusion import Queue
from tests.faults.rig.conservation import check_conservation
from tests.kit.process import ROOT
from tests.kit.promises import claim
from tests.kit.waiting import eventually
from tests.kit.witnesses import alive, arguments_of, runs_of, status_of
from tests.kit.workers import CROWDED, Workers

pytestmark = pytest.mark.long

ENV = {"FUSION_TASKS": "tests.jobs.stubborn", "FUSION_MAX_LOST": "20"}
ROUNDS = 3
#: Of one run: two, and a child of each.
DAEMONS = 4
MODES = pytest.mark.parametrize("mode", [("--slots", "1"), ("--horses", "1")], ids=["process per job", "warm"])


@claim("P8")
@MODES
def test_a_killed_fork_servers_daemons_are_gone_before_the_rerun(
    mode: tuple[str, ...], workers: Workers, conn: redis.Redis, tmp_path: Path
) -> None:
    seen, gate = tmp_path / "seen", tmp_path / "gate"
    gate.touch()
    worker = workers.start("o", *mode, env=ENV)
    job = Queue("o", conn).enqueue("tests.jobs.stubborn.daemon_beside", str(seen), str(gate))
    for number in range(1, ROUNDS + 1):
        eventually(lambda n=number: len(runs_of(seen, "daemon")) == DAEMONS * n, 20, why="the run's daemons have begun")
        worker.fork_server().kill()
        eventually(lambda n=number: len(runs_of(seen, "here")) == n + 1, 20, why="the job runs again")
    assert runs_of(seen, "overlap") == []
    eventually(lambda: len(runs_of(seen, "daemon")) == DAEMONS * (ROUNDS + 1))
    assert not any(alive(pid) for pid in runs_of(seen, "daemon")[: DAEMONS * ROUNDS])
    gate.unlink()
    eventually(lambda: status_of(conn, job.id) == "finished")
    assert worker.process.poll() is None
    if CROWDED and mode[0] == "--slots":  # what a job disowned ends with its process, which is for others, too
        worker.stop()
    eventually(lambda: not any(alive(pid) for pid in runs_of(seen, "daemon")))
    check_conservation(conn, [job.id])


@MODES
def test_the_other_fork_servers_jobs_and_the_workers_own_children_live_on(
    mode: tuple[str, ...], workers: Workers, conn: redis.Redis, tmp_path: Path
) -> None:
    """After a reload there are two; the one that is killed takes nothing of the other's along."""
    old_seen, seen, gate = tmp_path / "old", tmp_path / "seen", tmp_path / "gate"
    gate.touch()
    worker = workers.start("o", mode[0], "2", env={**ENV, "FUSION_EVENTS_FILE": str(tmp_path / "events.jsonl")})
    relay = eventually(
        lambda: [p for p in psutil.Process(worker.pid).children() if "relay" in arguments_of(p)], 20, why="its relay runs"
    )[0]
    (old,) = [p for p in psutil.Process(worker.pid).children() if p.pid != relay.pid]
    queue = Queue("o", conn)
    staying = queue.enqueue("tests.jobs.stubborn.daemon_beside", str(old_seen), str(gate))
    eventually(lambda: len(runs_of(old_seen, "daemon")) == DAEMONS)
    worker.signal(signal.SIGHUP)
    eventually(lambda: worker.output.count("is ready for jobs") == 2)
    struck = queue.enqueue("tests.jobs.stubborn.daemon_beside", str(seen), str(gate))
    eventually(lambda: len(runs_of(seen, "daemon")) == DAEMONS)
    (new,) = [p for p in psutil.Process(worker.pid).children() if p.pid not in (relay.pid, old.pid)]
    new.kill()
    eventually(lambda: len(runs_of(seen, "here")) == 2, 20)
    assert all(alive(pid) for pid in (relay.pid, old.pid, *runs_of(old_seen, "daemon"), *runs_of(old_seen, "here")))
    assert not any(alive(pid) for pid in runs_of(seen, "daemon")[:DAEMONS])
    gate.unlink()
    eventually(lambda: {status_of(conn, job.id) for job in (staying, struck)} == {"finished"})
    assert runs_of(seen, "overlap") == []
    assert len(runs_of(old_seen, "here")) == 1


def test_what_the_process_had_before_and_starts_itself_is_left_alone(tmp_path: Path) -> None:
    """Only what comes from a fork server is ended, and only in a process that is a worker and nothing else."""
    program = """
import os, subprocess, sys, time
from fusion.forkserver.orphans import LIMIT, adopt, end_orphans
def start(new, twice=False):
    if not twice:
        return subprocess.Popen(["sleep", "60"], start_new_session=new)
    shell = subprocess.Popen(["sh", "-c", "sleep 60 >/dev/null & echo $!"], stdout=subprocess.PIPE, start_new_session=True, text=True)
    return int(shell.communicate()[0])
stranger = start(True)
if sys.argv[1] == "not adopting":
    end_orphans(set())
    assert stranger.poll() is None
    sys.exit(stranger.kill())
adopt()
own, server, orphan = start(False), start(True), start(True, twice=True)
began = time.monotonic()
end_orphans({server.pid})
assert [child.poll() for child in (stranger, own, server)] == [None] * 3
try:
    os.kill(orphan, 0)
except ProcessLookupError:
    print("ended")
assert time.monotonic() - began < LIMIT
for child in (stranger, own, server):
    child.kill()
    child.wait()
"""

    def run(how: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", program, how], cwd=ROOT, capture_output=True, text=True, timeout=20, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run("adopting") == "ended\n"
    assert run("not adopting") == ""
