"""Callbacks for which there is no secret: told of, or not sent at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from click.testing import CliRunner

from fusion.cli.main import cli
from fusion.delivery.signing import verify
from tests.courier.harness import SECRET, Endpoint, World, allowing
from tests.kit.receivers import Receiver
from tests.kit.waiting import eventually

Start = Callable[..., Receiver]


def test_health_names_who_gets_unsigned_callbacks(world: World, receiver: Start, redis_url: str) -> None:
    endpoint = Endpoint()
    server = receiver(endpoint)
    world.end(f"http://127.0.0.1:{server.port}/hook?token=S3CR3T")
    world.courier(allowing(server, callback_secrets={"localhost": [SECRET]}))
    world.settled(finished=1)
    assert "webhook-signature" not in endpoint.posts[0].headers
    found = CliRunner().invoke(cli, ["health", "--url", redis_url])
    assert "callbacks to 127.0.0.1 go out without a signature" in found.stderr
    assert "callback_require_signatures" in found.stderr
    document = json.loads(CliRunner().invoke(cli, ["health", "--json", "--url", redis_url]).stdout)
    assert ["127.0.0.1" in line for line in document["advice"]] == [True]
    assert "S3CR3T" not in found.output + repr(document)


def test_health_has_no_advice_where_all_are_signed(world: World, receiver: Start, redis_url: str) -> None:
    server = receiver(Endpoint())
    world.end(f"http://127.0.0.1:{server.port}/hook")
    world.courier(allowing(server))
    world.settled(finished=1)
    assert json.loads(CliRunner().invoke(cli, ["health", "--json", "--url", redis_url]).stdout)["advice"] == []


def test_without_a_secret_nothing_is_sent_where_signatures_are_required(
    world: World, receiver: Start, tmp_path: Path, redis_url: str
) -> None:
    endpoint = Endpoint()
    server = receiver(endpoint)
    secrets = tmp_path / "secrets"
    secrets.write_text(json.dumps({"localhost": SECRET}))
    required = {"callback_secrets": None, "callback_secrets_file": str(secrets), "callback_require_signatures": True}
    world.end(f"http://127.0.0.1:{server.port}/hook")
    world.courier(allowing(server, **required))
    world.settled(failed=1)
    assert endpoint.posts == []
    reason = world.fields()["reason"]
    assert "no secret for 127.0.0.1, and callback_require_signatures is on" in reason
    assert "callbacks retry --all" in reason
    shown = CliRunner().invoke(cli, ["callbacks", "list", "--url", redis_url]).stdout
    assert "callback_secrets has no secret for *" in shown, "an address is masked"
    secrets.write_text(json.dumps({"localhost": SECRET, "127.0.0.1": SECRET}))
    assert CliRunner().invoke(cli, ["callbacks", "retry", "--all", "--url", redis_url]).exit_code == 0
    eventually(lambda: len(endpoint.posts) == 1)
    verify(endpoint.posts[0].headers, endpoint.posts[0].body, SECRET)
    world.settled(finished=1)
