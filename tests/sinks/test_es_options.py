from __future__ import annotations

from typing import Any

import pytest

from fusion.exceptions import ConfigurationError
from fusion.sinks.es_options import ElasticsearchOptions

URL = "https://es.example:9200"


def options(**more: Any) -> ElasticsearchOptions:
    return ElasticsearchOptions(**{"urls": (URL,), **more})


def test_a_user_in_a_url_is_taken_out_of_it() -> None:
    found = options(urls=("https://anna:p%40s%3As@es1:9200/es/", "https://anna:p%40s%3As@es2:9200"))
    assert found.urls == ("https://es1:9200/es", "https://es2:9200")
    assert (found.username, found.password) == ("anna", "p@s:s")
    assert found.shown == "https://es1:9200/es, https://es2:9200"


@pytest.mark.parametrize("secret", [{"username": "anna", "password": "CANARY"}, {"api_key": "CANARY"}])
def test_secrets_are_not_shown(secret: dict[str, str]) -> None:
    assert "CANARY" not in repr(options(**secret))
    assert "CANARY" not in repr(options(urls=("https://anna:CANARY@es",)))


def test_options_choose_the_index_or_data_stream() -> None:
    assert options().target == "active-fusion-logs"
    assert options(data_stream=True, namespace="staging").target == "logs-fusion.job-staging"


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"urls": ()}, "set elasticsearch_url"),
        ({"urls": ("localhost:9200",)}, "in the form https://host:9200"),
        ({"urls": ("ftp://es",)}, "in the form"),
        ({"urls": ("https://",)}, "in the form"),
        ({"urls": ("https://es:99999",)}, "in the form"),
        ({"urls": ("https://es/?a=b",)}, "in the form"),
        ({"urls": ("https://a:b@es1", "https://c:d@es2")}, "keep one"),
        ({"urls": ("https://a:b@es1",), "api_key": "x"}, "keep one"),
        ({"api_key": "x", "username": "a", "password": "b"}, "not both"),
        ({"username": "a"}, "set both or neither"),
        ({"password": "b"}, "set both or neither"),
        ({"index": "Active"}, "use lower case"),
        ({"index": "-x"}, "not beginning with"),
        ({"index": "a/b"}, "elasticsearch_index"),
        ({"index": ""}, "elasticsearch_index"),
        ({"namespace": "a-b"}, "without a hyphen"),
        ({"timeout": 0}, "use at least 0.05"),
        ({"timeout": float("nan")}, "use at least"),
        ({"max_document_bytes": 10}, "use at least 20000"),
        ({"max_batch_bytes": 30_000}, "raise the one or lower the other"),
        ({"shards": 0}, "use at least 1"),
        ({"delete_after": 0}, "use at least 1"),
    ],
)
def test_an_invalid_option_is_refused_with_the_fix(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        options(**wrong)


def test_an_error_about_a_url_does_not_show_it() -> None:
    with pytest.raises(ConfigurationError) as raised:
        options(urls=("https://anna:CANARY/9@es:x",))
    assert "CANARY" not in str(raised.value)
