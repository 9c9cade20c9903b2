"""The page of a batch: its graph, and many members by function; the colours of graphs and bars."""

from __future__ import annotations

import re

import pytest
import redis

from fusion import Batch, Queue
from fusion.dashboard.graphs import KINDS
from fusion.dashboard.static_files import files
from fusion.store.write.broker import Broker
from tests.dashboard.browser import Browser
from tests.kit.hands import Hand

NOOP, ECHO = "tests.jobs.basic.noop", "tests.jobs.basic.echo"
#: What stands on what: texts need a contrast of 4.5, the lines and areas of drawings one of 3 (WCAG 2.1, 1.4.3 and 1.4.11).
TEXTS, DRAWN, GROUNDS = ("text", "quiet", "link", "good", "warn", "bad"), ("wait",), ("back", "card", "hover")


def graph_of(page: str) -> str:
    return page[page.index('<div class="graph"') :].partition("</div>")[0]


def test_the_members_are_drawn_with_what_follows(client: Browser, conn: redis.Redis) -> None:
    with Batch("mails", queue="sms", id="b", connection=conn, on_complete=ECHO, on_success=ECHO) as batch:
        batch.enqueue(NOOP, job_id="one")
        batch.enqueue(NOOP, job_id="two", depends_on="one")
        Batch("inside", id="inner", parent=batch, connection=conn).open().close()
    hand = Hand(Broker(conn), "sms", name="busy.1")
    hand.tell(hand.take(), "finished")
    page = client.get("/batches/b").html
    graph = graph_of(page)
    boxes = re.findall(r'href="([^"]+)" class="(\w+)"', graph)
    assert {("/jobs/one", "good"), ("/jobs/two", "quiet"), ("/batches/inner", "good")} <= set(boxes) and len(boxes) == 5, boxes
    assert "deferred, when all ended" in graph and "deferred, when all finished" in graph
    assert graph.count("<path") == 5 and graph.count('class="loose"') == 2
    assert "style=" not in graph and 'href="#behind-graph"' in graph and 'id="behind-graph" tabindex="-1"' in page
    assert page.count('class="bars"') >= 1 and "Waited, ran" in page


def test_many_members_are_drawn_by_function_and_stand_in_a_table(client: Browser, conn: redis.Redis) -> None:
    with Batch(queue="sms", id="b", connection=conn, on_complete=ECHO) as batch:
        batch.add("sms", [Queue.prepare_data(NOOP) for _ in range(250)])
        batch.add("sms", [Queue.prepare_data(ECHO, "x") for _ in range(60)])
    page = client.get("/batches/b").html
    graph = graph_of(page)
    assert graph.count("<rect") == 3 and "250 jobs: 250 queued" in graph and "60 jobs: 60 queued" in graph
    assert re.search(r'href="/jobs\?q=batch%3Ab\+func%3A[^"]*noop" class="quiet"', graph)
    assert "310 jobs, by function" in page and re.search(rf"<td>{NOOP}<td class=\"n\">250<td>250 queued", page)


def test_an_empty_batch_has_no_drawing(client: Browser, conn: redis.Redis) -> None:
    Batch(id="b", connection=conn).open()
    page = client.get("/batches/b").html
    assert 'class="graph"' not in page and "Nothing is in it yet." in page


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * one for one in colour[1:])
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (one / 12.92 if one <= 0.03928 else ((one + 0.055) / 1.055) ** 2.4 for one in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_colours_stand_out_in_both_schemes(scheme: int) -> None:
    css = next(one.body for one in files().values() if one.name == "app.css").decode()
    colours = {name: pair[scheme] for name, *pair in re.findall(r"--(\w+): light-dark\((#\w+), (#\w+)\)", css)}
    low = [
        (name, ground, round(contrast(colours[name], colours[ground]), 2))
        for names, least in ((TEXTS, 4.5), (DRAWN, 3.0))
        for name in names
        for ground in GROUNDS
        if contrast(colours[name], colours[ground]) < least
    ]
    assert low == []
    assert {"good", "bad", "warn", "way"} == set(KINDS.values()) and all(
        f".{kind} {{ color:" in css for kind in (*KINDS.values(), "quiet")
    )
    assert ".bars .wait { fill: var(--wait) }" in css
