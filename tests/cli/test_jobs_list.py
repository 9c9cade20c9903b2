"""`jobs`: what a person and a program get of a query, on a real Redis."""

from __future__ import annotations

import csv
import io
import json
import re
from itertools import count

import pytest
import redis

from fusion import Queue
from fusion.cli import jobs_list
from fusion.store.read import search_inspector
from fusion.store.read.search_inspector import SearchInspector
from tests.cli.conftest import Fail, Hands, Invoke
from tests.cli.terminal import terminal
from tests.kit.hands import everything

TASK = "tasks.sms.sendSMS"


@pytest.fixture
def some(conn: redis.Redis, fail: Fail, hands: Hands) -> list[str]:
    """Two failed ones, the newest first, one that waits and one that is due in an hour."""
    failed = fail("sms", 2)
    Queue("otp", conn).enqueue(TASK, "swordfish", job_id="waits", priority="high")
    Queue("otp", conn).enqueue_in(3600, TASK, job_id="later")
    return [*failed[::-1], "waits", "later"]


def test_all_of_them_and_no_argument(invoke: Invoke, conn: redis.Redis, some: list[str]) -> None:
    before = everything(conn)
    said = invoke("jobs").stdout
    head, *lines = said.splitlines()
    assert head.split() == ["STATE", "FUNCTION", "ID", "QUEUE", "AGE", "ABOUT"]
    assert [line.split()[0] for line in lines] == ["failed", "failed", "queued", "scheduled"]
    assert sorted(line.split()[2] for line in lines) == sorted(some)
    assert re.search(r"ValueError", lines[0])
    assert lines[2].endswith("HIGH")
    assert re.search(r"due \d{4}-.* \(in 60 min\)$", lines[3])
    assert re.search(r"due \S+ \S+Z \(in", invoke("jobs", "state:scheduled", "--utc").stdout)
    assert "swordfish" not in said + invoke("jobs", "--json").stdout + invoke("jobs", "--csv").stdout
    assert everything(conn) == before


def test_every_priority_over_the_highest_name_is_high(invoke: Invoke, conn: redis.Redis) -> None:
    for number in (0, 1, 2, 101):
        Queue("otp", conn).enqueue(TASK, job_id=f"p{number}", priority=number)
    about = {line.split()[2]: line.split()[-1] for line in invoke("jobs").stdout.splitlines()[1:]}
    assert about == {"p0": "LOW", "p1": "-", "p2": "HIGH", "p101": "HIGH"}
    assert len(invoke("jobs", "priority:high", "--ids").stdout.split()) == 2


def test_words_are_one_query_and_a_minus_leaves_out(invoke: Invoke, some: list[str]) -> None:
    assert invoke("jobs", "state:queued,scheduled", "-queue:sms", "--ids").stdout.split() == ["waits", "later"]
    assert invoke("jobs", "-queue:sms -state:scheduled", "--ids").stdout == "waits\n"
    assert invoke("jobs", "--ids", "sendsms", "priority:high").stdout == "waits\n"
    assert invoke("jobs", "error:valueerror", "--ids").stdout.split() == some[:2]


def test_a_page_says_how_to_go_on(invoke: Invoke, some: list[str]) -> None:
    met: list[str] = []
    args = ["--limit", "1"]
    for _ in some:
        said = invoke("jobs", "func:sendSMS", *args).stdout
        met.append(said.splitlines()[1].split()[2])
        more = re.search(r"More: run_worker.py jobs func:sendSMS --limit 1 --after (\S+)", said)
        if not more:
            break
        args = ["--limit", "1", "--after", more[1]]
    assert met == some
    error = invoke("jobs", "--after", "nonsense", code=2).stderr
    assert "--after: this is not a cursor of this query" in error


