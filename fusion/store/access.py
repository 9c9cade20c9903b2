"""Brokers and Inspectors of a connection, as programs use them: they raise Fusion's errors (`fusion.store.client.errors`)."""

from __future__ import annotations

import secrets
from typing import Any, TypeVar, cast

from redis import Redis

from fusion.settings import Settings, get_settings
from fusion.store.client.adapter import asking
from fusion.store.client.connections import get_current_connection
from fusion.store.client.errors import typed
from fusion.store.layout.records import LogLine
from fusion.store.read.audit_inspector import AuditInspector
from fusion.store.read.batch_inspector import BatchInspector
from fusion.store.read.callback_inspector import CallbackInspector
from fusion.store.read.cron_inspector import CronInspector
from fusion.store.read.event_inspector import EventInspector
from fusion.store.read.failure_inspector import FailureInspector
from fusion.store.read.glance import Glance, NamesInspector
from fusion.store.read.inspector import Inspector
from fusion.store.read.limit_inspector import LimitInspector
from fusion.store.read.operation_inspector import OperationInspector
from fusion.store.read.sample_inspector import SampleInspector
from fusion.store.read.search_inspector import SearchInspector
from fusion.store.read.server_inspector import ServerInspector
from fusion.store.read.sheet_inspector import SheetInspector
from fusion.store.read.trash_inspector import TrashInspector
from fusion.store.scripting import scripts
from fusion.store.scripting.constants import FleetConstants
from fusion.store.write.broker import Broker
from fusion.store.write.cron_broker import CronBroker
from fusion.store.write.event_broker import EventBroker
from fusion.store.write.limit_broker import LimitBroker
from fusion.store.write.operation_broker import AuditBroker
from fusion.store.write.queue_calls import QueueCalls
from fusion.store.write.schema_broker import SchemaBroker
from fusion.store.write.session_broker import SessionBroker

T = TypeVar("T")

# Kept on the connection itself: a table, even with weak keys, would keep every connection alive, since a Broker holds its own.
_BROKER, _TYPED = "_fusion_broker", "_fusion_typed_broker"


def broker_of(connection: Redis) -> Broker:
    """Return the connection's Broker; a new one is made only if the settings change."""
    broker = calls_of(connection)
    kept: tuple[Broker, Broker] | None = vars(connection).get(_TYPED)
    if kept is None or kept[0] is not broker:
        kept = vars(connection)[_TYPED] = broker, typed(broker, connection)
    return kept[1]


def calls_of(connection: Redis) -> Broker:
    """Return the connection's Broker for its calls and steps. `run` makes them, and is given the connection for its errors."""
    settings = get_settings()
    kept: tuple[Settings, Broker] | None = vars(connection).get(_BROKER)
    if kept is None or kept[0] is not settings:
        kept = vars(connection)[_BROKER] = settings, Broker.of(asking(connection), settings)
    return kept[1]


def reads_of(connection: Redis) -> Inspector:
    """Return an Inspector for its steps, which are run as those of `calls_of` are."""
    return Inspector.of(asking(connection), get_settings())


def async_reads_of(connection: Any) -> Inspector:
    """Return an Inspector of a client for asyncio, for its steps."""
    from fusion.store.client.async_connections import AsyncAsking

    return Inspector.of(cast(Any, AsyncAsking(connection)), get_settings())


def async_calls_of(connection: Any) -> QueueCalls:
    """Return the calls of a client for asyncio, which are made by `run_awaited`."""
    from fusion.store.client.async_connections import AsyncAsking

    settings = get_settings()
    kept: tuple[Settings, QueueCalls] | None = vars(connection).get(_BROKER)
    if kept is None or kept[0] is not settings:
        kept = vars(connection)[_BROKER] = settings, QueueCalls.of(cast(Any, AsyncAsking(connection)), settings)
    return kept[1]


def cron_broker_of(connection: Redis) -> CronBroker:
    """Return a writer of cron entries."""
    return _made(CronBroker, connection)


