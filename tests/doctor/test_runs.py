"""What doctor finds of runs: jobs that run too long, queues whose jobs all fail. How it folds notes on a terminal."""

from __future__ import annotations

from datetime import timedelta

import pytest

from fusion import Queue
from fusion.cli.doctor import text
from fusion.doctor.finding import Finding
from fusion.doctor.verdict import Verdict
from fusion.kernel.timeutil import to_iso
from fusion.store.layout.history import BOUNDS
from fusion.store.read.inspector import Inspector
from fusion.store.write.broker import Broker
from tests.cli.conftest import FakeHands
from tests.doctor.conftest import Doctor
from tests.jobs import basic

NOOP = "tests.jobs.basic.noop"


def runs(doctor: Doctor, broker: Broker, seconds: float, **options: object) -> FakeHands:
    """A job of this function has run for this long."""
    Queue("q", doctor.conn).enqueue(basic.noop, job_id="long", **options)
    hands = FakeHands(broker, "web1.1", ("q",)).register()
    hands.turn(slots=1)
    at = Inspector(doctor.conn).now() - timedelta(seconds=seconds)
    doctor.conn.hset("rq:job:long", "started_at", to_iso(at))
    return hands


def usually(broker: Broker, seconds: float, count: int) -> None:
    """This many runs of the function took as long as that."""
    bucket = next(nth for nth, bound in enumerate(BOUNDS) if bound >= seconds)
    broker.note_history("web1.1", 1, {("function", NOOP): [(0, f"1:r{bucket}", count), (0, "1:completed", count)]})


@pytest.mark.parametrize(
    ("ran", "usual", "count", "found"), [(900, 8, 30, True), (50, 1, 30, False), (900, 400, 30, False), (900, 8, 19, False)]
)
def test_a_job_that_runs_ten_times_as_long_as_others_of_its_function(
    doctor: Doctor, broker: Broker, ran: float, usual: float, count: int, found: bool
) -> None:
    runs(doctor, broker, ran)
    usually(broker, usual, count)
    told = doctor.of("long_runs")
    assert [one.code for one in told] == ["FUS-471"] * found
    if found:
        (one,) = told
        assert one.what.startswith("long of q has run for 15 min, ") and f"as long as 99 % of the runs of {NOOP}" in one.what
        assert one.fix == "run_worker.py job show long\nrun_worker.py stop long"
        assert one.remedy is not None and (one.remedy.deed, one.remedy.names) == ("stop", ("long",))


@pytest.mark.parametrize(("ran", "timeout", "found"), [(3700, -1, True), (3500, -1, False), (3700, 7200, False)])
def test_a_job_that_runs_for_an_hour_without_a_timeout(
    doctor: Doctor, broker: Broker, ran: float, timeout: int, found: bool
) -> None:
    runs(doctor, broker, ran, job_timeout=timeout)
    assert [(one.code, one.about) for one in doctor.of("long_runs")] == [("FUS-472", "long")] * found
    causes = [one.code for one in doctor.verdict().causes if one.check == "long_runs"]
    assert causes == ["FUS-472"] * found, "so the Overview has it"


def test_a_queue_whose_jobs_all_fail_is_named_though_they_are_few(doctor: Doctor, broker: Broker) -> None:
    hands = FakeHands(broker, "web1.1", ("q",)).register()
    for nth in range(3):
        Queue("q", doctor.conn).enqueue(basic.noop, job_id=f"j{nth}")
    hands.end("failed", hands.turn(slots=2))
    assert not doctor.of("all_fail"), "two are too few"
    hands.end("failed", hands.turn(slots=1))
    (found,) = doctor.of("all_fail")
    assert "q: none of its jobs finished in the last day, and 3 jobs failed, 3 of them with ValueError" in found.what
    assert found.fix == "run_worker.py failures --queue q" and found.code == "FUS-459"
    broker.note_history("web1.1", 1, {("queue", "q"): [(600, "1:completed", 1)]})
    assert not doctor.of("all_fail"), "one has finished ten hours ago"


def test_notes_are_folded_to_a_line_on_a_terminal_and_whole_elsewhere() -> None:
    note = Finding(
        "FUS-415",
        "note",
        "rights",
        "",
        "this process is the Redis user `default`, " + "who may do everything " * 9,
        "mend it\nthen",
    )
    bad = Finding("FUS-483", "fail", "queues", "q", "q: 1 job waits: no live worker serves it", "run_worker.py worker q")
    found = Verdict("unhealthy", (bad, note), 0.0)
    folded = text(found, 35, 79).splitlines()
    assert "queues: q: 1 job waits" in folded[2] and folded[3] == "      -> run_worker.py worker q"
    assert folded[5].startswith("NOTE  rights: this process") and len(folded[5]) == 79 and folded[5].endswith("…")
    assert folded[6:] == ["      -> run_worker.py doctor --notes shows what to do"]
    whole = text(found, 35)
    assert "      -> mend it\n      -> then" in whole and "[FUS-415]" in whole and "--notes" not in whole
    assert "--notes" not in text(Verdict("unhealthy", (bad,), 0.0), 35, 79)
