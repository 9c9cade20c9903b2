"""A doorbell rings for a worker that runs nothing, and the turn that answers it meets trouble."""

from __future__ import annotations

import signal
from functools import partial
from pathlib import Path

import pytest

from tests.faults.rig.conservation import check_conservation
from tests.faults.rig.proxy import CUT, HOLE, LOSE, RESET, FaultProxy
from tests.faults.trouble.test_replies import at_doorbell
from tests.faults.trouble.test_turns_under_way import lines_with_turns
from tests.kit.length import soak_case
from tests.kit.waiting import eventually
from tests.kit.witnesses import field, status_of
from tests.kit.workers import WorkerProcess, Workers
from tests.worker.test_redis_trouble import Jobs

MODES = [pytest.param(("--slots", "1"), id="process per job"), pytest.param(("--horses", "1"), id="pool")]
#: No turn but those that a doorbell asks for.
RUNG = {"FUSION_SOCKET_TIMEOUT": "0.3", "FUSION_IDLE_WAIT": "20"}


def idle(fleet: Workers, jobs: Jobs, *flags: str, **env: str) -> WorkerProcess:
    worker = fleet.start("r", *flags, env={**RUNG, **env})
    eventually(lambda: at_doorbell(jobs.conn), why="it waits for a job")
    return worker


def token(jobs: Jobs) -> int:
    """Of the last turn."""
    (worker,) = jobs.conn.smembers("rq:workers")
    return int((jobs.conn.hget(worker, "turn") or "0").split()[0])


def looked_again(jobs: Jobs, before: int) -> bool:
    """It has taken a turn since, and waits at its doorbell."""
    return token(jobs) > before and bool(jobs.conn.info("clients")["blocked_clients"])


@pytest.mark.parametrize("flags", MODES)
def test_a_bell_that_rings_for_nothing_costs_no_process(
    proxy: FaultProxy, fleet: Workers, jobs: Jobs, flags: tuple[str, ...]
) -> None:
    """The process that would have got a job was woken without a job, again and again; it is there for the next one."""
    worker = idle(fleet, jobs, *flags)
    for _ in range(5):
        before = token(jobs)
        jobs.conn.rpush("rq:wake:r", "1")
        eventually(partial(looked_again, jobs, before), why="it looks, and waits again")
    jobs.short(3)
    jobs.finished()
    assert "died" not in worker.output
    assert "WARNING" not in worker.output


@pytest.mark.parametrize("flags", [MODES[0], soak_case(("--horses", "1"), id="pool")])
@pytest.mark.parametrize("what", [CUT, LOSE, RESET, HOLE, "BUSY Redis is busy", "READONLY it is a replica"])
def test_a_turn_that_is_not_answered_is_repeated(
    proxy: FaultProxy, fleet: Workers, jobs: Jobs, flags: tuple[str, ...], what: str
) -> None:
    worker = idle(fleet, jobs, *flags)
    struck = proxy.on("turn", what)
    jobs.short(1)
    eventually(lambda: status_of(jobs.conn, jobs.all[0].id) == "finished", 15, why=worker.output)
    jobs.short(1)
    jobs.finished(15)
    assert struck.struck == 1
    assert [field(jobs.conn, job.id, "deliveries") for job in jobs.all] == ["1", "1"]
    assert "not accepted" not in worker.output
    assert lines_with_turns(proxy) >= 2, "a doorbell's turn is sent beside the main line"


@pytest.mark.parametrize("flags", MODES)
@pytest.mark.parametrize("told", ["TERM", "QUIT", "KILL"])
@pytest.mark.parametrize("answer", ["there", "never"])
def test_a_signal_amid_the_turn(
    proxy: FaultProxy, fleet: Workers, jobs: Jobs, tmp_path: Path, flags: tuple[str, ...], told: str, answer: str
) -> None:
    here = tmp_path / "armed" / "here"
    stop = {"FUSION_FAILPOINTS": f"turn.sent=wait:{here}", "FUSION_SOCKET_TIMEOUT": "2", "FUSION_LEASE": "2"}
    worker = idle(fleet, jobs, *flags, **stop)
    if answer == "never":
        proxy.on("turn", CUT)
    here.parent.mkdir()
    jobs.short(1)
    (job,) = jobs.all
    eventually(here.exists, why="a turn is asked for")
    if answer == "there":
        eventually(lambda: status_of(jobs.conn, job.id) == "started", why="Redis has given it the job")
    worker.signal(getattr(signal, f"SIG{told}"))
    here.unlink()
    code = worker.wait(20)
    assert code == {"TERM": 0, "QUIT": 1, "KILL": -signal.SIGKILL}[told], worker.output
    if told == "KILL":
        assert jobs.runs(job) == 0
    else:
        assert field(jobs.conn, job.id, "lost") in ("", "0")
        assert status_of(jobs.conn, job.id) in ("queued", "finished"), "what the turn brought went back, or was run"
    fleet.start("r", *flags, env={**RUNG, "FUSION_LEASE": "2", "FUSION_MAINTENANCE_INTERVAL": "0.2"})
    eventually(lambda: status_of(jobs.conn, job.id) == "finished", 20)
    check_conservation(jobs.conn, [job.id])
    assert jobs.runs(job) == 1 or (told, answer) == ("QUIT", "there"), "a cold end may cut off a run"


@pytest.mark.parametrize("flags", MODES)
@pytest.mark.parametrize("told", ["TSTP", "HUP", "gone", "forgotten"])
def test_an_idle_worker_gets_a_command_during_a_turn(
    proxy: FaultProxy, fleet: Workers, jobs: Jobs, flags: tuple[str, ...], told: str
) -> None:
    """To be quiet or to reload; or its entry is gone, or Redis has forgotten the scripts. What the turn brings runs once."""
    worker = idle(fleet, jobs, *flags, FUSION_SOCKET_TIMEOUT="6", FUSION_LEASE="9")
    if told == "forgotten":
        jobs.conn.script_flush()
    proxy.delay = (1.0, 1.0)
    jobs.short(1)
    (job,) = jobs.all
    if told != "forgotten":
        eventually(lambda: status_of(jobs.conn, job.id) == "started", why="Redis has given it the job")
    if told == "gone":
        jobs.conn.delete(*jobs.conn.keys("rq:worker:*"))
    elif told in ("TSTP", "HUP"):
        worker.signal(getattr(signal, f"SIG{told}"))
        eventually(lambda: {"TSTP": "quiet:", "HUP": "reload:"}[told] in worker.output)
    proxy.delay = (0.0, 0.0)
    if told == "TSTP":
        eventually(lambda: status_of(jobs.conn, job.id) == "queued", why="what the turn brought went back")
        assert jobs.runs(job) == 0
        worker.signal(signal.SIGCONT)
    jobs.finished(15)
    jobs.short(2)
    jobs.finished(15)
    worker.signal(signal.SIGTERM)
    assert worker.wait(20) == 0, worker.output
