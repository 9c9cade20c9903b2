"""A turn is under way and the worker serves what runs: lines break, Redis is slow, signals come, and the worker is killed."""

from __future__ import annotations

import signal
import statistics
import time
from pathlib import Path

import pytest

from tests.faults.rig.conservation import check_conservation
from tests.faults.rig.proxy import CUT, HOLE, LOSE, RESET, FaultProxy
from tests.faults.trouble.test_replies import at_doorbell
from tests.kit.length import soak_case, soaked
from tests.kit.waiting import eventually
from tests.kit.witnesses import field, status_of
from tests.kit.workers import WorkerProcess, Workers, wait_may_recover
from tests.worker.test_probes import get, url_of
from tests.worker.test_redis_trouble import QUICK, Jobs

MODES = [pytest.param(("--slots", "2"), id="process per job"), pytest.param(("--horses", "2"), id="pool")]


def lines_with_turns(proxy: FaultProxy) -> int:
    """Connections on which turns were taken."""
    return sum("turn" in link.sent for link in proxy.links)


@pytest.mark.parametrize("flags", [soak_case(("--slots", "2"), id="process per job"), MODES[1]])
@pytest.mark.parametrize("what", [CUT, LOSE, RESET, HOLE, "BUSY Redis is busy", "READONLY it is a replica", "LOADING it loads"])
@pytest.mark.parametrize(("nth", "which"), [(1, "the job"), (2, "what happened to it")], ids=["claim", "outcome"])
def test_a_turn_that_is_not_answered_is_repeated(
    proxy: FaultProxy, fleet: Workers, jobs: Jobs, flags: tuple[str, ...], what: str, nth: int, which: str
) -> None:
    """The answer carries `which`, while another job runs."""
    worker = fleet.start("r", *flags, env={**QUICK, "FUSION_CLAIM_AHEAD": "0"})
    eventually(lambda: at_doorbell(jobs.conn), why="it waits for a job")
    long = jobs.gated()
    jobs.begun(long)
    eventually(lambda: at_doorbell(jobs.conn), why="it waits for a second one")
    struck = proxy.on("turn", what, nth=nth)
    jobs.short(1)
    eventually(lambda: status_of(jobs.conn, jobs.all[-1].id) == "finished", 20, why=worker.output)
    assert status_of(jobs.conn, long.id) == "started"
    jobs.gate.unlink()
    jobs.finished(20)
    assert struck.struck == 1
    assert [field(jobs.conn, job.id, "deliveries") for job in jobs.all] == ["1", "1"]
    assert "not accepted" not in worker.output
    assert lines_with_turns(proxy) >= 2, "beside the main line"


@pytest.mark.parametrize("flags", [MODES[0], soak_case(("--horses", "2"), id="pool")])
def test_a_slow_redis_holds_up_nothing_that_runs(proxy: FaultProxy, fleet: Workers, jobs: Jobs, flags: tuple[str, ...]) -> None:
    """Answers take 200 ms, and a turn is under way nearly all the time."""
    flags = (flags[0], "4", "--probe-port", "0")
    env = {"FUSION_LEASE": "9", "FUSION_SOCKET_TIMEOUT": "2", "FUSION_TIMEOUT_GRACE": "0.2", "FUSION_MAINTENANCE_INTERVAL": "60"}
    worker = fleet.start("r", *flags, env=env)
    url = url_of(worker)
    long = jobs.gated()
    jobs.begun(long)
    wait_may_recover(jobs.conn)
    proxy.delay = (0.2, 0.2)
    late = jobs.queue.enqueue("tests.jobs.basic.sleep", 60, job_timeout=1)
    talks = jobs.queue.enqueue("tests.jobs.basic.progress", 3)
    jobs.short(soaked(40, 80))
    took = []
    while status_of(jobs.conn, jobs.all[-1].id) != "finished":
        began = time.monotonic()
        assert get(f"{url}/livez").status == 200
        took.append(time.monotonic() - began)
        time.sleep(0.03)  # not a wait: how often it is asked
    print(f"a probe: p50 {1000 * statistics.median(took):.1f} ms of {len(took)}")
    assert statistics.median(took) < 0.1
    eventually(lambda: status_of(jobs.conn, late.id) == "failed", 20, why="its time was over")
    eventually(lambda: status_of(jobs.conn, talks.id) == "finished", 20)
    assert field(jobs.conn, talks.id, "meta") == '{"step":2}'
    jobs.gate.unlink()
    jobs.finished(40)
    assert {field(jobs.conn, job.id, "deliveries") for job in jobs.all} == {"1"}
    assert "no longer this worker's" not in worker.output
    assert "Redis is away" not in worker.output


