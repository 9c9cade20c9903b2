"""The sink and its set-up against a real server."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from fusion.events.sink import SinkUnavailable
from fusion.exceptions import ConfigurationError
from fusion.sinks.elasticsearch import ElasticsearchSink
from fusion.sinks.es_options import ElasticsearchOptions
from fusion.sinks.es_setup import setup
from tests.es.conftest import RealServer
from tests.sinks.events import event, some

HOSTILE = ["", "2026-13-45", "{", "\x00\x1f", "x" * 40_000, "\ud800", "\u2028", "1e999", '{"a": {"b": 1}}', "a_b_c"]


def ids(*numbers: int) -> set[str]:
    return {f"1769851800-{number}" for number in numbers}


class TestSetup:
    def test_it_makes_template_and_index_once(self, real: RealServer, options: ElasticsearchOptions, index: str) -> None:
        kind = "legacy template" if real.version < (7, 8) else "index template"
        assert setup(options)[1:] == [f"{kind} {index}: created", f"index {index}-000001: created, behind the alias {index}"]
        assert setup(options)[1:] == [f"{kind} {index}: unchanged", f"alias {index}: unchanged"]
        assert setup(replace(options, shards=2))[1:] == [f"{kind} {index}: updated", f"alias {index}: unchanged"]

    def test_a_rollover_makes_the_next_index_which_gets_what_comes(
        self, real: RealServer, options: ElasticsearchOptions, sink: ElasticsearchSink, index: str
    ) -> None:
        setup(options)
        assert sink.write(some(2)) == []
        status, told = real.call("POST", f"/{index}/_rollover")
        assert (status, told["new_index"]) == (200, f"{index}-000002")
        assert sink.write(some(2, start=3)) == []
        assert set(real.hits(f"{index}-000001")) == ids(1, 2)
        assert set(real.hits(f"{index}-000002")) == ids(3, 4)
        assert set(real.hits(index)) == ids(1, 2, 3, 4)
        _, answer = real.call("GET", f"/{index}-000002/_mapping")
        assert answer[f"{index}-000002"]["mappings"]["properties"]["status"]["type"] == "keyword"
        real.call("DELETE", f"/{index}-000001")
        assert set(real.hits(index)) == ids(3, 4)

    def test_one_index_becomes_an_alias_as_the_page_says(
        self, real: RealServer, options: ElasticsearchOptions, sink: ElasticsearchSink, index: str
    ) -> None:
        sink.write(some(3))
        assert "it is one index and no alias" in setup(options)[2]
        assert real.call("PUT", f"/{index}-000001")[0] == 200
        moved = {"source": {"index": index}, "dest": {"index": f"{index}-000001"}}
        status, told = real.call("POST", "/_reindex?refresh=true", moved)
        if status == 200:
            assert told["failures"] == []
        else:  # a bare core has no such module
            lines = [json.dumps(line) for one, doc in real.hits(index).items() for line in ({"create": {"_id": one}}, doc)]
            body = ("\n".join(lines) + "\n").encode()
            assert real.call("POST", f"/{index}-000001/_bulk", body, "application/x-ndjson")[1]["errors"] is False
        actions = [
            {"remove_index": {"index": index}},
            {"add": {"index": f"{index}-000001", "alias": index, "is_write_index": True}},
        ]
        assert real.call("POST", "/_aliases", {"actions": actions})[0] == 200
        assert setup(options)[2:] == [f"alias {index}: unchanged"]
        assert sink.write(some(5)) == []
        assert set(real.hits(index)) == ids(1, 2, 3, 4, 5)

    def test_the_index_has_the_mapping_also_when_the_server_makes_it(
        self, real: RealServer, options: ElasticsearchOptions, sink: ElasticsearchSink, index: str
    ) -> None:
        setup(options)
        real.call("DELETE", f"/{index}-000001")
        sink.write(some(1))
        _, answer = real.call("GET", f"/{index}/_mapping")
        fields = {name: entry["type"] for name, entry in answer[index]["mappings"]["properties"].items()}
        keywords = dict.fromkeys(("job_id", "task", "task_type", "status", "host", "type"), "keyword")
        assert fields == {**keywords, "log_time": "date", "message": "text", "payload": "text", "job_result": "text"}

    def test_fields_that_do_not_fit_are_named(self, real: RealServer, options: ElasticsearchOptions, index: str) -> None:
        real.call("PUT", f"/{index}", {"mappings": {"properties": {"payload": {"properties": {"to": {"type": "text"}}}}}})
        assert [line for line in setup(options) if "its field payload is of type object" in line]

    def test_a_server_without_data_streams_says_so(self, real: RealServer, options: ElasticsearchOptions) -> None:
        if real.version >= (7, 9):
            pytest.skip("this server has data streams")
        with pytest.raises(ConfigurationError, match="has no data streams"):
            setup(replace(options, data_stream=True))


class TestDocuments:
    def test_documents_read_back_as_they_were_written(
        self, real: RealServer, options: ElasticsearchOptions, sink: ElasticsearchSink, index: str
    ) -> None:
        setup(options)
        assert sink.write([event(7, message="sent to one"), event(8, "queued", result=""), event(9, "canceled")]) == []
        stored = real.hits(index)
        assert stored["1769851800-7"] == {
            "job_id": "job-7",
            "task": "SMS",
            "task_type": "OTP",
            "status": "completed",
            "host": "worker-1",
            "log_time": "2026-01-31T09:30:00.123456Z",
            "message": "sent to one",
            "payload": '{"to": "***"}',
            "job_result": '"ok"',
            "type": "logs",
        }
        assert stored["1769851800-8"]["job_result"] == ""
        assert stored["1769851800-9"]["status"] == "failed"
        assert set(stored) == ids(7, 8, 9)

    def test_documents_are_found_by_status_time_and_words(
        self, real: RealServer, options: ElasticsearchOptions, sink: ElasticsearchSink, index: str
    ) -> None:
        setup(options)
        sink.write([event(1, "completed", message="sent to one"), event(2, "failed", message="no route")])
        assert set(real.hits(index, {"term": {"status": "failed"}})) == ids(2)
        assert set(real.hits(index, {"match": {"message": "sent"}})) == ids(1)
        assert set(real.hits(index, {"range": {"log_time": {"gte": "2026-01-31", "lt": "2026-02-01"}}})) == ids(1, 2)

    @pytest.mark.parametrize("with_setup", [True, False])
    def test_no_content_is_refused(
        self, real: RealServer, options: ElasticsearchOptions, sink: ElasticsearchSink, index: str, with_setup: bool
    ) -> None:
        if with_setup:
            setup(options)
        events = [event(n, message=text, payload=text, result=text) for n, text in enumerate(HOSTILE)]
        assert sink.write(events) == []
        stored = real.hits(index)
        assert [stored[one.id]["payload"] for one in events] == [text.replace("\ud800", "?") for text in HOSTILE]


class TestAgain:
    def test_a_redelivery_is_stored_once(self, real: RealServer, sink: ElasticsearchSink, index: str) -> None:
        assert sink.write(some(3)) == []
        assert sink.write([event(2, message="another text"), *some(4, start=2)]) == []
        stored = real.hits(index)
        assert set(stored) == ids(1, 2, 3, 4, 5)
        assert stored["1769851800-2"]["message"] == ""

    def test_an_event_that_the_mapping_refuses_is_parked_and_others_are_stored(
        self, real: RealServer, sink: ElasticsearchSink, index: str
    ) -> None:
        real.call("PUT", f"/{index}", {"mappings": {"properties": {"message": {"type": "date"}}}})
        day = "2026-01-01"
        (rejected,) = sink.write([event(1, message=day), event(2, message="CANARY"), event(3, message=day)])
        assert rejected.event.id == "1769851800-2"
        assert "failed to parse field [message] of type [date]" in rejected.why
        assert "CANARY" not in rejected.why
        assert set(real.hits(index)) == ids(1, 3)

    def test_an_index_without_the_old_type_takes_them_too(self, real: RealServer, sink: ElasticsearchSink, index: str) -> None:
        real.call("PUT", f"/{index}", {"mappings": {"properties": {"job_id": {"type": "keyword"}}}})
        assert sink.write(some(3)) == []
        assert set(real.hits(index)) == ids(1, 2, 3)

    @pytest.mark.parametrize("trouble", ["closed", "blocked"])
    def test_an_index_out_of_order_parks_nothing_and_a_repeat_completes(
        self, real: RealServer, sink: ElasticsearchSink, index: str, trouble: str
    ) -> None:
        sink.write(some(1))
        block = {"index.blocks.read_only_allow_delete": True}
        ways = {"closed": ("POST", f"/{index}/_close", None), "blocked": ("PUT", f"/{index}/_settings", block)}
        assert real.call(*ways[trouble])[0] == 200
        with pytest.raises(SinkUnavailable, match="did not take 3 of 3 events"):
            sink.write(some(3))
        lift = {"index.blocks.read_only_allow_delete": None}
        ways = {"closed": ("POST", f"/{index}/_open", None), "blocked": ("PUT", f"/{index}/_settings", lift)}
        assert real.call(*ways[trouble])[0] == 200
        assert sink.write(some(3)) == []
        assert set(real.hits(index)) == ids(1, 2, 3)

    def test_under_back_pressure_repeats_store_each_once(
        self, real: RealServer, make_sink: Callable[[], ElasticsearchSink], index: str
    ) -> None:
        _, nodes = real.call("GET", "/_nodes/thread_pool")
        (queue, *_) = [node["thread_pool"]["write"]["queue_size"] for node in nodes["nodes"].values()]
        make_sink().write(some(1))

        def pump(lane: int) -> list[str]:
            sink, events = make_sink(), some(200, start=1 + 200 * lane, payload="x" * 500)
            put_off: list[str] = []
            for first in range(0, 200, 20):
                while True:
                    try:
                        assert sink.write(events[first : first + 20]) == []
                        break
                    except SinkUnavailable as error:
                        put_off.append(str(error))
            return put_off

        with ThreadPoolExecutor(16) as threads:
            put_off = [told for lane in threads.map(pump, range(16)) for told in lane]
        assert set(real.hits(index)) == ids(*range(1, 3201))
        assert all("es_rejected_execution_exception (429)" in told for told in put_off)
        if 0 <= queue <= 10:
            assert put_off, "so small a queue must have overflowed"
