"""Whatever strangers wrote into Redis, and whatever secrets jobs were given: every route that reads, in each of its formats, is clean of it."""

from __future__ import annotations

import json
from typing import Any, cast

import redis

from fusion.web.api import Api
from fusion.web.routing import FORMATS
from tests.cli.conftest import Hands
from tests.cli.conftest import hands as hands
from tests.cli.test_every_command import SECRET, plant_more
from tests.cli.test_output import BAD
from tests.web.harness import ServerProcess, Tokens

ROUTES = [route for route in Api(cast(Any, None), ()).routes() if route.method == "GET"]
#: What stands in a path for its names, by the first word after /api/v1; elsewhere nobody has the id.
NAMES = {"jobs": "secret", "queues": "sms", "keys": "k", "batches": "batch", "workers": "failing.1", "cron": "e"}


def test_no_route_that_reads_gives_what_steers_a_terminal_or_was_to_stay_secret(
    service: ServerProcess, tokens: Tokens, conn: redis.Redis, hands: Hands
) -> None:
    plant_more(conn, hands)
    wrong, seen = [], 0
    for route in ROUTES:
        name = NAMES.get((route.path.split("/") + [""] * 3)[3], "nobody")
        path = route.path.replace("{id}", name).replace("{name}", name).replace("{key}", name)
        formats = FORMATS if route.rows else (None,)
        for kind in formats:
            answer = service.ask("GET", f"{path}?format={kind}" if kind else path, token=tokens.by_scope["admin"])
            said = answer.body.decode()
            seen += answer.status == 200
            where = f"{path} {kind}: {answer.status}"
            if answer.status >= 500 and path != "/readyz":
                wrong.append(f"{where} {said[:200]}")
            wrong += [
                f"{where}: {one!r} in {said[max(0, said.find(one) - 60) :][:120]!r}" for one in (*BAD, SECRET) if one in said
            ]
            if len(said) > 1_500_000:
                wrong.append(f"{where}: {len(said)} characters")
            if kind in (None, "json"):
                json.loads(said)
            elif kind == "jsonl" and answer.status == 200:
                [json.loads(line) for line in said.splitlines()]
    assert not wrong, "\n".join(wrong)
    assert seen > len(ROUTES) / 2, "most of them have something to show"
    assert [line for line in service.output.splitlines() if "Traceback" in line or SECRET in line] == []
