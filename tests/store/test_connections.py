from __future__ import annotations

import os
import re
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
from redis import exceptions as errors

from fusion.exceptions import ConfigurationError
from fusion.settings import Settings
from fusion.store.client.connections import (
    classify,
    connect,
    one_line,
)
from tests.kit import guarded
from tests.kit.servers import ScriptedServer, SpawnedServer, free_port
from tests.kit.waiting import eventually

Spawn = Callable[..., SpawnedServer]
Scripted = Callable[[Callable[[int], bytes | None]], ScriptedServer]


def failure(conn: redis.Redis, *command: str) -> Exception:
    with pytest.raises(redis.RedisError) as caught:
        conn.execute_command(*(command or ("PING",)))  # type: ignore[no-untyped-call]
    return caught.value


# -- options


def test_a_new_connection_costs_no_round_trips_but_login_and_select(redis_url: str, conn: redis.Redis) -> None:
    conn.execute_command("ACL", "SETUSER", "ann", "on", ">secret", "~*", "&*", "+@all")  # type: ignore[no-untyped-call]
    conn.config_resetstat()
    other = connect(redis_url.replace("db=0", "db=3&username=ann&password=secret"), "worker")
    assert other.ping()
    other.close()
    seen = {name.removeprefix("cmdstat_") for name in conn.info("commandstats")}
    conn.execute_command("ACL", "DELUSER", "ann")  # type: ignore[no-untyped-call]
    assert seen - {"config|resetstat"} == {"auth", "select", "ping"}


def test_options_of_the_roles(redis_url: str) -> None:
    settings = Settings(socket_timeout=1.5, idle_wait=3)
    found = {
        role: connect(redis_url, role, settings).connection_pool.connection_kwargs for role in ("producer", "worker", "blocking")
    }
    assert [found[role]["socket_timeout"] for role in found] == [5.0, 1.5, 4.5]
    assert [found[role]["retry"]._retries for role in found] == [3, 0, 0]
    assert all(options["protocol"] == 2 and not options["decode_responses"] for options in found.values())
    assert all(options["socket_connect_timeout"] == 1.5 for options in found.values())


def test_a_url_may_set_timeouts_but_not_protocol_or_decoding() -> None:
    assert connect("redis://h?socket_timeout=7").connection_pool.connection_kwargs["socket_timeout"] == 7
    for option in ("protocol=3", "decode_responses=yes", "retry_on_timeout=yes", "nonsense=1"):
        with pytest.raises(ConfigurationError, match=f"option '{option.partition('=')[0]}' is not known here; remove it"):
            connect(f"redis://h?{option}")


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "1e400", "-1", "0", "x"])
@pytest.mark.parametrize("option", ["socket_timeout", "socket_connect_timeout", "max_connections", "port"])
@pytest.mark.parametrize("url", ["redis://", "redis://h", "rediss://h", "unix:///tmp/x"])
def test_a_number_in_a_url_that_is_none_is_refused(url: str, option: str, number: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        connect(f"{url}?{option}={number}")
    assert option in str(caught.value) and "use " in str(caught.value)


@pytest.mark.parametrize("url", ["redis://h?db=-1", "redis://h?port=99999", f"redis://h/{2**40}"])
def test_a_port_or_database_that_there_can_not_be_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="use a whole number"):
        connect(url)


@pytest.mark.parametrize(
    "rest", ["?socket_timeout=nan", "h?socket_timeout=nan", "h#x/m", "h x/m", "h:99999/m", "h:0/m", f"h/m/{2**40}", "h/m?x=1"]
)
def test_a_sentinels_url_takes_no_options_and_no_wrong_numbers(rest: str) -> None:
    for scheme in ("redis", "rediss"):
        with pytest.raises(ConfigurationError, match="use "):
            connect(f"{scheme}+sentinel://{rest}")


