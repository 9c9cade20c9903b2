"""URLs of callbacks over HTTP."""

from __future__ import annotations

import pytest
import redis

from tests.kit.hands import fields_of
from tests.web.harness import ServerProcess, Tokens

NAMES = ("success_task_handler", "failed_task_handler", "callback_url")
URL = "https://hooks.example.com/jobs?token=S3CR3T"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("path", ["/api/v1/jobs", "/retryTask/", "/retryTask"])
def test_a_job_is_enqueued_with_a_url(service: ServerProcess, tokens: Tokens, conn: redis.Redis, name: str, path: str) -> None:
    body = {"func": "tests.jobs.basic.noop", name: URL}
    answer = service.ask("POST", path, body, token=tokens.by_scope["operate"])
    assert answer.status == (201 if path.startswith("/api") else 202), answer.body
    assert {"hooks": "1", name: URL}.items() <= fields_of(conn, answer.json["job_id"]).items()
    assert "S3CR3T" not in service.output + answer.body.decode()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "url",
    [
        "http://h.example/S3CR3T",
        "https://256.1.1.1/S3CR3T",
        "https://a:0/S3CR3T",
        "https://u:S3CR3T@h.example/",
        "S3CR3T",
        7,
        ["S3CR3T"],
    ],
)
def test_what_can_be_no_url_is_refused_with_its_field(
    service: ServerProcess, tokens: Tokens, conn: redis.Redis, name: str, url: object
) -> None:
    body = {"func": "tests.jobs.basic.noop", name: url}
    answer = service.ask("POST", "/api/v1/jobs", body, token=tokens.by_scope["operate"])
    assert (answer.status, answer.code, answer.json["error"]["field"]) == (422, "invalid_value", name)
    assert b"S3CR3T" not in answer.body
    assert conn.dbsize() == 0


def test_a_reader_may_name_none(service: ServerProcess, tokens: Tokens, conn: redis.Redis) -> None:
    body = {"func": "tests.jobs.basic.noop", "callback_url": URL}
    for path in ("/api/v1/jobs", "/retryTask"):
        assert service.ask("POST", path, body, token=tokens.by_scope["read"]).status == 403
    assert conn.dbsize() == 0
