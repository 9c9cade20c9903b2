"""The plan in a table: claims, owners that died, several managers on one table, and SQLite's own troubles."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fusion.inprocess import JobQueueManager, ManagerSettings, ReadyJob, Row, TablePlan, TableSettings
from fusion.inprocess.owner import PlanOwner
from tests.inprocess.databases import Postgres, PostgresServer, Sqlite
from tests.inprocess.hands import AT_ONCE, managed
from tests.kit.length import long_case
from tests.kit.process import ROOT
from tests.kit.waiting import eventually


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    server = PostgresServer()
    yield server
    server.close()


@pytest.fixture(params=["SQLite", long_case("PostgreSQL")])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Sqlite:
    if request.param == "SQLite":
        return Sqlite(tmp_path / "jobs.db")
    return Postgres(request.getfixturevalue("postgres"))


def claimed(plan: TablePlan, *ids: int) -> list[bool]:
    return [plan.mark_running(job_id) for job_id in ids]


def test_rows_run_and_their_results_are_stored(database: Sqlite) -> None:
    seen: list[Row] = []

    def function(row: Row) -> Any:
        seen.append(row)
        return {"twice": row.payload["n"] * 2}

    plan = database.plan(function)
    assert [plan.add("double", {"n": n}) for n in (1, 2)] == [1, 2]
    with managed(plan) as (_, witness):
        witness.await_kind("finished", 2)
    assert database.rows() == [("complete", 0, '{"twice": 2}'), ("complete", 0, '{"twice": 4}')]
    assert sorted(seen, key=lambda row: row.id) == [Row(1, "double", {"n": 1}, 0), Row(2, "double", {"n": 2}, 0)]
    (first, _) = database.rows("owner, attempts, error, completed_at IS NOT NULL")
    assert first == (str(plan.owner), 1, None, 1)


def test_a_row_that_runs_says_who_has_it_and_since_when(database: Sqlite) -> None:
    plan = database.plan()
    plan.add("job")
    assert plan.mark_running(1)
    ((running, owner, since, attempts),) = database.rows("is_currently_running, owner, running_since, attempts")
    assert (running, owner, attempts, len(since)) == (1, str(plan.owner), 1, len("2026-11-23 16:00:00"))
    assert plan.is_currently_running(1)
    assert not plan.is_currently_running(2)
    assert plan.fetch_ready() == []


def test_a_row_is_claimed_once_however_many_try(database: Sqlite) -> None:
    plans = [database.plan() for _ in range(4)]
    for n in range(50):
        plans[0].add(f"job {n}")
    won: list[int] = []
    start = threading.Barrier(4)

    def claim(plan: TablePlan) -> None:
        start.wait()
        won.extend(job_id for job_id in range(1, 51) if plan.mark_running(job_id))

    claimers = [threading.Thread(target=claim, args=(plan,)) for plan in plans]
    for claimer in claimers:
        claimer.start()
    for claimer in claimers:
        claimer.join(30)
    assert sorted(won) == list(range(1, 51))


def test_two_managers_on_one_table_run_each_row_once(database: Sqlite) -> None:
    ran: Counter[int] = Counter()
    lock = threading.Lock()

    def function(row: Row) -> None:
        with lock:
            ran[row.id] += 1

    plans = [database.plan(function) for _ in range(2)]
    for n in range(60):
        plans[0].add(f"job {n}")
    with managed(plans[0], 4) as (_, one), managed(plans[1], 4) as (_, two):
        eventually(lambda: len(one.of("finished")) + len(two.of("finished")) == 60)
    assert ran == Counter(dict.fromkeys(range(1, 61), 1))
    assert {state for state, _, _ in database.rows()} == {"complete"}


def test_a_row_that_failed_is_pending_behind_those_that_were_tried_less(database: Sqlite) -> None:
    plan = database.plan(max_attempts=2)
    for name in ("a", "b"):
        plan.add(name)
    plan.mark_running(1)
    plan.mark_pending(1, "ValueError: wrong")
    assert [job.name for job in plan.fetch_ready()] == ["b", "a"]
    assert database.rows("state, is_currently_running, owner, running_since, error")[0] == (
        "pending",
        0,
        None,
        None,
        "ValueError: wrong",
    )
    plan.mark_running(1)
    plan.mark_pending(1, "ValueError: again")
    assert [job.name for job in plan.fetch_ready()] == ["b"]  # it was begun twice


def test_a_fetch_has_a_limit(database: Sqlite) -> None:
    plan = database.plan(limit=3)
    for n in range(5):
        plan.add(f"job {n}")
    jobs = plan.fetch_ready()
    assert [type(job) for job in jobs] == [ReadyJob] * 3


@pytest.mark.parametrize("result", [object(), {1, 2}, {("a", "b"): 1}, [float]])
def test_a_result_that_can_not_be_stored_is_the_jobs_error(database: Sqlite, result: Any) -> None:
    plan = database.plan(lambda row: result)
    plan.add("job")
    with managed(plan) as (_, witness):
        (event,) = witness.await_kind("pending")
    assert "the result is not JSON and can't be stored" in event.text
    assert database.rows("state, is_currently_running") == [("pending", 0)]


def test_a_call_that_is_made_again_changes_nothing(database: Sqlite) -> None:
    plan = database.plan()
    plan.add("job")
    plan.mark_running(1)
    for _ in range(2):
        plan.mark_complete(1, "done")
    plan.mark_pending(1, "late")
    assert database.rows() == [("complete", 0, '"done"')]
    assert claimed(plan, 1, 99) == [False, False]


def test_a_plan_that_lost_a_row_cannot_change_it(database: Sqlite, caplog: pytest.LogCaptureFixture) -> None:
    first, second = database.plan(), database.plan()
    first.add("job")
    first.mark_running(1)
    database.change("UPDATE execution_plan SET is_currently_running = 0, owner = NULL")
    assert second.mark_running(1)
    first.mark_pending(1, "mine failed")
    first.mark_complete(1, "mine")
    assert database.rows("state, is_currently_running, owner, result, error") == [("pending", 1, str(second.owner), None, None)]
    assert "row 1 of execution_plan was given to another owner while it ran here: its result is dropped" in caplog.text


# -- owners that died


def as_if_owned_by(database: Sqlite, owner: PlanOwner | str | None, since: str = "2026-01-01 00:00:00") -> None:
    database.change(
        "UPDATE execution_plan SET is_currently_running = 1, owner = ?, running_since = ?", owner and str(owner), since
    )


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-S", "-c", ""])
    process.wait()
    return process.pid


def other(owner: PlanOwner, **changed: Any) -> PlanOwner:
    return PlanOwner(**{**vars(owner), **changed})


@pytest.mark.parametrize(
    ("changed", "options", "freed"),
    [
        ({"pid": dead_pid}, {}, True),  # its process has died
        ({"started": lambda: 1}, {}, True),  # its pid is another's now
        ({"number": lambda: 999}, {}, False),  # another plan of this process
        ({"pid": os.getppid, "started": lambda: started(os.getppid())}, {}, False),  # another process that lives
        ({"place": lambda: "0" * 12, "pid": dead_pid}, {}, False),  # another host: who knows
        ({"place": lambda: "0" * 12, "name": lambda: "that"}, {"owner": "this"}, False),  # of another name
        ({"place": lambda: "0" * 12, "name": lambda: "this"}, {"owner": "this"}, True),  # of the name that one has at a time
        ({"name": lambda: "this", "number": lambda: 999}, {"owner": "this"}, False),  # but it lives
        ({"place": lambda: "0" * 12}, {"stale_after": 3600}, True),
    ],
)
def test_rows_of_owners_that_died_are_given_back(
    database: Sqlite, changed: dict[str, Any], options: dict[str, Any], freed: bool
) -> None:
    plan = database.plan(**options)
    plan.add("job")
    as_if_owned_by(database, other(plan.owner, **{name: value() for name, value in changed.items()}))
    assert len(plan.fetch_ready()) == freed
    assert database.rows("is_currently_running")[0][0] == (not freed)


def started(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19])


@pytest.mark.parametrize("text", [None, "", "somebody", "a/b/c", "x/0/1.2.3 or 1=1"])
def test_rows_that_others_flag_are_left_to_them(database: Sqlite, text: str | None) -> None:
    plan = database.plan(owner="this")
    plan.add("job")
    as_if_owned_by(database, text)
    assert plan.fetch_ready() == []


def test_a_row_that_runs_for_no_longer_than_it_may_is_left_alone(database: Sqlite) -> None:
    plan = database.plan(stale_after=3600)
    plan.add("job")
    plan.mark_running(1)
    assert plan.fetch_ready() == []


def test_an_owner_reads_what_it_wrote() -> None:
    owner = PlanOwner.here("web-1")
    assert PlanOwner.read(str(owner)) == owner
    assert not owner.is_dead
    assert PlanOwner.here("web-1") != owner


def test_a_zombie_is_dead() -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as process:
        owner = other(PlanOwner.here("x"), pid=process.pid, started=started(process.pid))
        assert not owner.is_dead
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert owner.is_dead


CRASHES = r"""
import os, sys, threading
from functools import partial
from fusion.inprocess import JobQueueManager, ManagerSettings, TablePlan, TableSettings

