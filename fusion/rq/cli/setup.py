"""Parts that all commands share: their flags, Redis and prefix, classes by path, and the flags that are not needed or refused."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import click

from fusion.exceptions import FusionError
from fusion.rq.hints import PAGE
from fusion.rq.queue import Queue
from fusion.settings import Settings, get_settings, use_settings
from fusion.store.client.connections import get_current_connection

#: Flags that are accepted and do nothing, and why. `python -m fusion.rq.check` reads these tables, too.
UNNECESSARY = {
    "with_scheduler": "every worker enqueues what is due",
    "maintenance_interval": "workers share the maintenance, and do it when it is due",
    "job_monitoring_interval": "the end of a job's process is noticed at once",
    "death_penalty_class": "a job's time limit is that of the worker, with a hard limit behind it",
}
#: Flags that would mean something else, and what to do.
REFUSED = {
    "results_ttl": "a job has its result_ttl from its producer: give result_ttl= where it is enqueued, or set FUSION_RESULT_TTL there",
    "disable_default_exception_handler": "a job that failed is always kept as failed: give its jobs on_failure=, or delete it there",
    "connection_class": "the settings say how Redis is reached: --url, or FUSION_REDIS_URL, FUSION_SENTINEL (docs/settings.md)",
}
_SERIALIZERS = {"json", "pickle", "JSONSerializer", "DefaultSerializer", "PickleSerializer"}


def _shared(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags that all commands of RQ have."""
    for option in (
        click.option("--serializer", "-S", help="json or pickle; pickle needs FUSION_ALLOW_PICKLE=1."),
        click.option("--path", "-P", multiple=True, default=["."], help="Where to import from."),
        click.option("--connection-class", envvar="RQ_CONNECTION_CLASS", hidden=True),
        click.option("--death-penalty-class", envvar="RQ_DEATH_PENALTY_CLASS", hidden=True),
        click.option("--queue-class", envvar="RQ_QUEUE_CLASS", help="A class under fusion.rq.Queue."),
        click.option("--job-class", "-j", envvar="RQ_JOB_CLASS", help="A class under fusion.rq.job.Job."),
        click.option("--worker-class", "-w", envvar="RQ_WORKER_CLASS", help="A class under fusion.rq.Worker."),
        click.option("--config", "-c", envvar="RQ_CONFIG", help="Module with REDIS_URL, QUEUES, NAME ..."),
        click.option("--url", "-u", envvar="RQ_REDIS_URL", help="Where Redis is."),
    ):
        command = option(command)
    return command