def event_broker_of(connection: Redis) -> EventBroker:
    """Return a writer of the event stream's sinks."""
    return _made(EventBroker, connection)


def schema_broker_of(connection: Redis) -> SchemaBroker:
    """Return a writer of the schema key."""
    return _made(SchemaBroker, connection)


def limit_broker_of(connection: Redis) -> LimitBroker:
    """Return a writer of concurrency keys."""
    return _made(LimitBroker, connection)


def session_broker_of(connection: Redis) -> SessionBroker:
    """Return the store of the dashboard's sessions."""
    return typed(SessionBroker(asking(connection), get_settings().prefix), connection)


def operation_inspector_of(connection: Redis) -> OperationInspector:
    """Return a reader of operations on many jobs."""
    return _made(OperationInspector, connection)


def audit_broker_of(connection: Redis) -> AuditBroker:
    """Return a writer of the audit."""
    return _made(AuditBroker, connection)


def audit_inspector_of(connection: Redis) -> AuditInspector:
    """Return a reader of the audit."""
    return _made(AuditInspector, connection)


def names_inspector_of(connection: Redis) -> NamesInspector:
    """Return a reader of queues, jobs and other things by name."""
    return _made(NamesInspector, connection)


def trash_inspector_of(connection: Redis) -> TrashInspector:
    """Return a reader of the trash."""
    return _made(TrashInspector, connection)


def limit_inspector_of(connection: Redis) -> LimitInspector:
    """Return a reader of concurrency keys."""
    return _made(LimitInspector, connection)


def batch_inspector_of(connection: Redis) -> BatchInspector:
    """Return a reader of batches."""
    return _made(BatchInspector, connection)


def failure_inspector_of(connection: Redis) -> FailureInspector:
    """Return a reader of failure groups."""
    return _made(FailureInspector, connection)


def inspector_of(connection: Redis) -> Inspector:
    """Return a reader of jobs, queues and workers. `connection` may be a `Forgiving` one, as for all readers."""
    return _made(Inspector, connection)


def sample_inspector_of(connection: Redis) -> SampleInspector:
    """Return a reader of the fleet as metrics show it."""
    return _made(SampleInspector, connection)


def search_inspector_of(connection: Redis) -> SearchInspector:
    """Return a search over jobs."""
    return _made(SearchInspector, connection)


def cron_inspector_of(connection: Redis) -> CronInspector:
    """Return a reader of cron entries and schedulers."""
    return _made(CronInspector, connection)


def glance_of(connection: Redis) -> Glance:
    """Return a reader of current activity."""
    return _made(Glance, connection)


def event_inspector_of(connection: Redis) -> EventInspector:
    """Return a reader of the event stream, its sinks and relays."""
    return _made(EventInspector, connection)


def callback_inspector_of(connection: Redis) -> CallbackInspector:
    """Return a reader of callbacks' deliveries."""
    return _made(CallbackInspector, connection)


def sheet_inspector_of(connection: Redis) -> SheetInspector:
    """Return a reader of everything that is known about one job."""
    return _made(SheetInspector, connection)


def server_inspector_of(connection: Redis) -> ServerInspector:
    """Return a reader of facts about the server itself."""
    return _made(ServerInspector, connection)


def log_event(line: LogLine) -> None:
    """Write a log line of a program that runs no job, through its current connection. Raises StoreUnavailable and ConfigurationError."""
    broker_of(get_current_connection()).log_event([line], secrets.token_hex(8))


def _made(kind: type[T], connection: Any) -> T:
    made: T = cast(Any, kind).of(asking(connection), get_settings())
    return typed(made, connection)


def script_names() -> list[str]:
    """Return the names of all scripts."""
    return scripts.names()


def script_text(name: str, settings: Settings, server: tuple[int, ...]) -> str:
    """Return a script as a server of this version receives it."""
    return scripts.load(name).text(FleetConstants.of(settings), server)
