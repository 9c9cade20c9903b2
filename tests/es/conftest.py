"""Against a real Elasticsearch: FUSION_TEST_ES_URL, of which only indices and templates named fusion-test-* are touched."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import elasticsearch  # noqa: F401 - takes long, and a module that a test imports may be forgotten after it
import pytest

from fusion.sinks.elasticsearch import ElasticsearchSink
from fusion.sinks.es_options import ElasticsearchOptions


@dataclass
class RealServer:
    url: str

    def call(self, method: str, path: str, body: Any = None, media: str = "application/json") -> tuple[int, Any]:
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        request = Request(self.url + path, data, {"content-type": media} if data is not None else {}, method=method)
        try:
            with urlopen(request, timeout=30) as answer:
                return answer.status, json.loads(answer.read() or b"{}")
        except HTTPError as error:
            return error.code, json.loads(error.read() or b"{}")

    @property
    def version(self) -> tuple[int, int]:
        major, minor = self.call("GET", "/")[1]["version"]["number"].split(".")[:2]
        return int(major), int(minor)

    def hits(self, index: str, query: dict[str, Any] | None = None) -> dict[str, Any]:
        """Every document of an index by its id."""
        self.call("POST", f"/{index}/_refresh")
        status, found = self.call("POST", f"/{index}/_search", {"size": 10_000, "query": query or {"match_all": {}}})
        assert status == 200, found
        return {hit["_id"]: hit["_source"] for hit in found["hits"]["hits"]}


@pytest.fixture(scope="session")
def real() -> RealServer:
    url = os.environ.get("FUSION_TEST_ES_URL")
    if not url:
        pytest.skip("FUSION_TEST_ES_URL names no Elasticsearch")
    return RealServer(url.rstrip("/"))


@pytest.fixture
def index(real: RealServer) -> Iterator[str]:
    name = f"fusion-test-{uuid.uuid4().hex[:12]}"
    yield name
    for path in (f"/{name}", f"/{name}-0*", f"/_template/{name}", f"/_index_template/{name}"):
        real.call("DELETE", path)


@pytest.fixture
def options(real: RealServer, index: str) -> ElasticsearchOptions:
    return ElasticsearchOptions(urls=(real.url,), index=index, replicas=0, timeout=20.0)


@pytest.fixture
def make_sink(options: ElasticsearchOptions) -> Iterator[Callable[[], ElasticsearchSink]]:
    made = []

    def make() -> ElasticsearchSink:
        made.append(ElasticsearchSink(options))
        return made[-1]

    yield make
    for sink in made:
        sink.close()


@pytest.fixture
def sink(make_sink: Callable[[], ElasticsearchSink]) -> ElasticsearchSink:
    return make_sink()
