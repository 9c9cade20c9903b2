"""The settings of what surrounds the jobs: signatures, callbacks, events, the HTTP service, logs. Each has one `#:` comment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fusion.kernel import defaults
from fusion.settings import readers
from fusion.settings.flags import DASHBOARD, METRICS, RELAY, SCHEDULER, SERVER, WORKER, Flag, switch
from fusion.settings.readers import setting as _setting


@dataclass(frozen=True, repr=False)
class ReportingSettings:
    """Signatures of jobs, and where their callbacks, events and logs go."""

    #: Keys that jobs are signed with, `id:secret` each. The first one signs, all of them verify. Without keys nothing is signed or verified.
    secret_keys: tuple[str, ...] | None = _setting(None, readers.secret_keys)
    #: File that holds them, one per line (a mounted secret); read when a process starts, and again by workers and schedulers at HUP.
    secret_keys_file: str | None = _setting(None, readers.path)
    #: Workers with keys refuse jobs without a signature; turn it off only while keys are being introduced.
    require_signatures: bool = _setting(True, readers.flag)
    #: Secrets in a task's environment: `enqueue`, those that it needs to enqueue (the Redis login, signing keys); `none`; `all`.
    task_secrets: str = _setting("enqueue", readers.choice("enqueue", "none", "all"))
    #: Let this user's other processes inspect a worker, relay or scheduler (py-spy, gdb), and let these dump core.
    debuggable: bool = _setting(False, readers.flag)

    #: Secrets of callbacks by host (whsec_...), `*` for all others. Several are all used, so that a new one can replace an old one.
    callback_secrets: Mapping[str, tuple[str, ...]] | None = _setting(None, readers.callback_secrets)
    #: File that holds them.
    callback_secrets_file: str | None = _setting(None, readers.path)
    #: Fail a callback whose host has no secret, instead of sending it unsigned.
    callback_require_signatures: bool = _setting(False, readers.flag)
    #: Hosts that callbacks may go to: names, `*.example.com`, addresses, `*`; none: every public host.
    callback_allowed_hosts: tuple[str, ...] | None = _setting(None, readers.names)
    #: Allow callbacks over plain http.
    callback_allow_http: bool = _setting(False, readers.flag)
    #: Ports that callbacks may go to.
    callback_ports: tuple[int, ...] = _setting(defaults.CALLBACK_PORTS, readers.ports)

    #: Events kept while there is no sink.
    events_cap: int = _setting(defaults.EVENTS_CAP, readers.whole(1))
    #: Events kept while a sink is behind.
    events_backlog: int = _setting(defaults.EVENTS_BACKLOG, readers.whole(1))
    #: How events show arguments and results: `masked`; `full`, which may reveal an OTP; or `off`.
    events_payload: str = _setting("masked", readers.choice("masked", "full", "off"))
    #: File to write events to, as JSON lines; on when it is set.
    events_file: str | None = _setting(
        None, readers.path, flags=Flag("Append events to FILE, a JSON object per line.", "FILE", of=(RELAY,))
    )
    #: Size of that file at which a new one is started.
    events_file_max_bytes: int = _setting(defaults.EVENTS_FILE_BYTES, readers.size)
    #: Old files that are kept.
    events_file_backups: int = _setting(defaults.EVENTS_FILE_BACKUPS, readers.whole(0, 1000))
    #: Write events to the log, logger `fusion.events`.
    events_log: bool = _setting(False, readers.flag, flags=switch("Write events to the log.", RELAY))
    #: Elasticsearch to write events to, one URL or several; on when it is set.
    elasticsearch_url: tuple[str, ...] | None = _setting(None, readers.names, env=("FUSION_ELASTICSEARCH_URLS",))
    #: The classic index, or the alias before its indices (`active-fusion-logs`); not used with the data stream.
    elasticsearch_index: str | None = _setting(None, readers.text)
    #: In the classic index, give expired, canceled and stopped jobs these statuses instead of `failed`, the nearest of the five original
    #: ones.
    elasticsearch_more_statuses: bool | None = _setting(None, readers.flag)
    #: Write all events, in ECS form, to the data stream `logs-fusion.job-NAMESPACE` instead.
    elasticsearch_data_stream: bool | None = _setting(None, readers.flag)
    #: Namespace of that data stream (`default`).
    elasticsearch_namespace: str | None = _setting(None, readers.text)
    #: `service.name` of the events in the data stream (`fusion`).
    elasticsearch_service: str | None = _setting(None, readers.text)
    #: User to log in as.
    elasticsearch_username: str | None = _setting(None, readers.text)
    #: Password to log in with.
    elasticsearch_password: str | None = _setting(None, readers.text)
    #: File that holds the password.
    elasticsearch_password_file: str | None = _setting(None, readers.path)
    #: API key, as Kibana shows it (base64) or as `id:key`.
    elasticsearch_api_key: str | None = _setting(None, readers.text)
    #: File that holds the API key.
    elasticsearch_api_key_file: str | None = _setting(None, readers.path)
    #: File with the certificate authority of the server.
    elasticsearch_ca_certs: str | None = _setting(None, readers.path)
    #: Check the server's certificate (true).
    elasticsearch_verify_certs: bool | None = _setting(None, readers.flag)
    #: Longest silence of the server before a request is abandoned (10).
    elasticsearch_timeout: float | None = _setting(None, readers.seconds(0.05, readers.ATTEMPT))
    #: Largest size of one request (5,000,000).
    elasticsearch_max_batch_bytes: int | None = _setting(None, readers.size)
    #: Largest size of a document (500,000); longer payloads, results and messages are cut.
    elasticsearch_max_document_bytes: int | None = _setting(None, readers.size)
    #: Shards of an index, for its template (1).
    elasticsearch_shards: int | None = _setting(None, readers.whole(1))
    #: Replicas of an index, for its template; none: the server's own default.
    elasticsearch_replicas: int | None = _setting(None, readers.whole(0))
    #: Age after its rollover at which an index is deleted; none: never.
    elasticsearch_delete_after: int | None = _setting(None, readers.whole(1), unit="days")

    #: Address at which the HTTP service listens.
    server_host: str = _setting(
        defaults.SERVER_HOST, readers.host, flags=Flag("Where to listen.", "HOST", of=(SERVER, DASHBOARD), name="host")
    )
    #: Its port; 0 for any free one.
    server_port: int = _setting(
        defaults.SERVER_PORT,
        readers.whole(0, 65535),
        flags=Flag("0 for any free one.", "PORT", of=(SERVER, DASHBOARD), name="port"),
    )
    #: File of the tokens and their rights (docs/http.md); without it all requests are refused.
    server_tokens_file: str | None = _setting(
        None,
        readers.path,
        flags=Flag(
            "File of the tokens and their rights; `server token` writes it.",
            "FILE",
            of=(SERVER, DASHBOARD, METRICS),
            name="tokens",
        ),
    )
    #: Host names that it answers to, besides this machine's own.
    server_allowed_hosts: tuple[str, ...] | None = _setting(
        None,
        readers.names,
        flags=Flag(
            "Host names to answer besides this machine's own; .example.com with all below, '*' for any. Repeatable.",
            "NAME",
            of=(SERVER, DASHBOARD, METRICS),
            name="allowed-host",
            repeated=True,
        ),
    )
    #: Origins whose pages may call the API, like `https://apps.example.com`.
    server_cors_origins: tuple[str, ...] | None = _setting(
        None,
        readers.names,
        flags=Flag(
            "Let pages of this origin call the API, like https://apps.example.com. Repeatable.",
            "ORIGIN",
            of=(SERVER,),
            name="cors-origin",
            repeated=True,
            default="none",
        ),
    )
    #: Requests that it handles at a time.
    server_threads: int = _setting(
        defaults.SERVER_THREADS, readers.whole(1, 256), flags=Flag("Requests at a time.", of=(SERVER, DASHBOARD), name="threads")
    )

    #: Further names under which `/metrics` of the server repeats its figures: `rq`, those of rq-exporter (docs/metrics.md).
    metrics_compat: str | None = _setting(
        None,
        readers.choice("rq"),
        flags=Flag(
            "Repeat the figures of /metrics under the names of rq-exporter.",
            choices=("rq",),
            of=(SERVER, METRICS),
            name="compat",
        ),
    )
    #: Log one JSON object per line instead of text.
    log_json: bool = _setting(
        False, readers.flag, flags=switch("One JSON object per line.", WORKER, SCHEDULER, RELAY, SERVER, DASHBOARD, METRICS)
    )
    #: Keep the last lines that a job prints and logs with the job: while it runs, after a failure, and after success with `keep_logs`.
    job_logs: bool = _setting(True, readers.flag)
    #: How log lines describe an error: `class`, with the place where it was raised; `full`, with its text, which may hold anything from a
    #: task's arguments.
    log_errors: str = _setting("class", readers.choice("class", "full"))
    #: Argument of `logging.config.dictConfig`, from the `-c` module.
    dict_config: Mapping[str, Any] | None = _setting(None, readers.mapping)
