"""The Broker and the Inspector of a connection, made once each."""

from __future__ import annotations

import secrets

from redis import Redis

from fusion.settings import get_settings
from fusion.store.broker import Broker
from fusion.store.connections import get_current_connection
from fusion.store.cron_broker import CronBroker
from fusion.store.cron_inspector import CronInspector
from fusion.store.event_admin import EventAdmin
from fusion.store.event_inspector import EventInspector
from fusion.store.inspector import Inspector
from fusion.store.records import LogLine

# Kept on the connection itself: a table of them, even with weak keys, would keep every connection alive, since a Broker holds its own.
_BROKER = "_fusion_broker"


def broker_of(connection: Redis) -> Broker:
    settings = get_settings()
    kept: tuple[object, Broker] | None = vars(connection).get(_BROKER)
    if kept is not None and kept[0] is settings:
        return kept[1]
    broker = Broker.of(connection, settings)
    vars(connection)[_BROKER] = (settings, broker)
    return broker


def log_event(line: LogLine) -> None:
    """Write a line of a program that runs no job, through its current connection. Raises redis-py's errors, and NoRedisError."""
    broker_of(get_current_connection()).log_event([line], secrets.token_hex(8))


def cron_broker_of(connection: Redis) -> CronBroker:
    return CronBroker.of(connection, get_settings())


def cron_inspector_of(connection: Redis) -> CronInspector:
    return CronInspector(connection, prefix=get_settings().prefix)


def inspector_of(connection: Redis) -> Inspector:
    return Inspector(connection, prefix=get_settings().prefix)


def event_inspector_of(connection: Redis) -> EventInspector:
    return EventInspector(connection, prefix=get_settings().prefix)


def event_admin_of(connection: Redis) -> EventAdmin:
    return EventAdmin(connection, prefix=get_settings().prefix)
