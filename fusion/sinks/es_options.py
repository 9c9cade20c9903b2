"""The options of Elasticsearch, checked before anything is sent."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from urllib.parse import unquote, urlsplit

from fusion.exceptions import ConfigurationError

_SECRET = {"password", "api_key"}
# The rules of Elasticsearch: https://www.elastic.co/docs/api/doc/elasticsearch/operation/operation-indices-create
_INDEX = re.compile(r"(?![-_+.])[^A-Z\\/*?\"<>| ,#:]{1,255}")
# https://www.elastic.co/docs/reference/ecs/ecs-data_stream: no hyphen, as it separates the parts of the name.
_NAMESPACE = re.compile(r"[^A-Z\\/*?\"<>| ,#:-]{1,100}")
#: Least `max_document_bytes`: enough for everything but the texts.
_LEAST_DOCUMENT = 20_000


@dataclass(frozen=True, kw_only=True, repr=False)
class ElasticsearchOptions:
    """Options of Elasticsearch. Sizes are bytes, `timeout` is seconds. Each comes from a setting `elasticsearch_<name>` (the first:
    `elasticsearch_url`).

    A url may contain a user and a password; they are removed from it at once. ConfigurationError if a value is invalid.
    """

    urls: tuple[str, ...]
    #: The classic index, or the alias of its indices; not used with `data_stream`.
    index: str = "active-fusion-logs"
    #: In the classic index: give expired, canceled and stopped jobs these statuses, and not `failed`, the nearest of the five classic ones.
    more_statuses: bool = False
    #: Write all events, in ECS form, to the data stream `logs-fusion.job-<namespace>` instead.
    data_stream: bool = False
    namespace: str = "default"
    #: `service.name` of the events in the data stream.
    service: str = "fusion"
    username: str | None = None
    password: str | None = None
    #: The API key as Kibana shows it (base64), or `id:key`.
    api_key: str | None = None
    #: File with the certificate authority of the server.
    ca_certs: str | None = None
    verify_certs: bool = True
    #: Seconds without an answer after which a request is given up.
    timeout: float = 10.0
    max_batch_bytes: int = 5_000_000
    #: Longer payloads, results and messages are cut until their document fits. Some proxies accept only 1 MB at a time.
    max_document_bytes: int = 500_000
    #: Shards and replicas for the templates; None = the server's default.
    shards: int | None = 1
    replicas: int | None = None
    #: Days after its rollover at which an index is deleted; None = never.
    delete_after: int | None = None

    def __post_init__(self) -> None:
        split = [_split(url) for url in self.urls]
        if not split:
            raise ConfigurationError(
                "no Elasticsearch was named; set elasticsearch_url, for example https://localhost:9200", code="FUS-215"
            )
        object.__setattr__(self, "urls", tuple(url for url, _ in split))
        users = {user for _, user in split if user}
        if len(users) > 1 or (users and (self.username or self.api_key)):
            raise ConfigurationError(
                "elasticsearch_url names another user than the rest; keep one of the url's own, elasticsearch_username "
                "and elasticsearch_api_key",
                code="FUS-215",
            )
        for username, password in users:
            object.__setattr__(self, "username", username)
            object.__setattr__(self, "password", password)
        if self.api_key and self.username:
            raise ConfigurationError("set elasticsearch_api_key or elasticsearch_username, not both", code="FUS-215")
        if bool(self.username) != bool(self.password):
            raise ConfigurationError(
                "elasticsearch_username and elasticsearch_password go together; set both or neither", code="FUS-215"
            )
        if not _INDEX.fullmatch(self.index):
            raise ConfigurationError(
                f'elasticsearch_index {self.index!r} is not a valid index name; use lower case without spaces and \\ / * ? " < > | , # :, '
                "not beginning with - _ + or .",
                code="FUS-215",
            )
        if not _NAMESPACE.fullmatch(self.namespace):
            raise ConfigurationError(
                f"elasticsearch_namespace {self.namespace!r} does not fit; use up to 100 lower-case characters without a hyphen",
                code="FUS-215",
            )
        for name, least in (
            ("timeout", 0.05),
            ("max_document_bytes", _LEAST_DOCUMENT),
            ("shards", 1),
            ("replicas", 0),
            ("delete_after", 1),
        ):
            value = getattr(self, name)
            if value is not None and not value >= least:
                raise ConfigurationError(f"elasticsearch_{name} = {value!r} is too little; use at least {least}", code="FUS-215")
        if self.max_batch_bytes < self.max_document_bytes:
            raise ConfigurationError(
                f"elasticsearch_max_batch_bytes = {self.max_batch_bytes} holds no document of elasticsearch_max_document_bytes = "
                f"{self.max_document_bytes}; raise the one or lower the other",
                code="FUS-215",
            )

    @property
    def target(self) -> str:
        """Return the name of the index or data stream for events."""
        return f"logs-fusion.job-{self.namespace}" if self.data_stream else self.index

    @property
    def shown(self) -> str:
        """Return the urls without secrets, for logs."""
        return ", ".join(self.urls)

    def __repr__(self) -> str:
        values = ((item.name, getattr(self, item.name)) for item in fields(self))
        shown = (f"{name}={'***' if name in _SECRET and value else repr(value)}" for name, value in values)
        return f"ElasticsearchOptions({', '.join(shown)})"


def _split(url: str) -> tuple[str, tuple[str, str] | None]:
    """Return a url without its login, and the login (user, password)."""
    try:
        parts = urlsplit(url)
        named = parts.scheme in {"http", "https"} and parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:
        named = None
    if not named or parts.query or parts.fragment:
        # Don't show the url: the fault may be an @ inside the password.
        raise ConfigurationError(
            "elasticsearch_url must be the url of a server, in the form https://host:9200 (a password percent-encoded)",
            code="FUS-215",
        )
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")
    user = (unquote(parts.username), unquote(parts.password or "")) if parts.username else None
    return bare, user
