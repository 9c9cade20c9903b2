"""Pictures of every page, light and dark, on a screen and on a phone, for people who look at the pages one by one. The shop is the same, with more
in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import redis

from fusion import Batch, Queue, Scheduler, signature
from fusion.kernel.states import ENDED
from fusion.store.layout.history import bucket
from fusion.store.write.broker import Broker
from tests.browser.house import addresses
from tests.kit.waiting import eventually
from tests.web.harness import ServerProcess
from tools.demo.parts import child, fusion_command
from tools.screenshots.staged import AHEAD, WORKERS

if TYPE_CHECKING:
    from playwright.sync_api import Browser

#: Pixels: a screen and a phone.
WIDTHS = (1280, 390)
_HEIGHT = 900
#: Functions: jobs a minute, failures in a thousand, seconds that a job waits and runs, bytes at most. The slowest run is 40 times as long.
FUNCTIONS = (
    ("shop.send_code", 220, 0, 0.03, 0.2, 41_000_000),
    ("shop.send_offer", 300, 1, 40, 0.3, 43_000_000),
    ("shop.send_receipt", 90, 4, 0.8, 0.4, 44_000_000),
    ("shop.charge", 60, 12, 0.3, 0.8, 46_000_000),
    ("shop.update_stock", 20, 10, 2, 4, 310_000_000),
)


@contextmanager
def furnished(conn: redis.Redis, url: str, server: ServerProcess, home: Path) -> Iterator[dict[str, str]]:
    """What the pictures of the documentation do not show; a scheduler runs until the end. The pages to look at, by the names of their pictures."""
    _remember(conn)
    _plan(conn)
    _bind(conn)
    with child(fusion_command("scheduler"), {"FUSION_REDIS_URL": url}, home / "scheduler.log"):
        operation = _change(server)
        groups = server.ask("GET", "/api/v1/failures").json["groups"]
        group = next(one["id"] for one in groups if one["error_class"] == "shop.CardDeclined")
        names = {
            "batches": "newsletter-11",
            "cron": "stock-levels",
            "failures": group,
            "jobs": "offer-2",
            "limits": "customer-4711",
            "operations": operation,
            "queues": "payments",
            "tasks": "shop.charge",
            "workers": WORKERS[1][0],
        }
        eventually(lambda: conn.hget("rq:job:offer-2", "status") in {one.encode() for one in ENDED}, timeout=60)
        pages = {path.strip("/").replace("/", ".") or "overview": path for path in addresses(names)}
        asked = {"action": "requeue", "q": f"group:{group}"}
        yield pages | {
            "find.stock": "/find?q=stock",
            "jobs.failed": "/jobs?q=state:failed",
            "jobs.broken": "/jobs/charge-48253",
            "jobs.running": "/jobs/report-2026-10",
            "jobs.waiting": "/jobs/customer-2",
            "jobs.gone": "/jobs/points-4713",
            "operations.new.asked": f"/operations/new?{urlencode(asked)}",
            "queues.paused": "/queues/newsletter",
            "nothing": "/nothing",
        }


def take_all(browser: Browser, url: str, pages: Mapping[str, str], into: Path) -> None:
    """A picture of each page from its top to its bottom."""
    schemes: tuple[Any, ...] = ("light", "dark")
    for scheme in schemes:
        for width in WIDTHS:
            size: Any = {"width": width, "height": _HEIGHT}
            context = browser.new_context(color_scheme=scheme, viewport=size, timezone_id="UTC")
            page = context.new_page()
            for name, path in pages.items():
                page.goto(url + path, wait_until="load")
                page.screenshot(path=into / f"{name}-{width}-{scheme}.png", full_page=True)
            context.close()
            print(f"{into}: {len(pages)} pages, {scheme}, {width} pixels wide", flush=True)


def _remember(conn: redis.Redis) -> None:
    """What functions did in the day before: this many minutes ago."""
    series: dict[tuple[str, str], list[tuple[int, str, int]]] = {}
    for name, many, bad, waits, runs, peak in FUNCTIONS:
        rows = series.setdefault(("function", name), [(0, "slowest", int(runs * 40_000)), (0, "peak", peak)])
        for ago, minutes in (*((ago, 1) for ago in range(-AHEAD, 75)), *((ago, 30) for ago in range(75, 24 * 60, 30))):
            count = many * minutes * (3 + ago // 240 % 3) // 4
            failed = count * bad // 1000
            rows += [(ago, "1:completed", count - failed), (ago, "1:failed", failed), (ago, "1:retried", failed * 2)]
            rows += [(ago, f"1:{kind}{bucket(times)}", count) for kind, times in (("w", waits), ("r", runs))]
            rows += [(ago, f"1:{kind}{bucket(times * 6)}", count // 15) for kind, times in (("w", waits), ("r", runs))]
    Broker(conn).note_history(WORKERS[0][0], 1_000_001, series)


def _plan(conn: redis.Redis) -> None:
    """Cron entries, one of them paused."""
    cron = Scheduler(conn)
    cron.cron("*/5 * * * *", "shop.send_offer", id="stock-levels", queue="mail", args=(7,))
    cron.cron(
        "30 6 * * 1-5",
        "shop.render_report",
        id="weekday-report",
        timezone="Europe/Berlin",
        queue="reports",
        args=("2026-11", 0, 90),
    )
    cron.cron("0 3 1 * *", "shop.render_report", id="monthly-report", queue="reports", args=("2026-11", 0, 900))


def _bind(conn: redis.Redis) -> None:
    """Jobs that wait for a slot of a key, for others, and in a batch; and a callback to a host that there is not."""
    mail = Queue("mail", conn)
    for nth in range(4):
        mail.enqueue(
            "shop.sync_stock", f"shop-{nth}", job_id=f"customer-{nth}", concurrency_key="customer-4711", max_concurrent=1
        )
    with Batch(
        name="newsletter of November", queue="mail", id="newsletter-11", on_complete=signature("shop.send_offer", 1)
    ) as batch:
        for nth in range(3):
            batch.enqueue("shop.send_offer", 4711 + nth, job_id=f"offer-{nth}", callback_url="https://shop.invalid/paid")
        batch.enqueue("shop.update_stock", "SKU-1", job_id="stock-1", depends_on=["offer-0", "offer-1"])
        batch.enqueue("shop.send_offer", 9, job_id="thanks", depends_on=["stock-1", "offer-2"])


def _change(server: ServerProcess) -> str:
    """What people did: it stands in the audit. The id of the bulk change."""

    def tell(method: str, path: str, **body: object) -> Any:
        answer = server.ask(method, f"/api/v1{path}", body or None)
        if answer.status >= 400:
            raise SystemExit(f"{method} {path}: {answer.status} {answer.body.decode()}")
        return answer.json

    tell("POST", "/cron/monthly-report/pause")
    tell("POST", "/keys/customer-4711/limit", max_concurrent=1, rate=None)
    for nth in (0, 1, 2):
        tell("DELETE", f"/jobs/update-stock-{7700 + nth}")
    tell("DELETE", "/jobs/points-4713")
    tell("POST", "/operations", action="quarantine", query="state:failed queue:mail", reason="the provider is down")
    return str(
        tell("POST", "/operations", action="reprioritise", query="queue:newsletter state:queued", priority="moderate")["id"]
    )
