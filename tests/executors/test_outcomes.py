"""Every death of a process means one thing for its job."""

from __future__ import annotations

from signal import SIGABRT, SIGBUS, SIGHUP, SIGINT, SIGKILL, SIGSEGV, SIGTERM
from time import monotonic

import pytest

from fusion.executors.base import Death, KillCause, Run
from fusion.worker.outcomes import of_death, of_frame
from tests.executors.rig import Rig, claimed

CODES = (0, 1, 70, 255)
OWN_SIGNALS = (SIGSEGV, SIGABRT, SIGBUS)
POLITE = (SIGTERM, SIGINT, SIGHUP)
NOBODY = Death(SIGKILL, 2048)


def run(cause: KillCause | None = None, detail: str = "", **fields: bytes) -> Run:
    return Run(claimed(retry=b'{"max": 0}', **fields), 15.0, monotonic(), killed=cause, detail=detail)


def kind_and_reason(one: Run, death: Death, *, stopping: bool = False) -> tuple[str, str]:
    decision = of_death(one, death, stopping=stopping, grace=5.0)
    return decision.kind, decision.reason


@pytest.mark.parametrize("stopping", [False, True])
@pytest.mark.parametrize("code", CODES)
def test_a_process_that_ends_by_itself_fails_its_job(code: int, stopping: bool) -> None:
    kind, reason = kind_and_reason(run(), Death(code << 8, 2048), stopping=stopping)
    assert kind == "failed" and f"exited with code {code} without a result" in reason and "(peak memory 2 MiB)" in reason


@pytest.mark.parametrize("stopping", [False, True])
@pytest.mark.parametrize("number", OWN_SIGNALS)
def test_a_crash_fails_its_job(number: int, stopping: bool) -> None:
    kind, reason = kind_and_reason(run(), Death(number, 2048), stopping=stopping)
    assert kind == "failed" and "killed by SIG" in reason


@pytest.mark.parametrize("stopping", [False, True])
def test_sigkill_by_nobody_here_is_a_loss(stopping: bool) -> None:
    kind, reason = kind_and_reason(run(), NOBODY, stopping=stopping)
    assert kind == "lost" and "not by Fusion; the OOM killer, or a person" in reason


@pytest.mark.parametrize("number", POLITE)
@pytest.mark.parametrize("stopping", [False, True])
def test_a_polite_signal_releases_the_job_of_a_worker_that_stops(number: int, stopping: bool) -> None:
    kind, reason = kind_and_reason(run(), Death(number, 2048), stopping=stopping)
    assert kind == ("release" if stopping else "lost")
    assert ("while the worker stopped" in reason) is stopping


DEATHS = (Death(), Death(SIGKILL, 1, killed=True), Death(SIGKILL, 1), Death(0, 1), Death(SIGTERM, 1), Death(timed_out=True))


@pytest.mark.parametrize("death", DEATHS, ids=repr)
@pytest.mark.parametrize(
    ("cause", "kind", "words"),
    [
        (KillCause.NO_PROCESS, "release", "no process could be forked"),
        (KillCause.STOLEN, "struck", "an earlier job of its process had read it there"),
        (KillCause.TIMEOUT, "failed", "did not end within its timeout of 10 s plus 5 s grace and was killed"),
    ],
)
def test_some_causes_decide_however_the_process_ended(cause: KillCause, kind: str, words: str, death: Death) -> None:
    found, reason = kind_and_reason(run(cause), death)
    assert found == kind and words in reason


@pytest.mark.parametrize("cause", [None, KillCause.MEMORY, KillCause.COMMAND, KillCause.BROKEN])
@pytest.mark.parametrize("status", [None, SIGKILL, 0])
def test_time_that_is_up_decides_whatever_else_was_going_on(cause: KillCause | None, status: int | None) -> None:
    decision = of_death(run(cause), Death(status, 1, timed_out=True), stopping=True, grace=5.0)
    assert decision.kind == "failed" and decision.fields["error_class"] == "fusion.exceptions.JobTimeoutException"


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        (KillCause.MEMORY, "its processes held 9 MiB and were killed"),
        (KillCause.COMMAND, "killed by command"),
        (KillCause.BROKEN, "its process broke off its answer and was killed"),
        (None, "killed by the worker"),
    ],
)
def test_a_kill_by_us_fails_the_job_and_says_why(cause: KillCause | None, words: str) -> None:
    kind, reason = kind_and_reason(run(cause, "held 9 MiB"), Death(SIGKILL, 1, killed=True))
    assert kind == "failed" and words in reason


