"""The alerts of deploy/prometheus by `promtool test rules` (Debian's `prometheus`): each fires when it should, with its words, and not else.

tests/metrics/test_prometheus.py has some of them on a real fleet."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.manifests import KEDA
from tests.metrics.queries import RULES, rules

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool here (Debian: apt-get install prometheus)"),
]

Series = dict[str, str]


@dataclass(frozen=True)
class Case:
    """`series`: values by the minute, under which the alert fires at `at`. `quiet`: other values under which it does not, and a time."""

    alert: str
    series: Series
    at: str
    labels: dict[str, str]
    summary: str
    description: str
    quiet: list[tuple[Series, str]] = field(default_factory=list)


#: Of two servers that show the same.
A, B = 'instance="a"', 'instance="b"'


def both(name: str, labels: str, values: str) -> Series:
    return {f"{name}{{{one}{labels and ','}{labels}}}": values for one in (A, B)}


STUCK = both("fusion_queue_oldest_age_seconds", 'queue="sms",priority="high"', "0+60x20")
WAITING = both("fusion_queue_waiting", 'queue="sms",priority="low"', "3x20")
ENDED = both("fusion_queue_ended_per_second", 'queue="sms"', "10x20")

CASES = [
    Case(
        "FusionNoMetrics",
        {},
        "6m",
        {"severity": "critical"},
        "No server of Fusion is scraped",
        "Start `fusion server` or `fusion metrics --listen`, or mend the scrape configuration.",
        [({}, "4m"), ({f"fusion_redis_up{{{A}}}": "0x20"}, "10m")],
    ),
    Case(
        "FusionTargetDown",
        {'up{job="fusion-process",instance="w1:81"}': "0x20", 'up{job="node",instance="w1:90"}': "0x20"},
        "3m",
        {"severity": "warning", "job": "fusion-process", "instance": "w1:81"},
        "fusion-process at w1:81 does not answer",
        "The process is gone, or its port can't be reached.",
        [({'up{job="fusion-process",instance="w1:81"}': "0 1 0 1 0 1 0 1"}, "6m")],
    ),
    Case(
        "FusionRedisAway",
        both("fusion_redis_up", "", "0x20"),
        "2m",
        {"severity": "critical"},
        "Redis answers no server of Fusion",
        "No job is accepted or started. `fusion doctor` says why.",
        [({f"fusion_redis_up{{{A}}}": "0x20", f"fusion_redis_up{{{B}}}": "1x20"}, "5m")],
    ),
    Case(
        "FusionNothingAlive",
        both("fusion_sample_age_seconds", "", "60+60x20"),
        "4m",
        {"severity": "critical"},
        "No worker and no scheduler of Fusion is alive",
        "Nobody has sampled the queues for 5m 0s. The figures by queue are as old.",
        [({f"fusion_sample_age_seconds{{{A}}}": "60+60x20", f"fusion_sample_age_seconds{{{B}}}": "9x20"}, "9m")],
    ),
    Case(
        "FusionQueueStuck",
        STUCK,
        "5m",
        {"severity": "critical", "queue": "sms", "priority": "high"},
        "A job of priority high has waited in sms for 5m 0s",
        "`fusion doctor` names the first reason. More workers, or --reserve-high, may help.",
        [
            (STUCK | both("fusion_queue_paused", 'queue="sms"', "1x20"), "5m"),
            (both("fusion_queue_oldest_age_seconds", 'queue="sms",priority="moderate"', "0+60x20"), "9m"),
            (both("fusion_queue_oldest_age_seconds", 'queue="sms",priority="low"', "7200x20"), "9m"),
        ],
    ),
    Case(
        "FusionQueueUnserved",
        WAITING
        | both("fusion_queue_waiting", 'queue="sms",priority="high"', "2x20")
        | both("fusion_queue_workers", 'queue="sms"', "0x20"),
        "3m",
        {"severity": "critical", "queue": "sms"},
        "5 jobs wait in sms, which no live worker serves",
        "Start a worker for it: `fusion worker sms`.",
        [
            (WAITING | both("fusion_queue_workers", 'queue="sms"', "1x20"), "5m"),
            (
                both("fusion_queue_waiting", 'queue="sms",priority="low"', "0x20")
                | both("fusion_queue_workers", 'queue="sms"', "0x20"),
                "5m",
            ),
        ],
    ),
    Case(
        "FusionFailures",
        ENDED | both("fusion_queue_failed_per_second", 'queue="sms"', "2x20"),
        "6m",
        {"severity": "warning", "queue": "sms"},
        "More than a tenth of the jobs of sms fail",
        "`fusion failures` groups them by error.",
        [
            (ENDED | both("fusion_queue_failed_per_second", 'queue="sms"', "0.9x20"), "9m"),
            (
                both("fusion_queue_ended_per_second", 'queue="sms"', "0.04x20")
                | both("fusion_queue_failed_per_second", 'queue="sms"', "0.04x20"),
                "9m",
            ),
        ],
    ),
    Case(
        "FusionRunsLost",
        {'fusion_jobs_lost_total{instance="w1",queue="",priority="high"}': "0x5 1x10"},
        "7m",
        {"severity": "warning"},
        "Processes of jobs were killed from outside",
        "Most often by the OOM killer. `fusion failures` and the kernel's log tell.",
        [
            ({'fusion_jobs_lost_total{instance="w1",queue="",priority="high"}': "3x20"}, "7m"),
            ({'fusion_jobs_lost_total{instance="w1",queue="",priority="high"}': "0x5 1x30"}, "30m"),
        ],
    ),
    Case(
        "FusionScheduledLate",
        both("fusion_scheduler_lateness_seconds", "", "45x20"),
        "2m",
        {"severity": "critical"},
        "Scheduled jobs are 45s late",
        "No worker and no scheduler moves them, or Redis is slow.",
        [(both("fusion_scheduler_lateness_seconds", "", "30x20"), "5m")],
    ),
    Case(
        "FusionCronLate",
        both("fusion_cron_lateness_seconds", "", "90x20"),
        "2m",
        {"severity": "critical"},
        "Cron entries are 1m 30s late",
        "Start a scheduler: `fusion scheduler`, or `fusion start`.",
        [(both("fusion_cron_lateness_seconds", "", "60x20"), "5m")],
    ),
    Case(
        "FusionSinkBehind",
        both("fusion_sink_oldest_age_seconds", 'sink="file"', "400x20"),
        "6m",
        {"severity": "warning", "sink": "file"},
        "The sink file is 6m 40s behind",
        "`fusion events stats` shows its last error.",
        [(both("fusion_sink_oldest_age_seconds", 'sink="file"', "400x4 0x20"), "9m")],
    ),
    Case(
        "FusionProcessesCrash",
        {'fusion_supervisor_crashes_total{instance="w1:81"}': "0 2 4 6x10"},
        "5m",
        {"severity": "warning", "instance": "w1:81"},
        "Processes of the supervisor at w1:81 crash again and again",
        "Its log has the cause of each.",
        [({'fusion_supervisor_crashes_total{instance="w1:81"}': "0 1 2 2x10"}, "5m")],
    ),
    Case(
        "FusionRedisMemory",
        both("fusion_redis_memory_bytes", "", "90x20") | both("fusion_redis_memory_limit_bytes", "", "100x20"),
        "6m",
        {"severity": "warning"},
        "Redis is almost full",
        "At its limit it accepts no jobs; those that are there go on.",
        [
            (both("fusion_redis_memory_bytes", "", "90x20") | both("fusion_redis_memory_limit_bytes", "", "0x20"), "9m"),
            (both("fusion_redis_memory_bytes", "", "85x20") | both("fusion_redis_memory_limit_bytes", "", "100x20"), "9m"),
        ],
    ),
    Case(
        "FusionRedisEvicts",
        both("fusion_redis_evicted_keys_total", "", "0x5 4x10"),
        "7m",
        {"severity": "critical"},
        "Redis evicts keys",
        "Each may be a job that is lost. Set `maxmemory-policy noeviction`.",
        [(both("fusion_redis_evicted_keys_total", "", "4x20"), "7m")],
    ),
]


def test_every_alert_has_a_case() -> None:
    assert [case.alert for case in CASES] == [rule["alert"] for rule in rules() if "alert" in rule]
    assert all(case.quiet for case in CASES)


def run(tests: list[dict[str, Any]], directory: Path) -> str:
    """What promtool says; empty if all is as expected."""
    file = directory / "tests.yml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))
    done = subprocess.run(["promtool", "test", "rules", str(file)], capture_output=True, text=True, timeout=60, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def _test(case: Case, series: Series, at: str, *, fires: bool) -> dict[str, Any]:
    told = {"exp_labels": case.labels, "exp_annotations": {"summary": case.summary, "description": case.description}}
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [{"eval_time": at, "alertname": case.alert, "exp_alerts": [told] if fires else []}],
    }


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)
def test_an_alert_fires_when_it_should_and_not_else(case: Case, tmp_path: Path) -> None:
    assert run([_test(case, case.series, case.at, fires=True)], tmp_path) == ""
    assert run([_test(case, series, at, fires=False) for series, at in case.quiet], tmp_path) == ""
    assert "FAILED" in run([_test(case, case.series, case.at, fires=False)], tmp_path), "or the test would show nothing"


def test_the_query_of_keda_is_one_number_the_same_however_many_servers_are_scraped(tmp_path: Path) -> None:
    query = KEDA["spec"]["triggers"][0]["metadata"]["query"]
    queues = [("sms", "high", 2), ("sms", "low", 300), ("email", "low", 40)]
    for servers in (["a"], ["a", "b", "c"]):
        series = [
            {"series": f'fusion_queue_waiting{{instance="{one}",queue="{queue}",priority="{priority}"}}', "values": f"{count}x5"}
            for one in servers
            for queue, priority, count in queues
        ]
        expected = {"expr": query, "eval_time": "3m", "exp_samples": [{"labels": "{}", "value": 342}]}
        assert run([{"interval": "1m", "input_series": series, "promql_expr_test": [expected]}], tmp_path) == ""
