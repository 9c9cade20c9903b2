"""What the sink sends to a healthy server."""

from __future__ import annotations

import base64
import json
import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from fusion.events.event import STATUSES
from fusion.events.sink import SinkUnavailable
from fusion.exceptions import ConfigurationError
from fusion.sinks.elasticsearch import ElasticsearchSink
from fusion.sinks.es_documents import CLASSIC_MAPPING, ECS_MAPPING
from fusion.sinks.es_options import ElasticsearchOptions
from tests.sinks.api_schema import ecs_fields
from tests.sinks.cluster import Index
from tests.sinks.conftest import MakeSink
from tests.sinks.contract import ContractServer
from tests.sinks.events import event, some

STREAM = "logs-fusion.job-default"


def leaves(value: dict[str, Any], where: str = "") -> Iterator[tuple[str, Any]]:
    for key, item in value.items():
        yield from leaves(item, f"{where}{key}.") if isinstance(item, dict) else [(where + key, item)]


class TestTheClassicIndex:
    def test_a_document_has_the_fields_of_old_and_no_others(self, server: ContractServer, sink: ElasticsearchSink) -> None:
        assert sink.write([event(7, message="sent")]) == []
        assert server.documents() == {
            "1769851800-7": {
                "job_id": "job-7",
                "task": "SMS",
                "task_type": "OTP",
                "status": "completed",
                "host": "worker-1",
                "log_time": "2026-01-31T09:30:00.123456Z",
                "message": "sent",
                "payload": '{"to": "***"}',
                "job_result": '"ok"',
                "type": "logs",
            }
        }

    def test_payload_and_result_are_there_even_when_there_are_none(self, server: ContractServer, sink: ElasticsearchSink) -> None:
        sink.write([event(1, "queued", payload="", result="", host="")])
        (document,) = server.documents().values()
        assert (document["payload"], document["job_result"], document["host"]) == ("", "", "")

    def test_the_message_of_an_event_without_one_is_its_reason(self, server: ContractServer, sink: ElasticsearchSink) -> None:
        sink.write([event(1, "failed", reason="ValueError at tasks/sms.py:12")])
        assert [document["message"] for document in server.documents().values()] == ["ValueError at tasks/sms.py:12"]

    def test_only_the_five_statuses_are_written(self, server: ContractServer, sink: ElasticsearchSink) -> None:
        sink.write([event(number, status) for number, status in enumerate([*sorted(STATUSES), "canceled", "scheduled", "held"])])
        assert {document["status"] for document in server.documents().values()} == STATUSES
        assert len(server.documents()) == len(STATUSES) + 1

    @pytest.mark.parametrize("end", ["expired", "canceled"])
    def test_a_job_that_expired_or_was_canceled_does_not_stay_queued(
        self, server: ContractServer, make_sink: MakeSink, end: str
    ) -> None:
        make_sink().write([event(1, "queued"), event(2, end, message=f"{end}: told why")])
        document = server.documents()["1769851800-2"]
        assert (document["status"], document["message"]) == ("failed", f"{end}: told why")
        make_sink(more_statuses=True).write([event(3, end)])
        assert server.documents()["1769851800-3"]["status"] == end

    def test_nothing_to_write_is_no_request(self, server: ContractServer, sink: ElasticsearchSink) -> None:
        assert sink.write([]) == []
        assert sink.write([event(1, "held")]) == []
        assert server.requests == []

    def test_an_event_that_comes_again_is_delivered_and_stored_once(
        self, server: ContractServer, sink: ElasticsearchSink
    ) -> None:
        assert sink.write(some(3)) == []
        assert sink.write(some(5)) == []
        assert list(server.documents()) == [f"1769851800-{number}" for number in range(1, 6)]

    def test_another_index_can_be_named(self, server: ContractServer, make_sink: MakeSink) -> None:
        make_sink(index="audit").write(some(2))
        assert len(server.documents("audit")) == 2
        assert not server.documents()

    @pytest.mark.parametrize(
        "text", ["a\nb\r\n", "\x00\x1f", "\ud800 half", "\u2028\u2029\x85", "\U0001f600", '"}\n{"create":{}}', "{"]
    )
    def test_any_text_is_one_document(self, server: ContractServer, sink: ElasticsearchSink, text: str) -> None:
        assert sink.write([event(1, payload=text, result=text, message=text), event(2)]) == []
        assert len(server.documents()) == 2
        assert server.documents()["1769851800-1"]["payload"] == text.replace("\ud800", "?")


