"""Tables of the command line: their columns follow from the views."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from fusion.cli.tables import table_of
from fusion.cli.times import told
from fusion.views.base import ABSENT, View, details, part, public, stored
from fusion.views.worker import WorkerView
from tests.cli.conftest import Hands, Invoke
from tests.cli.conftest import hands as hands

NOON = datetime(2030, 1, 31, 12, tzinfo=timezone.utc)


@part
class SizeView(View):
    high: int = public("How high it is.", column="HEIGHT", short="H")
    wide: int = public("How wide it is.", column="WIDTH")


@part
class CrateView(View):
    weight: float | None = public("How heavy it is.", unit="bytes", column="SIZE")
    id: str = public("Its id.", column="ID")
    note: str = public("A note.", default=ABSENT, column="NOTE")
    way: list[str] = public("Its way.", column="WAY")
    sent_at: datetime | None = public("When it was sent.", column="SENT")
    took: float = public("How long it took.", unit="seconds", column="TOOK")
    full: bool = public("Whether it is full.", column="FULL")
    labels: dict[str, str] = details("Its labels.", column="LABELS")
    count: int = public("How many there are in it.", column="")
    size: SizeView | None = public("Its size.", default=ABSENT)
    sides: list[SizeView] = public("Its sides, which no table shows.", default=ABSENT)
    hidden: str = public("What no table shows.")
    key: str = stored("What opens it.")


def crate(**more: object) -> CrateView:
    given = {"id": "c", "weight": 3 * 2**20, "way": ["a", "b"], "sent_at": NOON, "took": 90.0, "full": True, "count": 7}
    return CrateView(**{**given, "hidden": "zq", "key": "zq", **more})  # type: ignore[arg-type]


def test_columns_and_cells_follow_from_the_fields() -> None:
    lines = table_of(CrateView, [crate(labels={"to": "x"}), crate(weight=None, sent_at=None, full=False)])
    assert [re.split(r"  +", line) for line in lines] == [
        ["", "SIZE", "ID", "NOTE", "WAY", "SENT", "TOOK", "FULL", "LABELS", "HEIGHT", "WIDTH"],
        ["3.0 MB", "c", "-", "a, b", told(NOON), "90 s", "yes", "to: x", "7", "-", "-"],
        ["", "-", "c", "-", "a, b", "-", "90 s", "no", "-", "7", "-", "-"],
    ]


def test_the_order_is_that_of_the_table_then_that_of_the_class() -> None:
    head = table_of(CrateView, [crate()], NOON, order=("id", "sent_at"))[0].split()
    assert head == ["ID", "SENT", "SIZE", "NOTE", "WAY", "TOOK", "FULL", "LABELS", "HEIGHT", "WIDTH"]


def test_a_view_in_a_view_has_its_columns_in_the_table_and_a_narrow_table_has_short_headings() -> None:
    crates = [crate(size=SizeView(high=3, wide=14)), crate(size=None)]
    assert table_of(CrateView, crates, order=("id", "size.wide", "size.high"), only=True, short=True) == [
        "ID  WIDTH  H",
        "c      14  3",
        "c       -  -",
    ]


def test_a_table_can_leave_columns_out() -> None:
    left_out = ("weight", "note", "way", "took", "full", "labels", "count", "size.high")
    assert table_of(CrateView, [crate()], without=left_out)[0].split() == ["ID", "SENT", "WIDTH"]


def test_with_now_a_moment_is_told_from_there() -> None:
    soon, past = crate(sent_at=NOON + timedelta(hours=3)), crate(sent_at=NOON - timedelta(minutes=5))
    lines = table_of(CrateView, [soon, past], NOON)
    assert "in 3 h" in lines[1] and "5 min ago" in lines[2]


def test_a_table_has_cells_of_its_own() -> None:
    line = table_of(CrateView, [crate()], cells={"count": lambda one: f"{one.count} of 9"})[1]
    assert "7 of 9" in line


def test_a_field_that_declares_a_column_is_in_the_table_of_its_command(
    invoke: Invoke, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    hands("sms", name="web1.4711").register()
    assert "WHERE" not in invoke("info", "-W").stdout
    fields = tuple(replace(one, column="WHERE") if one.attribute == "hostname" else one for one in WorkerView.FIELDS)
    monkeypatch.setattr(WorkerView, "FIELDS", fields)
    head, row, *_ = invoke("info", "-W").stdout.splitlines()
    assert head.split() == ["WORKER", "STATE", "JOB", "QUEUES", "WHERE", "HEARTBEAT", "FINISHED", "FAILED"]
    assert row.startswith("web1.4711")
