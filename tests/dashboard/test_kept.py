"""Pages of what waits, recurs, belongs together, is bounded, was changed and was deleted."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import redis

from fusion import Queue
from fusion.cron.scheduler import Scheduler
from fusion.job import Job
from fusion.store.read.audit_inspector import AuditInspector
from fusion.store.write.broker import Broker
from fusion.store.write.limit_broker import LimitBroker
from tests.dashboard.browser import Browser
from tests.kit.hands import Hand, put, status_of
from tests.store.batch_hands import add, begin
from tests.web.strangers import MARKER, OWN, settle, strangers

TASK = "tests.jobs.basic.noop"
HOSTILE = "<script>alert(1)</script>"
PAGES = ("/scheduled", "/cron", "/batches", "/limits", "/audit", "/trash")


def changes(conn: redis.Redis) -> list[tuple[str, str, str, str]]:
    return [(one.who, one.action, one.target, one.outcome) for one in AuditInspector(conn).entries()]


def test_kept_pages_say_that_they_are_empty(client: Browser) -> None:
    said = ("No job waits", "no cron entries", "no batches", "no limit is set", "Nobody has changed", "The trash is empty")
    for path, words in zip(PAGES, said, strict=True):
        shown = client.get(path)
        assert shown.status == 200 and words in shown.text, path


def test_a_token_for_some_queues_finds_nothing_of_others(restricted: Callable[..., Browser], conn: redis.Redis) -> None:
    settle(conn, OWN, "ours")
    strangers(conn)
    somebody = restricted(OWN)
    for path in PAGES:
        shown = somebody.get(path)
        assert MARKER not in shown.html, path
        assert shown.status == (403 if path in ("/batches", "/limits") else 200)
        assert "ours-" in shown.text or shown.status == 403, path
    assert "Batches" not in somebody.get("/cron").text
    assert (somebody.get(f"/cron/{MARKER}-entry").status, somebody.get("/cron/ours-entry").status) == (404, 200)


def test_kept_pages_escape_texts_of_strangers(client: Browser, conn: redis.Redis) -> None:
    Queue("sms", conn).enqueue(TASK, job_id="later", enqueue_in=60, description=HOSTILE)
    conn.hset("rq:job:later", mapping={"func": HOSTILE, "origin": HOSTILE})
    begin(Broker(conn), "b", name=HOSTILE)
    key = "<b>,*/\\\"'"
    LimitBroker(conn).pin_limit(key, 1)
    LimitBroker(conn).pause_limit(key, 60, by=HOSTILE, reason=HOSTILE)
    Scheduler(conn).cron("0 9 * * *", TASK, id="e")
    conn.hset("rq:cron:entry:e", "error", HOSTILE)
    put(Broker(conn), "sms", "gone")
    Broker(conn).delete_to_trash(["gone"])
    conn.hset("rq:trash:job:gone", "origin", HOSTILE)
    client.post("/limit/nothing/resume")
    pages = [client.get(path) for path in (*PAGES, "/batches/b", "/cron/e")]
    (link,) = [part.partition('"')[0] for part in client.get("/limits").html.split('href="/limits/')[1:] if "%3C" in part[:9]]
    pages.append(client.get(f"/limits/{link}"))
    assert key in pages[-1].text
    for shown in pages:
        assert shown.status == 200 and "<script>alert" not in shown.html and "<b>" not in shown.html, shown.text


def test_scheduled_jobs_are_run_now_and_canceled(client: Browser, reader: Browser, conn: redis.Redis) -> None:
    for n in range(4):
        Queue("sms", conn).enqueue(TASK, job_id=f"j{n}", enqueue_in=600 + n)
    shown = client.get("/scheduled")
    assert shown.text.index("j0") < shown.text.index("j3") and "4 jobs wait for a time" in shown.text
    assert "enqueued for then" in shown.text and "".join(TASK.split()) in "".join(shown.text.split())
    assert "Job j0 is due now." in client.post("/scheduled/run", id="j0", back="/scheduled").text
    assert Job.fetch("j0", conn).scheduled_at() < Job.fetch("j1", conn).scheduled_at() - timedelta(minutes=9)
    moved = client.post("/scheduled/move", id=["j1", "j2"], when="+3h", back="/scheduled")
    assert "2 of 2 jobs are moved to +3h." in moved.text and moved.text.index("j3") < moved.text.index("j1")
    assert "is not a time; use" in client.post("/scheduled/move", id="j3", when="tomorrow", back="/scheduled").text
    assert "Enter when they should run" in client.post("/scheduled/move", id="j3", back="/scheduled").text
    assert "2 of 3 jobs are canceled" in client.post("/scheduled/cancel", id=["j1", "j2", "nobody"], back="/scheduled").text
    assert (status_of(conn, "j1"), status_of(conn, "j3")) == ("canceled", "scheduled")
    assert "tick the rows" in client.post("/scheduled/cancel", back="/scheduled").text
    assert ("token:adminer", "reschedule", "j0", "ok") in changes(conn)
    assert reader.send("/scheduled/cancel", id="j3").status == 403 and status_of(conn, "j3") == "scheduled"
    assert "selected" not in reader.get("/scheduled").text


def test_a_cron_entry_in_words_with_its_next_times_and_its_history(client: Browser, conn: redis.Redis) -> None:
    Scheduler(conn).cron("0 9 * * 1-5", TASK, id="report", queue="sms", timezone="Europe/Berlin")
    Scheduler(conn).cron("*/7 * * * *", TASK, id="odd", queue="sms")
    Scheduler(conn).every(300, TASK, id="often", queue="sms")
    listed = client.get("/cron").text
    assert "every 5 minutes" in listed and "every 5 minutes" in client.get("/cron/often").text
    assert "Monday to Friday at 09:00" in listed and "*/7 * * * * UTC" in listed and "no scheduler runs" in listed
    told = client.press(client.get("/cron/report"), "Run now")
    (job,) = Queue("sms", conn).get_job_ids()
    assert f"Job {job} of report is enqueued" in told.text and "by hand" in told.text and "queued" in told.text
    assert told.text.count("09:00:00 +0") == 5 and "(Europe/Berlin)" in told.text
    assert f'href="/jobs/{job}"' in told.html
    told = client.press(told, "Pause")
    assert "report is paused" in told.text and Scheduler(conn).get("report").paused
    client.press(client.get("/cron"), "Resume")
    assert not Scheduler(conn).get("report").paused
    assert [(who, action) for who, action, *_ in changes(conn)] == [
        ("token:adminer", action) for action in ("cron_resume", "cron_pause", "cron_run")
    ]
    conn.hset("rq:cron:entry:odd", "app", "<shop>")
    told = client.press(client.get("/cron/odd"), "Remove")
    assert "odd is removed; its jobs stay. The scheduler of <shop> brings it back" in told.text
    assert [entry.id for entry in Scheduler(conn).entries()] == ["often", "report"]


def test_a_reader_cannot_change_cron_entries(reader: Browser, conn: redis.Redis) -> None:
    Scheduler(conn).cron("0 9 * * *", TASK, id="report", queue="sms")
    assert not [form for form in reader.get("/cron/report").forms() if "/cron/" in form[0]]
    for verb in ("run", "pause", "resume"):
        assert reader.send(f"/cron/report/{verb}").status == 403
    assert not Queue("sms", conn).get_job_ids() and not Scheduler(conn).get("report").paused


def test_a_batch_with_its_members_and_what_follows(client: Browser, reader: Browser, conn: redis.Redis) -> None:
    broker = Broker(conn)
    begin(broker, "outer", name="mails")
    begin(broker, "inner", "outer")
    add(broker, "outer", "a", "b", queue="sms")
    hand = Hand(broker, "sms")
    hand.tell(hand.take())
    shown = client.get("/batches").text
    assert "mails" in shown and "1 of 3" in shown
    one = client.get("/batches/outer")
    assert "1 of 3" in one.text and 'href="/batches/inner"' in one.html and 'href="/jobs/a"' in one.html
    assert "outer" in client.get("/batches/inner").text
    assert reader.send("/batches/outer/cancel").status == 403
    assert "Batch outer is canceled with" in client.press(one, "Cancel").text
    assert (status_of(conn, "a"), status_of(conn, "b")) == ("finished", "canceled")
    assert "Cancel" not in [form[2] for form in client.get("/batches/outer").forms()]
    assert client.get("/batches/nobody").status == 404


def test_a_concurrency_key_is_paused_bounded_and_its_slots_are_released(
    client: Browser, reader: Browser, conn: redis.Redis
) -> None:
    key = "https://api.example.com/v1:u%42,*"
    for n in range(3):
        Queue("sms", conn).enqueue(TASK, job_id=f"j{n}", concurrency_key=key, max_concurrent=1)
    Hand(Broker(conn), "sms").take()
    assert key in client.get("/limits").text and "full" in client.get("/limits").text
    path = "/limits/https://api.example.com/v1:u%2542%2C%2A"
    shown = client.get(path)
    assert "1 of 1" in shown.text and "2 jobs" in shown.text and 'href="/jobs/j0"' in shown.html
    assert 'href="/jobs/j1"' in shown.html.partition("Jobs that wait for one")[2]
    assert "is paused for 10m" in client.press(shown, "Pause", duration="10m", reason="the provider is down").text
    assert "by token:adminer" in client.get(path).text and "the provider is down" in client.get(path).text
    client.press(client.get(path), "Resume")
    assert "5 at once and 10/s" in client.press(client.get(path), "Set", max_concurrent="5", rate="10/s").text
    assert "set by hand" in client.get(path).text
    assert "whole number" in client.press(client.get(path), "Set", max_concurrent="x").text
    assert "use a text like 100/60s" in client.press(client.get(path), "Set", rate="x").text
    assert "it goes by what its jobs say" in client.press(client.get(path), "Set").text
    client.press(client.get(path), "Release")
    assert "j0" not in _holders(conn, key)
    assert {action for _, action, *_ in changes(conn)} == {"limit_pause", "limit_resume", "limit_set", "limit_release"}
    assert reader.send(path.replace("/limits/", "/limit/") + "/pause").status == 403
    assert "No key is stuck" in client.get("/limits?stuck=1").text


def _holders(conn: redis.Redis, key: str) -> list[str]:
    from fusion.store.read.limit_inspector import LimitInspector

    (found,) = LimitInspector(conn).limits([key])
    assert found is not None
    return [one.job_id for one in found.holders]


def test_the_audit_is_filtered_and_goes_on(client: Browser, conn: redis.Redis) -> None:
    Scheduler(conn).cron("0 9 * * *", TASK, id="e")
    for verb in ("pause", "resume", "run"):
        client.send(f"/cron/e/{verb}")
    client.send("/cron/nobody/pause")
    shown = client.get("/audit").text
    assert all(word in shown for word in ("token:adminer", "cron_pause", "cron_run", "no_such_entry", "client: 127.0.0.1"))
    assert "cron_run" not in client.get("/audit?action=cron_pause&who=TOKEN:*&since=1h").text.partition("Besides")[2]
    assert "Nobody changed anything like that" in client.get("/audit?who=nobody").text
    assert client.get("/audit?since=tomorrow").status == 422
    assert 'value="5h" selected' in client.get("/audit?since=5h").html
    newest = AuditInspector(conn).entries()[0].id
    assert "nobody" not in client.get(f"/audit?after={newest}").text and "Newest" in client.get(f"/audit?after={newest}").text


def test_deleted_jobs_are_restored(client: Browser, reader: Browser, conn: redis.Redis) -> None:
    for n in range(5):
        Queue("sms", conn).enqueue(TASK, job_id=f"j{n}")
        Job(f"j{n}", {}, conn).delete()
    shown = client.get("/trash")
    assert "now 5 jobs" in shown.text and shown.text.index("j4") < shown.text.index("j0")
    assert reader.send("/trash/restore", id="j0").status == 403
    assert "Job j4 is restored." in client.press(shown, "Restore").text
    assert "1 of 2 jobs are restored" in client.post("/trash/restore", id=["j3", "j4"], back="/trash").text
    assert "No row is selected" in client.post("/trash/restore", shown=["j0"], back="/trash").text
    assert "3 of 3 jobs are restored" in client.post("/trash/restore", shown=["j0", "j1", "j2"], all="1", back="/trash").text
    assert sorted(Queue("sms", conn).get_job_ids()) == [f"j{n}" for n in range(5)]
    assert ("token:adminer", "trash_restore", "j0", "ok") in changes(conn)


def test_the_trash_is_emptied_for_good(
    client: Browser, reader: Browser, restricted: Callable[..., Browser], conn: redis.Redis
) -> None:
    for n in range(3):
        Queue("sms", conn).enqueue(TASK, job_id=f"j{n}")
        Job(f"j{n}", {}, conn).delete()
    some = restricted("sms")
    for who in (reader, some):
        assert "Empty" not in who.get("/trash").text and who.send("/trash/empty").status == 403
    shown = client.get("/trash")
    assert "Forget 3 jobs for good?" in shown.html
    told = client.press(shown, "Empty the trash")
    assert "3 jobs cannot be restored any more" in told.text and "Empty" not in [form[2] for form in told.forms()]
    assert not conn.exists("rq:trash") and "3" in str(AuditInspector(conn).entries()[0].count)
    assert ("token:adminer", "trash_empty", "", "ok") in changes(conn)
