"""Every action of the dashboard as a person does it: on which page its button is, what is asked first, what is so afterwards. Pressed by
test_actions.py; tests/architecture/test_actions.py fails for an action that nobody presses."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import redis

from fusion import Queue
from fusion.cron.scheduler import Scheduler
from fusion.job import Job
from fusion.store.write.broker import Broker
from fusion.store.write.limit_broker import LimitBroker
from tests.cli.conftest import FakeHands
from tests.kit.hands import Hand
from tests.operations.hands import begin as begin_operation
from tests.operations.hands import failed
from tests.store.batch_hands import add, begin
from tests.web.strangers import settle

if TYPE_CHECKING:
    from playwright.sync_api import Page

Stage = Callable[[redis.Redis], object]
TASK = "tests.jobs.basic.noop"


@dataclass(frozen=True)
class Row:
    """`action`: its path in `fusion.dashboard.pages.ALL`. `page`: where the button `press` is, within the row or section that has the text
    `within`; `first` is done to the page before. `asks`: part of the question, empty if none is asked. `says`: part of what the next page
    tells, which is `goes`, by default the same one. `done`: false before, true afterwards. `logged`: what the browser's console tells of it."""

    action: str
    stage: Stage
    page: str
    press: str
    asks: str
    says: str
    done: Callable[[redis.Redis], object]
    first: Callable[[Page], object] = lambda page: None
    within: str = ""
    goes: str = ""
    logged: str = ""

    def __str__(self) -> str:
        return f"{self.press} on {self.page}"


def status(conn: redis.Redis, job_id: str) -> str:
    return (conn.hget(f"rq:job:{job_id}", "status") or b"").decode()


def wanted(conn: redis.Redis) -> dict[str, Any]:
    """The operation that was begun; empty if there is none."""
    found = conn.zrange("rq:operations", 0, -1)
    return {name.decode(): value.decode() for name, value in conn.hgetall(b"rq:operation:" + found[-1]).items()} if found else {}


def args_of(conn: redis.Redis) -> Any:
    return json.loads(wanted(conn).get("args", "{}"))


def ticked(*ids: str) -> Callable[[Page], None]:
    """Tick the rows of these, and show the rest of what can be done to them."""

    def tick(page: Page) -> None:
        for one in ids:
            page.get_by_label(f"Select {one}", exact=True).check()

    return tick


def filled(*ids: str, **fields: str) -> Callable[[Page], None]:
    """The same, and fill in fields by their labels, behind a summary that says More if there is one."""

    def fill(page: Page) -> None:
        ticked(*ids)(page)
        for more in page.locator("main summary", has_text="More").all():
            more.click()
        for label, value in fields.items():
            chosen = page.get_by_role("combobox", name=label, exact=True)
            chosen.select_option(value) if chosen.count() else page.get_by_role("textbox", name=label, exact=True).fill(value)

    return fill


def queued(*ids: str, **more: Any) -> Stage:
    """Jobs that wait in queue sms."""
    return lambda conn: [Queue("sms", conn).enqueue(TASK, job_id=job_id, **more) for job_id in ids]


def running(conn: redis.Redis) -> None:
    """A job that a worker has, which is out of reach."""
    queued("slow")(conn)
    Hand(Broker(conn), "sms").take()


def paused(conn: redis.Redis) -> None:
    queued("a")(conn)
    Queue("sms", conn).pause()


def canceled(conn: redis.Redis) -> None:
    queued("a", kwargs={"to": "anna"})(conn)
    Job("a", {}, conn).cancel()


def thrown(*ids: str) -> Stage:
    """Deleted jobs."""
    return lambda conn: (queued(*ids)(conn), [Job(job_id, {}, conn).delete() for job_id in ids])


def suspended(conn: redis.Redis) -> None:
    FakeHands(Broker(conn), "web1.1", ("q",)).register()
    Broker(conn).suspend()


