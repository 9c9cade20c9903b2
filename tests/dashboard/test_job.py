"""The page of one job: all that `job show` tells, to whom; what is done to it; edited copies; jobs in the trash."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from datetime import timedelta

import pytest
import redis

from fusion import Dependency, Queue, Retry
from fusion.dashboard.access import Sessions
from fusion.dashboard.app import DashboardApp
from fusion.job import Job
from fusion.store.write.broker import Broker
from fusion.web.auth import TokenFile
from tests.dashboard.browser import Browser
from tests.kit.hands import Hand
from tests.web.conftest import Fail
from tests.web.conftest import fail as fail
from tests.web.harness import Tokens

#: The buttons of the form of an edited copy.
ENQUEUE = "Enqueue the copy Show what differs"
NOOP, ECHO = "tests.jobs.basic.noop", "tests.jobs.basic.echo"


def _area(page: str, name: str) -> str:
    return html.unescape(page.split(f'<textarea id="{name}"')[1].split(">", 1)[1].split("</textarea>")[0])


def test_it_shows_the_error_the_way_and_the_masked_arguments(client: Browser, fail: Fail) -> None:
    fail("broken", "tests.jobs.basic.boom", args=["customer +4915112345678"], reason="ValueError: +4915112345678 is unknown")
    page = client.get("/jobs/broken")
    for told in (
        "builtins.ValueError",
        "tests.jobs.basic:boom:49",
        "Traceback",
        "Timeline",
        "failed",
        "failing.0",
        "Arguments",
        "unsigned",
    ):
        assert told in page.text, told
    assert "4915112345678" not in page.html and "ValueError: +*" in page.text
    assert "/failures/" in page.html


def test_a_reader_does_not_see_the_arguments_of_a_job(reader: Browser, fail: Fail) -> None:
    fail(
        "broken",
        "tests.jobs.basic.boom",
        args=["Mrs Smith"],
        reason="ValueError: Mrs Smith is unknown",
        description="for Mrs Smith",
    )
    page = reader.get("/jobs/broken")
    assert "builtins.ValueError" in page.text and "Timeline" in page.text
    assert "Arguments" not in page.text and "Smith" not in page.html and "Traceback" not in page.text
    assert {form[0] for form in page.forms() if form[0]} == {"/find", "/logout"}
    for path in ("requeue", "delete", "copy"):
        assert reader.send(f"/jobs/broken/{path}").status == 403
    assert reader.get("/jobs/broken/copy").status == 403


def test_a_read_only_dashboard_shows_what_its_reader_may_know(app: DashboardApp, client: Browser, fail: Fail) -> None:
    fail("broken")
    app._read_only = True
    page = client.get("/jobs/broken")
    assert "Arguments" in page.text and "Requeue" not in page.text
    assert client.send("/jobs/broken/requeue").status == 403


def test_why_it_waits_and_what_waits_for_it(client: Browser, conn: redis.Redis) -> None:
    queue = Queue("sms", conn)
    queue.enqueue(NOOP, job_id="first")
    queue.enqueue(NOOP, job_id="second", depends_on=["first"])
    queue.enqueue(NOOP, job_id="third", depends_on=["second"])
    page = client.get("/jobs/second")
    assert (
        "Why it waits" in page.text
        and re.search(r"1 before tests\.jobs\.basic\. noop first", page.text)
        and re.search(r"1 after tests\.jobs\.basic\. noop third", page.text)
    )


def test_a_running_job_shows_its_run_and_can_be_stopped(client: Browser, conn: redis.Redis) -> None:
    Queue("sms", conn).enqueue(NOOP, job_id="runs", job_timeout=90)
    hand = Hand(Broker(conn), "sms", name="busy.1")
    hand.take()
    page = client.get("/jobs/runs")
    assert "busy.1" in page.text and "alive" in page.text and "1m 30s" in page.text
    assert "got the request to stop" in client.press(page, "Stop").text
    assert "Request" in client.get("/jobs/runs").text
    hand.broker.deregister(hand.name, hand.incarnation)


@pytest.mark.parametrize(("label", "told", "status"), [("Requeue", "was put back", "queued"), ("Delete", "was deleted", None)])
def test_a_button_does_it(client: Browser, conn: redis.Redis, fail: Fail, label: str, told: str, status: str | None) -> None:
    fail("broken")
    page = client.press(client.get("/jobs/broken"), label)
    assert told in page.text
    assert conn.hget("rq:job:broken", "status") == (status.encode() if status else None)
    (entry,) = [fields for _, fields in conn.xrange("rq:audit") if b"who" in fields]
    assert (entry[b"who"], entry[b"target"]) == (b"token:adminer", b"broken")


def test_a_waiting_job_is_canceled(client: Browser, conn: redis.Redis) -> None:
    Queue("sms", conn).enqueue(NOOP, job_id="waits")
    assert "is canceled" in client.press(client.get("/jobs/waits"), "Cancel").text
    assert Job.fetch("waits", conn).get_status() == "canceled"


def test_a_deleted_job_is_brought_back_from_its_own_page(client: Browser, conn: redis.Redis, fail: Fail) -> None:
    fail("broken")
    gone = client.press(client.get("/jobs/broken"), "Delete")
    assert gone.status == 404 and "the trash keeps it until" in gone.text
    assert "is back" in client.press(gone, "Restore").text
    assert Job.fetch("broken", conn).get_status() == "failed"


def test_an_unknown_job_is_404(client: Browser) -> None:
    for address in ("/jobs/nobody", "/jobs/what%20is%20this", "/jobs/nobody/copy"):
        assert client.get(address).status == 404
    assert "never existed" in client.get("/jobs/nobody").text


def test_a_job_of_another_queue_is_not_there(restricted: Callable[..., Browser], conn: redis.Redis, fail: Fail) -> None:
    Queue("secret", conn).enqueue(NOOP, job_id="theirs")
    browser = restricted("sms")
    page = browser.get("/jobs/theirs")
    assert page.status == 404 and page.text.replace("theirs", "nobody") == browser.get("/jobs/nobody").text
    Job.fetch("theirs", conn).delete()
    assert "secret" not in browser.get("/jobs/theirs").text and "Restore" not in browser.get("/jobs/theirs").text
    for path in ("cancel", "stop", "requeue", "restore"):
        browser.send(f"/jobs/theirs/{path}")
    assert not conn.exists("rq:job:theirs")


@pytest.fixture
def copier(conn: redis.Redis, tokens: Tokens) -> Browser:
    """Who may do everything, and may have the tests' functions run with other arguments."""
    access = Sessions(conn, TokenFile(str(tokens.path)))
    return Browser(DashboardApp(conn, access, tasks=["tests.jobs.basic"])).log_in(tokens.by_scope["admin"])