class TestSizes:
    def test_requests_are_bounded_by_bytes(self, server: ContractServer, make_sink: MakeSink) -> None:
        sink = make_sink(max_batch_bytes=60_000, max_document_bytes=20_000)
        assert sink.write(some(40, payload="x" * 5000)) == []
        assert len(server.documents()) == 40
        lines = [len(request.body.splitlines()) // 2 for request in server.bulks()]
        assert sum(lines) == 40
        assert all(len(request.body) <= 60_000 for request in server.bulks())
        # Filled, not one by one: eleven of 5 kB fit into 60 kB.
        assert len(lines) == 4

    def test_the_lines_between_the_documents_count_too(self, server: ContractServer, make_sink: MakeSink) -> None:
        make_sink(max_batch_bytes=20_000, max_document_bytes=20_000).write(some(300))
        assert len(server.documents()) == 300
        assert all(15_000 < len(request.body) <= 20_000 for request in server.bulks()[:-1])

    @pytest.mark.parametrize("text", ["x", "\x00", "\u20ac", "\U0001f600"])
    @pytest.mark.parametrize("data_stream", [False, True])
    def test_a_text_too_long_is_cut_and_says_so(
        self, server: ContractServer, make_sink: MakeSink, text: str, data_stream: bool
    ) -> None:
        sink = make_sink(max_document_bytes=20_000, data_stream=data_stream)
        server.cluster.templates["t"] = {
            "index_patterns": ["logs-*"],
            "priority": 1,
            **({"data_stream": {}} if data_stream else {}),
        }
        long = text * 100_000
        assert sink.write([event(1, payload=long, result=long, message=long, reason=long)]) == []
        (request,) = server.bulks()
        assert len(request.body.splitlines(keepends=True)[1]) <= 20_000
        (document,) = server.documents(STREAM if data_stream else "active-fusion-logs").values()
        payload = document["fusion"]["payload"] if data_stream else document["payload"]
        assert payload.startswith(text * 600)
        assert payload.endswith("... [cut, 100000 characters]")

    def test_what_fits_is_not_cut(self, server: ContractServer, make_sink: MakeSink) -> None:
        make_sink(max_document_bytes=20_000).write([event(1, payload="x" * 19_000)])
        assert server.documents()["1769851800-1"]["payload"] == "x" * 19_000


class TestVersions:
    @pytest.mark.parametrize("version", [(7, 14), (7, 17), (8, 0), (8, 11), (8, 19), (9, 0), (9, 5)])
    def test_whichever_client_there_is_speaks_to_servers_of_7_8_and_9(
        self, server: ContractServer, sink: ElasticsearchSink, version: tuple[int, int]
    ) -> None:
        server.cluster.version = version
        assert sink.write(some(3)) == []
        assert len(server.documents()) == 3

    @pytest.mark.parametrize(("version", "typed"), [((7, 0), True), ((7, 17), True), ((8, 0), False), ((9, 5), False)])
    def test_the_mapping_type_is_sent_to_servers_that_know_it(
        self, server: ContractServer, sink: ElasticsearchSink, version: tuple[int, int], typed: bool
    ) -> None:
        server.cluster.version = version
        sink.write(some(1))
        action = json.loads(server.bulks()[0].body.splitlines()[0])
        assert action == {"create": {"_id": "1769851800-1"} | ({"_type": "logs"} if typed else {})}

    def test_an_index_without_that_type_takes_events_all_the_same(self, server: ContractServer, sink: ElasticsearchSink) -> None:
        server.cluster.version = (7, 17)
        server.cluster.indices["active-fusion-logs"] = Index("active-fusion-logs")
        assert sink.write(some(3)) == []
        assert sink.write(some(3, start=4)) == []
        assert len(server.documents()) == 6
        assert len(server.bulks()) == 3, "the form that fits is remembered"

    def test_the_version_is_asked_once_and_again_after_a_failure(self, server: ContractServer, sink: ElasticsearchSink) -> None:
        sink.write(some(1))
        sink.write(some(1))
        assert [request.endpoint for request in server.requests] == ["info", "bulk", "bulk"]
        with server.broken(status=503), pytest.raises(SinkUnavailable, match="answers 503"):
            sink.write(some(1))
        server.cluster.version = (8, 1)
        assert sink.write(some(1, start=2)) == []
        assert [request.endpoint for request in server.requests[3:]] == ["bulk", "info", "bulk"]

    def test_credentials_that_may_not_ask_for_the_version_may_still_write(
        self, server: ContractServer, sink: ElasticsearchSink
    ) -> None:
        server.forbidden = {"info"}
        server.cluster.version = _of_the_client()
        assert sink.write(some(2)) == []
        assert len(server.documents()) == 2


def _of_the_client() -> tuple[int, int]:
    import elasticsearch

    return elasticsearch.__version__[0], 0


class TestTheDataStream:
    @pytest.fixture
    def stream(self, server: ContractServer, make_sink: MakeSink) -> ElasticsearchSink:
        server.cluster.templates["logs"] = {"index_patterns": ["logs-*-*"], "priority": 100, "data_stream": {}}
        return make_sink(data_stream=True, service="billing")

    def test_it_gets_all_events_in_ecs_form(self, server: ContractServer, stream: ElasticsearchSink) -> None:
        assert stream.all_events
        failed = event(
            9, "failed", worker="w1", priority=2, attempts=3, elapsed=0.0125, reason="app.errors.Declined at tasks/sms.py:12"
        )
        assert stream.write([failed, event(10, "canceled", payload="", result="")]) == []
        documents = server.documents(STREAM)
        assert documents["1769851800-9"] == {
            "@timestamp": "2026-01-31T09:30:00.123456Z",
            "message": "app.errors.Declined at tasks/sms.py:12",
            "data_stream": {"type": "logs", "dataset": "fusion.job", "namespace": "default"},
            "ecs": {"version": "9.4.0"},
            "event": {
                "id": "1769851800-9",
                "kind": "event",
                "category": ["process"],
                "type": ["end"],
                "action": "failed",
                "module": "fusion",
                "dataset": "fusion.job",
                "outcome": "failure",
                "duration": 12_500_000,
            },
            "service": {"name": "billing"},
            "host": {"name": "worker-1"},
            "error": {"type": "app.errors.Declined", "message": "app.errors.Declined at tasks/sms.py:12"},
            "fusion": {
                "job_id": "job-9",
                "queue": "sms",
                "task": "SMS",
                "task_type": "OTP",
                "func": "tasks.sms.send",
                "log_tag": "SMS_OTP",
                "worker": "w1",
                "priority": 2,
                "attempts": 3,
                "reason": "app.errors.Declined at tasks/sms.py:12",
                "payload": '{"to": "***"}',
                "result": '"ok"',
            },
        }
        canceled = documents["1769851800-10"]
        assert canceled["event"]["action"] == "canceled"
        assert (canceled["event"]["outcome"], canceled["event"]["type"]) == ("unknown", ["end"])
        assert "duration" not in canceled["event"]
        assert stream.write([event(11, "expired", reason="ttl"), event(12, "held")]) == []
        expired, held = (server.documents(STREAM)[f"1769851800-{number}"] for number in (11, 12))
        assert (expired["event"]["outcome"], expired["event"]["type"], expired["error"]) == (
            "failure",
            ["end"],
            {"message": "ttl"},
        )
        assert "outcome" not in held["event"]
        assert (canceled["fusion"]["payload"], canceled["fusion"]["result"]) == ("", "")

    def test_every_field_is_of_the_common_schema_or_our_own(self, server: ContractServer, stream: ElasticsearchSink) -> None:
        everything = {
            "worker": "w",
            "priority": 1,
            "attempts": 1,
            "elapsed": 1.5,
            "delay": 2.5,
            "reason": "ValueError",
            "message": "m",
        }
        stream.write([event(n, status, **everything) for n, status in enumerate([*sorted(STATUSES), "held"])])
        known, mapped = ecs_fields(), dict(leaves(ECS_MAPPING["properties"]))
        used = {name for document in server.documents(STREAM).values() for name, _ in leaves(document)}
        assert "fusion.delay" in used
        for name in used:
            assert name in known or name.startswith("fusion."), f"{name} is no field of ECS"
            kind = mapped[f"{'.properties.'.join(name.split('.'))}.type"]
            assert kind == known.get(name, kind), f"{name} is {known.get(name)} in ECS"

    @pytest.mark.parametrize(
        ("reason", "kind"),
        [
            ("ValueError", "ValueError"),
            ("a.b.Bad: x", "a.b.Bad"),
            ("Timeout in tasks/x.py:3", "Timeout"),
            ("its worker died", None),
        ],
    )
    def test_the_class_of_an_error_is_its_type(
        self, server: ContractServer, stream: ElasticsearchSink, reason: str, kind: str | None
    ) -> None:
        stream.write([event(1, "retry", reason=reason)])
        (document,) = server.documents(STREAM).values()
        assert document["error"].get("type") == kind
        assert document["error"]["message"] == reason

    def test_a_repeated_event_is_stored_once(self, server: ContractServer, stream: ElasticsearchSink) -> None:
        for _ in range(2):
            assert stream.write(some(3)) == []
        assert len(server.documents(STREAM)) == 3

    def test_a_namespace_parts_streams(self, server: ContractServer, stream: ElasticsearchSink, make_sink: MakeSink) -> None:
        make_sink(data_stream=True, namespace="staging").write(some(1))
        (document,) = server.documents("logs-fusion.job-staging").values()
        assert document["data_stream"]["namespace"] == "staging"


def test_the_mapping_names_exactly_the_fields_of_a_classic_document(server: ContractServer, sink: ElasticsearchSink) -> None:
    sink.write(some(1))
    (document,) = server.documents().values()
    assert set(CLASSIC_MAPPING["properties"]) == set(document)


class TestCredentials:
    @pytest.mark.parametrize(
        ("given", "wanted"),
        [
            ({"username": "anna", "password": "p@ss:w"}, "Basic " + base64.b64encode(b"anna:p@ss:w").decode()),
            ({"api_key": "aWQ6a2V5"}, "ApiKey aWQ6a2V5"),
            ({"api_key": "id:key"}, "ApiKey " + base64.b64encode(b"id:key").decode()),
            ({"urls": "http://anna:p%40ss@127.0.0.1:{port}"}, "Basic " + base64.b64encode(b"anna:p@ss").decode()),
        ],
    )
    def test_they_are_sent(self, server: ContractServer, make_sink: MakeSink, given: dict[str, Any], wanted: str) -> None:
        server.authorization = wanted
        if "urls" in given:
            given = {"urls": (given["urls"].format(port=server.port),)}
        assert make_sink(**given).write(some(1)) == []
        assert len(server.documents()) == 1

    def test_credentials_are_in_no_log_and_no_error(
        self, server: ContractServer, make_sink: MakeSink, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        sink = make_sink(urls=(f"http://anna:CANARY@127.0.0.1:{server.port}",))
        sink.write(some(1))
        told = []
        for fault in ({"status": 401}, {"status": 503}, {"reset": True}):
            with server.broken(**fault), pytest.raises(SinkUnavailable) as raised:
                sink.write(some(1))
            told.append(str(raised.value))
        server.down()
        with pytest.raises(SinkUnavailable, match="can't be reached") as raised:
            sink.write(some(1))
        assert "CANARY" not in caplog.text + "".join(told) + str(raised.value)
        assert base64.b64encode(b"anna:CANARY").decode() not in caplog.text
        assert not [record for record in caplog.records if record.name.startswith("elastic")]


def test_without_its_library_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "elasticsearch", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'fusion-queue\[elasticsearch\]'") as raised:
        ElasticsearchSink(ElasticsearchOptions(urls=("http://localhost:9200",)))
    assert "\n" not in str(raised.value)


def test_a_library_of_another_age_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elasticsearch.__version__", (7, 17, 9))
    with pytest.raises(ConfigurationError, match=r"below 10: pip install .*7\.17\.9"):
        ElasticsearchSink(ElasticsearchOptions(urls=("http://localhost:9200",)))
