"""Make the golden data of this version's layout: python -m tests.upgrade.make_golden <directory> [redis-server].

Once, when a layout is released; what is under golden/ is never made again, since it stands for what that version wrote. Ids, order and
contents are the same each time; times, nonces and pickles' bytes are of the moment. What is kept of ended jobs is
kept for months, so that it is there when the data are loaded as of weeks ago.
"""

from __future__ import annotations

import json
import logging
import shutil
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import redis

from fusion import Batch, Job, Queue, Retry, Scheduler, __version__
from fusion.audit import AuditedChange
from fusion.runtime.redis_link import RedisLink
from fusion.scheduler.ticker import Ticker
from fusion.settings import Settings, use_settings
from fusion.store.client.connections import connect
from fusion.store.layout import schema
from fusion.store.layout.records import LogLine
from fusion.store.redis_server.binary import find_server
from fusion.store.stream.reader import EventReader
from fusion.store.write.broker import Broker
from fusion.store.write.cron_broker import CronBroker
from fusion.store.write.event_broker import EventBroker
from fusion.store.write.limit_broker import LimitBroker
from fusion.trash import Trash
from tests.kit.hands import Hand, expire_lease, fields_of, may_reap, now_ms
from tests.kit.servers import SpawnedServer
from tests.upgrade import golden

#: What its signed jobs are signed with.
SECRET = "k1:golden-data-have-no-secrets-to-keep-0123456789"
ADD, ECHO, BOOM, TOLD = (f"tests.upgrade.tasks.{name}" for name in ("add", "echo", "boom", "told"))
LONG = 10**7
URL = "https://callbacks.golden.invalid/"
#: Fields of a version to come, on every job.
EXTRA = {"later_field": b"\x00\xffkeep me", "later_text": "and me"}


