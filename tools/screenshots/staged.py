"""A Redis like that of a shop on a busy afternoon: workers and their jobs are real, the hours before are written as workers would have."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from threading import Event, Thread

import redis

from fusion import Batch, Queue, Retry
from fusion.job import Job
from fusion.kernel.timeutil import to_iso
from fusion.store.layout.history import bucket
from fusion.store.write.broker import Broker
from tests.kit.waiting import eventually
from tools.demo.parts import child, fusion_command

#: Workers: name, slots, queues.
WORKERS = (
    ("web-1.2210", 2, ("codes", "payments")),
    ("web-2.1874", 4, ("payments", "mail")),
    ("reports-1.633", 4, ("reports", "stock")),
)
#: What failed and fails: task, arguments, queue, how many are failed now, and how many did in each hour of the last day, the last one last.
FAILED = (
    ("shop.charge", (48213, 249.9, "EUR"), "payments", 41, [0] * 14 + [2, 1, 0, 3, 1, 2, 4, 9, 31, 58]),
    ("shop.send_receipt", (48190, "ann@example.com"), "mail", 17, [1, 0, 4, 2, 0, 0, 1, 0, 3, 18, 44, 12, 2, 0, 0, 1, 0, 2, 0, 1, 6, 2, 3, 5]),
    ("shop.update_stock", ("SKU-7741-XL",), "stock", 6, [0, 0, 6, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 6, 0, 0, 0]),
)  # fmt: skip
#: Queues: jobs a minute, the share that fails, seconds that one waits and runs, by priority.
FLOWS = (
    ("codes", 2, 220, 0.0, 0.03, 0.2),
    ("payments", 1, 60, 0.012, 0.3, 0.8),
    ("mail", 1, 90, 0.004, 0.8, 0.4),
    ("mail", 0, 300, 0.001, 40, 0.3),
    ("stock", 1, 20, 0.01, 2, 4),
)

#: Minutes of history that are written before they come: pictures take some.
AHEAD = 6
#: Jobs that run while pictures are taken.
LONG = ("report-2026-10", "report-2026-09", "sync-berlin", "sync-lyon")


@contextmanager
def stage(conn: redis.Redis, url: str, home: Path, settings: Mapping[str, str]) -> Iterator[str]:
    """Fill it; workers, with these settings besides, are at work until the end. The id of the job to show."""
    random.seed(7)
    shown = _fail(conn)
    with ExitStack() as stack:
        for name, slots, queues in WORKERS:
            flags = ("-n", name, "--slots", str(slots), "--tasks", "shop", "--path", str(home))
            command = fusion_command("worker", *queues, *flags)
            stack.enter_context(
                child(command, {"FUSION_REDIS_URL": url, "FUSION_HOLD_TIMEOUT": "86400", **settings}, home / "log")
            )
        eventually(lambda: conn.zcard("rq:queue:failed") >= sum(row[3] for row in FAILED), timeout=120)
        _run(conn)
        eventually(lambda: all(Job.fetch(name, conn).get_status() == "started" for name in LONG), timeout=60)
        _wait(conn)
        _remember(conn)
        over = Event()
        going = Thread(target=_go_on, args=(conn, over))
        going.start()
        stack.callback(going.join)
        stack.callback(over.set)
        eventually(
            lambda: len(set((conn.get("rq:flow:mail") or b"").split()[0:8:4])) == 2, timeout=60, why="two samples of the queue"
        )
        yield shown


def _fail(conn: redis.Redis) -> str:
    shown = ""
    with Batch(name="orders of 14:00", queue="payments", id="orders-1400") as batch:
        for task, args, queue, count, _ in FAILED:
            for nth in range(count):
                given = (args[0] + nth, *args[1:]) if isinstance(args[0], int) else args
                last = task == "shop.charge" and nth == count - 1
                shown = f"charge-{given[0]}" if last else shown
                name = f"{task.partition('.')[2].replace('_', '-')}-{given[0] if isinstance(args[0], int) else 7700 + nth}"
                options = {"retry": Retry(max=2, interval=1), "log_tag": "checkout"} if last else {}
                target = batch if last else Queue(queue, conn)
                target.enqueue(task, args=given, job_id=name, **options)
    return shown


def _run(conn: redis.Redis) -> None:
    """What takes its time."""
    for month, done, total in (("2026-10", 412, 980), ("2026-09", 871, 940)):
        Queue("reports", conn).enqueue("shop.render_report", month, done, total, job_id=f"report-{month}", job_timeout=3600)
    for shop in ("berlin", "lyon"):
        Queue("stock", conn).enqueue("shop.sync_stock", shop, job_id=f"sync-{shop}", job_timeout=900)
    for nth in range(8):
        Queue("codes", conn).enqueue("shop.send_code", "+4915112345678", "123456", job_id=f"code-{nth}", priority="high")


def _wait(conn: redis.Redis) -> None:
    """What nobody has taken yet, in a queue that is paused and in one behind others; and what no worker knows."""
    Queue("newsletter", conn).pause("2h", reason="waits for the new template", by="anna")
    newsletter, mail = Queue("newsletter", conn), Queue("stock", conn)
    newsletter.enqueue_many([Queue.prepare_data("shop.send_offer", (n,), priority="low") for n in range(1840)])
    mail.enqueue_many([Queue.prepare_data("shop.sync_stock", (f"shop-{n}",), priority="low") for n in range(12)])
    for nth in range(3):
        Queue("mail", conn).enqueue("shop.loyalty.add_points", 4711 + nth, job_id=f"points-{4711 + nth}")
    Queue("mail", conn).enqueue_in("3h", "shop.send_offer", 1)


def _remember_waits(conn: redis.Redis, now: int) -> None:
    """How many waited in each minute: of low and of moderate priority, and the age in seconds of the oldest."""
    for minute in range(now - 75, now):
        wave = 1 + 0.3 * math.sin(minute / 9) + random.uniform(-0.15, 0.15)
        paused = 1840 if now - minute <= 11 else 0
        behind = 12 if now - minute < 4 else 0
        depths = ("newsletter", paused, 0), ("mail", 0, int(8 * wave)), ("stock", behind, int(3 * wave))
        for queue, low, moderate in depths:
            row = f"{low} {60 if low else 0} {moderate} {2 if moderate else 0} 0 0"
            conn.hset(f"rq:history:minute:waiting:{queue}:{minute // 60}", str(minute % 60), row)
            conn.zadd("rq:history:queues", {queue: minute * 60_000})


def _forget(conn: redis.Redis, *patterns: str) -> None:
    for pattern in patterns:
        for key in conn.keys(pattern):
            conn.delete(key)


def _go_on(conn: redis.Redis, over: Event) -> None:
    """Jobs come and go while pictures are taken: so the counters of the queues say."""
    done: Counter[tuple[str, str]] = Counter()
    second = 0
    while not over.wait(1.0):
        second += 1
        for queue, priority, many, bad, _, _ in FLOWS:
            for what, rate in (("enqueued", many * 1.1), ("completed", many * (1 - bad)), ("failed", many * bad)):
                field = f"{what}:{priority}"
                count = int(rate * second / 60) - done[queue, field]
                done[queue, field] += count
                conn.hincrby(f"rq:totals:{queue}", field, count)


def _remember(conn: redis.Redis) -> None:
    """The hour, and the day, before."""
    broker, now = Broker(conn), datetime.now(timezone.utc)
    series: dict[tuple[str, str], list[tuple[int, str, int]]] = {}
    for queue, priority, many, bad, waits, runs in FLOWS:
        rows = series.setdefault(("queue", queue), [])
        for ago in range(-AHEAD, 75):
            swing = 1 + 0.25 * math.sin(ago / 9) + random.uniform(-0.12, 0.12)
            slow = 3.0 if queue == "mail" and 18 < ago < 30 else 1.0
            failing = bad * (9 if queue == "payments" and ago < 16 else 1)
            count = int(many * swing)
            failed = sum(random.random() < failing for _ in range(count))
            rows += [(ago, f"{priority}:completed", count - failed), (ago, f"{priority}:failed", failed)]
            for kind, middle in (("w", waits * slow), ("r", runs)):
                times = Counter(bucket(random.lognormvariate(math.log(middle), 0.6)) for _ in range(count))
                rows += [(ago, f"{priority}:{kind}{one}", many) for one, many in times.items()]
    _forget(conn, "rq:history:*:queue:*", "rq:history:*:waiting:*")  # what failed while this was staged is no spike of a chart
    broker.note_history(WORKERS[0][0], 1_000_000, series)
    for name, _, _ in WORKERS:  # so what they have still to tell of it is old
        conn.hset(f"rq:worker:{name}", "history", 1_000_000)
    _remember_waits(conn, int(now.timestamp()) // 60)
    _forget(conn, "rq:flow:*", "rq:totals:*")  # what came while this was staged is no rush
    for group in [one.decode() for one in conn.zrange("rq:failures", 0, -1)]:
        queue = conn.zrange(f"rq:failure:{group}:queues", 0, 0)[0].decode()
        hours = next(row[4] for row in FAILED if row[2] == queue)
        conn.delete(*conn.keys(f"rq:failure:{group}:[0-9]*"))
        for back, count in enumerate(reversed(hours)):
            for _ in range(count):
                at = now - timedelta(hours=back, minutes=random.random() * 60)
                conn.hincrby(f"rq:failure:{group}:{int(at.timestamp()) // 3600}", at.minute, 1)
        first = now - timedelta(hours=next(back for back in range(23, -1, -1) if hours[23 - back]), minutes=37)
        conn.hset(f"rq:failure:{group}", mapping={"first": int(first.timestamp() * 1000), "total": 3 * sum(hours)})
    for queue, minutes in (("newsletter", 11), ("stock", 3), ("mail", 2)):
        for job in conn.zrange(f"rq:queue:{queue}", 0, -1):
            conn.hset(f"rq:job:{job.decode()}", "enqueued_at", to_iso(now - timedelta(minutes=minutes)))
