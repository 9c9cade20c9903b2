"""`callbacks list` and `callbacks retry`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import redis

from fusion import Queue
from fusion.callbacks import shown_url
from fusion.store.layout.names import CALLBACKS
from fusion.store.write.broker import Broker
from tests.cli.conftest import FakeHands, Hands, Invoke
from tests.kit.hands import fields_of, new, status_of

URL = "https://hooks.example.com/fusion?token=S3CR3T"
Told = Callable[..., list[str]]


@pytest.fixture
def told(conn: redis.Redis, hands: Hands) -> Told:
    """`told("job", url)`: ids of the deliveries of a job that has finished."""
    worker = hands("q").register()

    def end(job_id: str, url: str = URL, kind: str = "finished") -> list[str]:
        before = set(conn.scan_iter("rq:job:cb-*"))
        Queue("q", conn).enqueue("tasks.sms.sendSMS", job_id=job_id, callback_url=url)
        worker.end(kind, worker.turn(slots=1))
        return [key.decode().removeprefix("rq:job:") for key in set(conn.scan_iter("rq:job:cb-*")) - before]

    return end


@pytest.fixture
def courier(hands: Hands) -> FakeHands:
    return hands(CALLBACKS, name="host.1.courier").register()


@pytest.fixture
def ends(conn: redis.Redis, told: Told, courier: FakeHands) -> dict[str, str]:
    """A delivery in each state, by the id of its job."""
    from fusion.store.layout.records import Commit

    ids = {job: told(job)[0] for job in ("delivered", "failed", "retrying", "busy", "waiting")}
    claimed = {one.id: one for one in courier.turn(slots=4)}

    def commit(job: str, kind: str, **more: Any) -> None:
        one = claimed[ids[job]]
        courier.turn(Commit(kind, one.id, one.execution_id, **more))

    commit("delivered", "finished", fields={"result": "204"})
    why = "https://hooks.example.com answered: status 500"
    commit("failed", "failed", reason=why, fields={"retryCount": 16})
    commit("retrying", "retry", reason=why, delay=3600, fields={"retryCount": 8})
    commit("busy", "later", reason="https://hooks.example.com is busy with others", delay=60)
    return ids


def test_callbacks_list_shows_the_state_of_each_delivery(invoke: Invoke, ends: dict[str, str]) -> None:
    shown = invoke("callbacks", "list").output
    lines = {line.split()[0]: line for line in shown.splitlines() if line.startswith("cb-")}
    assert set(lines) == set(ends.values())
    assert "delivered" in lines[ends["delivered"]]
    assert lines[ends["delivered"]].split()[-4:] == ["finished", "1", "204", "-"]
    assert "answered: status 500" in lines[ends["failed"]]
    assert " 10  https" in lines[ends["failed"]]
    assert lines[ends["retrying"]].endswith("in 60 min")
    assert "https://hooks.example.com/***  retrying" in lines[ends["retrying"]]
    assert "is busy with others" in lines[ends["busy"]]
    assert "S3CR3T" not in shown
    assert "callbacks retry --all" in shown


@pytest.mark.parametrize(
    ("status", "jobs"),
    [
        ("waiting", ["waiting", "busy"]),
        ("retrying", ["retrying"]),
        ("failed", ["failed"]),
        ("delivered", ["delivered"]),
        ("canceled", []),
        ("all", ["waiting", "busy", "retrying", "failed", "delivered"]),
    ],
)
def test_list_by_status_as_json(invoke: Invoke, ends: dict[str, str], status: str, jobs: list[str]) -> None:
    document = json.loads(invoke("callbacks", "list", "--status", status, "--json").output)
    assert [row["job_id"] for row in document["callbacks"]] == jobs
    assert {row["to"] for row in document["callbacks"]} <= {"https://hooks.example.com/***"}
    assert [document[name] for name in ("schema", "more", "dropped", "refused", "gone")] == [1, False, 0, 0, 0]


def test_callbacks_list_is_bounded_and_says_that_there_are_more(invoke: Invoke, ends: dict[str, str]) -> None:
    shown = invoke("callbacks", "list", "--limit", "2").output
    assert shown.count("cb-") == 2
    assert "There are more" in shown


def test_list_of_nothing_and_among_jobs_alone(invoke: Invoke, conn: redis.Redis, fail: Callable[..., list[str]]) -> None:
    fail("q", 3)
    Broker(conn).enqueue("q", [new("cb-1", delay=60.0)], "n")  # as producers of before could
    assert invoke("callbacks", "list").output == "No callbacks\n"
    assert invoke("callbacks", "list", "--status", "failed").output == "No callbacks are failed\n"


def test_callbacks_list_names_gone_endpoints_and_broken_keys(invoke: Invoke, conn: redis.Redis, told: Told) -> None:
    Broker(conn).endpoint_gone(URL)
    conn.set(f"rq:queue:{CALLBACKS}", "broken")
    assert told("j") == []
    conn.delete(f"rq:queue:{CALLBACKS}")
    shown = invoke("callbacks", "list").output
    assert "1 endpoints answered 410" in shown
    assert "1 could not be accepted" in shown


def test_retry_by_id_tries_failed_and_retrying_ones_now(invoke: Invoke, conn: redis.Redis, ends: dict[str, str]) -> None:
    shown = invoke("callbacks", "retry", ends["failed"], ends["retrying"]).output
    assert shown == "2 callbacks are tried again\n"
    assert status_of(conn, ends["failed"]) == "queued"
    assert fields_of(conn, ends["failed"])["retryCount"] == "7"
    Broker(conn).promote()
    assert status_of(conn, ends["retrying"]) == "queued"


def test_retry_refuses_what_can_not_be(invoke: Invoke, ends: dict[str, str]) -> None:
    result = invoke("callbacks", "retry", ends["delivered"], "waiting", "cb-1700000000000000-99", ends["waiting"], code=1)
    assert "1 callbacks are tried again" in result.output
    assert f"Unable to retry {ends['delivered']}: it was delivered" in result.output
    assert "Unable to retry waiting: no such callback" in result.output
    assert "Unable to retry cb-1700000000000000-99: no such callback" in result.output


def test_retry_all_means_the_failed_deliveries_alone(
    invoke: Invoke, conn: redis.Redis, ends: dict[str, str], fail: Callable[..., list[str]]
) -> None:
    (job,) = fail("sms", 1)
    document = json.loads(invoke("callbacks", "retry", "--all", "--json").output)
    assert document == {"schema": 1, "retried": 1, "readmitted": False, "refused": {}}
    assert status_of(conn, ends["failed"]) == "queued"
    assert status_of(conn, ends["retrying"]) == "scheduled"
    assert status_of(conn, job) == "failed"


@pytest.mark.parametrize("by_id", [False, True])
def test_retry_by_url_readmits_an_endpoint_that_was_gone(
    invoke: Invoke, conn: redis.Redis, told: Told, courier: FakeHands, ends: dict[str, str], by_id: bool
) -> None:
    named = ends["delivered"] if by_id else URL
    told("other", "https://other.example.com/")
    courier.end("failed", [one for one in courier.turn(slots=9) if one.id not in ends.values()])
    Broker(conn).endpoint_gone(URL)
    shown = invoke("callbacks", "retry", "--to", named).output
    assert shown == "The endpoint had answered 410 and gets callbacks again\n2 callbacks are tried again\n"
    assert Broker(conn).gone([URL]) == [False]
    assert [
        row["job_id"] for row in json.loads(invoke("callbacks", "list", "--status", "failed", "--json").output)["callbacks"]
    ] == ["other"]


def test_requeue_all_leaves_callbacks_alone(invoke: Invoke, conn: redis.Redis, ends: dict[str, str]) -> None:
    assert invoke("requeue", "--all").output.endswith("\n0 jobs requeued\n")
    assert invoke("failures").output.startswith("No failed jobs\n")
    assert status_of(conn, ends["failed"]) == "failed"


@pytest.mark.parametrize("args", [(), ("--all", "cb-1"), ("--all", "--to", URL)])
def test_retry_wants_exactly_one_choice(invoke: Invoke, conn: redis.Redis, args: tuple[str, ...]) -> None:
    assert "give ids, --all or --to" in invoke("callbacks", "retry", *args, code=2).output


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://h.example/", "https://h.example"),
        ("https://h.example:8443/S3CR3T", "https://h.example:8443/***"),
        ("http://[2606:4700::1]/?t=S3CR3T", "http://[2606:4700::1]/***"),
        ("https://u:S3CR3T@h.example#S3CR3T", "https://h.example/***"),
        ("https://h.example:S3CR3T/", "***"),
        ("S3CR3T", "***"),
        ("", "-"),
    ],
)
def test_only_the_host_of_a_url_is_shown(url: str, shown: str) -> None:
    assert shown_url(url) == shown
