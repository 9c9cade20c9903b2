"""Wraps the official Elasticsearch client and interprets its errors. It does not retry: the relay does that."""

from __future__ import annotations

import logging
import math
import ssl
import time
import warnings
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from fusion.events.sink import SinkUnavailable
from fusion.exceptions import ConfigurationError, FusionError
from fusion.kernel.sentences import UNANSWERED, UNREACHED
from fusion.sinks.es_options import ElasticsearchOptions

if TYPE_CHECKING:
    from elasticsearch import ApiError, Elasticsearch, TransportError

_INSTALL = "Elasticsearch needs its official client, 8.15 or newer and below 10: pip install 'fusion-queue[elasticsearch]'"
#: Longest accepted Retry-After in seconds; a longer one must be a mistake.
_LONGEST_WAIT = 3600.0


class Refused(FusionError):
    """An answer with status 4xx whose meaning depends on the request: the caller decides."""

    code = "FUS-133"

    def __init__(self, status: int, kind: str, reason: str) -> None:
        super().__init__(f"{kind or 'refused'} ({status}){f': {reason}' if reason else ''}")
        self.status = status
        self.kind = kind
        self.reason = reason


class Server(NamedTuple):
    """A server. `version`: (0, 0) if the credentials don't allow to read it; then the server counts as current."""

    version: tuple[int, int] = (0, 0)
    serverless: bool = False

    def before(self, major: int, minor: int) -> bool:
        """Return True if the server is older than this version."""
        return (0, 0) < self.version < (major, minor)