def with_setup(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give the command a `Setup`, from the flags that all commands have. Errors of Fusion end it with a line."""

    def run(
        url: str | None,
        config: str | None,
        worker_class: str | None,
        job_class: str | None,
        queue_class: str | None,
        death_penalty_class: str | None,
        connection_class: str | None,
        path: Iterable[str],
        serializer: str | None,
        **given: Any,
    ) -> Any:
        for part in path:
            sys.path.append(os.path.abspath(part))
        check("death_penalty_class", death_penalty_class)
        check("connection_class", connection_class not in (None, "redis.Redis", "redis.StrictRedis"))
        if serializer is not None and serializer.rpartition(".")[2] not in _SERIALIZERS:
            raise click.UsageError(
                f"--serializer {serializer}: use json or pickle; a serializer of one's own is not supported ({PAGE})"
            )
        module = _config(config)
        before = use_settings(_settings(url, module))
        try:
            return command(Setup(module, worker_class, job_class, queue_class, serializer), **given)
        except (FusionError, NotImplementedError) as error:
            raise click.ClickException(str(error)) from None
        finally:
            use_settings(before)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__click_params__ = getattr(command, "__click_params__", [])  # type: ignore[attr-defined]
    return _shared(run)


def check(name: str, given: Any) -> None:
    """Tell of a flag that is not needed; a usage error for one that would mean something else."""
    if not given:
        return
    flag = "--" + name.replace("_", "-")
    if name in REFUSED:
        raise click.UsageError(f"{flag} is not supported: {REFUSED[name]} ({PAGE})")
    click.echo(f"{flag} is not needed: {UNNECESSARY[name]}", err=True)


def _config(module: str | None) -> dict[str, Any]:
    """Return the upper-case names of RQ's configuration module."""
    if not module:
        return {}
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        raise click.BadParameter(f"{module} can't be imported: {error}", param_hint="--config") from None
    return {name: value for name, value in vars(found).items() if name.isupper()}


def _settings(url: str | None, module: Mapping[str, Any]) -> Settings:
    """Return the settings with the Redis that the flags, the module or the environment name."""
    settings = get_settings()
    given = module or os.environ
    if module.get("SENTINEL") is not None:
        raise click.UsageError(
            f"SENTINEL in the configuration module: set FUSION_SENTINEL in its place (docs/settings.md, {PAGE})"
        )
    wanted = url or given.get("REDIS_URL") or _url_of(given)
    return replace(settings, redis_url=str(wanted)) if wanted else settings


def _url_of(given: Mapping[str, Any]) -> str | None:
    """Return the url that RQ's REDIS_HOST, REDIS_PORT ... stand for; None if none of them is set."""
    if not any(given.get(name) for name in ("REDIS_HOST", "REDIS_DB", "REDIS_PASSWORD", "REDIS_SSL")):
        return None
    secure = str(given.get("REDIS_SSL", "")).lower() in ("1", "y", "yes", "t", "true")
    port = str(given.get("REDIS_PORT") or 6379)
    login = f":{quote(str(given['REDIS_PASSWORD']), safe='')}@" if given.get("REDIS_PASSWORD") else ""
    names = {"REDIS_SSL_CA_CERTS": "ssl_ca_certs", "REDIS_SSL_CERTFILE": "ssl_certfile", "REDIS_SSL_KEYFILE": "ssl_keyfile",
             "REDIS_SSL_CERT_REQS": "ssl_cert_reqs"}  # fmt: skip
    query = "&".join(f"{name}={quote(str(given[key]))}" for key, name in names.items() if secure and given.get(key))
    # a platform may set REDIS_PORT to a url of its own
    where = f"{given.get('REDIS_HOST') or 'localhost'}:{port if port.isdigit() else 6379}/{given.get('REDIS_DB') or 0}"
    return f"{'rediss' if secure else 'redis'}://{login}{where}{'?' + query if query else ''}"


class Setup:
    """The choices of the shared flags: classes, serializer, RQ's configuration module."""

    def __init__(
        self,
        module: dict[str, Any],
        worker_class: str | None,
        job_class: str | None,
        queue_class: str | None,
        serializer: str | None,
    ) -> None:
        self.module, self.serializer = module, serializer
        self._worker_class = worker_class
        self.job_class = imported(job_class, "--job-class")
        self.queue_class = imported(queue_class, "--queue-class") or Queue

    @property
    def worker_class(self) -> Any:
        """The class of workers; `fusion.rq.Worker` if none is named."""
        return imported(self._worker_class or "fusion.rq.worker.Worker", "--worker-class")

    def queue(self, name: str) -> Any:
        """Return the queue of that name."""
        return self.queue_class(name, connection=get_current_connection(), job_class=self.job_class, serializer=self.serializer)

    def queues(self, names: Iterable[str]) -> list[Any]:
        """Return those queues; all that ever had a job if none is named."""
        return [self.queue(name) for name in names] or self.queue_class.all(connection=get_current_connection())


def imported(path: str | None, flag: str) -> Any:
    """Return what is at a dotted path that the operator gave. RQ's own paths stand for those of `fusion.rq`."""
    if path is None:
        return None
    module, _, name = path.rpartition(".")
    if module == "rq" or module.startswith("rq."):
        module = f"fusion.{module}"
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise click.BadParameter(f"{path} can't be imported: {error}", param_hint=flag) from None