def _amid_a_turn(fleet: Workers, jobs: Jobs, here: Path, flags: tuple[str, ...], proxy: FaultProxy, answer: str) -> WorkerProcess:
    """A worker that stands still with a turn sent that takes the second job, while it runs the first."""
    env = {**QUICK, "FUSION_SOCKET_TIMEOUT": "5", "FUSION_LEASE": "2", "FUSION_CLAIM_AHEAD": "0"}
    worker = fleet.start("r", *flags, env={**env, "FUSION_FAILPOINTS": f"turn.sent=wait:{here}"})
    eventually(lambda: at_doorbell(jobs.conn), why="it waits for a job")
    jobs.begun(jobs.gated())
    eventually(lambda: at_doorbell(jobs.conn), why="it waits for a second one")
    if answer == "never":
        proxy.on("turn", CUT)
    proxy.delay = (0.5, 0.5) if answer == "late" else (0.0, 0.0)
    here.parent.mkdir()
    jobs.short(1)
    eventually(here.exists, why="a turn is asked for")
    return worker


@pytest.mark.parametrize("flags", MODES)
@pytest.mark.parametrize("told", ["TERM", "QUIT", "KILL"])
@pytest.mark.parametrize("answer", ["there", soak_case("late"), "never"])
def test_a_signal_amid_a_turn(
    proxy: FaultProxy, fleet: Workers, jobs: Jobs, tmp_path: Path, flags: tuple[str, ...], told: str, answer: str
) -> None:
    """The answer to it is there, comes after the signal has been obeyed, or never: the turn is repeated."""
    here = tmp_path / "armed" / "here"
    worker = _amid_a_turn(fleet, jobs, here, flags, proxy, answer)
    long, short = jobs.all
    if answer != "never":
        eventually(lambda: status_of(jobs.conn, short.id) == "started", why="Redis has given it the job")
    worker.signal(getattr(signal, f"SIG{told}"))
    here.unlink()
    if told == "TERM":
        eventually(lambda: "warm shutdown" in worker.output)
        jobs.gate.unlink()
    code = worker.wait(20)
    assert code == {"TERM": 0, "QUIT": 1, "KILL": -signal.SIGKILL}[told]
    assert (status_of(jobs.conn, long.id) == "finished") == (told == "TERM")
    if told != "KILL":
        assert field(jobs.conn, short.id, "lost") in ("", "0")
    if told != "KILL" and answer != "there":
        assert status_of(jobs.conn, short.id) == "queued", "what the turn brought went back"
        assert jobs.runs(short) == 0
    jobs.gate.unlink(missing_ok=True)
    proxy.lift()
    fleet.start("r", *flags, env={**QUICK, "FUSION_LEASE": "2", "FUSION_MAINTENANCE_INTERVAL": "0.2"})
    eventually(lambda: {status_of(jobs.conn, job.id) for job in jobs.all} == {"finished"}, 30)
    check_conservation(jobs.conn, [job.id for job in jobs.all])
    assert jobs.runs(short) == 1 or (told, answer, jobs.runs(short)) == ("QUIT", "there", 2), "a cold end may cut off a run"


def _amid_a_late_turn(proxy: FaultProxy, jobs: Jobs) -> None:
    """A job runs, and the answer to the turn that takes a second one is two seconds on its way."""
    eventually(lambda: at_doorbell(jobs.conn), why="it waits for a job")
    jobs.begun(jobs.gated())
    eventually(lambda: at_doorbell(jobs.conn), why="it waits for a second one")
    proxy.delay = (2.0, 2.0)
    jobs.short(1)
    eventually(lambda: status_of(jobs.conn, jobs.all[-1].id) == "started", why="Redis has given it the job")


@pytest.mark.parametrize("flags", MODES)
@pytest.mark.parametrize("told", ["TSTP", "HUP", "gone", "forgotten"])
def test_a_worker_gets_a_command_during_a_turn(
    proxy: FaultProxy, fleet: Workers, jobs: Jobs, flags: tuple[str, ...], told: str
) -> None:
    """To be quiet or to reload; or its entry is gone, or Redis has forgotten the scripts. Whatever the turn brings runs once."""
    worker = fleet.start("r", *flags, env={**QUICK, "FUSION_SOCKET_TIMEOUT": "6", "FUSION_LEASE": "9", "FUSION_CLAIM_AHEAD": "0"})
    _amid_a_late_turn(proxy, jobs)
    if told == "gone":
        jobs.conn.delete(*jobs.conn.keys("rq:worker:*"))
    elif told == "forgotten":
        jobs.conn.script_flush()
    else:
        worker.signal(getattr(signal, f"SIG{told}"))
        eventually(lambda: {"TSTP": "quiet:", "HUP": "reload:"}[told] in worker.output)
    proxy.delay = (0.0, 0.0)
    if told == "TSTP":
        eventually(lambda: status_of(jobs.conn, jobs.all[-1].id) == "queued", why="what the turn brought went back")
        assert jobs.runs(jobs.all[-1]) == 0
        worker.signal(signal.SIGCONT)
    jobs.gate.unlink()
    jobs.short(2)
    jobs.finished(20)
    worker.signal(signal.SIGTERM)
    assert worker.wait(20) == 0, worker.output
    for job in jobs.all:
        assert worker.output.count(f"Job OK ({job.id})") == 1, worker.output
