"""Makes the sinks that the settings name."""

from __future__ import annotations

from dataclasses import fields
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from fusion.events.sink import Sink
from fusion.exceptions import ConfigurationError
from fusion.settings import Settings

if TYPE_CHECKING:
    from fusion.sinks.es_options import ElasticsearchOptions


def sinks_of(settings: Settings) -> list[Sink]:
    """Return a sink of each configured kind; none has been used yet. ConfigurationError if none is configured, or one can't be made."""
    made = [_MAKERS[name](settings) for name in settings.sinks]
    if not made:
        raise ConfigurationError(
            "no sink is configured; set FUSION_EVENTS_FILE=events.jsonl (or --events-file), FUSION_EVENTS_LOG=1 (or --events-log),"
            " or FUSION_ELASTICSEARCH_URL",
            code="FUS-217",
        )
    return made


def elasticsearch_options(settings: Settings) -> ElasticsearchOptions:
    """Return the options of Elasticsearch. ConfigurationError if none is set, the library is missing, or a value is invalid."""
    from fusion.sinks.es_options import ElasticsearchOptions

    if find_spec("elasticsearch") is None:
        raise ConfigurationError(
            "Elasticsearch needs the library `elasticsearch`; pip install 'fusion-queue[elasticsearch]'", code="FUS-214"
        )
    given: dict[str, Any] = {"urls": settings.elasticsearch_url or ()}
    for item in fields(ElasticsearchOptions):
        if item.name in ("password", "api_key"):
            given[item.name] = settings.secret(f"elasticsearch_{item.name}")
        elif item.name != "urls" and (value := getattr(settings, f"elasticsearch_{item.name}")) is not None:
            given[item.name] = value
    return ElasticsearchOptions(**given)


def _elasticsearch(settings: Settings) -> Sink:
    from fusion.sinks.elasticsearch import ElasticsearchSink

    return ElasticsearchSink(elasticsearch_options(settings))


def _file(settings: Settings) -> Sink:
    from fusion.sinks.jsonl import JsonLinesSink

    assert settings.events_file is not None
    return JsonLinesSink(settings.events_file, settings.events_file_max_bytes, settings.events_file_backups)


def _log(settings: Settings) -> Sink:
    from fusion.sinks.logs import LoggingSink

    return LoggingSink()


_MAKERS = {"elasticsearch": _elasticsearch, "file": _file, "log": _log}
