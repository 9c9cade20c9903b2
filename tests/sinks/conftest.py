from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import elasticsearch  # noqa: F401 - takes long, and a module that a test imports may be forgotten after it
import pytest

from fusion.sinks.elasticsearch import ElasticsearchSink
from fusion.sinks.es_options import ElasticsearchOptions
from tests.sinks.contract import ContractServer

MakeSink = Callable[..., ElasticsearchSink]


@pytest.fixture
def server() -> Iterator[ContractServer]:
    """A healthy server of today. Whatever a test does to it, every request must have been one that Elastic specifies."""
    server = ContractServer()
    yield server
    server.stop()
    assert server.violations == []


@pytest.fixture
def options(server: ContractServer) -> Callable[..., ElasticsearchOptions]:
    return lambda **more: ElasticsearchOptions(**{"urls": (server.url,), "timeout": 5.0, **more})


@pytest.fixture
def make_sink(options: Callable[..., ElasticsearchOptions]) -> Iterator[MakeSink]:
    made = []

    def make(**more: Any) -> ElasticsearchSink:
        made.append(ElasticsearchSink(options(**more)))
        return made[-1]

    yield make
    for sink in made:
        sink.close()


@pytest.fixture
def sink(make_sink: MakeSink) -> ElasticsearchSink:
    return make_sink()
