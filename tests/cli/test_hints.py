"""A slip is reported with what may have been meant."""

from __future__ import annotations

import re

import pytest
import redis

from fusion.cli import tables
from fusion.store.write.broker import Broker
from tests.cli.conftest import Fail, Invoke
from tests.kit.hands import put


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("job", "otp-1"), "No such command 'otp-1'; to look at it: run_worker.py job show otp-1; there are cancel, "),
        (("operations", "3f1d"), "to look at it: run_worker.py operations show 3f1d; there are "),
        (("trash", "a b"), "to look at it: run_worker.py trash show 'a b'; there are "),
        (("job", "shwo"), "No such command 'shwo'. Did you mean 'show'?"),
        (("config", "lease"), "No such command 'lease'; there is show"),
        (("callbacks", "x"), "No such command 'x'; there are list, retry"),
        (("jobs", "--status", "failed"), "--status: write it as a word of the query, as in `jobs state:failed,queued`."),
        (("jobs", "--older-than", "2h"), "as in `jobs older:2h`."),
        (("jobs", "--jsn"), "No such option '--jsn'."),
        (("job", "stop", "--query", "queue:q"), "--query: `stop --query QUERY`, without `job`, takes all that match."),
        (("job", "requeue", "--query", "queue:q"), "--query: `requeue --query QUERY`, without `job`, takes all that match."),
        (("limit", "set", "k", "--max-concurrent", "5"), "--max-concurrent: name the limit alone, as in `limit set KEY 5`."),
        (("queue", "set", "q", "--max-concurrent", "5"), "--max-concurrent: use --limit N."),
        (("delete", "--all"), "--all: select jobs by `--query 'queue:sms state:failed'`."),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_mistyped_command_gets_a_hint(invoke: Invoke, args: tuple[str, ...], message: str) -> None:
    assert message in invoke(*args, code=2).stderr


def test_words_of_a_query_that_match_nothing(invoke: Invoke, conn: redis.Redis, fail: Fail) -> None:
    fail("mail", 1)
    put(Broker(conn), "sms", "a", "b")
    alone = "a word alone is looked for in id, function, description and error; did you mean"
    for command in (("jobs",), ("requeue", "--dry-run", "--query"), ("requeue", "--query")):
        said = invoke(*command, "failed sms")
        assert said.stderr == f"'failed', 'sms': {alone} state:failed queue:sms?\n"
        assert invoke(*command, "queue=mail").stderr == f"'queue=mail': {alone} queue:mail?\n"
    assert invoke("jobs", "otp-1 otp-2").stderr == "All words must hold; for jobs of several ids: id:otp-1,otp-2\n"
    for query in ("nobody", "queue:sms state:failed -nobody"):
        assert invoke("jobs", query).stderr == ""


def test_the_times_of_the_audit_and_the_trash_are_whole_on_80_columns(
    invoke: Invoke, conn: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(Broker(conn), "payments-reconciliation-nightly", "a")
    invoke("delete", "--query", "queue:payments-reconciliation-nightly", "--yes")
    monkeypatch.setattr(tables, "room", lambda: 79)
    for command in (("audit",), ("trash", "list")):
        row = invoke(*command).stdout.splitlines()[1]
        assert tables.cells(row) < 80
        assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4}(  |$)", row)