def test_for_programs(invoke: Invoke, some: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    document = json.loads(invoke("jobs", "state:failed", "--json", "--limit", "1").stdout)
    assert (document["schema"], document["query"], document["complete"], document["note"]) == (1, "state:failed", True, None)
    assert document["jobs"][0]["id"] == some[0]
    assert document["after"]
    rows = list(csv.DictReader(io.StringIO(invoke("jobs", "--csv").stdout)))
    assert [row["id"] for row in rows] == some
    assert rows[0]["error"].endswith("ValueError")
    monkeypatch.setattr(jobs_list, "_PAGE", 1)
    assert invoke("jobs", "--ids").stdout.split() == some
    assert [row["id"] for row in csv.DictReader(io.StringIO(invoke("jobs", "--csv").stdout))] == some
    assert invoke("jobs", "--ids", "--limit", "3").stdout.split() == some[:3]
    assert invoke("jobs", "--count").stdout == "4\n"
    assert json.loads(invoke("jobs", "queue:otp", "--count", "--json").stdout)["count"] == 2


def test_without_jobs(invoke: Invoke, conn: redis.Redis) -> None:
    assert invoke("jobs").stdout == "There are no jobs\n"


def test_nothing_found_says_what_was_searched(invoke: Invoke, some: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert invoke("jobs", "error:KeyError").stdout == "No jobs match error:KeyError: looked at 2 failed, 1 queued, 1 scheduled\n"
    assert invoke("jobs", "state:finished").stdout == "No jobs match state:finished: no job is in these states\n"
    assert "no queue smss" in invoke("jobs", "queue:smss").stderr.lower() or "smss" in invoke("jobs", "queue:smss").stderr
    monkeypatch.setattr(search_inspector, "LOOKED", 1)
    said = invoke("jobs", "error:KeyError").stdout
    assert "searched the newest 1 of 2 failed jobs; name a queue, for failed jobs a failure group," in said
    assert invoke("jobs", "error:KeyError", "--ids").stderr.startswith("Note: searched the newest 1 of 2")
    assert json.loads(invoke("jobs", "error:KeyError", "--json").stdout)["note"] == "searched the newest 1 of 2 failed jobs"


def test_a_search_continues_until_the_page_is_full(
    invoke: Invoke, conn: redis.Redis, some: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(230):
        conn.hset(f"rq:job:more-{n}", mapping={"status": "failed", "origin": "sms", "func": f"tasks.f{n}"})
        conn.zadd("rq:queue:failed", {f"more-{n}": n})
    asked = (["func:f2?"], ["func:sendSMS,f7"], ["nobody"], ["nobody", "--json"], ["func:f2?", "--limit", "3"])
    written = (["func:f2?", "--ids"], ["func:f2?", "--csv"], ["func:sendSMS", "--ids", "--limit", "3"])
    texts = []
    for seconds in (0, 1):
        monkeypatch.setattr(SearchInspector, "clock", staticmethod(count(0, seconds).__next__))
        said = [invoke("jobs", *args).stdout for args in (*asked, *written)]
        texts.append([re.sub(r'"at": "[^"]*"|(\d\.)?\d s  |due .*|  +', "", one) for one in said])
    assert texts[0] == texts[1]
    assert texts[0][2] == "No jobs match nobody: looked at 232 failed, 1 queued, 1 scheduled\n"
    assert texts[0][5].split() == [f"more-{n}" for n in range(29, 19, -1)]


@pytest.mark.parametrize(
    ("args", "names"),
    [
        (["stat:failed"], "did you mean 'state'"),
        (["state:failed", "qeue:x"], "column 14"),
        (["--json", "--csv"], "--count go together"),
        (["--count", "--limit", "3"], "leave out --limit"),
        (["error:\udcff"], "UTF-8"),
    ],
)
def test_wrong_arguments_name_the_fix(invoke: Invoke, redis_url: str, args: list[str], names: str) -> None:
    assert names in invoke("jobs", *args, code=2).stderr


def test_texts_of_strangers_are_printed_without_control_characters(invoke: Invoke, conn: redis.Redis) -> None:
    evil = b"\x1b[31m\xe2\x80\xae=cmd|\xff\r\nEVIL"
    conn.hset(
        "rq:job:x",
        mapping={"status": "failed", "origin": evil, "func": evil, "error_class": evil, "error_frame": evil, "log_tag": evil},
    )
    conn.zadd("rq:queue:failed", {"x": 1, evil: 2, "a\nEVIL": 3})
    conn.hset("rq:job:a\nEVIL", mapping={"status": "failed"})
    conn.hset(b"rq:job:" + evil, mapping={"status": "failed"})
    for args in ([], ["--ids"], ["--csv"], ["--json"]):
        said = invoke("jobs", *args).stdout
        assert "\x1b" not in said
        assert "‮" not in said
        assert not any(line.startswith("EVIL") for line in said.splitlines()), args
    conn.set("rq:queues", "a string")
    assert "should be a set" in invoke("jobs", code=1).stderr


@pytest.mark.long
def test_in_a_terminal_what_needs_a_person_is_marked(redis_url: str, some: list[str]) -> None:
    with terminal("jobs", "state:failed,queued", columns=80) as tty:
        assert tty.end() == 0
    assert "\x1b[31mfailed" in tty.drawn
    assert "\x1b[31mqueued" not in tty.drawn
    assert all(len(re.sub(r"\x1b\[\d+m", "", line)) < 80 for line in tty.drawn.splitlines())
