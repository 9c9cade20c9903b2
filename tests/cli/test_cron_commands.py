"""`cron run | pause | resume | remove | validate` on a real Redis, and what is said of mistakes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import redis

from fusion import Job
from fusion.cron.scheduler import Scheduler
from tests.cli.conftest import Invoke, run_worker
from tests.cli.terminal import terminal
from tests.domain.cron_hands import Hourly, declare
from tests.domain.cron_hands import hourly as hourly
from tests.domain.cron_hands import scheduler as scheduler

# -- run, pause, resume, remove


def test_run_prints_the_id_of_the_job(invoke: Invoke, conn: redis.Redis, hourly: Hourly) -> None:
    hourly(overlap="skip", queue="sms")
    assert invoke("cron", "run", "e").stdout == "cron-e-manual-1\n"
    assert Job.fetch("cron-e-manual-1", conn).origin == "sms"
    refused = invoke("cron", "run", "e", code=1)
    assert refused.stdout == ""
    assert refused.stderr == (
        "Error: job cron-e-manual-1 of cron entry 'e' has not ended, and it must not overlap; to run it anyway: --force [FUS-107]\n"
    )
    assert invoke("cron", "run", "e", "--force").stdout == "cron-e-manual-2\n"


def test_run_of_what_can_not_be_read_is_one_line(invoke: Invoke, conn: redis.Redis, hourly: Hourly) -> None:
    hourly()
    conn.hset("rq:cron:entry:e", "spec", "{}")
    assert re.fullmatch(
        r"Error: cron entry 'e': what is stored of it is damaged .*; declare it again \[FUS-107\]\n",
        invoke("cron", "run", "e", code=1).stderr,
    )
    declare(conn, "new", error="'61' is not a valid minute")
    for command in ("run", "next"):
        assert "'61' is not a valid minute" in invoke("cron", command, "new", code=1).stderr


def test_pause_and_resume(invoke: Invoke, scheduler: Scheduler, hourly: Hourly) -> None:
    hourly("a")
    hourly("b")
    assert invoke("cron", "pause", "a", "b", "a").stdout == "a is paused\nb is paused\n"
    assert invoke("cron", "resume", "b").stdout == "b goes on\n"
    assert invoke("cron", "resume", "b").stdout == "b was not paused\n"
    assert [info.paused is not None for info in scheduler.entries()] == [True, False]


def test_remove(invoke: Invoke, scheduler: Scheduler, conn: redis.Redis, hourly: Hourly) -> None:
    hourly("a")
    declare(conn, "theirs")
    assert invoke("cron", "remove", "a", "theirs", "--yes").stdout == (
        "a is removed\n"
        "theirs is removed; app shop declares it: it comes back when its scheduler starts, unless it leaves the code\n"
    )
    assert scheduler.ids() == []


def test_remove_asks_a_person(invoke: Invoke, scheduler: Scheduler, hourly: Hourly) -> None:
    hourly("a")
    said = invoke("cron", "remove", "a", code=1)
    assert "Forget a? There is no terminal to ask on: give --yes" in said.stderr
    with terminal("cron", "remove", "a") as tty:
        tty.read_until("Forget a? [y/N]")
        tty.type("n\n")
        assert tty.end() == 1
        assert "Nothing was removed" in tty.drawn
    assert scheduler.ids() == ["a"]
    with terminal("cron", "remove", "a", "-y") as tty:
        assert tty.end() == 0
    assert scheduler.ids() == []


# -- mistakes


@pytest.mark.parametrize("command", ["next", "history", "run"])
def test_an_unknown_entry_names_the_nearest(invoke: Invoke, hourly: Hourly, command: str) -> None:
    hourly("nightly-report")
    assert invoke("cron", command, "nightly-repot", code=1).stderr == (
        "Error: no cron entry 'nightly-repot'; did you mean 'nightly-report'? [FUS-119]\n"
    )
    assert invoke("cron", command, "xyz", code=1).stderr == "Error: no cron entry 'xyz'; there are nightly-report [FUS-119]\n"


@pytest.mark.parametrize("command", ["pause", "resume", "remove"])
def test_an_unknown_entry_does_not_keep_the_others_from_it(invoke: Invoke, hourly: Hourly, command: str) -> None:
    hourly("nightly")
    result = invoke("cron", command, "nightli", "nightly", *(["--yes"] if command == "remove" else []), code=1)
    assert result.stdout.startswith("nightly ")
    assert result.stderr in (
        "no cron entry 'nightli'; did you mean 'nightly'?\n",
        "no cron entry 'nightli'; there are none\n" if command == "remove" else "",
    )


def test_an_unknown_entry_where_there_is_none(invoke: Invoke, conn: redis.Redis) -> None:
    assert invoke("cron", "run", "x", code=1).stderr == "Error: no cron entry 'x'; there are none [FUS-119]\n"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("lst",), "No such command 'lst'; did you mean 'list'?"),
        (("mycron.py",), "cron entries are run by `run_worker.py scheduler --schedule MODULE`"),
        (("-u", "redis://x", "list"), "options come after the command: run_worker.py cron list -v"),
        (("list", "x"), "unexpected extra argument"),
        (("list", "--job-class", "x.Y"), "Fusion has no classes to exchange; remove the flag"),
        (("next",), "Missing argument"),
        (("next", "*/5", "*", "*", "*", "*"), "put an expression in quotes: run_worker.py cron next '*/5 * * * *'"),
        (("next", "61 * * * *"), "'61' is not a valid minute"),
        (("next", "* * * *"), "has 4 fields"),
        (("next", "@reboot"), "is not an alias"),
        (("next", "every soon"), "'soon' is not a duration"),
        (("next", "every 5m", "--timezone", "UTC"), "leave --timezone out"),
        (("next", "@daily", "--timezone", "Mars"), "--timezone 'Mars' is not known here; use an IANA name"),
        (("next", "nightly", "--timezone", "UTC"), "--timezone goes with an expression"),
        (("next", "@daily", "-n", "0"), "-n"),
        (("history",), "Missing argument"),
        (("history", "a", "-n", "51"), "-n"),
        (("run",), "Missing argument"),
        (("pause",), "Missing argument"),
        (("remove",), "Missing argument"),
    ],
)
def test_usage(invoke: Invoke, args: tuple[str, ...], message: str) -> None:
    assert message in " ".join(invoke("cron", *args, code=2).stderr.split())


@pytest.mark.parametrize("args", [("list",), ("run", "x"), ("pause", "x"), ("history", "x"), ("next", "x")])
def test_without_a_redis_it_is_one_line(args: tuple[str, ...]) -> None:
    ended = run_worker("cron", *args)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert re.fullmatch(r"Error: .*can't be reached.*\n", ended.stderr)


def test_help_of_the_group_loads_neither_redis_nor_croniter() -> None:
    for args in (["cron", "--help"], ["cron", "list", "--help"]):
        ended = run_worker(*args, PYTHONPROFILEIMPORTTIME="1")
        loaded = {line.rpartition("|")[2].strip() for line in ended.stderr.splitlines()}
        assert "click" in loaded
        assert not {"redis", "croniter", "zoneinfo"} & loaded


# -- validate

GOOD = """
def register(scheduler):
    print("loading")
    scheduler.cron("30 4 * * *", "jobs.report", id="report", timezone="Europe/Berlin", queue="low")