@pytest.mark.parametrize("cause", [KillCause.MEMORY, KillCause.COMMAND, KillCause.BROKEN])
@pytest.mark.parametrize(("death", "kind"), [(Death(SIGKILL, 1), "lost"), (Death(0, 1), "failed"), (Death(SIGSEGV, 1), "failed")])
def test_a_process_that_was_quicker_than_our_kill_ended_by_itself(cause: KillCause, death: Death, kind: str) -> None:
    found, reason = kind_and_reason(run(cause, "held 9 MiB"), death)
    assert found == kind and "work-horse" in reason


@pytest.mark.parametrize("cause", [None, KillCause.MEMORY, KillCause.COMMAND])
def test_the_executors_death_is_a_loss_without_blame(cause: KillCause | None) -> None:
    assert kind_and_reason(run(cause), Death())[0] == "struck"


@pytest.mark.parametrize(("death", "oom"), [(NOBODY, True), (Death(SIGKILL, 1, killed=True), False), (Death(SIGTERM, 1), False)])
def test_only_a_sigkill_by_nobody_here_may_be_the_oom_killer(death: Death, oom: bool) -> None:
    attempt = of_death(run(), death, stopping=False, grace=5.0).attempt
    assert attempt.get("oom", False) is oom and attempt["signal"] == death.status


@pytest.mark.parametrize("kind", [b"", b"log", b"meta", b"idle", b"FINISHED", b"finished ", b"\xff"])
def test_a_frame_that_is_no_outcome_fails_the_job(kind: bytes) -> None:
    decision = of_frame({b"retry": b'{"max": 0}'}, {b"kind": kind})
    assert decision.kind == "failed" and "something that is not an outcome" in decision.reason


@pytest.mark.parametrize("retry", [b"{", b"[]", b'{"max": "x"}', b"\xff", b"1"])
def test_an_unreadable_retry_policy_is_a_failure_with_its_reason(retry: bytes) -> None:
    decision = of_death(run(None) if not retry else run_with(retry), NOBODY_FAILS, stopping=False, grace=5.0)
    assert decision.kind == "failed" and decision.reason.startswith("corrupt: ")


NOBODY_FAILS = Death(1 << 8, 1)


def run_with(retry: bytes) -> Run:
    one = run()
    one.claimed.fields[b"retry"] = retry
    return one


@pytest.mark.parametrize("cause", list(KillCause))
def test_each_killed_run_has_one_outcome_or_none_where_it_is_decided_elsewhere(cause: KillCause) -> None:
    rig = Rig()
    job = rig.start()
    rig.executor.kill(rig.run_of(job), cause)
    decided_elsewhere = cause in (KillCause.LOST, KillCause.COLD)
    assert len(rig.told()) == (0 if decided_elsewhere else 1)
    assert rig.executor.running == []


@pytest.mark.parametrize("on_lost", [b"", b"fail"])
@pytest.mark.parametrize("signaled", [b"0.2", b"", b"-1", b"90", b"nan", b"x"])
@pytest.mark.parametrize("kind", [b"failed", b"finished"])
def test_a_failure_near_a_signal_waits_for_the_workers_own(kind: bytes, signaled: bytes, on_lost: bytes) -> None:
    rig = Rig()
    job = rig.start(on_lost=on_lost, retry=b'{"max": 0}')
    rig.executor.finish(rig.run_of(job), kind, signaled=signaled, exc_line=b"E: x")
    waits = kind == b"failed" and signaled == b"0.2" and not on_lost
    assert len(rig.told()) == (0 if waits else 1)
    if waits:
        rig.outbox.worker_signaled(monotonic())
        rig.outbox.retry_commits(float("inf"))
        assert rig.kinds() == ["struck"]


def test_a_missing_task_is_noted_before_the_next_turn() -> None:
    rig = Rig()
    job = rig.start()
    rig.executor.finish(rig.run_of(job), b"held", task=b"tasks.gone", exc_line=b"no such task")
    assert rig.kinds() == ["held"]
    assert "tasks.gone" in repr(rig.blocked_work._lacking)
