"""Tasks: what each function took."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

from fusion.store.layout.history import OTHER
from fusion.store.write.broker import Broker
from tests.dashboard.browser import Browser

RUNS = [(0, "1:completed", 3), (0, "1:r9", 3)]


def test_the_slowest_run_and_the_peak_memory_have_their_hour(client: Browser, broker: Broker) -> None:
    known = [*RUNS, (0, "slowest", 7400), (0, "peak", 310_000_000), (60, "slowest", 6000), (60, "peak", 420_000_000)]
    broker.note_history(
        "host.1", 1, {("function", "shop.send"): known, ("function", "shop.thread"): [*RUNS, (0, "slowest", 8000)]}
    )
    listed = client.get("/tasks")
    rows = dict(re.findall(r'<tr data-row>.*?href="/tasks/([^"]*)".*?(<td class="n">(?:.(?!<tr))*)', listed.html, re.DOTALL))
    now = datetime.now(timezone.utc)
    this, before = f"{now:%Y-%m-%d %H}:00:00", f"{now - timedelta(hours=1):%Y-%m-%d %H}:00:00"
    assert "7.4 s" in rows["shop.send"] and "420 MB" in rows["shop.send"]
    assert re.findall(r"<time[^>]*>([^<]*)", rows["shop.send"]) == [this, before]
    assert "8.0 s" in rows["shop.thread"] and re.findall(r"<time[^>]*>([^<]*)", rows["shop.thread"]) == [this]
    one = client.get("/tasks/shop.send?since=6h").text
    assert f"Slowest run: 7.4 s, in the hour from {this} . Peak memory: 420 MB, in the hour from {before} ." in one
    alone = client.get("/tasks/shop.thread").text
    assert f"Slowest run: 8.0 s, in the hour from {this} ." in alone and "Peak memory" not in alone


def test_a_run_that_an_older_worker_did_not_measure_counts_by_the_end_of_its_range(client: Browser, broker: Broker) -> None:
    others = [(0, "1:retried", 1)]
    broker.note_history(
        "host.1", 1, {("function", "shop.send"): RUNS, ("function", OTHER): RUNS, ("function", "shop.none"): others}
    )
    assert client.get("/tasks").text.count("slowest 10 s") == 2
    assert "Slowest run: 10 s, in the hour" in client.get("/tasks/shop.send").text
    assert "Slowest run" not in client.get("/tasks/shop.none").text
