"""`run_worker.py events setup`: what it makes, and that it may be run again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fusion.events.sink import SinkUnavailable
from fusion.exceptions import ConfigurationError
from fusion.sinks.es_documents import CLASSIC_MAPPING, ECS_MAPPING
from fusion.sinks.es_options import ElasticsearchOptions
from fusion.sinks.es_setup import setup
from tests.sinks.cluster import Index
from tests.sinks.conftest import MakeSink
from tests.sinks.contract import ContractServer
from tests.sinks.events import event, some

Options = Callable[..., ElasticsearchOptions]
STREAM = "logs-fusion.job-default"
HOSTILE = ["", "2026-13-45", "{", "\x00", "x" * 40_000, "1e999", "null", '{"a": {"b": 1}}']


class TestTheClassicIndex:
    def test_policy_template_and_index_behind_an_alias_are_made_once(
        self, server: ContractServer, options: Options, make_sink: MakeSink
    ) -> None:
        made = ["lifecycle policy fusion-job-events: created", "index template active-fusion-logs: created"]
        assert setup(options()) == [*made, "index active-fusion-logs-000001: created, behind the alias active-fusion-logs"]
        again = ["lifecycle policy fusion-job-events: unchanged", "index template active-fusion-logs: unchanged"]
        assert setup(options()) == [*again, "alias active-fusion-logs: unchanged"]
        template = server.cluster.templates["active-fusion-logs"]
        assert template["priority"] == 500
        assert template["index_patterns"] == ["active-fusion-logs", "active-fusion-logs-0*"]
        lifecycle = {"name": "fusion-job-events", "rollover_alias": "active-fusion-logs"}
        assert template["template"]["settings"]["index"]["lifecycle"] == lifecycle
        assert server.cluster.indices["active-fusion-logs-000001"].mapping == CLASSIC_MAPPING
        assert make_sink().write(some(3)) == []
        assert len(server.cluster.indices["active-fusion-logs-000001"].documents) == 3
        assert set(server.cluster.indices) == {"active-fusion-logs-000001"}

    def test_old_indices_are_deleted_after_a_number_of_days(self, server: ContractServer, options: Options) -> None:
        assert setup(options(delete_after=90))[0] == "lifecycle policy fusion-job-events: created"
        assert server.cluster.policies["fusion-job-events"]["phases"]["delete"]["min_age"] == "90d"

    def test_without_lifecycle_management_the_alias_is_made_all_the_same(
        self, server: ContractServer, options: Options, make_sink: MakeSink
    ) -> None:
        server.cluster.lifecycle = False
        told = setup(options(delete_after=90))
        assert told[0].startswith("lifecycle policy fusion-job-events: left out, this server has none (")
        assert told[2] == "index active-fusion-logs-000001: created, behind the alias active-fusion-logs"
        assert "lifecycle" not in server.cluster.templates["active-fusion-logs"]["template"]["settings"]["index"]
        assert make_sink().write(some(3)) == []

    def test_an_existing_index_is_left_unchanged_and_reported(
        self, server: ContractServer, options: Options, make_sink: MakeSink
    ) -> None:
        assert make_sink().write(some(2)) == []
        told = setup(options())
        assert told[2] == (
            "index active-fusion-logs: unchanged; it is one index and no alias, so it grows for ever: docs/events.md, "
            "'From one index to an alias', says how to change that"
        )
        assert make_sink().write(some(4)) == []
        assert len(server.documents()) == 4

    @pytest.mark.parametrize(("version", "size"), [((7, 12), "max_size"), ((7, 13), "max_primary_shard_size")])
    def test_the_size_of_a_rollover_as_the_server_knows_it(
        self, server: ContractServer, options: Options, version: tuple[int, int], size: str
    ) -> None:
        server.cluster.version = version
        setup(options())
        rollover = server.cluster.policies["fusion-job-events"]["phases"]["hot"]["actions"]["rollover"]
        assert rollover == {"max_age": "30d", size: "50gb"}

    def test_a_changed_option_updates_the_template(self, server: ContractServer, options: Options) -> None:
        setup(options())
        assert setup(options(shards=3, replicas=0))[1] == "index template active-fusion-logs: updated"
        settings = server.cluster.templates["active-fusion-logs"]["template"]["settings"]["index"]
        assert (settings["number_of_shards"], settings["number_of_replicas"]) == ("3", "0")
        assert setup(options(shards=3, replicas=0))[1] == "index template active-fusion-logs: unchanged"

    def test_afterwards_no_content_is_refused(self, server: ContractServer, options: Options, make_sink: MakeSink) -> None:
        setup(options())
        events = [
            event(n, message=text, payload=text, result=text, host=text, log_tag=f"{text}_{text}")
            for n, text in enumerate(HOSTILE)
        ]
        assert make_sink().write(events) == []
        assert len(server.documents()) == len(HOSTILE)

    @pytest.mark.parametrize("version", [(7, 0), (7, 7)])
    def test_an_old_server_gets_a_legacy_template_of_the_old_type(
        self, server: ContractServer, options: Options, make_sink: MakeSink, version: tuple[int, int]
    ) -> None:
        server.cluster.version = version
        made = ["legacy template active-fusion-logs: created", "index active-fusion-logs-000001: created, behind the alias"]
        assert [line[: len(want)] for line, want in zip(setup(options())[1:], made, strict=True)] == made
        assert setup(options())[1:] == ["legacy template active-fusion-logs: unchanged", "alias active-fusion-logs: unchanged"]
        assert server.cluster.legacy["active-fusion-logs"]["mappings"] == {"logs": CLASSIC_MAPPING}
        assert make_sink().write(some(3)) == []
        assert len(server.bulks()) == 1

    def test_fields_of_an_older_index_that_do_not_fit_are_named(self, server: ContractServer, options: Options) -> None:
        there = {"payload": {"properties": {"to": {"type": "text"}}}, "job_id": {"type": "long"}, "message": {"type": "keyword"}}
        server.cluster.indices["active-fusion-logs"] = Index("active-fusion-logs", {"properties": there})
        told = setup(options())
        assert told[2].startswith("index active-fusion-logs: unchanged")
        assert len(told) == 5
        assert "its field job_id is of type long and refuses events; reindex it, or set another elasticsearch_index" in told[3]
        assert "its field payload is of type object" in told[4]


class TestTheDataStream:
    def test_policy_template_and_stream_are_made_once(
        self, server: ContractServer, options: Options, make_sink: MakeSink
    ) -> None:
        names = ["lifecycle policy fusion-job-events", "index template logs-fusion.job", f"data stream {STREAM}"]
        assert setup(options(data_stream=True)) == [f"{name}: created" for name in names]
        assert setup(options(data_stream=True)) == [f"{name}: unchanged" for name in names]
        template = server.cluster.templates["logs-fusion.job"]
        assert (template["priority"], template["index_patterns"]) == (500, ["logs-fusion.job-*"])
        assert template["template"]["mappings"] == ECS_MAPPING
        assert template["template"]["settings"]["index"]["lifecycle"] == {"name": "fusion-job-events"}
        assert server.cluster.policies["fusion-job-events"]["phases"] == {
            "hot": {"min_age": "0ms", "actions": {"rollover": {"max_age": "30d", "max_primary_shard_size": "50gb"}}}
        }
        assert make_sink(data_stream=True).write(some(3)) == []
        assert len(server.documents(STREAM)) == 3

    def test_deletion_is_an_option_that_can_be_taken_back(self, server: ContractServer, options: Options) -> None:
        setup(options(data_stream=True))
        assert setup(options(data_stream=True, delete_after=90))[0] == "lifecycle policy fusion-job-events: updated"
        assert server.cluster.policies["fusion-job-events"]["phases"]["delete"]["min_age"] == "90d"
        assert setup(options(data_stream=True, delete_after=90))[0].endswith("unchanged")
        assert setup(options(data_stream=True))[0].endswith("updated")
        assert "delete" not in server.cluster.policies["fusion-job-events"]["phases"]

    def test_the_report_says_that_a_new_template_waits_for_a_rollover(self, server: ContractServer, options: Options) -> None:
        setup(options(data_stream=True))
        told = setup(options(data_stream=True, shards=2))
        assert told[1:] == [
            "index template logs-fusion.job: updated",
            f"data stream {STREAM}: unchanged (it takes on the template at its next rollover: POST /{STREAM}/_rollover)",
        ]

    def test_without_lifecycle_management_the_rest_is_made(
        self, server: ContractServer, options: Options, make_sink: MakeSink
    ) -> None:
        server.cluster.lifecycle = False
        told = setup(options(data_stream=True))
        assert told[0].startswith("lifecycle policy fusion-job-events: left out, this server has none (")
        assert told[1:] == ["index template logs-fusion.job: created", f"data stream {STREAM}: created"]
        assert make_sink(data_stream=True).write(some(3)) == []

    def test_a_serverless_project_decides_about_shards_itself(self, server: ContractServer, options: Options) -> None:
        server.cluster.flavor, server.cluster.lifecycle = "serverless", False
        setup(options(data_stream=True, replicas=1))
        assert server.cluster.templates["logs-fusion.job"]["template"]["settings"] == {"index": {}}

    def test_a_server_without_data_streams_is_refused(self, server: ContractServer, options: Options) -> None:
        server.cluster.version = (7, 8)
        with pytest.raises(
            ConfigurationError, match=r"Elasticsearch 7\.8 has no data streams; upgrade it .*unset elasticsearch_data"
        ):
            setup(options(data_stream=True))


class TestTrouble:
    @pytest.mark.parametrize(
        ("fault", "told"),
        [({"status": 401}, "correct elasticsearch_api_key"), ({"status": 503}, "answers 503"), ({"hang": True}, "in time")],
    )
    def test_a_failed_set_up_is_reported_and_leaves_nothing_half_made(
        self, server: ContractServer, options: Options, fault: dict[str, object], told: str
    ) -> None:
        with server.broken(on="*", **fault), pytest.raises(SinkUnavailable, match=told):
            setup(options(timeout=0.5))
        assert setup(options())[1] == "index template active-fusion-logs: created"

    @pytest.mark.parametrize("on", ["indices.put_index_template", "ilm.put_lifecycle", "indices.create_data_stream"])
    def test_credentials_that_do_not_suffice(self, server: ContractServer, options: Options, on: str) -> None:
        server.forbidden = {on}
        with pytest.raises(SinkUnavailable, match="for `events setup` also manage_index_templates, manage_ilm and manage"):
            setup(options(data_stream=True))
        server.forbidden = set()
        assert setup(options(data_stream=True))[2] == f"data stream {STREAM}: created"

    def test_what_the_server_refuses_is_named(self, server: ContractServer, options: Options) -> None:
        body = '{"error": {"type": "illegal_argument_exception", "reason": "templates have the same priority [500]"}}'
        fault = {"on": "indices.put_index_template", "status": 400, "body": body}
        with server.broken(**fault), pytest.raises(ConfigurationError, match="same priority"):
            setup(options())
