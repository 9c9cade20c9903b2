"""Counting of jobs in a process, and the page that shows it."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from fusion.metrics.catalogue import METRICS, MOST_NAMES, OTHER, RUN
from fusion.metrics.figures import Figures
from fusion.metrics.page import page
from fusion.metrics.tally import JobTally
from fusion.store.layout.history import BOUNDS, bucket
from tests.metrics.pages import Samples, samples, values


def shown(tally: JobTally) -> Samples:
    figures = Figures()
    tally.put(figures)
    return samples(page(figures))


def note(
    tally: JobTally, kind: str = "finished", queue: str = "sms", of: int = 2, task: str = "tasks.send", error: str = ""
) -> None:
    tally.note(kind, queue, of)
    if kind in ("finished", "failed", "retry"):
        tally.note_run(queue, of, 0.3, bucket(0.3), 0.004, bucket(0.004))
        if tally.full:
            tally.note_names(kind, task, 0.3, bucket(0.3), error)


def test_each_kind_of_outcome_has_its_counter_and_only_ended_runs_a_time() -> None:
    tally = JobTally(full=False)
    for kind in ("finished", "finished", "failed", "retry", "stopped", "release", "held", "limited", "lost", "suspect"):
        note(tally, kind)
    found = shown(tally)
    labels = (("priority", "high"), ("queue", ""))
    counts = {
        name: found[f"fusion_jobs_{name}_total", labels] for name in ("finished", "failed", "retried", "stopped", "returned")
    }
    assert counts == {"finished": 2, "failed": 1, "retried": 1, "stopped": 1, "returned": 3}
    assert found["fusion_jobs_lost_total", labels] == 2
    assert found["fusion_job_run_seconds_count", labels] == found["fusion_job_wait_seconds_count", labels] == 4
    assert found["fusion_job_run_seconds_sum", labels] == pytest.approx(1.2)
    assert found["fusion_job_run_seconds_bucket", (("le", "0.2"), *labels)] == 0
    assert found["fusion_job_run_seconds_bucket", (("le", "0.5"), *labels)] == 4
    assert found["fusion_job_run_seconds_bucket", (("le", "+Inf"), *labels)] == 4


def test_what_took_longer_than_the_last_bound_is_in_no_bucket_that_has_one() -> None:
    tally = JobTally(full=False)
    tally.note_run("q", 0, 1e6, bucket(1e6), 0.0, -1)
    labels = (("priority", "low"), ("queue", ""))
    found = shown(tally)
    below = [found["fusion_job_run_seconds_bucket", (("le", f"{bound:g}"), *labels)] for bound in BOUNDS[:-1]]
    assert below == [0] * (len(BOUNDS) - 1)
    assert found["fusion_job_run_seconds_bucket", (("le", "+Inf"), *labels)] == 1


def test_without_full_no_name_of_a_queue_task_or_error_is_on_the_page_and_counters_begin_at_0() -> None:
    tally = JobTally(full=False, queues=["sms"])
    found = shown(tally)
    assert {labels for name, labels in found if name == "fusion_jobs_finished_total"} == {
        (("priority", one), ("queue", "")) for one in ("low", "moderate", "high")
    }
    assert set(found.values()) == {0}
    note(tally, "failed", error="shop.errors.Secret")
    found = shown(tally)
    assert values(found, "queue") == {""}
    assert not values(found, "task") | values(found, "error_class")


def test_with_full_known_queues_begin_at_0_and_each_has_its_own_counters() -> None:
    tally = JobTally(full=True, queues=["sms"])
    assert shown(tally)["fusion_jobs_finished_total", (("priority", "high"), ("queue", "sms"))] == 0
    note(tally, queue="mail", of=1, task="tasks.mail")
    note(tally, "failed", error="builtins.ValueError")
    found = shown(tally)
    assert found["fusion_jobs_finished_total", (("priority", "moderate"), ("queue", "mail"))] == 1
    assert found["fusion_task_finished_total", (("task", "tasks.mail"),)] == 1
    assert found["fusion_task_run_seconds_count", (("task", "tasks.send"),)] == 1
    assert found["fusion_failures_total", (("error_class", "builtins.ValueError"),)] == 1


def test_beyond_500_names_the_rest_is_other_and_no_counter_goes_down() -> None:
    tally = JobTally(full=True)
    before: Samples = {}
    order = [*range(MOST_NAMES + 50), *reversed(range(MOST_NAMES + 50))]
    for number in order:
        note(tally, "failed", queue=f"q{number}", task=f"tasks.t{number}", error=f"shop.E{number}")
        if number % 250 == 0:
            found = shown(tally)
            assert all(found[key] >= value for key, value in before.items())
            before = found
    for label in ("queue", "task", "error_class"):
        assert len(values(before, label)) == MOST_NAMES + 1
        assert OTHER in values(before, label)
    total = sum(value for (name, _), value in before.items() if name == "fusion_jobs_failed_total")
    assert total == len(order)


def test_a_class_that_a_task_named_after_a_code_is_shown_without_it() -> None:
    tally = JobTally(full=True)
    note(tally, "failed", error="shop.Wrong493817")
    assert values(shown(tally), "error_class") == {"shop.Wrong#"}


def each(kind: str) -> Iterable[str]:
    return (one.name for one in METRICS if one.kind == kind)


def test_names_follow_the_conventions_of_prometheus() -> None:
    assert len({one.name for one in METRICS}) == len(METRICS)
    assert all(one.name.startswith("fusion_") for one in METRICS)
    assert all(name.endswith("_total") for name in each("counter"))
    assert not any(name.endswith(("_total", "_count", "_sum", "_bucket")) for name in each("gauge"))
    assert all(name.endswith("_seconds") for name in each("histogram"))
    assert all(one.about.endswith(".") for one in METRICS)
    assert RUN in METRICS
