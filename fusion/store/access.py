"""The Broker and the Inspector of a connection, as programs use them: with Fusion's errors (`fusion.store.client.errors`)."""

from __future__ import annotations

import secrets
from typing import Any, cast

from redis import Redis

from fusion.settings import get_settings
from fusion.store.client.adapter import asking
from fusion.store.client.connections import get_current_connection
from fusion.store.client.errors import typed
from fusion.store.layout.records import LogLine
from fusion.store.read.cron_inspector import CronInspector
from fusion.store.read.event_inspector import EventInspector
from fusion.store.read.inspector import Inspector
from fusion.store.read.tolerant import Forgiving
from fusion.store.stream.admin import EventAdmin
from fusion.store.write.broker import Broker
from fusion.store.write.cron_broker import CronBroker
from fusion.store.write.schema_broker import SchemaBroker

# Kept on the connection itself: a table of them, even with weak keys, would keep every connection alive, since a Broker holds its own.
_BROKER = "_fusion_broker"


def broker_of(connection: Redis) -> Broker:
    settings = get_settings()
    kept: tuple[object, Broker] | None = vars(connection).get(_BROKER)
    if kept is not None and kept[0] is settings:
        return kept[1]
    broker = typed(Broker.of(asking(connection), settings), connection)
    vars(connection)[_BROKER] = (settings, broker)
    return broker


def log_event(line: LogLine) -> None:
    """Write a line of a program that runs no job, through its current connection. Raises StoreUnavailable and ConfigurationError."""
    broker_of(get_current_connection()).log_event([line], secrets.token_hex(8))


def cron_broker_of(connection: Redis) -> CronBroker:
    return typed(CronBroker.of(asking(connection), get_settings()), connection)


def _looking(connection: Any) -> Redis:
    return cast(Redis, connection) if isinstance(connection, Forgiving) else asking(connection)


def cron_inspector_of(connection: Redis) -> CronInspector:
    return typed(CronInspector(_looking(connection), prefix=get_settings().prefix), connection)


def inspector_of(connection: Redis) -> Inspector:
    return typed(Inspector(_looking(connection), prefix=get_settings().prefix), connection)


def event_inspector_of(connection: Redis) -> EventInspector:
    return typed(EventInspector(_looking(connection), prefix=get_settings().prefix), connection)


def schema_broker_of(connection: Redis) -> SchemaBroker:
    return typed(SchemaBroker.of(asking(connection), get_settings()), connection)


def event_admin_of(connection: Redis) -> EventAdmin:
    return typed(EventAdmin(asking(connection), prefix=get_settings().prefix), connection)
