"""Every contender by a short name. Its module is imported when it is asked for, so that not all need be installed."""

from __future__ import annotations

from importlib import import_module

from benchmarks.peers.base import Peer

_WHERE = {
    "bare": "bare_peer:LOOP",
    "fusion": "fusion_peer:FORKING",
    "fusion-pool": "fusion_peer:POOL",
    "fusion-pool-shipped": "fusion_peer:SHIPPED",
    "fusion-thread": "fusion_peer:THREAD",
    "fusion-asyncio": "fusion_peer:ASYNCIO",
    "rq": "rq_peer:FORKING",
    "rq-preloaded": "rq_peer:PRELOADED",
    "rq-simple": "rq_peer:SIMPLE",
    "celery": "celery_peer:PREFORK",
    "celery-late": "celery_peer:LATE",
    "celery-ahead": "celery_peer:AHEAD",
    "celery-threads": "celery_peer:THREADS",
    "dramatiq": "dramatiq_peer:THREADS",
    "huey": "huey_peer:PLAIN",
    "huey-priority": "huey_peer:PRIORITY",
    "saq": "saq_peer:ASYNCIO",
    "taskiq": "taskiq_peer:STREAM",
}
NAMES = tuple(_WHERE)


def peer(name: str) -> Peer:
    """The contender of this name. Raises KeyError if there is none, ImportError if its library is not installed."""
    module, _, attribute = _WHERE[name].partition(":")
    found = getattr(import_module(f"benchmarks.peers.{module}"), attribute)
    assert isinstance(found, Peer)
    return found
