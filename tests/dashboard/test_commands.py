"""`server --dashboard` and `dashboard`, as processes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis
from click.testing import Result

from fusion import Queue
from fusion.store.redis_server.instance import EmbeddedRedis
from tests.web.conftest import start as start
from tests.web.harness import ServerProcess, Tokens

Invoke = Callable[..., Result]


@pytest.fixture
def served(redis_server: EmbeddedRedis, conn: redis.Redis, start: Callable[..., ServerProcess]) -> ServerProcess:
    """The service with the dashboard, for anybody on this machine."""
    Queue("sms", conn).enqueue("tests.jobs.basic.noop")
    return start(redis_server.url, "--no-auth", "--dashboard")


@pytest.mark.long
def test_the_api_and_the_dashboard_are_one_service(served: ServerProcess) -> None:
    assert "with the dashboard" in served.output
    assert served.ask("GET", "/api/v1/queues").json["total"] == 1
    assert served.ask("GET", "/readyz").status == 200
    page = served.ask("GET", "/queues")
    assert page.status == 200 and b"sms" in page.body and b"Log out" not in page.body
    told = served.ask("POST", "/queues/sms/pause", b"", headers={"Sec-Fetch-Site": "cross-site"})
    assert told.status == 403 and served.ask("GET", "/api/v1/queues/sms").json["paused"] is False


def test_a_token_of_the_file_opens_it(
    redis_server: EmbeddedRedis, conn: redis.Redis, start: Callable[..., ServerProcess], tmp_path_factory: pytest.TempPathFactory
) -> None:
    tokens = Tokens.write(tmp_path_factory.mktemp("tokens") / "tokens.txt")
    server = start(redis_server.url, "--tokens", str(tokens.path), "--dashboard")
    assert server.ask("GET", "/queues").headers["location"] == "/login"
    form = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}
    told = server.ask("POST", "/login", b"token=" + tokens.by_scope["read"].encode(), headers=form)
    assert told.status == 303
    cookie = {"Cookie": told.headers["set-cookie"].partition(";")[0]}
    assert server.ask("GET", "/queues", headers=cookie).status == 200
    assert server.ask("GET", "/api/v1/queues", headers=cookie).status == 401, "the API takes tokens alone"
    assert tokens.by_scope["read"] not in server.output


def test_the_command_serves_pages_alone_and_can_only_show(
    redis_server: EmbeddedRedis, conn: redis.Redis, start: Callable[..., ServerProcess]
) -> None:
    Queue("sms", conn).enqueue("tests.jobs.basic.noop")
    server = start(redis_server.url, "--no-auth", "--read-only", command="dashboard")
    assert server.ask("GET", "/api/v1/queues").status == 404 and server.ask("GET", "/healthz").status == 200
    assert b"sms" in server.ask("GET", "/queues").body
    form = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}
    assert server.ask("POST", "/queues/sms/pause", b"back=/queues", headers=form).status == 403
    assert not conn.exists("rq:paused:sms")


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ([], "without a token nobody could use the service"),
        (["--no-auth", "--host", "0.0.0.0"], "would let anybody who reaches 0.0.0.0 in"),
        (["--embedded", "-u", "redis://localhost"], "--embedded and --url name two Redis"),
    ],
)
def test_the_dashboard_needs_tokens_unless_they_are_switched_off(invoke: Invoke, args: list[str], told: str) -> None:
    assert told in invoke("dashboard", *args, code=2).output