def failing(conn: redis.Redis) -> None:
    failed(conn, 6)


def under_way(conn: redis.Redis) -> None:
    failed(conn, 2)
    begin_operation(conn, "requeue", "state:failed")


def keyed(conn: redis.Redis) -> None:
    queued("k0", "k1", concurrency_key="user:42", max_concurrent=1)(conn)


def keyed_and_paused(conn: redis.Redis) -> None:
    keyed(conn)
    LimitBroker(conn).pause_limit("user:42", 600, by="me", reason="")


def batched(conn: redis.Redis) -> None:
    begin(Broker(conn), "mails")
    add(Broker(conn), "mails", "a", queue="sms")


def entry(conn: redis.Redis) -> None:
    Scheduler(conn).cron("0 9 * * 1-5", TASK, id="report", queue="sms")


def told_of(conn: redis.Redis) -> None:
    """Callbacks of what ended, the first of which was tried and will be again."""
    settle(conn, "sms", "ours")


def _two(conn: redis.Redis) -> None:
    failed(conn, 2)


_NEW = "/operations/new?q=state:{}&action={}"
_OVER = "/operations/"
ROWS: tuple[Row, ...] = (
    Row(
        "/running/stop", running, "/", "Stop", f"Stop job slow of queue sms ({TASK})?", "Job slow is being stopped",
        lambda conn: conn.hget("rq:job:slow", "cancel") == b"stop", within="slow",
    ),
    Row(
        "/mend", suspended, "/", "Resume the fleet", "Resume the fleet?", "Resume the fleet: done",
        lambda conn: not conn.exists("rq:suspended"),
    ),
    Row(
        "/mend", failing, "/", "Requeue them", "Requeue them?", "begun, 6 jobs match",
        lambda conn: wanted(conn).get("action") == "requeue", goes=_OVER,
    ),
    Row(
        "/queues/{name}/pause", queued("a"), "/queues/sms", "Pause", "Pause queue sms?", "Queue sms is paused: none of its jobs starts for 10m",
        lambda conn: (conn.get("rq:paused:sms") or b"").endswith(b"\nbroken gateway") and conn.ttl("rq:paused:sms") > 500,
        filled(Why="broken gateway", **{"For how long, like 10m; empty: until it is resumed": "10m"}),
    ),
    Row("/queues/{name}/resume", paused, "/queues", "Resume", "", "Queue sms is resumed", lambda conn: not conn.exists("rq:paused:sms")),
    Row(
        "/queues/{name}/empty", queued("a"), "/queues/sms", "Empty", "Delete the 1 job that waits in queue sms?",
        "Queue sms: 1 job that waited is deleted", lambda conn: not conn.exists("rq:job:a") and conn.exists("rq:trash"),
    ),
    Row(
        "/jobs", queued("a", "b"), "/jobs?q=queue:sms", "Cancel", "Cancel the selected jobs (1 of queue:sms)?", "1 job canceled",
        lambda conn: (status(conn, "a"), status(conn, "b")) == ("canceled", "queued"), ticked("a"),
    ),
    Row(
        "/jobs", running, "/jobs?q=state:started", "Stop", "Stop the selected jobs (1 of state:started)?", "1 job stopped, or being stopped",
        lambda conn: conn.hget("rq:job:slow", "cancel") == b"stop", ticked("slow"),
    ),
    Row(
        "/jobs", _two, "/jobs?q=state:failed", "Delete", "Delete the selected jobs (2 of state:failed)?", "2 jobs deleted",
        lambda conn: not conn.exists("rq:job:f0", "rq:job:f1"), ticked("f0", "f1"),
    ),
    Row(
        "/jobs", _two, "/jobs?q=state:failed", "Quarantine", "Quarantine the selected jobs (1 of state:failed)?",
        "Setting aside 1 selected job", lambda conn: wanted(conn).get("query") == "id:f1 state:failed" and args_of(conn) == {"reason": "customer 7"},
        filled("f1", Reason="customer 7"), goes=_OVER,
    ),
    Row(
        "/jobs", queued("a"), "/jobs?q=queue:sms", "Reprioritise", "Reprioritise the selected jobs (1 of queue:sms)?",
        "Moving 1 selected job", lambda conn: args_of(conn) == {"priority": "2"},
        filled("a", Priority="high"), goes=_OVER,
    ),
    Row(
        "/jobs/{id}/requeue", _two, "/jobs/f0", "Requeue", "", "Job f0 was put back into its queue",
        lambda conn: (status(conn, "f0"), status(conn, "f1")) == ("queued", "failed"),
    ),
    Row(
        "/jobs/{id}/cancel", queued("a"), "/jobs/a", "Cancel", "Cancel job a of queue sms?", "Job a is canceled",
        lambda conn: status(conn, "a") == "canceled",
    ),
    Row(
        "/jobs/{id}/stop", running, "/jobs/slow", "Stop", "Stop job slow of queue sms?", "Job slow got the request to stop",
        lambda conn: conn.hget("rq:job:slow", "cancel") == b"stop",
    ),
    Row(
        "/jobs/{id}/delete", _two, "/jobs/f0", "Delete", "Delete job f0 of queue q?", "Job f0 was deleted",
        lambda conn: not conn.exists("rq:job:f0"), logged="status of 404",
    ),
    Row(
        "/jobs/{id}/restore", thrown("a"), "/jobs/a", "Restore", "", "Job a is back", lambda conn: status(conn, "a") == "queued",
        logged="status of 404",
    ),
    Row(
        "/jobs/{id}/copy", canceled, "/jobs/a/copy", "Enqueue the copy", "", "This is the copy",
        lambda conn: conn.zcard("rq:queue:sms") == 1, filled(**{"Keyword arguments, a JSON object": '{"to": "otto"}'}), goes="/jobs/",
    ),
    Row(
        "/jobs/{id}/reveal", queued("a", kwargs={"to": "Rosalind Franklin"}), "/jobs/a", "Show masked values",
        "Show the masked values of job a of queue sms? The audit gets an entry with your name.", "an entry that you saw these values",
        lambda conn: b"reveal" in [fields.get(b"action") for _, fields in conn.xrange("rq:audit")], goes="/jobs/a/reveal",
    ),
    Row(
        "/operations", queued("a", "b"), _NEW.format("queued", "cancel"), "Cancel 2 queued jobs of queue sms",
        "Cancel 2 queued jobs of queue sms?", "Canceling 2 jobs", lambda conn: wanted(conn).get("action") == "cancel", goes=_OVER,
    ),
    Row(
        "/operations", running, _NEW.format("started", "stop"), "Stop 1 started job of queue sms",
        "Stop 1 started job of queue sms?", "Stopping 1 job", lambda conn: wanted(conn).get("action") == "stop", goes=_OVER,
    ),
    Row(
        "/operations", _two, _NEW.format("failed", "delete"), "Delete 2 failed jobs of queue q", "Delete 2 failed jobs of queue q?",
        "Deleting 2 jobs", lambda conn: (wanted(conn).get("action"), args_of(conn)) == ("delete", {"purge": "1"}),
        lambda page: page.get_by_label("for good, not into the trash").check(), goes=_OVER,
    ),
    Row(
        "/operations", queued("a"), _NEW.format("queued", "reprioritise"), "Reprioritise 1 queued job of queue sms",
        "Reprioritise 1 queued job of queue sms?", "Moving 1 job",
        lambda conn: args_of(conn) == {"priority": "0"},
        filled(**{"New priority": "low"}), goes=_OVER,
    ),
    Row(
        "/operations/{id}/cancel", under_way, "/operations/op0", "Cancel", "Cancel this operation? What is done stays done",
        "It is canceled", lambda conn: wanted(conn)["status"] == "canceled",
    ),
    Row(
        "/cron/{name}/run", entry, "/cron", "Run now", "Enqueue a job of report now?", "of report is enqueued",
        lambda conn: conn.zcard("rq:queue:sms"),
    ),
    Row(
        "/cron/{name}/pause", entry, "/cron", "Pause", "Pause report?", "Cron entry report is paused",
        lambda conn: conn.hexists("rq:cron:entry:report", "paused"),
    ),
    Row(
        "/cron/{name}/remove", entry, "/cron/report", "Remove", "Remove report? Nothing is enqueued at its times any more",
        "Cron entry report is removed", lambda conn: not conn.exists("rq:cron:entry:report"), goes="/cron",
    ),
    Row(
        "/batches/{id}/cancel", batched, "/batches", "Cancel", "Cancel batch mails and the 1 job in it that did not end?",
        "Batch mails is canceled with 1 of its jobs", lambda conn: conn.hexists("rq:batch:mails", "canceled_at"),
    ),
    Row(
        "/limit/{key}/pause", keyed, "/limits", "Pause", "Pause key user:42?", "Key user:42 is paused until it is resumed",
        lambda conn: conn.hget("rq:limit:user:42", "paused") == b"inf",
    ),
    Row(
        "/limit/{key}/pause", keyed, "/limits/user:42", "Pause", "Pause key user:42?", "Key user:42 is paused for 10m",
        lambda conn: conn.hget("rq:limit:user:42", "paused_why") == b"broken gateway", filled(For="10m", Why="broken gateway"),
    ),
    Row(
        "/limit/{key}/resume", keyed_and_paused, "/limits/user:42", "Resume", "", "Key user:42 is resumed",
        lambda conn: not conn.hexists("rq:limit:user:42", "paused"),
    ),
    Row(
        "/relay/retry", told_of, "/relay", "Retry selected", "Try 2 of these callbacks again?", "2 callbacks are tried again",
        lambda conn: b"callbacks_retry" in [fields.get(b"action") for _, fields in conn.xrange("rq:audit")],
        lambda page: page.get_by_label("Select all callbacks of this page").check(),
    ),
    Row(
        "/trash/restore", thrown("a", "b"), "/trash", "Restore all 2 shown", "Restore all 2 jobs shown?", "2 of 2 jobs are restored",
        lambda conn: (status(conn, "a"), status(conn, "b")) == ("queued", "queued"),
    ),
)  # fmt: skip

