"""That the judge of our requests can say no."""

from __future__ import annotations

from typing import Any

import pytest

from fusion.sinks.es_documents import ECS_MAPPING
from tests.sinks.api_schema import endpoint, faults_of_answer, faults_of_request

CREATE = {"create": {"_id": "1"}}
TEMPLATE = {"index_patterns": ["a-*"], "priority": 500, "data_stream": {}, "template": {"mappings": ECS_MAPPING}}


def template(**settings: Any) -> dict[str, Any]:
    return {**TEMPLATE, "template": {"settings": settings, "mappings": ECS_MAPPING}}


@pytest.mark.parametrize(
    ("name", "query", "body", "fault"),
    [
        ("bulk", {}, [CREATE, {"a": 1}], None),
        ("bulk", {"timeout": "8000ms", "filter_path": "a,b"}, [CREATE, {"a": 1}], None),
        ("bulk", {"retries": "1"}, [CREATE, {"a": 1}], "query.retries: unknown"),
        ("bulk", {}, [{"create": {"_id": "1", "_type": "logs"}}, {"a": 1}], "create._type: unknown"),
        ("bulk", {}, [{"creat": {"_id": "1"}}, {"a": 1}], "body[0].creat: unknown"),
        ("bulk", {}, [{"create": {"_id": 1}}, {"a": 1}], "1 is no string"),
        ("bulk", {}, [{"create": {}, "index": {}}, {"a": 1}], "must be exactly one"),
        ("bulk", {}, [CREATE], "a document without its action"),
        ("bulk", {}, [CREATE, "text"], "'text' is no object"),
        ("bulk", {}, None, None),
        ("indices.put_index_template", {}, template(number_of_shards=1), None),
        ("indices.put_index_template", {}, template(shards=1), "settings.shards: unknown"),
        ("indices.put_index_template", {}, {**TEMPLATE, "priority": "high"}, "'high' is no number"),
        ("indices.put_index_template", {}, {**TEMPLATE, "mappings": {}}, "body.mappings: unknown"),
        (
            "indices.put_index_template",
            {},
            {"template": {"mappings": {"properties": {"a": {"type": "keyword", "ignore_abov": 1}}}}},
            "ignore_abov: unknown",
        ),
        ("ilm.put_lifecycle", {}, {"policy": {"phases": {"hot": {"min_age": "0ms", "actions": {}}}}}, None),
        ("ilm.put_lifecycle", {}, {"policy": {"phases": {"hot": {"actions": {"roll": {}}}}}}, "actions.roll: unknown"),
        ("ilm.put_lifecycle", {}, {"policy": {}}, "phases: missing"),
        ("indices.create_data_stream", {}, {"a": 1}, "there must be none"),
    ],
)
def test_a_request(name: str, query: dict[str, str], body: Any, fault: str | None) -> None:
    if body is None:
        assert faults_of_request(name, {}, query, body) == ["body: missing"]
        return
    found = faults_of_request(name, {}, query, body)
    assert (found == []) if fault is None else (fault in "; ".join(found))


def test_an_answer() -> None:
    item = {"create": {"_index": "a", "_id": "1", "status": 201}}
    assert faults_of_answer("_global.bulk.Response", {"took": 1, "errors": False, "items": [item]}) == []
    assert faults_of_answer("_global.bulk.Response", {"took": 1, "items": [{"create": {"_id": "1"}}]})


@pytest.mark.parametrize(
    ("method", "path", "name"),
    [
        ("GET", "/", "info"),
        ("PUT", "/a/_bulk", "bulk"),
        ("PUT", "/_index_template/a", "indices.put_index_template"),
        ("PUT", "/a", "indices.create"),
        ("DELETE", "/a/_bulk", None),
        ("PUT", "/_nonsense", None),
        ("PUT", "/a/b/_bulk", None),
    ],
)
def test_a_path_belongs_to_one_endpoint(method: str, path: str, name: str | None) -> None:
    found = endpoint(method, path)
    assert (found[0] if found else None) == name