class Maker:
    def __init__(self, conn: redis.Redis) -> None:
        self.conn, self.broker = conn, Broker(conn)
        self.hand = Hand(self.broker, "work", name="golden-ended.1")
        self.sms, self.email = Queue("sms", conn), Queue("email", conn)
        #: id -> the status it has, and the one it ends in once everything was resumed and has run.
        self.jobs: dict[str, tuple[str, str]] = {}

    def add(self, queue: Queue, job_id: str, status: str, end: str, func: str = ECHO, *args: Any, **options: Any) -> str:
        keep = {"result_ttl": LONG, "failure_ttl": LONG}
        queue.enqueue(func, *(args or (job_id,)), job_id=job_id, **{**keep, **options})
        self.jobs[job_id] = (status, end)
        return job_id

    def work(self, job_id: str, kind: str, reason: str = "", **more: Any) -> None:
        """A worker claims exactly this job, whatever else waits, and tells what happened to it."""
        claimed = self.hand.take()
        assert claimed.id == job_id, (claimed.id, job_id)
        self.hand.tell(claimed, kind, reason=reason, elapsed=0.25, attempt={"maxrss": 4096}, **more)

    # -- by state

    def waiting(self) -> None:
        for name, priority in (("low", 0), ("moderate", 1), ("high", 2), ("highest", 255)):
            self.add(self.sms, f"queued-{name}", "queued", "finished", priority=priority)
        self.add(self.sms, "queued-front", "queued", "finished", at_front=True)
        self.add(self.email, "queued-add", "queued", "finished", ADD, 2, 3, description="adds two and three")
        self.add(self.email, "queued-boom", "queued", "failed", BOOM, retry=Retry(1, 0), on_failure=TOLD)
        self.add(self.email, "queued-rich", "queued", "finished", priority=2, meta={"k": [1, "\u00e9"]}, log_tag="SMS_OTP", ttl=LONG,
                 retry=Retry(2, [1, 2], place="back"), on_success=TOLD, on_lost="fail", isolate=True, job_timeout="1m")  # fmt: skip
        self.add(Queue("paused", self.conn), "queued-paused", "queued", "finished")
        later = Queue("later", self.conn)
        self.add(later, "scheduled-far", "scheduled", "finished", enqueue_in=timedelta(days=30))
        self.add(later, "scheduled-front", "scheduled", "finished", enqueue_in=3600, at_front=True, ttl=600)

    def inbox(self) -> None:
        """The LIST queue: one that was taken over, two that wait in the list, of which an outsider wrote one."""
        listed = Queue("scheduler", self.conn)
        self.add(listed, "list-taken", "finished", "finished")
        self.add(listed, "list-over", "queued", "finished")
        hand = Hand(self.broker, "scheduler", name="golden-list.1")
        hand.tell(hand.take(), fields={"result": '"list-taken"'})
        self.add(listed, "list-inbox", "queued", "finished")
        self.conn.hset(
            "rq:job:list-outsider",
            mapping={"data": json.dumps([ECHO, None, ["list-outsider"], {}]), "created_at": "2026-01-31T10:00:00"},
        )
        self.conn.rpush("rq:queue:scheduler", "list-outsider")
        self.jobs["list-outsider"] = ("", "finished")

    def ended(self) -> None:
        work = Queue("work", self.conn)
        self.add(work, "finished", "finished", "finished", ADD, 20, 22)
        self.work("finished", "finished", fields={"result": "42"})
        self.add(work, "finished-dropped", "finished", "finished")
        self.work("finished-dropped", "finished", fields={"result_error": "the result was too large"})
        error = {
            "exc_info": "Traceback (most recent call last):\nValueError: boom",
            "error_class": "builtins.ValueError",
            "error_frame": "tests.upgrade.tasks:boom:17",
        }
        self.add(work, "failed-history", "failed", "failed", BOOM, retry=Retry(2, 0))
        for kind in ("retry", "lost", "retry", "failed"):
            self.work("failed-history", kind, "ValueError: boom", fields={**error, "retryCount": 8})
            promote_one(self.broker, self.conn, "failed-history")
        self.add(work, "failed-quarantined", "failed", "failed", BOOM)
        self.work("failed-quarantined", "failed", "ValueError: boom", fields=error)
        self.broker.quarantine(["failed-quarantined"], "the receiver is being rebuilt")
        self.add(work, "failed-poison", "failed", "failed")
        self.conn.hset("rq:job:failed-poison", "lost", 4)
        self.work("failed-poison", "lost", "its process vanished")
        self.add(work, "requeued", "failed", "failed", BOOM)
        self.work("requeued", "failed", "ValueError: boom", fields=error)
        self.broker.requeue(["requeued"], "golden")
        self.work("requeued", "failed", "ValueError: boom", fields=error)
        self.add(work, "canceled", "canceled", "canceled")
        self.broker.cancel("canceled")
        self.add(work, "expired", "canceled", "canceled", ttl=1)
        self.conn.hset("rq:job:expired", "expires_at", now_ms(self.conn) - 1)
        assert self.hand.claim() == []
        self.add(work, "retry", "scheduled", "finished", retry=Retry(3, 3600))
        self.work("retry", "retry", "ConnectionError: refused", delay=3600.0, fields={"retryCount": 8})
        self.add(work, "held", "scheduled", "finished")
        self.work("held", "held", "TaskNotAllowed: not here", delay=30.0)

    def started(self) -> None:
        run = Queue("run", self.conn)
        for job_id in ("started-live", "started-cancel"):
            self.add(run, job_id, "started", "finished" if job_id == "started-live" else "canceled")
        live = Hand(self.broker, "run", name="golden-live.1")
        assert len(live.claim(2)) == 2
        self.broker.cancel("started-cancel")
        for job_id in ("started-expired", "started-ahead"):  # the second waited behind the first
            self.add(run, job_id, "started", "finished")
        dead = Hand(self.broker, "run", name="golden-dead.1")
        assert [job.id for job in dead.turn(slots=[0, 0], ahead=1).jobs] == ["started-expired", "started-ahead"]
        expire_lease(self.conn, "run", "started-expired", "started-ahead")
        self.conn.hset("rq:worker:golden-dead.1", "beat_ms", 1)
        self.conn.hset("rq:worker:golden-live.1", mapping={"pid": 4711, "hostname": "golden", "quiet": 1, **EXTRA})

    def callbacks(self) -> None:
        work = Queue("work", self.conn)
        for job_id in ("told", "told-untold"):
            self.add(work, job_id, "finished", "finished", callback_url=f"{URL}{job_id}", success_task_handler=f"{URL}success")
            self.work(job_id, "finished", fields={"result": "1"})
        hand = Hand(self.broker, "_callbacks", name="golden-courier.1")
        for kind in ("finished", "failed", "retry"):
            hand.tell(hand.take(), kind, reason="503", delay=3600.0, fields={"result": '"200"', "retryCount": 8})
        self.broker.endpoint_gone(f"{URL}gone")

    def kinds(self) -> None:
        """What depends on settings: signed and pickled jobs."""
        use_settings(Settings.load(secret_keys=SECRET))
        self.add(self.email, "queued-signed", "queued", "finished")
        use_settings(Settings.load(serializer="pickle", secret_keys=SECRET))  # with keys, an unsigned pickle never runs
        self.add(self.email, "queued-pickled", "queued", "finished", ECHO, {1, 2})
        use_settings(None)

    def cron(self) -> None:
        scheduler, cron = Scheduler(self.conn), CronBroker(self.conn)
        keep = {"queue": "cron", "result_ttl": LONG, "failure_ttl": LONG}
        scheduler.every("1h", ECHO, id="hourly", args=["tick"], **keep)
        scheduler.cron(
            "30 2 * * *", ECHO, id="nightly", args=["tick"], timezone="Europe/Berlin", overlap="skip", misfire="skip", **keep
        )
        scheduler.cron("0 0 1 1 *", ECHO, id="paused", args=["tick"], **keep)
        scheduler.pause("paused")
        cron.cron_put("faulty", "", "", "", app="golden", version="1.2", error="no such zone: Mars/Olympus")
        cron.cron_retire("golden", "1.2", ["faulty"])
        for back in (3, 2):
            self.conn.zincrby("rq:cron:marks", -back * 3600, "hourly")
            self.conn.zadd("rq:cron:due", {"hourly": 1})
            Ticker(cron, RedisLink(logging.getLogger("golden")), 30, logging.getLogger("golden")).tick(0.0)
        self.jobs[scheduler.run("nightly").id] = ("queued", "finished")
        for key in self.conn.scan_iter("rq:job:cron-hourly-*"):
            self.jobs[key.decode().removeprefix("rq:job:")] = ("queued", "finished")
        self.conn.hset("rq:cron:entry:hourly", mapping=EXTRA)
        cron.scheduler_beat(
            "golden-scheduler",
            "5",
            30,
            LONG,
            {"pid": 7, "hostname": "golden", "fusion": __version__, "app": "golden", "version": "1.2"},
        )

    def bound(self) -> None:
        """Jobs that are bound to something: to parents, a key, a batch, a unique name, a queue's limits; in the trash, and stopped."""
        bound = Queue("bound", self.conn)
        bound.set_max_length(1000)
        LimitBroker(self.conn).set_limit("key:golden", {"limit": 1})
        self.add(bound, "parent", "queued", "finished")
        self.add(bound, "child", "deferred", "finished", depends_on="parent")
        self.add(bound, "parent-fails", "queued", "failed", BOOM)
        self.add(bound, "child-of-failed", "deferred", "failed", depends_on="parent-fails")
        for number in range(3):
            self.add(bound, f"keyed-{number}", "queued" if not number else "blocked", "finished", concurrency_key="key:golden")
        self.add(bound, "fair", "queued", "finished", fair_key="customer-7")
        self.add(bound, "unique", "queued", "finished", unique="once")
        batch = Batch(id="golden-batch", name="golden", queue=bound, on_complete=TOLD)
        with batch:
            for number in range(2):
                batch.enqueue(ECHO, f"member-{number}", job_id=f"member-{number}", result_ttl=LONG, failure_ttl=LONG)
                self.jobs[f"member-{number}"] = ("queued", "finished")
        thrown = Queue("thrown", self.conn)
        thrown.enqueue(ECHO, "thrown", job_id="thrown", ttl=LONG)
        Trash(self.conn).empty_queue("thrown")
        work = Queue("work", self.conn)
        self.add(work, "stopped", "stopped", "stopped")
        claimed = self.hand.take()
        self.broker.stop("stopped")
        self.hand.tell(claimed, "stopped", reason="stopped by golden")
        AuditedChange(self.conn, "golden", "pause", "paused", ["paused"]).done(1)

    def events(self) -> None:
        events = EventBroker(self.conn)
        self.broker.log_event([LogLine("log", "a line of a program", "finished", "work", "SMS_OTP", dropped=1)], "golden")
        events.relay_beat(
            "golden-relay",
            "6",
            15,
            LONG,
            ["file", "elasticsearch"],
            1_000_000,
            {"pid": 8, "hostname": "golden", "fusion": __version__, "sinks": "file,elasticsearch", "busy": ""},
        )
        for sink, count in (("file", 12), ("elasticsearch", 6)):
            found = EventReader(events, sink, lambda: "golden-relay", "masked")
            got = found.read(count, 0)
            found.ack(got[: count // 2], {got[0].event.id: "refused for good"} if sink == "file" else {})
            found.read(3, 0)
        found.failing("503 from elasticsearch", 3, open_=True)

    def make(self) -> None:
        self.waiting()
        self.ended()
        self.inbox()
        self.started()
        self.callbacks()
        self.kinds()
        self.bound()
        self.cron()
        self.events()
        for job_id in self.jobs:
            self.conn.hset(f"rq:job:{job_id}", mapping=EXTRA)
        for worker in ("ended", "list", "courier"):
            hand = f"golden-{worker}.1"
            self.broker.deregister(hand, fields_of_worker(self.conn, hand))
        self.conn.hset("rq:dropped", "failed", 3)
        may_reap(self.conn)
        self.broker.pause("paused", by="golden", reason="the provider is down")
        self.broker.suspend()
        for job_id, (status, _) in self.jobs.items():
            assert fields_of(self.conn, job_id).get("status", "") == status, job_id
            assert Job.fetch(job_id, self.conn)


def promote_one(broker: Broker, conn: redis.Redis, job_id: str) -> None:
    """As if the time of this job had come, and of no other."""
    if conn.zscore("rq:scheduler:scheduled_jobs", job_id) is not None:
        conn.zadd("rq:scheduler:scheduled_jobs", {job_id: 1})
        broker.promote(1)


def fields_of_worker(conn: redis.Redis, name: str) -> str:
    raw = conn.hget(f"rq:worker:{name}", "incarnation")
    return raw.decode() if raw else ""


def main(directory: str, binary: str | None = None) -> None:
    target = Path(directory) / str(schema.VERSION)
    if target.exists():
        raise SystemExit(f"{target} is there: golden data are made once and never changed")
    server = SpawnedServer(binary or find_server(None).path, "--save", "", "--dbfilename", "dump.rdb")
    use_settings(None)
    conn = connect(server.url)
    try:
        maker = Maker(conn)
        maker.make()
        taken = conn.time()[0]
        keys = golden.dump(conn)
        info: Any = conn.info("server")
        conn.save()
        document = {
            "schema": schema.VERSION,
            "fusion": __version__,
            "server": f"{info.get('server_name', 'redis')} {info['redis_version']}",
            "taken_at": taken,
            "jobs": {job_id: list(pair) for job_id, pair in maker.jobs.items()},
            "keys": keys,
        }
        target.mkdir(parents=True)
        (target / "listing.json").write_text(golden.text_of(document))
        shutil.copy(server.home / "dump.rdb", target / "data.rdb")
    finally:
        conn.close()
        server.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
