from __future__ import annotations

import json

import redis

from fusion import Queue
from tests.cli.conftest import Hands, Invoke


def test_info_names_a_job_that_runs_and_says_how_many_more(invoke: Invoke, conn: redis.Redis, hands: Hands) -> None:
    worker = hands("sms", name="w.1").register()
    for n in range(3):
        Queue("sms", conn).enqueue("tasks.sms.sendSMS", job_id=f"j{n}")
    claimed = worker.turn(slots=3)
    (shown,) = json.loads(invoke("info", "--json").stdout)["workers"]
    assert (shown["current_job"], shown["jobs"]) == ("j0", ["j0", "j1", "j2"])
    assert "j0 (+2)" in invoke("info").stdout
    worker.end("finished", [claimed[0]])
    (shown,) = json.loads(invoke("info", "--json").stdout)["workers"]
    assert (shown["current_job"], shown["jobs"]) == ("j1", ["j1", "j2"]), "the one that Redis names has ended"
    assert "j1 (+1)" in invoke("info").stdout
    worker.end("finished", claimed[1:])
    (shown,) = json.loads(invoke("info", "--json").stdout)["workers"]
    assert (shown["current_job"], shown["jobs"]) == (None, [])
