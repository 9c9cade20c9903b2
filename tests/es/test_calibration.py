"""The contract server of tests/sinks answers as Elasticsearch 7.0 does, wherever both can be asked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.es.conftest import RealServer
from tests.sinks.cluster import Index
from tests.sinks.contract import ContractServer

NDJSON = "application/x-ndjson"
FILTER = "filter_path=errors,items.*.status,items.*.error.type,items.*.error.reason"


def bulk(*pairs: tuple[dict[str, Any], Any]) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for pair in pairs for line in pair)


def create(doc_id: str, document: dict[str, Any] | None = None, **more: str) -> tuple[dict[str, Any], Any]:
    return {"create": {"_id": doc_id, **more}}, document if document is not None else {"message": "2026-01-01"}


@pytest.fixture
def contract(real: RealServer) -> Iterator[ContractServer]:
    if real.version != (7, 0):
        pytest.skip("the contract server is calibrated against 7.0")
    server = ContractServer((7, 0))
    server.cluster.lifecycle = False
    yield server
    server.stop()


@pytest.fixture
def both(real: RealServer, contract: ContractServer, index: str) -> list[RealServer]:
    mapping = {"properties": {"message": {"type": "date"}, "payload": {"type": "text"}}}
    assert real.call("PUT", f"/{index}", {"mappings": mapping})[0] == 200
    contract.cluster.indices[index] = Index(index, mapping)
    return [real, RealServer(contract.url)]


def outcome(server: RealServer, method: str, path: str, body: Any, media: str) -> Any:
    """What a client can tell apart: status, and of each item its status and error."""
    status, answer = server.call(method, path, body, media)
    items = [
        (op, result["status"], result.get("error", {}).get("type"), result.get("error", {}).get("reason"))
        for item in answer.get("items", [])
        for op, result in item.items()
    ]
    return status, answer.get("errors"), items


@pytest.mark.parametrize(
    "pairs",
    [
        [create("1")],
        [create("1"), create("1")],
        [create("1"), create("2", {"message": "text"}), create("3")],
        [create("1", {"payload": {"a": 1}}), create("2")],
        [create("1", _type="logs")],
        [create("1", {}), create("2", {"other": [1, 2]})],
    ],
)
@pytest.mark.parametrize("query", ["", "?" + FILTER])
def test_bulk_requests(both: list[RealServer], index: str, pairs: list[Any], query: str) -> None:
    real, contract = (outcome(server, "PUT", f"/{index}/_bulk{query}", bulk(*pairs), NDJSON) for server in both)
    assert contract == real


def test_filtered_answers_have_the_same_form(both: list[RealServer], index: str) -> None:
    body = bulk(create("1"), create("1"), create("2", {"message": "text"}))
    real, contract = (server.call("PUT", f"/{index}/_bulk?{FILTER}", body, NDJSON)[1] for server in both)
    assert contract == real


def test_redelivery(both: list[RealServer], index: str) -> None:
    for _ in range(2):
        body = bulk(create("1"), create("2"))
        real, contract = (outcome(server, "PUT", f"/{index}/_bulk", body, NDJSON) for server in both)
        assert contract == real


def test_a_name_that_no_index_may_have(both: list[RealServer]) -> None:
    real, contract = (outcome(server, "PUT", "/Upper/_bulk", bulk(create("1")), NDJSON) for server in both)
    assert contract == real


@pytest.mark.parametrize(
    "body",
    [
        bulk(create("1"))[:-1],
        b'{"creat": {"_id": "1"}}\n{}\n',
        b'{"create": {"_id": "1", "other": 1}}\n{}\n',
        b"",
    ],
)
def test_both_servers_refuse_a_malformed_bulk_request(
    both: list[RealServer], contract: ContractServer, index: str, body: bytes
) -> None:
    assert [server.call("PUT", f"/{index}/_bulk", body, NDJSON)[0] for server in both] == [400, 400]
    assert contract.violations


@pytest.mark.parametrize("path", ["/_template/fusion-test-none", "/_ilm/policy/fusion-test-none", "/fusion-test-none/_mapping"])
def test_both_servers_answer_404_for_missing_documents(both: list[RealServer], path: str) -> None:
    assert [server.call("GET", path)[0] for server in both] == [404, 404]


def test_neither_has_composable_templates(both: list[RealServer]) -> None:
    body = {"index_patterns": ["fusion-test-none"]}
    assert [server.call("PUT", "/_index_template/fusion-test-none", body)[0] for server in both] == [405, 405]


def test_neither_has_lifecycle_policies(both: list[RealServer]) -> None:
    body = {"policy": {"phases": {}}}
    assert [server.call("PUT", "/_ilm/policy/fusion-test-none", body)[0] for server in both] == [400, 400]


def test_an_index_that_is_there_is_not_made_again(both: list[RealServer], index: str) -> None:
    answers = [server.call("PUT", f"/{index}") for server in both]
    assert [(status, answer["error"]["type"]) for status, answer in answers] == [(400, "resource_already_exists_exception")] * 2


def test_a_template_comes_back_alike(both: list[RealServer], index: str) -> None:
    template = {
        "index_patterns": [index],
        "order": 500,
        "version": 1,
        "settings": {"index": {"number_of_shards": 1}},
        "mappings": {"logs": {"dynamic": False, "properties": {"payload": {"type": "text", "index": False}}}},
    }
    answers = []
    for server in both:
        assert server.call("PUT", f"/_template/{index}?include_type_name=true", template)[0] == 200
        answers.append(server.call("GET", f"/_template/{index}?include_type_name=true")[1])
    assert answers[1] == answers[0]
