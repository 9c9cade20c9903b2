"""`job show --reveal`: the values of one job without masks, once the audit has an entry of it."""

from __future__ import annotations

import json

import pytest
import redis

from fusion import Queue
from fusion.store.read.audit_inspector import AuditInspector
from tests.cli.conftest import Invoke
from tests.web.test_reveal import CANARY, HIDDEN, leave


def test_it_shows_them_below_the_rest_and_the_audit_says_who_saw_them(invoke: Invoke, conn: redis.Redis) -> None:
    leave(conn)
    masked, said = invoke("job", "show", "a").stdout, invoke("job", "show", "a", "--reveal").stdout
    assert CANARY not in masked and HIDDEN not in said
    above, _, below = said.partition("Without masks (the audit has an entry that you saw this):\n")
    assert CANARY not in above and above.splitlines()[2:4] == masked.splitlines()[2:4]
    assert f'Arguments:\n  {{"args": [{{"to": "{CANARY}", "token": "***"}}], "kwargs": {{}}}}\n' in below
    assert f"Trace:\n  Traceback\n    {CANARY} ***\n" in below and f"Earlier run, retry:\n  {CANARY} ***\n" in below
    (entry,) = AuditInspector(conn).entries()
    assert (entry.action, entry.target, entry.queues, entry.outcome) == ("reveal", "a", ("sms",), "ok")
    assert "@" in entry.who and CANARY not in str(conn.xrange("rq:audit"))


@pytest.mark.parametrize("words", ["a --reveal --json", "a --reveal --watch", "a b --reveal", "--reveal"])
def test_only_to_a_person_and_one_job_at_a_time(invoke: Invoke, conn: redis.Redis, words: str) -> None:
    leave(conn)
    leave(conn, "b")
    refused = invoke("job", "show", *words.split(), code=2)
    assert CANARY not in refused.stdout + refused.stderr and not conn.exists("rq:audit")


def test_without_its_entry_nothing_is_shown(invoke: Invoke, conn: redis.Redis) -> None:
    leave(conn)
    conn.set("rq:audit", "junk")
    refused = invoke("job", "show", "a", "--reveal", code=1)
    assert refused.stdout == "" and refused.stderr.startswith("Error: reveal is refused, because the audit can't be written: ")
    assert refused.stderr.endswith("(WRONGTYPE); mend the audit, then try again [FUS-137]\n")
    assert invoke("job", "show", "a").stdout, "what needs no entry is shown"


def test_who_asks_for_what_is_not_there_stands_in_the_audit_too(invoke: Invoke, conn: redis.Redis) -> None:
    invoke("job", "show", "nobody", "--reveal", code=1)
    (entry,) = AuditInspector(conn).entries()
    assert (entry.action, entry.target, entry.outcome) == ("reveal", "nobody", "NoSuchJobError")


def test_escapes_of_strangers_stay_visible(invoke: Invoke, conn: redis.Redis) -> None:
    Queue("sms", conn).enqueue("tasks.sms.sendSMS", "\x1b[31mred\u202e", job_id="a", description="two\x1b]0;title\x07\nlines")
    said = invoke("job", "show", "a", "--reveal").stdout
    assert "\x1b" not in said and "\u202e" not in said and "\x07" not in said
    assert "\\x1b[31mred" in said or "\\u001b[31mred" in said


def test_no_other_command_shows_them(invoke: Invoke, conn: redis.Redis) -> None:
    leave(conn)
    for words in (
        "job show a --json --trace",
        "job show a --trace",
        "jobs --json",
        "failures --json",
        "audit --json",
        "job graph a",
    ):
        said = invoke(*words.split())
        assert CANARY not in said.stdout and HIDDEN not in said.stdout, words
    assert json.loads(invoke("job", "show", "a", "--json").stdout).keys().isdisjoint({"revealed", "reveal"})
