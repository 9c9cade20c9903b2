"""What a receiver gets, and what happens to a delivery by its answer."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from fusion.cli.main import cli
from fusion.courier import Courier
from fusion.delivery.signing import verify
from fusion.exceptions import ConfigurationError
from fusion.kernel.webhook_request import WebhookRequest, with_request
from fusion.store.layout.names import CALLBACKS
from tests.courier.harness import OLD_SECRET, SECRET, Endpoint, World, allowing, answers, registered
from tests.kit.hands import fields_of, status_of
from tests.kit.receivers import Receiver
from tests.kit.waiting import eventually

Start = Callable[..., Receiver]


def url_of(receiver: Receiver, host: str = "127.0.0.1", path: str = "/hook?token=S3CR3T") -> str:
    return f"http://{host}:{receiver.port}{path}"


# -- what goes out


def test_the_end_of_a_job_is_delivered_once_signed_and_small(world: World, receiver: Start) -> None:
    endpoint = Endpoint()
    server = receiver(endpoint)
    (job,) = world.end(url_of(server), log_tag="SMS_OTP")
    world.courier(allowing(server))
    world.settled(finished=1)
    (post,) = endpoint.posts
    assert verify(post.headers, post.body, SECRET) == post.id == world.deliveries()[0]
    assert json.loads(post.body)["type"] == "job.finished"
    expected = {
        "job_id": job,
        "queue": "q",
        "status": "finished",
        "task": "tasks.sms.sendSMS",
        "log_tag": "SMS_OTP",
        "error": None,
    }
    assert expected.items() <= post.data.items()
    assert b"S3CR3T" not in post.body
    assert post.path == "/hook?token=S3CR3T"
    assert world.fields()["result"] == "204"


def test_a_webhook_of_rq_is_called_by_its_method_with_its_headers(world: World, receiver: Start) -> None:
    endpoint = Endpoint()
    server = receiver(endpoint)
    for request in (WebhookRequest("GET", {"X-Token": "mine"}, 5), WebhookRequest("POST", {"X-Token": "mine"})):
        world.end("", success_task_handler=with_request(url_of(server), request))
    world.courier(allowing(server))
    world.settled(finished=2)
    by_method = {raw.partition(b" ")[0]: post for raw, post in zip(server.requests, endpoint.posts, strict=True)}
    assert by_method.keys() == {b"GET", b"POST"}
    for method, post in by_method.items():
        assert (post.path, post.headers["x-token"]) == ("/hook?token=S3CR3T", "mine")
        assert (post.body == b"", "content-length" not in post.headers) == ((method == b"GET"),) * 2
        assert verify(post.headers, post.body, SECRET) == post.id


def test_a_failure_names_the_class_of_the_error_alone(world: World, receiver: Start) -> None:
    endpoint = Endpoint()
    server = receiver(endpoint)
    world.end(url_of(server), kind="failed")
    world.courier(allowing(server))
    world.settled(finished=1)
    (post,) = endpoint.posts
    assert (post.data["status"], post.data["error"], post.data["attempts"]) == ("failed", "builtins.ValueError", 1)
    assert b"S3CR3T" not in post.body


def test_each_host_has_its_secrets_and_two_while_one_is_replaced(world: World, receiver: Start) -> None:
    endpoint = Endpoint()
    server = receiver(endpoint)
    settings = allowing(server, callback_secrets={"localhost": [SECRET, OLD_SECRET], "*": [OLD_SECRET]})
    world.end(url_of(server, "localhost"))
    world.end(url_of(server, "127.0.0.1"))
    world.courier(settings)
    world.settled(finished=2)
    by_host = {post.headers["host"].partition(":")[0]: post for post in endpoint.posts}
    for secret in (SECRET, OLD_SECRET):
        verify(by_host["localhost"].headers, by_host["localhost"].body, secret)
    assert by_host["127.0.0.1"].headers["webhook-signature"].count("v1,") == 1
    verify(by_host["127.0.0.1"].headers, by_host["127.0.0.1"].body, OLD_SECRET)


def test_a_file_of_secrets_is_read_again_and_a_broken_one_changes_nothing(
    world: World, receiver: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint = Endpoint()
    server = receiver(endpoint)
    file = tmp_path / "secrets"
    file.write_text(f"{OLD_SECRET}\n")
    world.courier(allowing(server, callback_secrets=None, callback_secrets_file=str(file)))
    for number, (text, secret) in enumerate(((None, OLD_SECRET), (f'{{"*": "{SECRET}"}}', SECRET), ("{", SECRET)), 1):
        if text is not None:
            file.write_text(text)
        world.end(url_of(server))
        world.settled(finished=number)
        verify(endpoint.posts[-1].headers, endpoint.posts[-1].body, secret)
    assert "stay as they were" in caplog.text
    assert SECRET not in caplog.text
    assert OLD_SECRET not in caplog.text


def test_without_a_secret_the_id_still_goes_along_and_it_is_said_once(
    world: World, receiver: Start, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint = Endpoint()
    server = receiver(endpoint)
    world.end(url_of(server), 3)
    world.courier(allowing(server, callback_secrets=None))
    world.settled(finished=3)
    assert sorted(endpoint.ids) == world.deliveries()
    assert not any("webhook-signature" in post.headers for post in endpoint.posts)
    assert caplog.text.count("without a signature") == 1


@pytest.mark.parametrize("changes", [{"callback_secrets": {"*": ["whsec_c2hvcnQ="]}}, {"callback_allowed_hosts": ("a b",)}])
def test_a_courier_with_a_setting_that_can_not_be_used_does_not_start(world: World, changes: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Courier(world.settings(**{**allowing(), **changes}))
    assert "c2hvcnQ" not in str(caught.value)


# -- what the answer does


def test_a_failed_try_comes_again_by_the_schedule_with_the_same_id(world: World, receiver: Start) -> None:
    endpoint = Endpoint(answers(503))
    server = receiver(endpoint)
    (job,) = world.end(url_of(server))
    before = fields_of(world.conn, job)
    world.courier(allowing(server))
    world.settled(scheduled=1)
    found = world.fields()
    assert (found["attempts"], found["retryCount"], found["reason"]) == (
        "1",
        "8",
        f"http://127.0.0.1:{server.port} answered: status 503",
    )
    endpoint.answer = answers(200)
    world.due()
    world.settled(finished=1)
    first, second = endpoint.posts
    assert first.id == second.id
    assert first.body == second.body
    assert verify(second.headers, second.body, SECRET)
    assert fields_of(world.conn, job) == before
    world.check([job])


def test_after_the_last_try_it_has_failed_and_can_be_requeued(world: World, receiver: Start) -> None:
    endpoint = Endpoint(answers(500))
    server = receiver(endpoint)
    world.end(url_of(server))
    (delivery,) = world.deliveries()
    world.conn.hset(f"rq:job:{delivery}", "retryCount", 16)
    world.courier(allowing(server))
    world.settled(failed=1)
    assert world.fields()["reason"].endswith("status 500; 10 tries")
    assert world.fields()["error_frame"] == "127.0.0.1"
    endpoint.answer = answers(200)
    world.broker.requeue([delivery], "n")
    world.settled(finished=1)


def test_retry_after_is_obeyed(world: World, receiver: Start) -> None:
    server = receiver(Endpoint(answers(429, "Retry-After: 4000")))
    world.end(url_of(server))
    world.courier(allowing(server))
    world.settled(scheduled=1)
    ((_, score),) = world.conn.zrange("rq:scheduler:scheduled_jobs", 0, -1, withscores=True)
    assert 3900 < score - world.conn.time()[0] < 5100


def test_an_endpoint_that_is_gone_gets_nothing_more_until_it_is_retried(world: World, receiver: Start) -> None:
    endpoint = Endpoint(answers(410))
    server = receiver(endpoint)
    url = url_of(server)
    world.courier(allowing(server))
    world.end(url)
    world.settled(failed=1)
    world.end(url, 3)
    world.settled(failed=4)
    assert len(endpoint.posts) == 1
    reasons = [world.fields(one)["reason"] for one in world.deliveries()]
    assert sum("answered 410 before" in reason for reason in reasons) == 3
    endpoint.answer = answers(200)
    world.end(url_of(server, path="/another"))
    world.settled(failed=4, finished=1)
    assert world.broker.readmit_endpoint(url)
    world.broker.requeue(world.deliveries()[:4], "n")
    world.settled(finished=5)


def test_a_redirect_is_not_followed(world: World, receiver: Start) -> None:
    inside = Endpoint()
    target = receiver(inside)
    server = receiver(Endpoint(answers(302, f"Location: http://127.0.0.1:{target.port}/")))
    world.end(url_of(server))
    world.courier(allowing(server, target))
    world.settled(scheduled=1)
    assert "redirects are not followed" in world.fields()["reason"]
    assert target.connections == 0


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]"])
def test_this_machine_is_refused_at_once(world: World, receiver: Start, host: str) -> None:
    server = receiver(Endpoint())
    world.end(url_of(server, host))
    world.courier(allowing(server, callback_allowed_hosts=None))
    world.settled(failed=1)
    assert world.fields()["error_class"].startswith("fusion.delivery.errors.")
    assert server.connections == 0


def test_plain_http_and_other_ports_are_refused_by_the_couriers_own_settings(world: World, receiver: Start) -> None:
    server = receiver(Endpoint())
    world.end(url_of(server))
    world.courier(allowing(server, callback_allow_http=False))
    world.settled(failed=1)
    assert server.connections == 0


def test_a_malformed_delivery_fails_with_a_reason(world: World) -> None:
    world.conn.sadd("rq:queues", f"rq:queue:{CALLBACKS}")
    for number, data in enumerate((b"junk", b'["f", null, [], {}]', b'["f", null, [], {"url": "https://x/", "ended_at": "?"}]')):
        delivery = f"cb-1700000000000000-{number}"
        world.conn.hset(f"rq:job:{delivery}", mapping={"data": data, "status": "queued", "origin": CALLBACKS})
        world.conn.zadd(f"rq:queue:{CALLBACKS}", {delivery: 1.5})
    world.courier(allowing())
    world.settled(failed=3)
    assert all(world.fields(one)["reason"].startswith("corrupt: ") for one in world.deliveries())


def test_a_broken_list_of_gone_endpoints_stops_no_delivery(
    world: World, receiver: Start, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint = Endpoint()
    server = receiver(endpoint)
    world.conn.set("rq:callbacks:gone", "broken")
    world.courier(allowing(server))
    world.end(url_of(server), 3)
    world.settled(finished=3)
    endpoint.answer = answers(410)
    world.end(url_of(server))
    world.settled(finished=3, failed=1)
    assert caplog.text.count("callbacks go on without it") == 1


# -- how it lives


@pytest.mark.parametrize("stopped", [False, True], ids=["mended", "stopped"])
def test_an_outcome_that_a_broken_key_refused_is_kept_and_offered_again(world: World, receiver: Start, stopped: bool) -> None:
    """What was delivered is not delivered again, though the key stays broken for longer than a lease."""
    endpoint = Endpoint()
    server = receiver(endpoint)
    world.conn.set("rq:finished:_callbacks", "junk")
    jobs = world.end(f"http://127.0.0.1:{server.port}/hook")
    courier = world.courier(allowing(server))
    eventually(lambda: world.conn.zcard("rq:wip:_callbacks"), why="it is under way")
    ((_, first),) = world.conn.zrange("rq:wip:_callbacks", 0, -1, withscores=True)

    def held_on() -> bool:
        held = world.conn.zrange("rq:wip:_callbacks", 0, -1, withscores=True)
        return len(endpoint.posts) > 1 or (bool(held) and held[0][1] > first + 2000)

    eventually(held_on, why="its lease is renewed, twice its length")
    world.conn.delete("rq:finished:_callbacks")
    if stopped:
        assert courier.stop(5)
    world.settled(finished=1)
    assert len(endpoint.posts) == 1
    world.check(jobs)


def test_a_courier_is_listed_but_is_not_a_worker(world: World) -> None:
    courier = world.courier(allowing())
    eventually(lambda: registered(world.conn) == [courier.name])
    assert courier.name.endswith(".courier")
    shown = CliRunner().invoke(cli, ["info"], catch_exceptions=False).output
    assert courier.name in shown
    assert "No worker is alive" in shown
    assert CliRunner().invoke(cli, ["health"]).exit_code == 3
    assert CliRunner().invoke(cli, ["quiet", "--all"]).output == "quiet: 0 worker(s) told\n"
    assert courier.stop(5)
    assert registered(world.conn) == []


def test_at_rest_it_waits_at_the_doorbell(world: World) -> None:
    courier = world.courier(allowing(lease=30.0, reap_interval=5.0, idle_wait=3.0))
    eventually(lambda: registered(world.conn))
    eventually(lambda: any(client["cmd"] == "blpop" for client in world.conn.client_list()))
    before = world.conn.info("stats")["total_commands_processed"]
    threading.Event().wait(2)
    assert courier.is_alive()
    assert world.conn.info("stats")["total_commands_processed"] - before < 40


def test_suspension_holds_callbacks_back_too(world: World, receiver: Start) -> None:
    endpoint = Endpoint()
    server = receiver(endpoint)
    world.end(url_of(server))
    world.broker.suspend()
    courier = world.courier(allowing(server))
    eventually(lambda: world.conn.hget(f"rq:worker:{courier.name}", "state") == b"suspended")
    assert endpoint.posts == []
    world.broker.resume()
    world.settled(finished=1)


def test_a_retry_is_made_with_nobody_else_in_the_fleet(world: World, receiver: Start) -> None:
    endpoint = Endpoint(answers(500))
    server = receiver(endpoint)
    world.end(url_of(server))
    world.courier(allowing(server))
    world.settled(scheduled=1)
    endpoint.answer = answers(200)
    (delivery,) = world.deliveries()
    world.broker.reschedule(delivery, world.conn.time()[0] + 1)
    world.settled(finished=1)


def test_a_warm_stop_finishes_what_is_under_way_and_gives_the_rest_back(world: World, receiver: Start) -> None:
    endpoint = Endpoint()
    endpoint.gate.clear()
    server = receiver(endpoint)
    courier = world.courier(allowing(server))
    jobs = world.end(url_of(server), 6)
    eventually(lambda: len(endpoint.posts) == 2)
    endpoint.gate.set()
    assert courier.stop(10)
    finished = world.states()["finished"]
    assert finished >= 2
    assert len(endpoint.posts) == finished, "each that was begun was waited for"
    assert world.states()["started"] == 0
    world.check(jobs)
    world.courier(allowing(server))
    world.due()
    world.settled(finished=6)
    assert len(endpoint.posts) == 6


def test_a_stop_does_not_wait_longer_than_it_may(world: World, receiver: Start) -> None:
    endpoint = Endpoint()
    endpoint.gate.clear()
    server = receiver(endpoint)
    courier = world.courier(allowing(server))
    (job,) = world.end(url_of(server))
    eventually(lambda: endpoint.posts)
    assert courier.stop(0.2)
    (delivery,) = world.deliveries()
    assert status_of(world.conn, delivery) == "queued"
    assert "attempts" not in world.fields()
    endpoint.gate.set()
    world.courier(allowing(server))
    world.settled(finished=1)
    assert endpoint.ids == [delivery] * 2
    world.check([job])