@pytest.mark.parametrize("number", ["nan", float("nan"), float("inf"), -1, "1e400", True, "x"])
def test_a_number_in_rqs_sentinel_dict_that_is_none_is_refused(number: object) -> None:
    for wrong in (
        {"SOCKET_TIMEOUT": number},
        {"CONNECTION_KWARGS": {"socket_timeout": number}},
        {"SENTINEL_KWARGS": {"socket_connect_timeout": number}},
        {"DB": number},
        {"INSTANCES": [("h", "70000")]},
    ):
        with pytest.raises(ConfigurationError, match="SENTINEL"):
            connect(Settings(sentinel={"INSTANCES": [("h", 26379)], "MASTER_NAME": "m", **wrong}))
    sound = Settings(
        sentinel={"INSTANCES": [("h", "26379")], "SOCKET_TIMEOUT": "0.5", "CONNECTION_KWARGS": {"socket_timeout": None}}
    )
    assert connect(sound).connection_pool.connection_kwargs["socket_timeout"] == 0.5


@pytest.mark.parametrize("url", ["redis://h/one", "redis://h:port/0", "redis://h?db=x", "ftp://h", "redis+sentinel://h:x/m"])
def test_a_malformed_url_is_a_configuration_error_without_the_password(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        connect(url.replace("://", "://ann:hunter2@"))
    assert "hunter2" not in str(caught.value)
    assert "use redis" in str(caught.value)


def test_a_worker_makes_one_attempt_and_a_producer_a_few(scripted: Scripted) -> None:
    server = scripted(lambda n: None)
    failure(connect(server.url, "worker"))
    assert server.commands == 1
    assert classify(failure(connect(server.url, "producer"))) == "transient"
    assert server.commands == 1 + 4


def test_a_refused_connect_does_not_multiply_the_attempts(scripted: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that breaks in mid-command is made anew inside redis-py's own loop, which has the same retry object."""
    pauses: list[float] = []

    def answer(n: int) -> bytes | None:
        if n == 0:
            return b"+PONG\r\n"
        server.close()
        return None

    server = scripted(answer)
    conn = connect(server.url, "producer")
    assert conn.ping()
    monkeypatch.setattr(time, "sleep", pauses.append)
    assert classify(failure(conn)) == "transient"
    assert len(pauses) == 3
    assert max(pauses) <= 1


def test_a_producer_rides_out_what_passes(scripted: Scripted) -> None:
    trouble = [b"-LOADING Redis is loading the dataset in memory\r\n", b"-BUSY Redis is busy running a script\r\n", b"+PONG\r\n"]
    server = scripted(lambda n: trouble[n])
    assert connect(server.url, "producer").ping()
    assert server.commands == 3


def test_a_half_open_connection_ends_within_the_socket_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        conn = connect(f"redis://127.0.0.1:{silent.getsockname()[1]}", "worker", Settings(socket_timeout=0.1))
        begun = time.monotonic()
        assert classify(failure(conn)) == "transient"
        assert time.monotonic() - begun < 1


def test_a_killed_connection_is_made_anew(conn: redis.Redis, redis_url: str) -> None:
    worker = connect(guarded.as_admin(redis_url), "worker")
    number = worker.client_id()
    conn.client_kill_filter(_id=str(number))
    assert worker.ping()
    assert worker.client_id() != number


def test_a_forked_child_uses_its_own_socket(redis_url: str) -> None:
    conn = connect(guarded.as_admin(redis_url))
    number = conn.client_id()
    pid = os.fork()
    if pid == 0:
        os._exit(0 if conn.client_id() != number else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert conn.client_id() == number


# -- errors


def test_wrong_password_is_a_configuration_error_at_once(spawn: Spawn) -> None:
    server = spawn("--requirepass", "right")
    begun = time.monotonic()
    for url in (server.url, server.url + "?password=wrong", server.url + "?username=nobody&password=right"):
        error = failure(connect(url, "producer"))
        assert classify(error) == "configuration"
        line = one_line(error, url)
        assert "refused the login" in line
        assert "FUSION_REDIS_URL" in line
        assert "wrong" not in line.replace("wrong user", "")
    assert time.monotonic() - begun < 1
    assert connect(server.url + "?password=right").ping()
    unneeded = failure(connect(spawn().url + "?password=unneeded"))
    assert classify(unneeded) == "configuration"


def test_password_file_may_be_rotated(spawn: Spawn, tmp_path: Path) -> None:
    server = spawn("--requirepass", "first")
    file = tmp_path / "password"
    file.write_text("first\n")
    conn = connect(Settings(redis_url=server.url, redis_password_file=str(file)))
    assert conn.config_set("requirepass", "second")
    file.write_text("second\n")
    conn.connection_pool.disconnect()
    assert conn.ping()
    file.unlink()
    conn.connection_pool.disconnect()
    for _ in range(2):
        assert classify(failure(conn)) == "configuration"


def test_acl_user_without_a_permission(spawn: Spawn) -> None:
    server = spawn()
    server.client().execute_command("ACL", "SETUSER", "ann", "on", ">pw", "~rq:*", "+@all", "-flushall", "-keys")  # type: ignore[no-untyped-call]
    conn = connect(server.url + "?username=ann&password=pw")
    assert conn.set("rq:k", "1")
    for error in (
        failure(conn, "FLUSHALL"),
        failure(conn, "SET", "other", "1"),
        failure(conn, "EVAL", "return redis.call('KEYS', '*')", "0"),
        failure(conn, "EVAL", "return redis.call('GET', 'other')", "0"),
    ):
        assert classify(error) == "configuration", error
        assert "docs/operations.md" in one_line(error, server.url)


def test_a_replica_and_a_lost_master_are_waited_for(spawn: Spawn) -> None:
    server = spawn()
    admin = server.client()
    admin.replicaof("127.0.0.1", str(free_port()))
    conn = connect(server.url, "worker")
    assert classify(failure(conn, "SET", "a", "1")) == "transient"
    assert classify(failure(conn, "EVAL", "return redis.call('SET', KEYS[1], 1)", "1", "a")) == "transient"
    admin.config_set("replica-serve-stale-data", "no")
    assert classify(failure(conn, "GET", "a")) == "transient"


def test_a_full_server_is_reported_at_once(spawn: Spawn) -> None:
    server = spawn()
    server.client().config_set("maxmemory", "1")
    conn = connect(server.url, "producer")
    begun = time.monotonic()
    error = failure(conn, "SET", "a", "1")
    assert classify(error) == "transient"
    line = one_line(error, server.url)
    assert "is full and takes no more: raise its maxmemory, or make room there" in line
    assert "try again" not in line
    assert classify(failure(conn, "EVAL", "return redis.call('SET', KEYS[1], 1)", "1", "a")) == "transient"
    assert time.monotonic() - begun < 1


def test_a_server_that_runs_a_long_script_is_waited_for(spawn: Spawn) -> None:
    server = spawn()
    admin = server.client()
    admin.config_set("lua-time-limit", "10")
    endless = threading.Thread(target=failure, args=(server.client(), "EVAL", "while true do end", "0"))
    endless.start()
    conn = connect(server.url, "worker")

    def busy() -> Exception | None:
        try:
            conn.ping()
        except redis.RedisError as error:
            return error
        return None

    error = eventually(busy)
    assert error is not None
    assert str(error).startswith("BUSY")
    assert classify(error) == "transient"
    admin.script_kill()
    endless.join(5)
    assert not endless.is_alive()


def test_too_many_clients_are_waited_for(spawn: Spawn) -> None:
    server = spawn("--maxclients", "1")
    first = connect(server.url)
    assert first.ping()
    error = failure(connect(server.url, "worker"))
    assert classify(error) == "transient"


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        ("LOADING Redis is loading the dataset in memory", "transient"),
        ("MISCONF Redis is configured to save RDB snapshots", "transient"),
        ("BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", "transient"),
        ("READONLY You can't write against a read only replica.", "transient"),
        ("OOM command not allowed when used memory > 'maxmemory'.", "transient"),
        ("NOMASTERLINK Can't SYNC while not connected with my master", "transient"),
        ("NOREPLICAS Not enough good replicas to write.", "transient"),
        ("CLUSTERDOWN The cluster is down", "transient"),
        ("TRYAGAIN Multiple keys request during rehashing of slot", "transient"),
        ("MASTERDOWN Link with MASTER is down", "transient"),
        ("UNBLOCKED force unblock from blocking operation", "transient"),
        ("ERR max number of clients reached", "transient"),
        ("MOVED 3999 127.0.0.1:6381", "transient"),
        ("ASK 3999 127.0.0.1:6381", "transient"),
        ("NOAUTH Authentication required.", "configuration"),
        ("WRONGPASS invalid username-password pair or user is disabled.", "configuration"),
        ("NOPERM this user has no permissions to run the 'evalsha' command", "configuration"),
        ("NOPERM No permissions to access a key", "configuration"),
        ("CROSSSLOT Keys in request don't hash to the same slot", "configuration"),
        ("DENIED Redis is running in protected mode", "configuration"),
        ("ERR unknown command 'EVALSHA', with args beginning with:", "configuration"),
        ("ERR DB index is out of range", "configuration"),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", "bug"),
        ("ERR value is not an integer or out of range", "bug"),
        ("NOSCRIPT No matching script. Please use EVAL.", "bug"),
    ],
)
def test_classes_of_error_replies(scripted: Scripted, reply: str, kind: str) -> None:
    server = scripted(lambda n: f"-{reply}\r\n".encode())
    error = failure(connect(server.url, "worker"))
    assert classify(error) == kind
    line = one_line(error, server.url)
    assert server.url in line
    assert "\n" not in line


def test_classes_of_other_errors() -> None:
    assert classify(ConnectionResetError()) == "transient"
    assert classify(TimeoutError()) == "transient"
    assert classify(socket.gaierror(-2, "Name or service not known")) == "transient"
    assert classify(ConfigurationError("x")) == "configuration"
    assert classify(ValueError("x")) == "bug"
    assert classify(errors.InvalidResponse("x")) == "bug"


def test_no_server(tmp_path: Path) -> None:
    url = f"redis://ann:hunter2@127.0.0.1:{free_port()}/0"
    error = failure(connect(url, "worker"))
    assert classify(error) == "transient"
    line = one_line(error, url)
    assert (
        line
        == f"Redis at {url.replace('hunter2', '***')} can't be reached: Connection refused; is it running, and is FUSION_REDIS_URL (or --url) right?"
    )
    missing = failure(connect(f"unix://{tmp_path}/none", "worker"))
    assert classify(missing) == "transient"
    assert "can't be reached: No such file or directory" in one_line(missing)
    assert "\n" not in one_line(RuntimeError("a\nb"))


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("rediss://h?ssl_cert_reqs=CERT_NONE", "ssl_cert_reqs is 'CERT_NONE'; use required, optional, none; did you mean none?"),
        ("rediss://h?ssl_cert_reqs=no", "ssl_cert_reqs is 'no'; use required, optional, none"),
        ("redis://h?ssl_cert_reqs=none", "option 'ssl_cert_reqs' is one of TLS; use rediss://, or remove it"),
        ("unix://", "it names no socket; use unix:///path/to/redis.sock"),
        ("unix:///", "it names no socket"),
        ("unix://?db=1", "it names no socket"),
    ],
)
def test_a_url_that_cannot_work_is_refused_at_once(url: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        connect(url)


def test_a_url_may_turn_the_check_of_certificates_off() -> None:
    options = connect("rediss://h?ssl_cert_reqs=none").connection_pool.connection_kwargs
    assert (options["ssl_cert_reqs"], options["ssl_check_hostname"]) == ("none", False)
    connect("rediss://h?ssl_cert_reqs=none").connection_pool.make_connection()


def test_sentinels_that_are_down_are_named_without_objects() -> None:
    conn = connect(Settings(sentinel={"INSTANCES": [("127.0.0.1", 1), ("127.0.0.1", 2)], "MASTER_NAME": "m"}))
    with pytest.raises(redis.ConnectionError) as caught:
        conn.ping()
    told = one_line(caught.value, "redis+sentinel://m/0")
    assert told == (
        "Redis at redis+sentinel://m/0 can't be reached: no Sentinel names a healthy master 'm'; no answer of 127.0.0.1:1, 127.0.0.1:2: "
        "are the Sentinels running, and are their addresses right (FUSION_REDIS_URL, --url or the setting sentinel)?"
    )