class Link:
    """Sends requests to one server or cluster. ConfigurationError if the client is missing or refuses the options."""

    def __init__(self, options: ElasticsearchOptions) -> None:
        self._shown = options.shown
        self._client = _connect(options)
        self._server: Server | None = None

    def server(self) -> Server:
        """Return the server, cached until `forget`. This is also the first request: if it fails, that costs less than a failed batch."""
        if self._server is None:
            try:
                about = self._ask("GET", "/", {"accept": "*/*"})
                number = str(about["version"]["number"]).split(".")
                self._server = Server((int(number[0]), int(number[1])), about["version"].get("build_flavor") == "serverless")
            except _NotAllowed:
                self._server = Server()
            except (KeyError, TypeError, ValueError, IndexError, Refused):
                raise SinkUnavailable(f"{self._shown} answers, but not like Elasticsearch; correct elasticsearch_url") from None
        return self._server

    def forget(self) -> None:
        """Drop the cached server: after a failure another version may answer."""
        self._server = None

    def ask(
        self, method: str, path: str, body: Any = None, *, media: str = "json", params: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Send one request and return its JSON object. SinkUnavailable if waiting or an operator may help, else Refused."""
        headers = {"accept": self._media("json")}
        if body is not None:
            headers["content-type"] = self._media(media)
        return self._ask(method, path, headers, body, params)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _media(self, form: str) -> str:
        # By default the client requests the API of its own major version, which an older server refuses. Request the server's own version.
        major = self.server().version[0]
        return f"application/vnd.elasticsearch+{form}; compatible-with={major}" if major else f"application/{form}"

    def _ask(
        self, method: str, path: str, headers: dict[str, str], body: Any = None, params: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        import elasticsearch

        try:
            answer = self._client.perform_request(method, path, params=params, headers=headers, body=body).body
        except elasticsearch.UnsupportedProductError:
            raise SinkUnavailable(
                f"{self._shown} is not Elasticsearch 7.14 or newer (no X-Elastic-Product header); correct elasticsearch_url"
            ) from None
        except elasticsearch.ApiError as error:
            raise self._meaning(error) from None
        except elasticsearch.TransportError as error:
            raise SinkUnavailable(_trouble(self._shown, error)) from None
        if not isinstance(answer, dict):
            raise SinkUnavailable(f"{self._shown} answers, but not like Elasticsearch; correct elasticsearch_url")
        return answer

    def _meaning(self, error: ApiError) -> FusionError:
        status = error.meta.status
        told = error.body.get("error") if isinstance(error.body, dict) else None
        kind, reason = explain(told)
        if status == 401:
            return SinkUnavailable(
                f"{self._shown} does not know these credentials (401); correct elasticsearch_api_key, or elasticsearch_username and "
                "elasticsearch_password"
            )
        if status == 403:
            if kind == "cluster_block_exception":
                return SinkUnavailable(f"{self._shown} takes no writes: {reason}; free disk space there, or lift the block")
            return _NotAllowed(
                f"{self._shown} does not let these credentials do that (403){f': {reason}' if reason else ''}; give them the privileges "
                "create_doc and auto_configure on the index, for `events setup` also manage_index_templates, manage_ilm and manage"
            )
        if status < 400:
            return SinkUnavailable(f"{self._shown} redirects ({status}); set elasticsearch_url to the server itself")
        if status in {408, 429} or status >= 500:
            why = f", {kind}: {reason}" if kind else ""
            return SinkUnavailable(f"{self._shown} answers {status}{why}", _retry_after(error.meta.headers.get("retry-after")))
        return Refused(status, kind, reason)


class _NotAllowed(SinkUnavailable):
    """403: the credentials are valid, but lack privileges."""


def explain(error: Any) -> tuple[str, str]:
    """Return type and reason of an error, without the document's values that Elasticsearch quotes in it."""
    if not isinstance(error, dict):
        return "", str(error or "")[:300]
    reason = str(error.get("reason", ""))
    for quote in ("Preview of field's value:", "The prefix of the first immense term"):
        reason = reason.partition(quote)[0].rstrip()
    return str(error.get("type", "")), reason[:300]


def _connect(options: ElasticsearchOptions) -> Elasticsearch:
    try:
        import elasticsearch
    except ImportError:
        raise ConfigurationError(_INSTALL, code="FUS-214") from None
    if not (8, 15) <= elasticsearch.__version__[:2] < (10, 0):
        raise ConfigurationError(f"{_INSTALL} (there is {'.'.join(map(str, elasticsearch.__version__))})", code="FUS-214")
    # Deprecation warnings are for the server's administrators. The client's log only repeats the relay's errors, and at DEBUG it contains
    # whole requests.
    warnings.filterwarnings("ignore", category=elasticsearch.ElasticsearchWarning)
    logger = logging.getLogger("elastic_transport")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.ERROR)
    given: dict[str, Any] = {}
    if options.api_key:
        key_id, colon, key = options.api_key.partition(":")
        given["api_key"] = (key_id, key) if colon else key_id
    elif options.username and options.password:
        given["basic_auth"] = (options.username, options.password)
    if any(url.startswith("https:") for url in options.urls):
        given["verify_certs"] = options.verify_certs
        if options.ca_certs:
            given["ca_certs"] = options.ca_certs
        if not options.verify_certs:
            given["ssl_show_warn"] = False
    try:
        if options.ca_certs:
            # The client itself would notice a bad file only at the first request.
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(options.ca_certs)
        return elasticsearch.Elasticsearch(
            list(options.urls),
            request_timeout=options.timeout,
            max_retries=0,
            retry_on_status=(),
            retry_on_timeout=False,
            sniff_on_start=False,
            sniff_before_requests=False,
            sniff_on_node_failure=False,
            connections_per_node=1,
            **given,
        )
    except (ValueError, OSError) as error:
        raise ConfigurationError(
            f"Elasticsearch at {options.shown} can't be used as it is set up: {error}; correct it", code="FUS-215"
        ) from None


def _trouble(urls: str, error: TransportError) -> str:
    import elasticsearch

    if isinstance(error, elasticsearch.ConnectionTimeout):
        return UNANSWERED.format(urls=urls)
    if isinstance(error, elasticsearch.SSLError):
        return f"{urls} can't be trusted: {_cause(error)}; set elasticsearch_ca_certs to the certificate authority of the server"
    if isinstance(error, elasticsearch.SerializationError):
        return f"{urls} answers, but not like Elasticsearch; correct elasticsearch_url"
    return UNREACHED.format(urls=urls) + _cause(error)


def _cause(error: BaseException) -> str:
    """Return the text of the innermost error in a chain: that of the system."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    return (str(error) or type(error).__name__)[:200]


def _retry_after(text: str | None) -> float | None:
    """Return the seconds of a Retry-After header, which contains seconds or a date."""
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(text).timestamp() - time.time()
        except ValueError:
            return None
    return min(max(0.0, seconds), _LONGEST_WAIT) if math.isfinite(seconds) else None