def _ended(conn: redis.Redis, **options: object) -> None:
    Queue("sms", conn).enqueue(ECHO, job_id="old", **options)
    Job.fetch("old", conn).cancel()


def test_an_edited_copy_takes_masked_values_of_the_original(copier: Browser, conn: redis.Redis) -> None:
    _ended(conn, args=[{"to": "+4915112345678", "text": "hi", "password": "hunter2"}])
    form = copier.get("/jobs/old/copy")
    args = json.loads(_area(form.html, "args"))
    assert "4915112345678" not in form.html and "hunter2" not in form.html and "hx-get" not in form.html
    args[0]["text"] = "bye"
    page = copier.press(form, ENQUEUE, args=json.dumps(args), kwargs="{}", queue="mail", priority="high")
    assert "This is the copy" in page.text and "mail" in page.text
    (copy,) = Queue("mail", conn).get_jobs()
    assert list(copy.args) == [{"to": "+4915112345678", "text": "bye", "password": "hunter2"}]


def test_a_form_that_was_sent_twice_makes_one_copy(copier: Browser, conn: redis.Redis) -> None:
    _ended(conn, args=["x"])
    form = copier.get("/jobs/old/copy")
    for _ in range(2):
        copier.press(form, ENQUEUE, args='["y"]')
    assert len(Queue("sms", conn).get_job_ids()) == 1


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"args": "[1,"}, "args is not JSON"),
        ({"kwargs": "[1]"}, "kwargs: use an object"),
        ({"priority": "999"}, "priority"),
        ({"queue": "a b"}, "queue"),
    ],
)
def test_a_refused_copy_shows_the_error_beside_the_entered_values(
    copier: Browser, conn: redis.Redis, fields: dict[str, str], told: str
) -> None:
    _ended(conn, args=["x"])
    sent = {"args": '["kept"]', "kwargs": "{}", "queue": "sms", "priority": "1", **fields}
    page = copier.post("/jobs/old/copy", **sent)
    assert page.status == 422 and told in page.text
    assert _area(page.html, "args") == sent["args"] and _area(page.html, "kwargs") == sent["kwargs"]
    assert not Queue("sms", conn).get_job_ids()


def test_a_copy_of_what_is_no_task_of_this_server_is_refused(client: Browser, conn: redis.Redis) -> None:
    Queue("sms", conn).enqueue("os.system", "true", job_id="old")
    Job.fetch("old", conn).cancel()
    page = client.post("/jobs/old/copy", args='["false"]')
    assert page.status == 422 and "os.system is not among the tasks" in page.text


def test_what_differs_is_shown_before_a_copy_is_enqueued_and_on_its_page(copier: Browser, conn: redis.Redis) -> None:
    _ended(conn, args=[{"to": "+4915112345678", "text": "hi"}])
    form = copier.get("/jobs/old/copy")
    args = _area(form.html, "args").replace('"hi"', '"bye <b>"')
    looked = copier.post("/jobs/old/copy", look="1", args=args, kwargs="{}", queue="mail", priority="1", once="a")
    assert looked.status == 200 and "Nothing is enqueued yet" in looked.text
    assert '- "text": "hi"' in looked.text and '+ "text": "bye <b>"' in looked.text and "+ queue: mail" in looked.text
    assert "<b>" not in looked.html and "priority: 1 </ins>" not in looked.html
    assert _area(looked.html, "args") == args and not Queue("mail", conn).get_job_ids()
    page = copier.post("/jobs/old/copy", args=args, kwargs="{}", queue="mail", priority="1", once="a")
    told = page.text[page.text.index("What differs from the original") :]
    assert '- "text": "hi"' in told and "+ queue: mail" in told and "4915112345678" not in page.html
    same = copier.post(
        "/jobs/old/copy", look="1", **{name: _area(form.html, name) for name in ("args", "kwargs")}, queue="sms", priority="1"
    )
    assert "Nothing differs" in same.text