"""
WRONG = """
def register(scheduler):
    scheduler.cron("61 * * * *", "jobs.report", id="wrong")
    scheduler.every("5m", "jobs.ping", id="ping")
"""


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    (tmp_path / "good.py").write_text(GOOD)
    (tmp_path / "wrong.py").write_text(WRONG)
    (tmp_path / "broken.py").write_text("import nothing_of_that_name\n")
    (tmp_path / "jobs.py").write_text(
        "from fusion.kernel.recurrence import recurring\n\n@recurring(every=60)\ndef sweep(): pass\n"
    )
    (tmp_path / "conf.py").write_text("SCHEDULE = ('good',)\nTASKS = ('jobs',)\n")
    return tmp_path


def test_validate_shows_what_is_declared_and_asks_no_redis(modules: Path) -> None:
    ended = run_worker("cron", "validate", "-c", "conf", "-P", str(modules))
    assert ended.returncode == 0
    lines = ended.stdout.splitlines()
    assert lines[0].split() == ["ID", "WHEN", "NEXT", "QUEUE", "FUNCTION"]
    assert re.fullmatch(r"jobs-sweep  every 1m +\S+ \S+ \+0000 in \d.* default  jobs\.sweep", lines[1])
    assert re.fullmatch(r"report      30 4 \* \* \* Europe/Berlin  \S+ 04:30:00 \+0[12]00 in .* low      jobs\.report", lines[2])
    assert (len(lines), ended.stderr) == (3, "loading\n")


def test_validate_names_every_mistake(modules: Path) -> None:
    ended = run_worker("cron", "validate", "wrong,broken", "good", "-P", str(modules))
    assert ended.returncode == 1
    assert [line.split()[0] for line in ended.stdout.splitlines()] == ["ID", "ping", "report"]
    assert "Entry wrong: '61 * * * *': '61' is not a valid minute" in ended.stderr
    assert "Module broken can't be loaded: ModuleNotFoundError: No module named 'nothing_of_that_name'\n" in ended.stderr
    assert 'broken.py", line 1' in ended.stderr, "where"


@pytest.mark.parametrize(("module", "code"), [("good", 0), ("wrong", 1), ("broken", 1), ("nowhere", 1)])
def test_validate_is_for_a_pipeline(modules: Path, module: str, code: int) -> None:
    assert run_worker("cron", "validate", module, "-P", str(modules)).returncode == code


def test_validate_as_json(modules: Path) -> None:
    ended = run_worker("cron", "validate", "wrong", "broken", "good", "--json", "-P", str(modules))
    assert ended.returncode == 1
    document = json.loads(ended.stdout)
    assert document["schema"] == 1
    assert [entry["id"] for entry in document["entries"]] == ["ping", "report"]
    assert document["entries"][1] | {"next": None} == {
        "id": "report",
        "when": "30 4 * * * Europe/Berlin",
        "next": None,
        "queue": "low",
        "function": "jobs.report",
        "remarks": [],
    }
    assert list(document["faults"]) == ["wrong"]
    assert list(document["broken"]) == ["broken"]


def test_validate_remarks_what_may_surprise_and_refuses_what_never_was_meant(modules: Path) -> None:
    (modules / "odd.py").write_text("""
