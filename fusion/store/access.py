"""The Broker and the Inspector of a connection, made once each."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from redis import Redis

from fusion.settings import get_settings
from fusion.store.broker import Broker
from fusion.store.inspector import Inspector

_brokers: WeakKeyDictionary[Redis, Broker] = WeakKeyDictionary()


def broker_of(connection: Redis) -> Broker:
    broker = _brokers.get(connection)
    settings = get_settings()
    if broker is None or broker.keys.prefix != settings.prefix:
        broker = Broker(
            connection,
            prefix=settings.prefix,
            events_cap=settings.events_cap,
            result_ttl=settings.result_ttl,
            failure_ttl=settings.failure_ttl,
            max_lost=settings.max_lost,
            hold_timeout=settings.hold_timeout,
        )
        _brokers[connection] = broker
    return broker


def inspector_of(connection: Redis) -> Inspector:
    return Inspector(connection, prefix=get_settings().prefix)
