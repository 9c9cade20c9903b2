"""What runs say of themselves: kept until Redis has it, written together and seldom, and never believed."""

from __future__ import annotations

import time
from signal import SIGSEGV
from typing import Any

import pytest
from redis.exceptions import ConnectionError as Refused

from fusion.executors.base import KillCause
from fusion.kernel import defaults
from fusion.runtime.redis_link import RedisAway
from fusion.store.layout.records import Claimed, Report
from fusion.worker.reports import report_of
from tests.executors.rig import Rig

LATER = 3600.0


class Reported(Rig):
    """Keeps what the broker was told; `answers` are its next ones, else ok."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.calls: list[list[Report]] = []
        self.answers: list[Any] = []
        self.broker.report = self._report

    def _report(self, worker: str, reports: list[Report]) -> list[str]:
        answer = self.answers.pop(0) if self.answers else "ok"
        if isinstance(answer, Exception):
            raise answer
        self.calls.append(reports)
        return [answer] * len(reports)

    def says(self, job: Claimed, **fields: bytes) -> None:
        frame = {b"kind": b"report", **{name.encode(): value for name, value in fields.items()}}
        self.dispatcher.frame(self.run_of(job), frame)

    def flush(self, after: float = LATER) -> None:
        self.reports.flush(time.monotonic() + after)


def test_the_newest_of_each_run_goes_in_one_call() -> None:
    rig = Reported(slots=2)
    a, b = rig.start(), rig.start()
    for number in range(5):
        rig.says(a, progress=b'{"done":%d}' % number, cursor=b"%d" % number)
    rig.says(b, cursor=b'"x"')
    rig.flush(0.0)
    assert rig.calls == [], "a moment later, together"
    assert rig.reports.next_at < time.monotonic() + 0.2
    rig.flush()
    ((first, second),) = rig.calls
    assert (first.job_id, first.execution_id, first.progress, first.cursor, first.said) == (
        a.id,
        a.execution_id,
        b'{"done":4}',
        b"4",
        "4",
    )
    assert (second.job_id, second.progress, second.cursor, second.said) == (b.id, b"", b'"x"', "")
    rig.flush()
    assert len(rig.calls) == 1
    assert rig.reports.next_at == float("inf")


def test_reports_of_a_run_are_written_once_a_second() -> None:
    rig = Reported()
    job = rig.start()
    for number in range(2):
        rig.says(job, progress=b'{"done":%d}' % number)
        rig.flush()
    assert [[report.said for report in call] for call in rig.calls] == [["0"], [""]]
    rig.says(job, progress=b'{"done":3}')
    assert rig.reports.next_at >= time.monotonic() + defaults.REPORT_INTERVAL - 0.1


def test_a_waiting_run_is_answered_only_after_its_report_is_written() -> None:
    rig = Reported()
    job = rig.start()
    rig.says(job, cursor=b"1", wait=b"7")
    assert rig.reports.next_at <= time.monotonic()
    rig.answers = [Refused("away")]
    with pytest.raises(RedisAway):
        rig.flush()
    assert rig.executor.told == []
    rig.says(job, cursor=b"2", wait=b"8")
    rig.flush()
    assert [frame for _, frame in rig.executor.told] == [{b"stored": b"7"}, {b"stored": b"8"}]
    assert [report.cursor for call in rig.calls for report in call] == [b"2"]


def test_a_run_that_is_no_longer_its_jobs_waits_in_vain() -> None:
    rig = Reported()
    job = rig.start()
    rig.answers = ["stale"]
    rig.says(job, cursor=b"1", wait=b"1")
    rig.flush()
    assert rig.executor.told == [], "it ends with its lease"


def test_a_report_refused_for_a_broken_key_is_tried_again() -> None:
    rig = Reported()
    job = rig.start()
    rig.answers = ["error: WRONGTYPE"]
    rig.says(job, cursor=b"1", wait=b"1")
    rig.flush()
    assert time.monotonic() < rig.reports.next_at < time.monotonic() + 5
    rig.flush()
    assert len(rig.calls) == 2
    assert len(rig.executor.told) == 1


def test_an_unwritten_report_is_sent_with_the_outcome() -> None:
    rig = Reported(slots=3)
    fails, dies, ends = rig.start(), rig.start(), rig.start()
    for job in (fails, dies, ends):
        rig.says(job, progress=b'{"done":1}', cursor=b"1")
    said = {b"progress": b'{"done":2}', b"cursor": b"2"}
    rig.dispatcher.frame(rig.run_of(fails), {b"kind": b"failed", b"exc_line": b"E: r", b"exc_classes": b"E", **said})
    rig.executor.die(rig.run_of(dies), SIGSEGV)
    rig.dispatcher.frame(rig.run_of(ends), {b"kind": b"finished"})
    found = {commit.job_id: commit.fields for commit in rig.told()}
    assert (found[fails.id]["progress"], found[fails.id]["cursor"]) == (b'{"done":2}', b"2"), "what it said last"
    assert (found[dies.id]["progress"], found[dies.id]["cursor"]) == (b'{"done":1}', b"1")
    assert found[ends.id]["progress"] == b'{"done":1}'
    assert "cursor" not in found[ends.id], "there is no next run"
    rig.flush()
    assert rig.calls == []


def test_a_cold_end_writes_reports_before_jobs_go_back() -> None:
    rig = Reported()
    job = rig.start()
    rig.says(job, cursor=b"1")
    rig.executor.kill(rig.run_of(job), KillCause.COLD)
    rig.reports.flush_all()
    assert [report.cursor for call in rig.calls for report in call] == [b"1"]
    assert rig.told() == []


def test_an_interrupted_run_goes_back_with_its_cursor() -> None:
    rig = Reported()
    job = rig.start()
    rig.dispatcher.frame(rig.run_of(job), {b"kind": b"interrupted", b"cursor": b"5"})
    (commit,) = rig.told()
    assert (commit.kind, commit.fields) == ("release", {"cursor": b"5", "spared": "1"}), "not for ever, without a step done"


@pytest.mark.parametrize(
    "frame",
    [
        {},
        {b"progress": b"junk", b"cursor": b""},
        {b"progress": b'{"done":1,"note":"' + b"x" * 5000 + b'"}', b"cursor": b"x" * (defaults.MAX_CURSOR + 1)},
    ],
)
def test_a_malformed_frame_is_no_report(frame: dict[bytes, bytes]) -> None:
    assert report_of(frame) == {}
