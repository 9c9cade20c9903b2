from __future__ import annotations

import asyncio
import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from fusion.exceptions import ConfigurationError, NoRedisError
from fusion.settings import Settings, use_settings
from fusion.store.client import connections
from fusion.store.client.connections import (
    Connection,
    check_server,
    connect,
    describe,
    get_current_connection,
    pop_connection,
    push_connection,
    resolve_redis,
    url_of,
)
from fusion.store.redis_server import instance
from fusion.store.redis_server.binary import ServerBinary
from tests.kit.servers import ScriptedServer, SpawnedServer, free_port

Spawn = Callable[..., SpawnedServer]
Scripted = Callable[[Callable[[int], bytes | None]], ScriptedServer]


# -- what server it is


def test_check_server_reads_one_info(conn: redis.Redis, redis_url: str) -> None:
    worker = connect(redis_url, "worker")
    worker.ping()
    conn.config_resetstat()
    found = check_server(worker)
    stats = conn.info("commandstats")
    assert {name: stats[name]["calls"] for name in stats} == {"cmdstat_info": 1, "cmdstat_config|resetstat": 1}
    assert found.version >= (6, 2)
    assert found.server_name in ("Redis", "Valkey")
    assert found.process_id == conn.info("server")["process_id"]
    assert found.run_id == conn.info("server")["run_id"]
    assert found.maxmemory_policy == "noeviction"
    assert describe(worker, found) == f"{url_of(worker)} ({found.server_name} {found.release}, run_id {found.run_id[:12]})"
    assert describe(worker) == describe(worker, found)


def test_an_evicting_server_is_refused_unless_told_otherwise(spawn: Spawn) -> None:
    conn = connect(spawn("--maxmemory-policy", "volatile-lru").url)
    with pytest.raises(ConfigurationError, match=r"volatile-lru.*FUSION_ALLOW_EVICTION=1"):
        check_server(conn)
    assert check_server(conn, allow_eviction=True).maxmemory_policy == "volatile-lru"


def test_a_cluster_is_refused(spawn: Spawn) -> None:
    with pytest.raises(ConfigurationError, match="cluster mode"):
        check_server(connect(spawn("--port", str(free_port()), "--cluster-enabled", "yes").url))


def test_an_old_server_is_refused(scripted: Scripted) -> None:
    info = b"# Server\r\nredis_version:6.0.16\r\nrun_id:abc\r\n"
    server = scripted(lambda n: b"$%d\r\n%s\r\n" % (len(info), info))
    with pytest.raises(ConfigurationError, match=r"Redis 6\.0\.16; use Redis 6\.2"):
        check_server(connect(server.url))


def test_urls_for_people_have_no_password() -> None:
    assert url_of(connect("redis://ann:hunter2@[::1]:7000/2")) == "redis://[::1]:7000/2"
    assert url_of(connect("rediss://:hunter2@h")) == "rediss://h:6379/0"
    assert url_of(connect("unix:///tmp/s?db=2&password=hunter2")) == "unix:///tmp/s?db=2"
    assert url_of(connect("redis+sentinel://:hunter2@a,b/m/1")) == "redis+sentinel://m/1"


# -- which Redis


def test_order_of_choice(
    tmp_path: Path, redis_server: instance.EmbeddedRedis, monkeypatch: pytest.MonkeyPatch, scripted: Scripted
) -> None:
    monkeypatch.setattr(connections, "_LOCAL_PORT", free_port())
    home = str(redis_server.home)
    assert resolve_redis(Settings.load(env={"FUSION_REDIS_URL": "redis://a"}, redis_url="redis://b")) == (
        "redis://b",
        "flag --redis-url",
    )
    assert resolve_redis(Settings.load(env={"REDIS_URL": "redis://a", "FUSION_HOME": home})) == (
        "redis://a",
        "environment REDIS_URL",
    )
    assert resolve_redis(Settings.load(env={"FUSION_HOME": home})) == (instance.url_of(home), f"the built-in Redis in {home}")
    nowhere = Settings(home=str(tmp_path))
    with pytest.raises(NoRedisError, match=r"run_worker\.py redis start"):
        resolve_redis(nowhere)
    # Whatever speaks the protocol counts, also one that first wants a password.
    server = scripted(lambda n: b"-NOAUTH Authentication required.\r\n")
    monkeypatch.setattr(connections, "_LOCAL_PORT", server.port)
    assert resolve_redis(nowhere)[0] == f"redis://localhost:{server.port}/0"


def test_login_from_settings_goes_to_named_servers_only(server_binary: ServerBinary, spawn: Spawn) -> None:
    with tempfile.TemporaryDirectory(prefix="fus", dir="/tmp") as home:
        own = instance.EmbeddedRedis(home, persistent=False, server=server_binary)
        own.start()
        try:
            assert connect(Settings(home=home, redis_password="for another")).ping()
        finally:
            own.stop()
    server = spawn("--requirepass", "right")
    assert connect(Settings(redis_url=server.url, redis_password="right")).ping()
    assert connect(Settings(redis_url=server.url + "?password=right", redis_password="wrong")).ping()


# -- the stack


def test_stack_is_last_in_first_out(redis_url: str) -> None:
    first, second = connect(redis_url), connect(redis_url)
    push_connection(first)
    with Connection(second) as inner:
        assert inner is second
        assert get_current_connection() is second
    assert get_current_connection() is first
    assert pop_connection() is first
    with pytest.raises(ConfigurationError, match="without push_connection"):
        pop_connection()


def test_a_push_left_behind_in_a_block_is_an_error(redis_url: str) -> None:
    left = connect(redis_url)
    with pytest.raises(ConfigurationError, match="pair push with pop"), Connection(connect(redis_url)):
        push_connection(left)
    pop_connection()


def test_block_is_left_by_an_exception_too(redis_url: str) -> None:
    with pytest.raises(ZeroDivisionError), Connection(redis_url):
        raise ZeroDivisionError
    with pytest.raises(ConfigurationError):
        pop_connection()


def test_threads_and_tasks_have_their_own_stack(redis_url: str) -> None:
    mine = connect(redis_url)
    seen: list[redis.Redis] = []
    with Connection(mine):
        thread = threading.Thread(target=lambda: seen.append(get_current_connection()))
        thread.start()
        thread.join()

        async def task() -> redis.Redis:
            with Connection(connect(redis_url)) as own:
                await asyncio.sleep(0)
                assert get_current_connection() is own
                return own

        async def both() -> tuple[redis.Redis, redis.Redis]:
            return await asyncio.gather(task(), task())

        one, other = asyncio.run(both())
        assert one is not other
        assert get_current_connection() is mine
    assert seen[0] is not mine


def test_default_connection_is_made_once_per_process_and_settings(redis_url: str) -> None:
    conn = get_current_connection()
    assert conn.ping()
    assert get_current_connection() is conn
    pid = os.fork()
    if pid == 0:
        os._exit(0 if get_current_connection() is not conn and get_current_connection().ping() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    use_settings(Settings(redis_url=redis_url))
    assert get_current_connection() is not conn
