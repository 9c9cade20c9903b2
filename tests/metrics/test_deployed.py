"""deploy/prometheus and deploy/grafana without a Prometheus: every name is one that the code exports, with labels that it has."""

from __future__ import annotations

import re
import runpy

import pytest
import yaml

from fusion.metrics.catalogue import FLEET
from tests.kit.process import ROOT
from tests.metrics.queries import BOARD, SCRAPES, groups, metric_of, named, panels, queries, rules

#: Labels that Prometheus or its configuration sets.
OUTER = {"fleet", "job", "instance", "le"}
RECORDED = {rule["record"]: rule["expr"] for rule in rules() if "record" in rule}


def test_every_name_in_a_query_is_exported_or_recorded() -> None:
    assert len(queries()) > 50
    for expr in queries():
        assert named(expr) or "up{" in expr, expr
        for name in named(expr):
            assert name in RECORDED or metric_of(name), f"{name} in {expr}"


def labels_of(name: str) -> set[str]:
    if name in RECORDED:
        grouped = re.search(r"by \(([^)]*)\)", RECORDED[name])
        assert grouped
        return set(re.split(r", ", grouped[1]))
    metric = metric_of(name)
    assert metric
    return set(metric.labels)


@pytest.mark.parametrize("expr", queries())
def test_every_label_in_a_query_is_one_of_its_metrics(expr: str) -> None:
    there = OUTER.union(*map(labels_of, named(expr)))
    grouped = {label for found in re.findall(r"\b(?:by|on) \(([^)]*)\)", expr) for label in re.split(r", ", found)}
    matched = {label for found in re.findall(r"\{([^}]*)\}", expr) for label in re.findall(r"(\w+)=", found)}
    assert grouped | matched <= there, expr


@pytest.mark.parametrize("expr", queries())
def test_figures_of_the_fleet_are_taken_once_and_counters_by_their_rate(expr: str) -> None:
    for name in named(expr):
        metric = metric_of(name)
        if metric is None or (name == "fusion_redis_up" and expr.startswith("absent(")):
            continue
        where = re.escape(name) + r"\b(\{[^}]*\})?"
        if metric.source == FLEET:  # each server has it: a sum would count it once for each
            assert re.search(rf"(max|min)( by \([^)]*\))? ?\((increase\(|rate\()?{where}", expr), expr
        if metric.kind in ("counter", "histogram"):
            assert re.search(rf"(rate|increase)\({where}\[", expr), expr


def test_alerts_say_what_is_wrong_and_what_mends_it() -> None:
    alerts = [rule for rule in rules() if "alert" in rule]
    assert len({rule["alert"] for rule in alerts}) == len(alerts) > 10
    for rule in alerts:
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["description"].endswith(".")
        for label in re.findall(r"\$labels\.(\w+)", str(rule["annotations"])):
            assert (
                label in OUTER
                or re.search(rf"\b{label}\b", rule["expr"])
                or label in OUTER.union(*map(labels_of, named(rule["expr"])))
            )


def test_a_rule_stands_below_the_records_that_it_reads_in_their_group() -> None:
    """Prometheus evaluates a group in its order, and groups in any: an alert would see the record of the minute before."""
    for group in groups():
        recorded: set[str] = set()
        for rule in group["rules"]:
            assert {name for name in named(rule["expr"]) if ":" in name} <= recorded, rule
            recorded.add(rule.get("record", ""))


def test_the_board_is_what_its_program_makes() -> None:
    assert runpy.run_path(str(ROOT / "tools" / "grafana.py"))["text"]() == BOARD.read_text(), "run: python -m tools.grafana"
    assert len(panels()) > 15


def test_the_first_screen_of_the_page_scrapes_what_it_starts() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    blocks = dict(re.findall(r"```(sh|yaml)\n(.*?)```", page, re.DOTALL))
    jobs = {one["job_name"]: one for one in yaml.safe_load(blocks["yaml"])["scrape_configs"]}
    ports = {re.search(rf"--{flag} (?:\S+:)?(\d+)", blocks["sh"])[1] for flag in ("listen", "probe-port")}  # type: ignore[index]
    (server,), (found,) = jobs["fusion-server"]["static_configs"][0]["targets"], jobs["fusion-process"]["http_sd_configs"]
    assert {server.rpartition(":")[2], re.search(r":(\d+)/targets$", found["url"])[1]} == ports  # type: ignore[index]
    assert jobs["fusion-server"]["authorization"]["credentials_file"] in blocks["sh"]
    assert set(jobs) <= {"fusion-server", "fusion-process"}, "as the alerts expect"


def test_the_example_scrapes_servers_and_every_process() -> None:
    jobs = {one["job_name"]: one for one in yaml.safe_load(SCRAPES.read_text())["scrape_configs"]}
    assert set(jobs) == {"fusion-server", "fusion-supervisor", "fusion-process"}
    assert all(one["url"].endswith("/targets") for one in jobs["fusion-process"]["http_sd_configs"])
    assert "credentials_file" in jobs["fusion-server"]["authorization"]
