"""The queries of deploy/: of the rules and of the board."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

from fusion.metrics.catalogue import METRICS, Metric
from tests.kit.process import ROOT

RULES = ROOT / "deploy" / "prometheus" / "fusion.rules.yml"
SCRAPES = ROOT / "deploy" / "prometheus" / "prometheus.yml"
BOARD = ROOT / "deploy" / "grafana" / "fusion.json"
BY_NAME: dict[str, Metric] = {one.name: one for one in METRICS}
_NAME = re.compile(r"\bfusion_[a-z_0-9]+|\bfusion:[a-z_0-9:]+")
_SUFFIX = re.compile(r"_(bucket|count|sum)$")


def groups() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(RULES.read_text())["groups"]
    return found


def rules() -> list[dict[str, Any]]:
    return [rule for group in groups() for rule in group["rules"]]


def panels() -> dict[str, dict[str, str]]:
    """Of each panel: its queries by legend."""
    board = json.loads(BOARD.read_text())
    return {
        panel["title"]: {target["legendFormat"]: target["expr"] for target in panel["targets"]}
        for panel in board["panels"]
        if panel["type"] != "row"
    }


def queries() -> list[str]:
    return [rule["expr"] for rule in rules()] + [expr for one in panels().values() for expr in one.values()]


def metric_of(name: str) -> Metric | None:
    """The metric that has this series."""
    found = BY_NAME.get(name)
    if found is None and (whole := _SUFFIX.sub("", name)) != name and (metric := BY_NAME.get(whole)):
        return metric if metric.kind == "histogram" else None
    return found if found is None or found.kind != "histogram" else None


def named(expr: str) -> set[str]:
    return set(_NAME.findall(expr))