#: Those that other tests of this folder press: the test, and the words on the button.
ELSEWHERE: dict[str, tuple[str, str]] = {
    "/workers/{name}/quiet": ("test_actions.py::test_a_worker_obeys_the_buttons_of_its_page", "Quiet"),
    "/workers/{name}/unquiet": ("test_actions.py::test_a_worker_obeys_the_buttons_of_its_page", "Unquiet"),
    "/workers/{name}/stop": ("test_actions.py::test_a_worker_obeys_the_buttons_of_its_page", "Stop"),
    "/scheduled/move": ("test_kept.py::test_a_scheduled_job_is_moved_run_and_canceled", "Move selected"),
    "/scheduled/cancel": ("test_kept.py::test_a_scheduled_job_is_moved_run_and_canceled", "Cancel selected"),
    "/scheduled/run": ("test_kept.py::test_a_scheduled_job_is_moved_run_and_canceled", "Run selected now"),
    "/cron/{name}/resume": ("test_kept.py::test_a_cron_entry_is_run_paused_and_resumed", "Resume"),
    "/limit/{key}/bound": ("test_kept.py::test_a_key_is_bounded_and_its_slot_released_and_a_batch_is_canceled", "Set"),
    "/limit/{key}/release": ("test_kept.py::test_a_key_is_bounded_and_its_slot_released_and_a_batch_is_canceled", "Release"),
    "/trash/empty": ("test_kept.py::test_deleted_jobs_are_restored_and_the_rest_is_forgotten", "Empty the trash"),
}
