"""What the sink makes of a server in trouble: what was delivered is there once, what was refused is reported, a repeat completes."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
import trustme

from fusion.events.sink import SinkUnavailable
from fusion.exceptions import ConfigurationError
from fusion.sinks.elasticsearch import ElasticsearchSink
from tests.sinks.cluster import Index
from tests.sinks.conftest import MakeSink
from tests.sinks.contract import ContractServer, Request
from tests.sinks.events import event, some

IDS = [f"1769851800-{number}" for number in range(1, 6)]


def stored_once(server: ContractServer, count: int = 5) -> None:
    assert list(server.documents()) == [f"1769851800-{number}" for number in range(1, count + 1)]


WHOLE: dict[str, tuple[dict[str, Any], str]] = {
    "429": ({"status": 429}, "answers 429"),
    "500": ({"status": 500}, "answers 500"),
    "502": ({"status": 502, "body": "<html>Bad Gateway</html>", "headers": {"content-type": "text/html"}}, "answers"),
    "503": ({"status": 503}, "answers 503"),
    "504": ({"status": 504}, "answers 504"),
    "408": ({"status": 408}, "answers 408"),
    "401": ({"status": 401}, "correct elasticsearch_api_key, or elasticsearch_username"),
    "403": ({"status": 403}, "give them the privileges create_doc and auto_configure"),
    "400": ({"status": 400}, "refuses the whole request"),
    "404": ({"status": 404}, "refuses the whole request"),
    "302": ({"status": 302, "headers": {"location": "https://elsewhere/"}}, "redirects"),
    "slower than we wait": ({"delay": 8.0}, "did not answer in time"),
    "hung": ({"hang": True}, "did not answer in time"),
    "reset before it was done": ({"reset": True}, "can't be reached"),
    "reset after it was done": ({"reset": True, "lost": True}, "can't be reached"),
    "done, but the answer is 503": ({"status": 503, "lost": True}, "answers 503"),
    "an answer of another form": ({"status": 200, "body": '{"took": 1}'}, "another form"),
    "an answer with no items": ({"status": 200, "body": '{"items": []}', "lost": True}, "answered for 0 of 5"),
    "an answer that is no JSON": ({"status": 200, "body": "{"}, "not like Elasticsearch"),
    "a web page": ({"status": 200, "body": "<html>", "headers": {"content-type": "text/html"}}, "not like Elasticsearch"),
}


class TestTheWholeServer:
    @pytest.mark.parametrize("name", WHOLE)
    def test_a_fault_is_reported_and_a_repeat_completes(self, server: ContractServer, make_sink: MakeSink, name: str) -> None:
        sink = make_sink(timeout=0.5)
        fault, told = WHOLE[name]
        sink.write(some(1))
        before = len(server.bulks())
        with server.broken(**fault), pytest.raises(SinkUnavailable, match=told):
            sink.write(some(5))
        assert len(server.bulks()) == before + 1, "no retries of its own"
        assert sink.write(some(5)) == []
        stored_once(server)

    @pytest.mark.parametrize("name", ["503", "hung", "reset before it was done", "401", "a web page"])
    def test_so_it_is_when_the_version_is_asked_for(self, server: ContractServer, make_sink: MakeSink, name: str) -> None:
        sink = make_sink(timeout=0.5)
        fault, told = WHOLE[name]
        with server.broken(on="info", **fault), pytest.raises(SinkUnavailable, match=told):
            sink.write(some(5))
        assert not server.bulks()
        assert sink.write(some(5)) == []
        stored_once(server)

    def test_down_and_up_again(self, server: ContractServer, sink: ElasticsearchSink) -> None:
        sink.write(some(2))
        server.down()
        for _ in range(3):
            with pytest.raises(SinkUnavailable, match=r"http://localhost:\d+ can't be reached: "):
                sink.write(some(5))
        server.up()
        assert sink.write(some(5)) == []
        stored_once(server)

    def test_slow_is_no_fault(self, server: ContractServer, make_sink: MakeSink) -> None:
        sink = make_sink(timeout=5.0)
        with server.broken(on="*", delay=0.3):
            assert sink.write(some(5)) == []
        stored_once(server)

    def test_something_that_is_no_elasticsearch(self, server: ContractServer, sink: ElasticsearchSink) -> None:
        server.product = None
        with pytest.raises(SinkUnavailable, match=r"is not Elasticsearch 7\.14 or newer"):
            sink.write(some(5))
        assert not server.documents()

    @pytest.mark.parametrize(
        ("header", "seconds"),
        [("7", 7.0), ("0.5", 0.5), ("999999", 3600.0), ("soon", None), ("nan", None), (None, None), ("-3", 0.0)],
    )
    @pytest.mark.parametrize("status", [429, 503])
    def test_when_to_come_again_is_passed_on(
        self, server: ContractServer, sink: ElasticsearchSink, status: int, header: str | None, seconds: float | None
    ) -> None:
        headers = {"retry-after": header} if header else {}
        with server.broken(status=status, headers=headers), pytest.raises(SinkUnavailable) as raised:
            sink.write(some(1))
        assert raised.value.retry_after == seconds

    def test_also_when_it_is_a_date(self, server: ContractServer, sink: ElasticsearchSink) -> None:
        header = format_datetime(datetime.now(timezone.utc) + timedelta(minutes=10), usegmt=True)
        with server.broken(status=503, headers={"retry-after": header}), pytest.raises(SinkUnavailable) as raised:
            sink.write(some(1))
        assert raised.value.retry_after is not None
        assert 300 < raised.value.retry_after <= 600

    def test_a_full_disk_is_no_matter_of_credentials(self, server: ContractServer, sink: ElasticsearchSink) -> None:
        body = (
            '{"error": {"type": "cluster_block_exception", "reason": "blocked by: [disk usage exceeded flood-stage watermark]"}}'
        )
        with server.broken(status=403, body=body), pytest.raises(SinkUnavailable, match=r"takes no writes: .*free disk space"):
            sink.write(some(5))
        assert sink.write(some(5)) == []
        stored_once(server)

    def test_the_second_of_several_batches_fails(self, server: ContractServer, make_sink: MakeSink) -> None:
        sink = make_sink(max_batch_bytes=20_000, max_document_bytes=20_000)
        events = some(6, payload="x" * 9000)

        def is_later(request: Request) -> bool:
            return b'"1769851800-3"' in request.body

        with server.broken(status=503, when=is_later), pytest.raises(SinkUnavailable):
            sink.write(events)
        stored_once(server, 2)
        assert sink.write(events) == []
        stored_once(server, 6)

    def test_one_dead_url_of_several_loses_no_event(self, server: ContractServer, make_sink: MakeSink) -> None:
        dead = ContractServer()
        dead.stop()
        sink = make_sink(urls=(dead.url, server.url))
        failures = 0
        for number in range(1, 6):
            try:
                sink.write(some(number))
            except SinkUnavailable:
                failures += 1
        assert failures <= 2, "the dead one is left aside for a while"
        assert sink.write(some(5)) == []
        stored_once(server)


class TestTooLarge:
    def limit(self, most: int) -> Callable[[Request], bool]:
        return lambda request: len(request.body) > most

    def test_a_batch_is_halved_until_it_is_taken(self, server: ContractServer, make_sink: MakeSink) -> None:
        sink = make_sink(max_document_bytes=20_000)
        events = some(40, payload="x" * 5000)
        with server.broken(status=413, when=self.limit(60_000)):
            assert sink.write(events) == []
            stored_once(server, 40)
            refused = len(server.bulks())
            assert sink.write(some(40, start=41, payload="x" * 5000)) == []
            assert all(len(request.body) <= 60_000 for request in server.bulks()[refused:]), "it remembers"
        stored_once(server, 80)

    def test_a_single_event_that_is_too_large_is_refused_alone(self, server: ContractServer, sink: ElasticsearchSink) -> None:
        large = event(3, payload="x" * 100_000)
        events = [*some(2), large, *some(2, start=4)]
        with server.broken(status=413, when=self.limit(50_000)):
            (rejected,) = sink.write(events)
            assert rejected.event == large
            assert "lower elasticsearch_max_document_bytes" in rejected.why
            assert list(server.documents()) == [name for name in IDS if name != "1769851800-3"]

    def test_a_proxy_that_takes_nothing_parks_nothing(self, server: ContractServer, sink: ElasticsearchSink) -> None:
        with server.broken(status=413), pytest.raises(SinkUnavailable, match="takes not even"):
            sink.write(some(5))
        assert sink.write(some(5)) == []
        stored_once(server)


class TestSingleEvents:
    def refuse(self, server: ContractServer, *numbers: int, status: int, kind: str = "kind", reason: str = "why") -> None:
        names = {f"1769851800-{number}" for number in numbers}
        server.cluster.refuse = lambda doc_id, document: (status, kind, reason) if doc_id in names else None

    def heal(self, server: ContractServer) -> None:
        server.cluster.refuse = lambda doc_id, document: None

    @pytest.mark.parametrize(
        ("status", "kind"),
        [
            (429, "es_rejected_execution_exception"),
            (429, "circuit_breaking_exception"),
            (503, "unavailable_shards_exception"),
            (500, "exception"),
            (403, "cluster_block_exception"),
            (403, "security_exception"),
            (404, "index_not_found_exception"),
            (400, "index_closed_exception"),
            (400, "validation_exception"),
        ],
    )
    def test_some_are_put_off(self, server: ContractServer, sink: ElasticsearchSink, status: int, kind: str) -> None:
        self.refuse(server, 2, 4, status=status, kind=kind)
        with pytest.raises(SinkUnavailable, match=rf"did not take 2 of 5 events: {kind} \({status}\)"):
            sink.write(some(5))
        assert list(server.documents()) == [IDS[0], IDS[2], IDS[4]]
        self.heal(server)
        assert sink.write(some(5)) == []
        assert sorted(server.documents()) == IDS

    @pytest.mark.parametrize("kind", ["mapper_parsing_exception", "document_parsing_exception", "illegal_argument_exception"])
    def test_one_is_refused_for_good_and_the_others_are_stored(
        self, server: ContractServer, sink: ElasticsearchSink, kind: str
    ) -> None:
        self.refuse(server, 3, status=400, kind=kind, reason="failed to parse field [x] of type [date]")
        (rejected,) = sink.write(some(5))
        assert rejected.event == event(3)
        assert rejected.why == f"{kind} (400): failed to parse field [x] of type [date]"
        assert list(server.documents()) == [name for name in IDS if name != "1769851800-3"]

    def test_a_refusal_does_not_quote_the_document(self, server: ContractServer, sink: ElasticsearchSink) -> None:
        server.cluster.indices["active-fusion-logs"] = Index("active-fusion-logs", {"properties": {"message": {"type": "date"}}})
        (rejected,) = sink.write([event(1, message="CANARY"), event(2, message="2026-01-01")])
        assert rejected.event.id == "1769851800-1"
        assert "failed to parse field [message]" in rejected.why
        assert "CANARY" not in rejected.why

    def test_refused_and_put_off_in_one_batch(self, server: ContractServer, sink: ElasticsearchSink) -> None:
        answers = {"1769851800-1": (400, "mapper_parsing_exception", "no"), "1769851800-2": (429, "rejected", "later")}
        server.cluster.refuse = lambda doc_id, document: answers.get(doc_id)
        with pytest.raises(SinkUnavailable, match="did not take 1 of 5"):
            sink.write(some(5))
        del answers["1769851800-2"]
        (rejected,) = sink.write(some(5))
        assert rejected.event.id == "1769851800-1"
        assert sorted(server.documents()) == IDS[1:]

    def test_an_index_that_may_not_be_made_names_the_command_that_makes_it(
        self, server: ContractServer, sink: ElasticsearchSink
    ) -> None:
        server.cluster.auto_create = False
        with pytest.raises(SinkUnavailable, match=r"run `run_worker.py events setup`"):
            sink.write(some(5))
        server.cluster.auto_create = True
        assert sink.write(some(5)) == []
        stored_once(server)


class TestTls:
    @pytest.fixture
    def authority(self) -> trustme.CA:
        return trustme.CA()

    @pytest.fixture
    def secure(self, authority: trustme.CA) -> Iterator[ContractServer]:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert("localhost").configure_cert(context)
        server = ContractServer(tls=context)
        yield server
        server.stop()
        assert server.violations == []

    def test_a_server_of_an_unknown_authority_is_not_trusted(self, secure: ContractServer, make_sink: MakeSink) -> None:
        with pytest.raises(SinkUnavailable, match=r"certificate verify failed.*set elasticsearch_ca_certs"):
            make_sink(urls=(secure.url,)).write(some(1))
        assert not secure.requests

    def test_with_its_authority_it_is(
        self, secure: ContractServer, make_sink: MakeSink, authority: trustme.CA, tmp_path: Path
    ) -> None:
        path = tmp_path / "ca.pem"
        authority.cert_pem.write_to_path(str(path))
        assert make_sink(urls=(secure.url,), ca_certs=str(path)).write(some(5)) == []
        stored_once(secure)

    def test_unverified_only_when_asked_for(
        self, secure: ContractServer, make_sink: MakeSink, recwarn: pytest.WarningsRecorder
    ) -> None:
        assert make_sink(urls=(secure.url,), verify_certs=False).write(some(5)) == []
        stored_once(secure)

    def test_an_authority_that_is_not_there_is_noticed_at_once(self, secure: ContractServer, make_sink: MakeSink) -> None:
        with pytest.raises(ConfigurationError, match="can't be used as it is set up"):
            make_sink(urls=(secure.url,), ca_certs="/nowhere/ca.pem")
