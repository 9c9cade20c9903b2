"""deploy/kibana/fusion.ndjson: every object has the form of its type, refers to what is there, and to fields that are mapped and searchable."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from fusion.sinks.es_documents import CLASSIC_MAPPING, ECS_MAPPING
from fusion.sinks.es_options import ElasticsearchOptions
from tests.architecture.source import ROOT

PATH = ROOT / "deploy" / "kibana" / "fusion.ndjson"
OBJECTS = [json.loads(line) for line in PATH.read_text().splitlines()]
BY_ID = {(one["type"], one["id"]): one for one in OBJECTS}

_META = {"searchSourceJSON": str}
#: Attributes of a type: all of these, and nothing else. A dict's are its own.
SCHEMA: dict[str, dict[str, Any]] = {
    "index-pattern": {"title": str, "name": str, "timeFieldName": str},
    "visualization": {
        "title": str,
        "visState": str,
        "uiStateJSON": str,
        "description": str,
        "version": int,
        "kibanaSavedObjectMeta": _META,
    },
    "search": {"title": str, "description": str, "columns": list, "sort": list, "version": int, "kibanaSavedObjectMeta": _META},
    "dashboard": {
        "title": str,
        "description": str,
        "panelsJSON": str,
        "optionsJSON": str,
        "timeRestore": bool,
        "timeFrom": str,
        "timeTo": str,
        "version": int,
        "kibanaSavedObjectMeta": _META,
    },
}


def fits(value: Any, wanted: Any) -> bool:
    if not isinstance(wanted, dict):
        return type(value) is wanted
    return isinstance(value, dict) and set(value) == set(wanted) and all(fits(value[name], wanted[name]) for name in wanted)


def fields(mapping: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    for name, entry in mapping["properties"].items():
        if "properties" in entry:
            yield from fields(entry, f"{above}{name}.")
        else:
            yield f"{above}{name}", "opaque" if entry.get("index") is False else entry["type"]


ECS, CLASSIC = dict(fields(ECS_MAPPING)), dict(fields(CLASSIC_MAPPING))


def of_type(kind: str) -> list[Any]:
    return [pytest.param(one, id=one["id"]) for one in OBJECTS if one["type"] == kind]


@pytest.mark.parametrize("one", [pytest.param(one, id=one["id"]) for one in OBJECTS])
def test_an_object_has_the_form_of_its_type_and_refers_to_what_is_there(one: dict[str, Any]) -> None:
    assert set(one) == {"id", "type", "attributes", "references"}
    assert fits(one["attributes"], SCHEMA[one["type"]])
    for reference in one["references"]:
        assert set(reference) == {"name", "type", "id"}
        assert (reference["type"], reference["id"]) in BY_ID
    texts = [value for name, value in one["attributes"].items() if name.endswith("JSON")]
    named = set(re.findall(r'"(?:indexRefName|panelRefName)": "([^"]+)"', " ".join([*texts, _source(one)])))
    assert named == {reference["name"] for reference in one["references"]}


def _source(one: dict[str, Any]) -> str:
    return str(one["attributes"].get("kibanaSavedObjectMeta", {}).get("searchSourceJSON", "{}"))


def test_ids_are_unique_and_the_script_writes_this_file() -> None:
    assert len(BY_ID) == len(OBJECTS)
    code = "import runpy; print(runpy.run_path('tools/kibana.py')['text'](), end='')"
    made = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert made == PATH.read_text(), "run: python tools/kibana.py"


def test_the_data_views_show_what_the_sink_writes() -> None:
    titles = {one["attributes"]["title"]: one["attributes"]["timeFieldName"] for one in OBJECTS if one["type"] == "index-pattern"}
    stream = ElasticsearchOptions(urls=("http://h:1",), data_stream=True, namespace="x").target
    classic = ElasticsearchOptions(urls=("http://h:1",)).target
    assert titles == {"logs-fusion.job-*": "@timestamp", "active-fusion-logs*": "log_time"}
    assert stream.startswith("logs-fusion.job-")
    assert f"{classic}-000001".startswith("active-fusion-logs")
    assert (ECS["@timestamp"], CLASSIC["log_time"]) == ("date", "date")


@pytest.mark.parametrize("one", of_type("visualization"))
def test_a_chart_adds_up_fields_that_can_be(one: dict[str, Any]) -> None:
    state = json.loads(one["attributes"]["visState"])
    assert state["type"] in {"histogram", "pie", "line", "table", "horizontal_bar"}
    assert state["title"] == one["attributes"]["title"]
    metric, *buckets = state["aggs"]
    assert metric["schema"] == "metric"
    assert [agg["id"] for agg in state["aggs"]] == [str(n) for n in range(1, len(state["aggs"]) + 1)]
    kinds = {"terms": {"keyword"}, "date_histogram": {"date"}, "percentiles": {"long", "double"}, "count": set[str]()}
    for agg in state["aggs"]:
        assert agg["enabled"] is True
        if agg["type"] != "count":
            assert ECS[agg["params"]["field"]] in kinds[agg["type"]], agg
    schemas = {"table": {"bucket"}}.get(state["type"], {"segment", "group"})
    assert {bucket["schema"] for bucket in buckets} <= schemas


@pytest.mark.parametrize("one", [*of_type("visualization"), *of_type("search")])
def test_a_query_names_fields_that_are_there(one: dict[str, Any]) -> None:
    source = json.loads(_source(one))
    assert source["query"]["language"] == "kuery"
    assert set(re.findall(r"([\w.@]+):", source["query"]["query"])) <= set(ECS)
    assert set(one["attributes"].get("columns", [])) <= set(ECS)


@pytest.mark.parametrize("one", of_type("dashboard"))
def test_the_dashboard_shows_every_chart_once_and_none_over_another(one: dict[str, Any]) -> None:
    panels = json.loads(one["attributes"]["panelsJSON"])
    shown = {(reference["type"], reference["id"]) for reference in one["references"]}
    assert shown == {key for key in BY_ID if key[0] in ("visualization", "search")}
    assert len(panels) == len(shown)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridData"]
        assert place["x"] + place["w"] <= 48
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        assert not cells & taken
        taken |= cells


def test_the_schema_refuses_a_wrong_object() -> None:
    good = BY_ID["index-pattern", "fusion-classic"]["attributes"]
    assert fits(good, SCHEMA["index-pattern"])
    assert not fits({**good, "more": 1}, SCHEMA["index-pattern"])
    assert not fits({**good, "title": 1}, SCHEMA["index-pattern"])
