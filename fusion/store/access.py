"""The Broker and the Inspector of a connection, as programs use them: with Fusion's errors (`fusion.store.typed`)."""

from __future__ import annotations

import secrets
from typing import Any, cast

from redis import Redis

from fusion.settings import get_settings
from fusion.store.asking import asking
from fusion.store.broker import Broker
from fusion.store.connections import get_current_connection
from fusion.store.cron_broker import CronBroker
from fusion.store.cron_inspector import CronInspector
from fusion.store.event_admin import EventAdmin
from fusion.store.event_inspector import EventInspector
from fusion.store.forgiving import Forgiving
from fusion.store.inspector import Inspector
from fusion.store.records import LogLine
from fusion.store.schema_broker import SchemaBroker
from fusion.store.typed import typed

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
