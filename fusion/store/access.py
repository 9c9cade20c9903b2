"""The Broker and the Inspector of a connection, made once each."""

from __future__ import annotations

from redis import Redis

from fusion.settings import get_settings
from fusion.store.broker import Broker
from fusion.store.inspector import Inspector

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


def inspector_of(connection: Redis) -> Inspector:
    return Inspector(connection, prefix=get_settings().prefix)
