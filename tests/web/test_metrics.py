"""Who may see `/metrics` of a server, and what else it answers."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

from fusion.store.write.broker import Broker
from fusion.web.auth import new_token
from tests.kit.hands import put
from tests.metrics.pages import names, one, samples, values
from tests.web.conftest import Start
from tests.web.harness import ServerProcess, Tokens


def test_a_token_of_scope_read_is_needed_and_enough(service: ServerProcess, tokens: Tokens, conn: redis.Redis) -> None:
    assert service.ask("GET", "/metrics").status == 401
    assert service.ask("GET", "/metrics", token="wrong").status == 401
    answer = service.ask("GET", "/metrics", token=tokens.by_scope["read"])
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert one(samples(answer.body), "fusion_redis_up") == 1
    head = service.ask("HEAD", "/metrics", token=tokens.by_scope["read"])
    assert (head.status, head.body) == (200, b"")
    assert service.ask("POST", "/metrics", token=tokens.by_scope["admin"]).status == 405
    assert service.ask("GET", "/metrics?queue=sms", token=tokens.by_scope["read"]).status == 422


@pytest.mark.parametrize("command", ["server", "metrics"])
def test_a_token_of_some_queues_sees_these(
    start: Start, conn: redis.Redis, broker: Broker, redis_url: str, tmp_path: Path, command: str
) -> None:
    put(broker, "sms", "a")
    put(broker, "mail", "b")
    broker.sample(0)
    some, line = new_token("some", ["read"], ["sm*"])
    every, other = new_token("every", ["read"])
    file = tmp_path / "tokens"
    file.write_text(f"{line}\n{other}\n")
    flags = ("--tokens", str(file)) if command == "server" else ("--tokens", str(file), "--compat", "rq")
    server = start(redis_url, *flags, command=command)
    found = samples(server.ask("GET", "/metrics", token=some).body)
    assert values(found, "queue") == {"sms"}
    assert "fusion_workers" not in names(found)
    found = samples(server.ask("GET", "/metrics", token=every).body)
    assert values(found, "queue") >= {"sms", "mail"}
    assert ("rq_jobs" in names(found)) == (command == "metrics")


def test_metrics_alone_answer_to_any_name_if_a_token_is_asked_for(start: Start, redis_url: str, tokens: Tokens) -> None:
    """Prometheus says the name by which it reaches the server; a page of another site has no token."""
    server = start(redis_url, "--tokens", str(tokens.path), command="metrics")
    token = tokens.by_scope["read"]
    assert server.ask("GET", "/metrics", token=token, headers={"Host": "web1.example.com:9808"}).status == 200
    assert server.ask("GET", "/healthz").status == 200
    assert server.ask("GET", "/api/v1/queues", token=token).status == 404
    open_to_all = start(redis_url, "--no-auth", command="metrics")
    assert open_to_all.ask("GET", "/metrics", headers={"Host": "web1.example.com:9808"}).status == 421
    assert open_to_all.ask("GET", "/metrics").status == 200