def test_arguments_are_a_tree(client: Browser, conn: redis.Redis) -> None:
    many = {"rows": [{"n": nth} for nth in range(30)], "<b>": {}, "deep": [[["ends"]]]}
    Queue("sms", conn).enqueue_call(ECHO, (many,), {"note": "kept"}, job_id="a")
    page = client.get("/jobs/a").html
    tree = page[page.index('<div class="tree">') :]
    assert tree.count("<details open>") == 3, "args, its first and kwargs are open; what has many entries, or is deep, is not"
    assert "30 entries" in tree and "&lt;b&gt;" in tree and "<b>" not in tree and "kept" in tree


def test_what_happens_next(client: Browser, conn: redis.Redis, fail: Fail) -> None:
    fail("broken")
    assert "Nothing by itself: requeue it" in client.get("/jobs/broken").text
    queue = Queue("sms", conn)
    queue.enqueue(NOOP, job_id="first", ttl=600)
    queue.enqueue(NOOP, job_id="second", depends_on=["first"])
    assert re.search(
        r"happens next It expires if it has not started .* For its end 1 job waits: .* second", client.get("/jobs/first").text
    )
    queue.enqueue_in(timedelta(hours=1), NOOP, job_id="later")
    assert "happens next It goes to its queue" in client.get("/jobs/later").text


def test_attempts_stand_side_by_side_with_the_one_that_runs(client: Browser, conn: redis.Redis) -> None:
    Queue("sms", conn).enqueue(NOOP, job_id="a", retry=Retry(max=5, interval=0, on=(ValueError,)))
    runs = [
        {
            "start": f"2026-01-01T00:0{nth}:00.000000Z",
            "end": f"2026-01-01T00:0{nth}:05.000000Z",
            "worker": "w.1",
            "outcome": "retry",
            "error": "ValueError: no",
        }
        for nth in range(2)
    ]
    conn.hset("rq:job:a", mapping={"history": "\n".join(map(json.dumps, runs)), "attempts": 2})
    hand = Hand(Broker(conn), "sms", name="busy.1")
    hand.take()
    text = client.get("/jobs/a").text
    told = text[text.index("Attempts") :]
    assert re.search(
        r"retry Began .* Took 5.0 s Worker w.1 ValueError: no retry .* As before: ValueError: no started .* busy.1", told
    )
    assert "If it fails with an error of its policy, it is tried again" in text and "It is killed if it still runs" in text
    hand.broker.deregister(hand.name, hand.incarnation)


def test_the_graph_is_drawn_with_bars_beside_its_jobs(client: Browser, conn: redis.Redis) -> None:
    queue = Queue("sms", conn)
    queue.enqueue(NOOP, job_id="first")
    queue.enqueue(NOOP, job_id="loose", depends_on=Dependency(["first"], on_failure="ignore"))
    queue.enqueue(NOOP, job_id="last", depends_on=["loose"])
    hand = Hand(Broker(conn), "sms", name="busy.1")
    hand.tell(hand.take(), "finished")
    page = client.get("/jobs/loose")
    graph = page.html[page.html.index('<div class="graph"') :].partition("</div>")[0]
    assert re.findall(r'href="/jobs/(\w+)" class="(\w+)( here)?"', graph) == [
        ("first", "good", ""),
        ("loose", "quiet", " here"),
        ("last", "quiet", ""),
    ]
    assert graph.count("<path") == 2 and graph.count('class="loose"') == 1
    bars = re.findall(r'<svg class="bars" role="img" aria-label="([^"]*)"', page.html)
    assert re.fullmatch(r"waited \d+ ms, ran \d+ ms", bars[0]) and "waits" in bars
    assert "style=" not in graph, "no breach of the content policy"
    hand.broker.deregister(hand.name, hand.incarnation)


def test_a_graph_of_very_many_jobs_is_drawn_by_function(client: Browser, conn: redis.Redis) -> None:
    queue = Queue("sms", conn)
    queue.enqueue(NOOP, job_id="first")
    queue.enqueue_many([queue.prepare_data(ECHO, args=(nth,), depends_on=["first"]) for nth in range(1200)])
    page = client.get("/jobs/first")
    assert "999 jobs: 999 deferred" in page.text and "1,000 jobs, by function" in page.text
    assert "drawn are the nearest 1,000 jobs" in page.text and "For its end 1,200 jobs wait" in page.text
    assert len(page.html) < 200_000
