"""The settings of what surrounds the jobs: envelopes, callbacks, events, the HTTP service. Part of `fusion.settings.Settings`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fusion.kernel import defaults
from fusion.settings import readers
from fusion.settings.readers import setting as _setting


@dataclass(frozen=True, repr=False)
class ReportingSettings:
    # -- signed jobs (docs/security.md)
    #: `id:secret` each; the first signs what this process enqueues, all are good for checking. None = nothing is signed or checked.
    secret_keys: tuple[str, ...] | None = _setting(None, readers.secret_keys)
    #: File that holds them, one per line (a mounted secret); read when a process starts, and by workers and schedulers at HUP.
    secret_keys_file: str | None = _setting(None, readers.path)
    #: Whether workers that have keys refuse jobs without a signature. Off only while keys are being introduced.
    require_signatures: bool = _setting(True, readers.flag)

    #: What a task finds in its environment of the secrets that Fusion was given there: `enqueue`, those that it takes to enqueue (the login
    #: at Redis, signing keys); `none`; or `all`, those of callbacks and sinks as well.
    task_secrets: str = _setting("enqueue", readers.choice("enqueue", "none", "all"))
    #: Let this user's other processes look into a worker, relay or scheduler (py-spy, gdb), and those dump core.
    debuggable: bool = _setting(False, readers.flag)

    # -- callbacks (docs/callbacks.md)
    #: Host -> its secrets (whsec_...), `*` for all others; several are all used, so that one can take over from another.
    callback_secrets: Mapping[str, tuple[str, ...]] | None = _setting(None, readers.callback_secrets)
    callback_secrets_file: str | None = _setting(None, readers.path)
    #: Whether a callback for whose host there is no secret fails instead of going out unsigned.
    callback_require_signatures: bool = _setting(False, readers.flag)
    callback_allowed_hosts: tuple[str, ...] | None = _setting(None, readers.names)
    callback_allow_http: bool = _setting(False, readers.flag)
    callback_ports: tuple[int, ...] = _setting(defaults.CALLBACK_PORTS, readers.ports)

    # -- events (docs/events.md)
    #: Events kept while there is no sink, and while there is one that is behind.
    events_cap: int = _setting(defaults.EVENTS_CAP, readers.whole(1))
    events_backlog: int = _setting(defaults.EVENTS_BACKLOG, readers.whole(1))
    #: What events tell of arguments and results: `masked`; `full`, which may be an OTP; or `off`.
    events_payload: str = _setting("masked", readers.choice("masked", "full", "off"))
    #: Sinks, each on when its first setting is there. A file of JSON lines; of the old ones so many are kept:
    events_file: str | None = _setting(None, readers.path)
    events_file_max_bytes: int = _setting(defaults.EVENTS_FILE_BYTES, readers.size)
    events_file_backups: int = _setting(defaults.EVENTS_FILE_BACKUPS, readers.whole(0, 1000))
    #: The log, logger `fusion.events`.
    events_log: bool = _setting(False, readers.flag)
    #: Elasticsearch; what these mean is told at `fusion.sinks.es_options`, which also has the rules and defaults.
    elasticsearch_url: tuple[str, ...] | None = _setting(None, readers.names, env=("FUSION_ELASTICSEARCH_URLS",))
    elasticsearch_index: str | None = _setting(None, readers.text)
    elasticsearch_more_statuses: bool | None = _setting(None, readers.flag)
    elasticsearch_data_stream: bool | None = _setting(None, readers.flag)
    elasticsearch_namespace: str | None = _setting(None, readers.text)
    elasticsearch_service: str | None = _setting(None, readers.text)
    elasticsearch_username: str | None = _setting(None, readers.text)
    elasticsearch_password: str | None = _setting(None, readers.text)
    elasticsearch_password_file: str | None = _setting(None, readers.path)
    elasticsearch_api_key: str | None = _setting(None, readers.text)
    elasticsearch_api_key_file: str | None = _setting(None, readers.path)
    elasticsearch_ca_certs: str | None = _setting(None, readers.path)
    elasticsearch_verify_certs: bool | None = _setting(None, readers.flag)
    elasticsearch_timeout: float | None = _setting(None, readers.seconds(0.05, readers.ATTEMPT))
    elasticsearch_max_batch_bytes: int | None = _setting(None, readers.size)
    elasticsearch_max_document_bytes: int | None = _setting(None, readers.size)
    elasticsearch_shards: int | None = _setting(None, readers.whole(1))
    elasticsearch_replicas: int | None = _setting(None, readers.whole(0))
    elasticsearch_delete_after: int | None = _setting(None, readers.whole(1))

    # -- the HTTP service (docs/http.md)
    server_host: str = _setting(defaults.SERVER_HOST, readers.host)
    server_port: int = _setting(defaults.SERVER_PORT, readers.whole(0, 65535))
    #: Who may ask what; None = nobody.
    server_tokens_file: str | None = _setting(None, readers.path)
    #: Host names it answers to besides this machine's own.
    server_allowed_hosts: tuple[str, ...] | None = _setting(None, readers.names)
    #: Requests it works on at a time.
    server_threads: int = _setting(defaults.SERVER_THREADS, readers.whole(1, 256))
