"""The soak's reader of Redis' history tells a loss that counts from one that must not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.faults.soak.history import Event, History, Life
from tests.faults.soak.monkey import Strike
from tests.faults.soak.people import Answer
from tests.faults.soak.plan import TASKS, Job, rush_job
from tests.faults.soak.relations import Step, Ties, wrong_answers, wrong_batches, wrong_steps
from tests.faults.soak.sharing import Gift, Told, told_beside, wrong_calls, wrong_gifts, wrong_hearings
from tests.faults.soak.verdict import Findings, Run, judge

Command = tuple[str, ...]
JOB, RUN = "r000000", "w:1:1"
HELD: list[Command] = [("HSET", f"rq:job:{JOB}", "status", "queued"), ("ZADD", "rq:queue:rush", "1", JOB)]
GIVEN_BACK: list[Command] = [("ZADD", "rq:queue:rush", "1", JOB), ("ZREM", "rq:wip:rush", JOB)]
DONE: list[Command] = [("ZADD", "rq:finished:rush", "1", JOB), ("ZREM", "rq:wip:rush", JOB)]


def claimed(execution: str) -> list[Command]:
    return [
        ("HSET", f"rq:job:{JOB}", "status", "started", "execution_id", execution),
        ("ZADD", "rq:wip:rush", "1", JOB),
        ("ZREM", "rq:queue:rush", JOB),
    ]


def lost(count: int) -> list[Command]:
    line = json.dumps({"outcome": "lost"})
    return [("HSET", f"rq:job:{JOB}", "status", "queued", "history", line, "lost", str(count)), *GIVEN_BACK]


def begun(execution: str) -> list[Command]:
    return [("HSET", f"rq:job:{JOB}", "begun", execution)]


def finished() -> list[Command]:
    return [("HSET", f"rq:job:{JOB}", "status", "finished"), *DONE]


def read(path: Path, *transactions: Sequence[Command]) -> History:
    commands = [part for one in (HELD, *transactions) for part in (("MULTI",), *one, ("EXEC",))]
    words = ["".join(f"${len(word)}\r\n{word}\r\n" for word in command) for command in commands]
    text = "".join(f"*{len(command)}\r\n{rest}" for command, rest in zip(commands, words, strict=True))
    (path / "appendonly.aof").write_bytes(text.encode())
    return History(path / "appendonly.aof")


@pytest.mark.parametrize(
    ("execution", "told", "count", "wrong"),
    [
        (RUN, False, 1, False),
        (RUN, False, 0, True),
        (f"{RUN}a", False, 0, False),
        (f"{RUN}a", False, 1, False),
        (f"{RUN}a", True, 1, False),
        (f"{RUN}a", True, 0, True),
        (f"{RUN}a", False, 2, True),
    ],
    ids=[
        "it ran",
        "it ran, for nothing",
        "it waited",
        "it was let off enough",
        "it began",
        "it began, for nothing",
        "twice at once",
    ],
)
def test_a_loss_counts_unless_the_job_waited(execution: str, told: bool, count: int, wrong: bool, tmp_path: Path) -> None:
    history = read(tmp_path, claimed(execution), *([begun(execution)] if told else []), lost(count), claimed("w:2:1"), finished())
    assert bool(history.wrong) == wrong, history.wrong
    assert (execution in history.counted, execution in history.let_off) == (count > 0, count == 0)


SUSPECT = "its process was killed by SIGKILL, and which of its jobs did that nobody knows"
SHARED = "the call that it shared gave no answer for it: it runs again alone; RuntimeError"
DISPLACED = "its process was killed for another job in it"


def _beside(path: Path, count: int, why: str) -> History:
    (name, key, *fields), *rest = lost(count)
    fields[fields.index("history") + 1] = json.dumps({"outcome": "lost", "error": why})
    return read(path, claimed(RUN), [(name, key, *fields, "reason", why), *rest], claimed("w:2:1"), finished())


def test_what_another_job_did_to_one_that_is_called_off_counts_for_nothing(tmp_path: Path) -> None:
    line = json.dumps({"outcome": "lost", "error": SUSPECT})
    off: list[Command] = [
        ("HSET", f"rq:job:{JOB}", "status", "canceled", "reason", "canceled", "history", line, "lost", "0"),
        ("ZADD", "rq:canceled:rush", "1", JOB),
        ("ZREM", "rq:wip:rush", JOB),
    ]
    history = read(tmp_path, claimed(RUN), [("HSET", f"rq:job:{JOB}", "cancel", "1")], off)
    assert history.wrong == []
    assert history.beside == {RUN}


def test_one_on_probation_may_come_to_wait_for_a_slot(tmp_path: Path) -> None:
    waits: Command = ("HSET", f"rq:job:{JOB}", "status", "blocked")
    asleep: list[Command] = [waits, ("ZADD", "rq:blocked:rush", "1", JOB), ("ZREM", "rq:queue:rush", JOB)]
    assert read(tmp_path, asleep, [waits]).wrong == []


@pytest.mark.parametrize("why", [SUSPECT, DISPLACED, SHARED], ids=["suspect", "displaced", "shared"])
@pytest.mark.parametrize("count", [0, 1])
def test_what_another_job_of_its_process_did_counts_for_nothing(count: int, why: str, tmp_path: Path) -> None:
    history = _beside(tmp_path, count, why)
    assert bool(history.wrong) == bool(count)
    assert history.beside == {RUN}


@pytest.mark.parametrize(("neighbour", "wrong"), [("7", False), ("8", True)], ids=["with a neighbour", "alone"])
def test_the_checker_finds_a_suspect_that_ran_alone(neighbour: str, wrong: bool, tmp_path: Path) -> None:
    history = _beside(tmp_path, 0, SUSPECT)
    seen = {RUN: Run(JOB, 1, 0, "7"), "w:3:1": Run("other", 1, 1, neighbour)}
    seen["w:2:1"] = Run(JOB, 1, 1, "9")
    verdict = judge(Findings({JOB: rush_job(1, 0)}, [JOB], {JOB}, {JOB: "finished"}, history, seen, [], []))
    assert any("was alone in it" in what for what, _ in verdict.wrong) == wrong


@pytest.mark.parametrize(("runs", "allowed"), [(["w:2:1"], True), ([f"{RUN}a", "w:2:1"], True), (["w:2:1", "w:9:9"], False)])
def test_a_job_that_waited_in_vain_may_not_run_more_often_for_that(runs: list[str], allowed: bool, tmp_path: Path) -> None:
    history = read(tmp_path, claimed(f"{RUN}a"), lost(0), claimed("w:2:1"), finished())
    seen = {execution: Run(JOB, 1, 1) for execution in runs}
    verdict = judge(Findings({JOB: rush_job(1, 0)}, [JOB], {JOB}, {JOB: "finished"}, history, seen, [], []))
    assert ("ran more often than failed and lost runs allow" in dict(verdict.wrong)) == (not allowed)
    assert verdict.figures["losses that counted, of jobs ahead that no witness saw begin"] == 0


@pytest.mark.parametrize(
    ("seconds", "meanwhile", "late"),
    [(2.4, "kill horse", False), (60.0, "kill horse", True), (60.0, "kill Redis", False)],
    ids=["in time", "too late", "not while Redis was away"],
)
def test_a_dead_workers_job_comes_back_in_time(seconds: float, meanwhile: str, late: bool, tmp_path: Path) -> None:
    history = read(tmp_path, claimed(RUN), lost(1), claimed("w:2:1"), finished())
    history.events.append(Event(1, "abandoned", JOB, "host.77", 1000.0 + seconds))
    strikes = [Strike(1000.0, "kill worker", "worker 77", 2, 77), Strike(1001.0, meanwhile, "somebody")]
    verdict = judge(Findings({JOB: rush_job(1, 0)}, [JOB], {JOB}, {JOB: "finished"}, history, {}, strikes, []))
    assert any("could be claimed later" in what for what, _ in verdict.wrong) == late


def _slots(*commands: Command) -> list[Command]:
    return [("HSET", "rq:limit:k", "max", "1"), *commands]


@pytest.mark.parametrize(
    ("writes", "wrong"),
    [
        ([("ZADD", "rq:limits:held:k", "1.5", JOB)], ""),
        ([("ZADD", "rq:limits:held:k", "1.5", JOB), ("ZADD", "rq:limits:waiting:k", "1.25", "other")], "other is gone and waits"),
        ([("ZADD", "rq:limits:held:k", "1.5", JOB), ("ZADD", "rq:limits:waiting:k", "1.5", JOB)], "hold a slot and wait"),
        ([("ZADD", "rq:limits:held:k", "1.25", JOB), ("ZADD", "rq:limits:waiting:k", "1.5", "other")], "has not started"),
        ([("ZADD", "rq:limits:held:k", "+inf", JOB), ("ZADD", "rq:limits:held:k", "1.25", "other")], "of 1 at a time"),
        ([("ZADD", "rq:limits:held:k", "+inf", JOB), ("ZADD", "rq:limits:held:k", "+inf", "other")], "of 1 at a time"),
        ([("ZADD", "rq:limits:waiting:k", "1.5", JOB)], "1 slots are free"),
        ([("ZADD", "rq:limits:held:k", "+inf", "other")], "other is gone and holds"),
    ],
    ids=[
        "its slot",
        "one that is gone waits",
        "both",
        "out of order",
        "too many may",
        "too many run",
        "in vain",
        "a slot leaked",
    ],
)
def test_slots_of_a_key_are_followed(writes: list[Command], wrong: str, tmp_path: Path) -> None:
    found = [what for what in read(tmp_path, _slots(*writes)).wrong if what.startswith("key ")]
    assert wrong in "; ".join(found)
    assert bool(found) == bool(wrong)


@pytest.mark.parametrize("promised", [True, False])
@pytest.mark.parametrize("status", ["deferred", "queued"])
def test_only_a_job_of_a_call_that_never_ended_may_be_deleted(promised: bool, status: str, tmp_path: Path) -> None:
    """The fleet gives such a call up after a minute. Its producer, who waited longer, sends it again."""
    place = f"rq:{status}:rush" if status == "deferred" else "rq:queue:rush"
    graph: list[Command] = [("HSET", "rq:job:g", "graph", "1")] if promised else []
    came: list[Command] = [("ZADD", place, "1", "g"), ("HSET", "rq:job:g", "status", status), *graph]
    went: list[Command] = [("ZREM", place, "g"), ("UNLINK", "rq:job:g")]
    history = read(tmp_path, came, went, came)
    assert bool(history.wrong) == (not (promised and status == "deferred")), history.wrong


@pytest.mark.parametrize("counted", [True, False])
def test_an_end_that_is_not_counted_is_noticed(counted: bool, tmp_path: Path) -> None:
    came: list[Command] = [("HINCRBY", "rq:totals:rush", "enqueued:1", "1")]
    went: list[Command] = [("HINCRBY", "rq:totals:rush", "completed:1", "1")] if counted else []
    history = read(tmp_path, came, claimed(RUN), [*finished(), *went])
    assert bool(history.wrong) == (not counted), history.wrong


KEY: Command = ("SET", "rq:unique:u", JOB)
INDEX: Command = ("ZADD", "rq:uniques", "1", "u")
WANTS: Command = ("HSET", f"rq:job:{JOB}", "unique_key", "u")
OTHER: list[Command] = [("HSET", "rq:job:other", "unique_key", "u", "status", "queued"), ("ZADD", "rq:queue:rush", "1", "other")]
WINDOW: Command = ("SET", "rq:unique:u", JOB, "PXAT", "99")


@pytest.mark.parametrize(
    ("transactions", "wrong"),
    [
        ([[WANTS, KEY, INDEX], claimed(RUN), [*finished(), ("DEL", "rq:unique:u"), ("ZREM", "rq:uniques", "u")]], ""),
        ([[WANTS, KEY, INDEX], OTHER], "at the same time"),
        ([[WANTS]], "holds it, and it names"),
        ([[WANTS, KEY]], "holds it, and it names"),
        ([[WANTS, KEY, INDEX], claimed(RUN), finished()], "nobody holds it"),
        ([[WANTS, KEY, INDEX], [WINDOW]], "holds it, and it names"),
        ([[WINDOW], [*OTHER, ("SET", "rq:unique:u", "other"), INDEX]], "inside the window"),
        ([[WINDOW], [("DEL", "rq:unique:u")], [*OTHER, ("SET", "rq:unique:u", "other"), INDEX]], ""),
    ],
    ids=[
        "held and given up",
        "two",
        "not taken",
        "not in the list",
        "leaked",
        "given up too soon",
        "inside a window",
        "after it",
    ],
)
def test_unique_keys_are_followed(transactions: Sequence[Sequence[Command]], wrong: str, tmp_path: Path) -> None:
    found = [what for what in read(tmp_path, *transactions).wrong if "unique key" in what]
    assert wrong in "; ".join(found)
    assert bool(found) == bool(wrong)


@pytest.mark.parametrize(
    ("then", "wrong"),
    [(lost(1), True), (finished(), False), ([("HSET", f"rq:job:{JOB}", "status", "stopped"), ("ZREM", "rq:wip:rush", JOB),
      ("ZADD", "rq:stopped:rush", "1", JOB)], False)],
    ids=["given back", "finished", "stopped"],
)  # fmt: skip
def test_the_checker_finds_a_canceled_run_that_is_given_back(then: Sequence[Command], wrong: bool, tmp_path: Path) -> None:
    history = read(tmp_path, claimed(RUN), [("HSET", f"rq:job:{JOB}", "cancel", "stop")], then)
    assert any("people said" in what for what in history.wrong) == wrong, history.wrong


@pytest.mark.parametrize(
    ("told", "wrong"),
    [
        ([(RUN, 0), (RUN, 1), ("w:2:1", 1), ("w:2:1", 2)], ""),
        ([(RUN, 0), (RUN, 1), ("w:2:1", 2)], "the cursor was 1"),
        ([(RUN, 0), (RUN, 2), ("w:2:1", 1)], "left out steps"),
        ([(RUN, 0), ("w:2:1", 1)], "2 of 3 steps"),
    ],
    ids=["goes on", "leaves one out", "skips", "ends early"],
)
def test_steps_are_followed(told: Sequence[tuple[str, int]], wrong: str, tmp_path: Path) -> None:
    history = read(tmp_path, claimed(RUN), [("HSET", f"rq:job:{JOB}", "cursor", "1")], lost(1), claimed("w:2:1"), finished())
    steps = [Step(JOB, execution, number) for execution, number in told]
    found = list(wrong_steps(steps, {JOB: replace(rush_job(1, 0), args=(3,))}, {JOB: "finished"}, history))
    assert wrong in "; ".join(found)
    assert bool(found) == bool(wrong), found


@pytest.mark.parametrize(
    ("said", "state", "wrong"),
    [("pending", "finished", False), ("pending", "queued", True), ("stopped", "finished", True), ("finished", "finished", False)],
)
def test_the_checker_finds_answers_to_operators_that_did_not_hold(said: str, state: str, wrong: bool) -> None:
    assert bool(list(wrong_answers([Answer(JOB, "stop", said, 0)], {JOB: state}))) == wrong


def _of_group(job_id: str, **more: Any) -> Job:
    return Job(job_id, "chain", "steady", f"{TASKS}.link", "finished", **more)


@pytest.mark.parametrize(
    ("member", "complete", "success", "canceled", "wrong"),
    [
        ("finished", "finished", "finished", set(), ""),
        ("finished", "finished", "canceled", set(), "x: canceled"),
        ("finished", "finished", "canceled", {"b"}, ""),
        ("finished", "finished", "finished", {"b"}, ""),
        ("failed", "finished", "canceled", set(), ""),
        ("failed", "finished", "finished", {"b"}, "x: finished"),
        ("finished", "canceled", "canceled", {"b"}, "to follow each end"),
    ],
    ids=["all", "not called", "a person canceled it", "too late", "not all", "called for nothing", "its end not told"],
)
def test_the_checker_finds_wrong_follow_ups_of_a_batch(
    member: str, complete: str, success: str, canceled: set[str], wrong: str
) -> None:
    plan = [
        _of_group("m", batch="b"),
        *(_of_group(name, batch="b", batch_as=when) for name, when in (("c", "complete"), ("x", "success"))),
    ]
    found = list(wrong_batches(plan, {"m": member, "c": complete, "x": success}, canceled))
    assert wrong in "; ".join(found)
    assert bool(found) == bool(wrong), found


@pytest.mark.parametrize(
    ("status", "given", "wrong"),
    [("finished", "w:2:1", False), ("finished", RUN, True), ("finished", "None", True), ("failed", "w:2:1", True)],
    ids=["its result", "that of a run that was lost", "nothing", "of one that failed"],
)
def test_a_step_is_given_what_the_one_before_it_returned(status: str, given: str, wrong: bool) -> None:
    plan = {"b": _of_group("b", takes=True, parents=(("a", "fail"),))}
    found = list(wrong_gifts([Gift("b", "w:3:1", given)], plan, {"a": Life(status, "w:2:1")}))
    assert bool(found) == wrong, found


STRUCK = "fusion.exceptions.JobStopped: the job was stopped"
KILLED = "did not end within 0.5 s grace and was killed"


@pytest.mark.parametrize(
    ("heard", "status", "error", "wish", "wrong"),
    [
        ([RUN], "stopped", STRUCK, "stop", ""),
        ([], "stopped", STRUCK, "stop", "nobody heard"),
        ([], "stopped", KILLED, "stop", ""),
        ([RUN], "stopped", "lease expired", "stop", ""),
        ([RUN, "w:2:1"], "stopped", STRUCK, "stop", "and of that of"),
        ([RUN], "finished", "", "stop", "is finished"),
        ([RUN], "canceled", STRUCK, "cancel", "wanted cancel"),
    ],
    ids=["heard", "not heard", "killed", "its worker died behind it", "twice", "finished", "canceled"],
)
def test_the_checker_finds_wrong_calls_of_on_stopped(heard: list[str], status: str, error: str, wish: str, wrong: str) -> None:
    plan = {JOB: _of_group(JOB, wish=wish, options={"on_stopped": f"{TASKS}.heard"})}
    found = list(wrong_hearings([(JOB, each) for each in heard], plan, {JOB: Life(status, RUN, error=error)}, {JOB}))
    assert wrong in "; ".join(found)
    assert bool(found) == bool(wrong), found


@pytest.mark.parametrize(
    ("call", "alone", "wrong"),
    [
        (["w:1:0", "w:1:1"], set(), ""),
        (["w:1:0"], {"w:1:0"}, ""),
        (["w:1:0", "w:1:1"], {"w:1:1"}, "was to run alone"),
        ([f"w:1:{n}" for n in range(7)], set(), "takes 6"),
        (["w:1:0", "w:1:7"], set(), "not alike"),
        (["w:1:0", "w:1:8"], set(), "not alike"),
    ],
    ids=["two", "a suspect alone", "a suspect", "too many", "of two queues", "of two priorities"],
)
def test_the_checker_finds_jobs_that_must_not_share_a_call(call: list[str], alone: set[str], wrong: str) -> None:
    plan = {f"j{n}": _of_group(f"j{n}") for n in range(7)}
    plan |= {"j7": replace(plan["j0"], queue="other"), "j8": replace(plan["j0"], options={"priority": 2})}
    found = list(wrong_calls([call], {f"w:1:{n}": f"j{n}" for n in range(9)}, plan, alone))
    assert wrong in "; ".join(found)
    assert bool(found) == bool(wrong), found


@pytest.mark.parametrize(
    ("writes", "alone"),
    [([], False), ([("HSET", f"rq:job:{JOB}", "suspect", "1")], True), ([("HSET", f"rq:job:{JOB}", "lost", "2")], True),
     ([("HSET", f"rq:job:{JOB}", "suspect", "1"), ("HDEL", f"rq:job:{JOB}", "suspect")], False)],
    ids=["any", "suspect", "lost twice", "suspect no more"],
)  # fmt: skip
def test_the_checker_knows_which_runs_are_isolated(writes: list[Command], alone: bool, tmp_path: Path) -> None:
    assert (RUN in read(tmp_path, *([writes] if writes else []), claimed(RUN)).alone) == alone


def _tick(n: int, status: str, was: str = "") -> list[Command]:
    sets = {"queued": "queue:steady", "deferred": "deferred:steady"}
    key, job_id = "rq:job:cron-behind-", f"cron-behind-{n}"
    left: list[Command] = [("ZREM", f"rq:{sets[was]}", job_id)] if was else []
    return [("HSET", f"{key}{n}", "status", status), ("ZADD", f"rq:{sets[status]}", "1", job_id), *left]


@pytest.mark.parametrize(
    ("transactions", "wrong"),
    [
        ([_tick(1, "queued"), _tick(2, "deferred")], ""),
        ([_tick(1, "queued"), _tick(2, "queued")], "under way at the same time"),
        ([_tick(1, "queued"), _tick(2, "deferred"), _tick(2, "queued", "deferred")], "under way at the same time"),
        ([_tick(1, "queued"), _tick(2, "deferred"), _tick(3, "deferred")], "wait for others at the same time"),
    ],
    ids=["behind", "beside", "too soon", "too many"],
)
def test_one_tick_waits_behind_another(transactions: Sequence[Sequence[Command]], wrong: str, tmp_path: Path) -> None:
    found = [what for what in read(tmp_path, *transactions).wrong if what.startswith("cron-behind-")]
    assert wrong in "; ".join(found)
    assert bool(found) == bool(wrong), found


def test_the_checker_judges_reports_of_tasks(tmp_path: Path) -> None:
    """Each of the rules above is asked."""
    plan = {JOB: rush_job(1, 0), "b": _of_group("b", takes=True, parents=((JOB, "fail"),))}
    (tmp_path / "w.given").write_text("b w:3:1 nothing\n")
    (tmp_path / "w.stopped").write_text("b w:3:1\n")
    (tmp_path / "w.calls").write_text("w:2:1 w:3:1\n")
    seen = {"w:2:1": Run(JOB, 1, 1), "w:3:1": Run("b", 1, 1)}
    told = told_beside(tmp_path / "w")
    assert told == Told([Gift("b", "w:3:1", "nothing")], [("b", "w:3:1")], [("w:2:1", "w:3:1")])
    history = read(tmp_path, claimed("w:2:1"), finished())
    verdict = judge(Findings(plan, [JOB, "b"], {JOB, "b"}, {JOB: "finished"}, history, seen, [], [], Ties(told=told)))
    wrong = dict(verdict.wrong)
    assert wrong["not given what the one before it returned"]
    assert wrong["heard of a stop, or did not, otherwise than it was"]
    assert wrong["shared a call wrongly"]