from fusion.kernel.recurrence import recurring

def register(scheduler):
    scheduler.cron("*/45 * * * *", "jobs.report", id="uneven")
    scheduler.every("5m", "jobs.report", id="spread", jitter="1h")

@recurring("*/90 * * * *", id="beyond")
def beyond(): pass

@recurring(every="5m", id="graceless", misfire_grace=0)
def graceless(): pass
""")
    ended = run_worker("cron", "validate", "odd", "-P", str(modules))
    assert ended.returncode == 1
    assert "Entry beyond: '*/90 * * * *': the step of '*/90' ends beyond the minute field" in ended.stderr
    assert 'use every="90m"' in ended.stderr
    assert "Entry graceless: misfire_grace=0: every tick is a little late" in ended.stderr
    lines = ended.stdout.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["ID", "spread", "uneven"]
    spread = "spread: jitter=3600 is longer than the 300 s between two ticks: the later one may start first"
    uneven = "'*/45': after minute 45 comes 0, so it is not every 45 minutes; for that use every=\"45m\""
    assert lines[3:] == ["", spread, f"uneven: {uneven}"]
    document = json.loads(run_worker("cron", "validate", "odd", "--json", "-P", str(modules)).stdout)
    assert {entry["id"]: entry["remarks"] for entry in document["entries"]} == {
        "spread": [spread.removeprefix("spread: ")],
        "uneven": [uneven],
    }
    assert set(document["faults"]) == {"beyond", "graceless"}


def test_validate_of_the_service_is_clean() -> None:
    ended = run_worker("cron", "validate", "-c", "instance")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "redis_maintenance_on_failed_queue  */5 * * * * UTC" in ended.stdout


def test_validate_where_nothing_is_declared(modules: Path) -> None:
    ended = run_worker("cron", "validate", "-P", str(modules), FUSION_TASKS="jobless")
    assert ended.returncode == 1, "a task module that is named must be there"
    assert "Module jobless can't be loaded" in ended.stderr
    (modules / "empty.py").write_text("")
    ended = run_worker("cron", "validate", "empty", "-P", str(modules))
    assert (ended.returncode, ended.stdout.splitlines()[-1][:26]) == (0, "No cron entries declared; ")


@pytest.mark.long
@pytest.mark.parametrize(("named", "code"), [(("good",), 0), ((), 1)])
def test_validate_takes_a_default_task_module_that_can_not_be_imported_beside_others(
    modules: Path, named: tuple[str, ...], code: int
) -> None:
    (modules / "tasks.py").write_text("import nothing_of_that_name\n")
    ended = run_worker("cron", "validate", *named, "-P", str(modules))
    assert (ended.returncode, "Module tasks can't be loaded: ModuleNotFoundError" in ended.stderr) == (code, True)