def hang(row):
    os.write(1, f"{row.id}\n".encode())  # one write: what two threads print at once may come out mixed
    threading.Event().wait()

plan = TablePlan(eval(sys.argv[1]), hang, TableSettings(placeholder=sys.argv[2]))
JobQueueManager(plan, 2, settings=ManagerSettings(master_grace_period_seconds=0, worker_stagger_seconds=0)).start()
threading.Event().wait()
"""


def test_rows_of_a_killed_process_are_run_by_the_next_one(database: Sqlite) -> None:
    ran: list[int] = []
    plan = database.plan(lambda row: ran.append(row.id))
    for n in range(2):
        plan.add(f"job {n}")
    process = subprocess.Popen(
        [sys.executable, "-c", CRASHES, database.code, database.placeholder], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    with process:
        assert process.stdout is not None
        assert {process.stdout.readline() for _ in range(2)} == {"1\n", "2\n"}
        assert plan.fetch_ready() == []  # it lives
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    with managed(plan) as (_, witness):
        witness.await_kind("finished", 2)
    assert sorted(ran) == [1, 2]
    assert [row[0] for row in database.rows("attempts")] == [2, 2]


def test_a_process_that_was_forked_is_another_owner(database: Sqlite) -> None:
    plan = database.plan()
    before = str(plan.owner)
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.write(write, str(plan.owner).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    with os.fdopen(read) as said:
        assert said.read() != before
    assert str(plan.owner) == before


def test_a_database_that_is_locked_for_a_while_loses_nothing(tmp_path: Path) -> None:
    ran: list[int] = []
    database = Sqlite(tmp_path / "jobs.db")
    plan = TablePlan(partial(database.connect, timeout=0), lambda row: ran.append(row.id))
    plan.create_table()
    ids = [plan.add(f"job {n}") for n in range(3)]
    blocker = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
    with managed(plan, 3) as (manager, witness):
        blocker.execute("BEGIN EXCLUSIVE")
        manager.wake()
        witness.await_kind("plan_failed")
        blocker.execute("COMMIT")
        blocker.close()

        def all_complete() -> bool:
            manager.wake()
            return [row[0] for row in database.rows()] == ["complete"] * 3

        eventually(all_complete, interval=0.05)
    assert sorted(ran) == ids


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"table": "x; DROP TABLE y"}, "use a name of letters, digits and _, with a schema"),
        ({"table": ""}, "use a name of letters"),
        ({"placeholder": ":1"}, "use ? or %s, whichever the driver takes"),
        ({"limit": 0}, "limit is 0; use a whole number from 1 on"),
        ({"max_attempts": 2.5}, "max_attempts is 2.5; use a whole number from 1 on"),
        ({"stale_after": 0}, "stale_after is 0; use seconds"),
        ({"owner": "a/b"}, "owner is 'a/b'; use 1 to 100 of the characters"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says.replace("?", r"\?")):
        TablePlan(sqlite3.connect, print, TableSettings(**options))


def test_a_row_that_was_deleted_meanwhile_is_no_error(database: Sqlite) -> None:
    plan = database.plan(lambda row: database.change("DELETE FROM execution_plan"))
    plan.add("job")
    manager = JobQueueManager(plan, 1, settings=ManagerSettings(**AT_ONCE), memory_readers={"RAM": lambda: 1.0})
    with manager:
        eventually(lambda: database.rows() == [])
        eventually(lambda: manager.stats().active_jobs == 0)
