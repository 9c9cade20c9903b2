"""Group, Webhook, and jobs that a program stored before they were accepted."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis
from click.testing import CliRunner

import fusion
from fusion.cli.main import cli
from fusion.exceptions import OptionError
from fusion.kernel.webhook_request import WebhookRequest, split_request, with_request
from fusion.rq import Queue, Webhook
from fusion.rq.connections import url_for
from fusion.rq.exceptions import InvalidJobOperation, NoSuchGroupError
from fusion.rq.group import Group
from fusion.rq.job import Job, JobStatus
from tests.rq import tasks_of_rq as tasks

Burst = Callable[..., bool]


def test_a_group_shows_its_jobs(queue: Queue, client: redis.Redis, burst: Burst) -> None:
    group = Group.create(client, "mine")
    with pytest.raises(NoSuchGroupError):
        Group.fetch("mine", client)
    jobs = group.enqueue_many(queue, [Queue.prepare_data(tasks.add, (n,)) for n in range(3)])
    burst()
    found = Group.fetch("mine", client).get_jobs()
    assert {job.id for job in found} == {job.id for job in jobs} and {job.result for job in found} == {0, 1, 2}
    assert {job.group_id for job in found} == {"mine"} and [one.name for one in Group.all(client)] == ["mine"]
    for job in jobs:
        job.delete()
    assert group.get_jobs() == [] and Group.all(client) == []


def test_a_draft_is_stored_and_enqueued_later(queue: Queue, client: redis.Redis, burst: Burst) -> None:
    draft = Job.create(tasks.add, (1,), connection=client, id="draft", description="sum", failure_ttl=9)
    draft.meta["by"] = "me"
    draft.save()
    found = Job.fetch("draft", client)
    assert (found.get_status(), found.description, found.meta, found.failure_ttl) == (JobStatus.CREATED, "sum", {"by": "me"}, 9)
    assert queue.count == 0 and client.ttl("rq:job:draft") > 0

    queue.enqueue_job(found)

    assert found.is_queued and queue.job_ids == ["draft"]
    burst()
    found.refresh()
    assert (found.result, found.meta) == (1, {"by": "me"})
    found.save()  # its meta alone
    assert found.is_finished


def test_a_draft_that_is_deleted(client: redis.Redis) -> None:
    draft = Job.create(tasks.add, (1,), connection=client)
    draft.save()
    draft.delete()
    with pytest.raises(InvalidJobOperation):
        draft.get_status()


def test_a_draft_never_replaces_an_accepted_job(queue: Queue, client: redis.Redis) -> None:
    draft = Job.create(tasks.add, (1,), connection=client, id="same")
    draft.save()
    accepted = Job.fetch("same", client)
    queue.enqueue_job(accepted)
    assert not draft._records.drop_draft("same") and accepted.is_queued


def test_a_webhook_goes_through_the_courier(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    hooks = [
        Webhook("https://hooks.example.com/a", "finished", method="POST"),
        Webhook("https://hooks.example.com/b", "failed", method="POST"),
    ]
    job = queue.enqueue(tasks.add, 1, webhooks=hooks)
    assert job._text("success_task_handler") == "https://hooks.example.com/a" and job.webhooks == hooks
    assert job._text("failed_task_handler") == "https://hooks.example.com/b"


def test_a_webhook_is_stored_with_its_request_and_shown_without(queue: Queue, client: redis.Redis) -> None:
    hooks = [
        Webhook("https://hooks.example.com/a?b=c#d", "finished", timeout=3),
        Webhook("https://hooks.example.com/b", "failed", method="POST", headers={"X-Token": "secret-of-mine"}),
    ]
    job = Job.create(tasks.add, (1,), connection=client, webhooks=hooks)
    job.save()
    assert Job.fetch(job.id, client).webhooks == hooks
    queue.enqueue_job(Job.fetch(job.id, client))
    assert Job.fetch(job.id, client).webhooks == hooks and queue.enqueue(tasks.add).webhooks == []
    shown = CliRunner().invoke(cli, ["job", "show", job.id, "--json"], env={"FUSION_REDIS_URL": url_for(client)})
    assert shown.exit_code == 0 and "https://hooks.example.com/***" in shown.output
    assert "secret" not in shown.output and "#webhook" not in shown.output


@pytest.mark.parametrize(
    "headers", [{"Host": "x"}, {"webhook-id": "1"}, {"X": "a\nb"}, {"X": "1", "x": "2"}, {"X": "v" * 2000}, {"X": 1}]
)
def test_headers_that_can_not_be_sent_are_refused(queue: Queue, headers: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="headers") as raised:
        queue.enqueue(tasks.add, 1, webhooks=[Webhook("https://hooks.example.com/a", "finished", headers=headers)])
    assert queue.count == 0 and "vvv" not in str(raised.value)


@pytest.mark.parametrize("rest", ["x", "bm90IGpzb24=", "WyJQVVQiLHt9LG51bGxd", "WyJHRVQiLDEsbnVsbF0=", "WyJHRVQiLHt9LCJ4Il0="])
def test_what_stands_behind_a_url_is_checked(client: redis.Redis, rest: str) -> None:
    with pytest.raises(OptionError, match="leave it out"):
        fusion.Queue("work", client).enqueue(tasks.add, 1, success_task_handler=f"https://hooks.example.com/a#webhook={rest}")
    assert split_request("https://hooks.example.com/a#webhook") == ("https://hooks.example.com/a#webhook", WebhookRequest())


def test_the_sender_of_a_payload_chooses_no_headers(client: redis.Redis) -> None:
    url = with_request("https://hooks.example.com/a", WebhookRequest("GET", {"X": "1"}))
    with pytest.raises(OptionError, match="only a Webhook"):
        fusion.Queue("work", client).enqueue(tasks.add, {"callback": 1, "callback_url": url})


@pytest.mark.parametrize(
    "hooks",
    [
        [
            Webhook("https://hooks.example.com/a", "failed", method="POST"),
            Webhook("https://hooks.example.com/b", "failed", method="POST"),
        ],
    ],
)
def test_what_the_courier_does_not_do_is_refused(queue: Queue, hooks: list[Webhook]) -> None:
    with pytest.raises(NotImplementedError, match=r"docs/from-rq\.md"):
        queue.enqueue(tasks.add, 1, webhooks=hooks)
    assert queue.count == 0


def test_an_address_that_the_settings_forbid_is_refused(queue: Queue) -> None:
    with pytest.raises(OptionError):
        queue.enqueue(tasks.add, 1, webhooks=[Webhook("http://hooks.example.com/a", "finished", method="POST")])


@pytest.mark.parametrize("bad", [{"url": "ftp://x"}, {"url": 1}, {"job_status": "queued"}, {"method": "PUT"}, {"timeout": 0}])
def test_a_webhook_is_checked(bad: dict[str, object]) -> None:
    given: dict[str, object] = {"url": "https://hooks.example.com", "job_status": "finished", **bad}
    with pytest.raises(ValueError, match=r"must be"):
        Webhook(**given)  # type: ignore[arg-type]
