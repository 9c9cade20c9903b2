"""Fixtures: real processes on the test's Redis, or on one of its own. All are ended with the test."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import pytest
import redis

from fusion.settings import use_settings
from fusion.store.redis_server.binary import ServerBinary
from fusion.store.write.broker import Broker
from fusion.store.write.event_broker import EventBroker
from tests.kit.clusters import ClusterOfTests
from tests.kit.private_redis import PrivateRedis
from tests.kit.process import ROOT, Group
from tests.kit.relays import Relays
from tests.kit.schedulers import Schedulers
from tests.kit.workers import Workers

G = TypeVar("G", bound=Group)


@pytest.fixture
def broker(conn: redis.Redis) -> Broker:
    """On the test's empty Redis."""
    return Broker(conn)


@pytest.fixture
def events(conn: redis.Redis) -> EventBroker:
    return EventBroker(conn)


@pytest.fixture
def workers(redis_url: str, tmp_path: Path) -> Iterator[Workers]:
    yield from ended(Workers(redis_url, tmp_path))


@pytest.fixture
def schedulers(redis_url: str, tmp_path: Path) -> Iterator[Schedulers]:
    yield from ended(Schedulers(redis_url, tmp_path))


@pytest.fixture
def relays(redis_url: str, tmp_path: Path) -> Iterator[Relays]:
    yield from ended(Relays(redis_url, tmp_path))


@pytest.fixture
def private_workers(private_redis: PrivateRedis, tmp_path: Path) -> Iterator[Workers]:
    """On `private_redis`, which is running again when they are ended."""
    yield from ended(Workers(private_redis.url, tmp_path), private_redis)


@pytest.fixture
def private_schedulers(private_redis: PrivateRedis, tmp_path: Path) -> Iterator[Schedulers]:
    yield from ended(Schedulers(private_redis.url, tmp_path), private_redis)


@pytest.fixture
def private_relays(private_redis: PrivateRedis, tmp_path: Path) -> Iterator[Relays]:
    yield from ended(Relays(private_redis.url, tmp_path), private_redis)


def ended(group: G, server: PrivateRedis | None = None) -> Iterator[G]:
    """For a fixture: `group`, whose processes end with the test. `server`: it is revived before."""
    yield group
    if server is not None:
        server.revive()
    group.stop()


@pytest.fixture(scope="session")
def session_cluster(server_binary: ServerBinary) -> Iterator[ClusterOfTests]:
    with closing(ClusterOfTests(server_binary.path)) as cluster:
        yield cluster


@pytest.fixture
def cluster(session_cluster: ClusterOfTests, monkeypatch: pytest.MonkeyPatch) -> ClusterOfTests:
    """An empty cluster; also what FUSION_REDIS_URL says. A test may move the slot, and leaves all nodes running."""
    session_cluster.wait_until_served()
    session_cluster.flush()
    monkeypatch.setenv("FUSION_REDIS_URL", session_cluster.url)
    use_settings(None)
    return session_cluster


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a clone of this checkout has, changes that are not committed included."""
    listed = subprocess.run(["git", "ls-files", "-z", "-c", "-o", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("no git, or no clone of it")
    target = tmp_path_factory.mktemp("clone")
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    return target
