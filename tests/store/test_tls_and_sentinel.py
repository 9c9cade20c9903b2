from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
import trustme

import fusion.rq as rq
from fusion.exceptions import ConfigurationError
from fusion.settings import Settings, use_settings
from fusion.store.client.connections import classify, connect, one_line
from fusion.store.client.given import url_for
from fusion.store.client.resp import NonBlockingReader
from fusion.store.layout.records import TurnRequest
from fusion.store.redis_server.binary import ServerBinary
from fusion.store.redis_server.instance import EmbeddedRedis
from fusion.store.write.broker import Broker
from tests.kit import guarded
from tests.kit.hands import Hand, outcome, put
from tests.kit.servers import SpawnedServer, TLSFront, closing_all, free_port
from tests.kit.waiting import eventually
from tests.store.test_resp import replies
from tests.store.test_script_line import heard

Spawn = Callable[..., SpawnedServer]


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def ca_file(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("ca") / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return str(path)


@pytest.fixture
def front(authority: trustme.CA, redis_url: str, redis_server: EmbeddedRedis) -> Iterator[TLSFront]:
    """TLS in front of the test's Redis, with a certificate for the name localhost only."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    with closing_all() as keep:
        server = TLSFront(context, str(redis_server.socket))
        keep(server)
        yield server


def settings_for(front: TLSFront, host: str = "localhost", **others: object) -> Settings:
    return Settings(redis_url=guarded.as_user(f"rediss://{host}:{front.port}/0"), **others)  # type: ignore[arg-type]


def failure(conn: redis.Redis) -> Exception:
    with pytest.raises(redis.RedisError) as caught:
        conn.ping()
    return caught.value


def test_tls_with_our_authority(front: TLSFront, ca_file: str) -> None:
    conn = connect(settings_for(front, redis_ssl_ca_certs=ca_file))
    assert conn.set("rq:k", b"x" * 200_000)
    assert conn.get("rq:k") == b"x" * 200_000


def test_turns_with_large_outcomes_and_jobs_over_tls(front: TLSFront, ca_file: str) -> None:
    broker = Broker(connect(settings_for(front, redis_ssl_ca_certs=ca_file), "worker"))
    hand, line = Hand(broker, "q"), broker.turn_line()
    put(broker, "q", *"abcd", data="x" * 1_000_000)
    told, *held = hand.claim(2)
    commit = outcome(told, fields={"result": b"y" * 5_000_000})
    assert line.send(broker.turn_call(TurnRequest(hand.name, hand.incarnation, 2, [commit], ["q"], [0, 0], 60, 420)))
    assert hand.extend(*held) == (True, ["ok"])
    heard(line)
    turn = line.answer()
    assert (turn.answers, [len(job.fields[b"data"]) for job in turn.jobs]) == (["ok"], [1_000_000] * 2)
    line.drop()


def test_an_unknown_authority_is_refused_at_once(front: TLSFront) -> None:
    settings = settings_for(front)
    error = failure(connect(settings))
    assert classify(error) == "configuration"
    assert "redis_ssl_ca_certs" in one_line(error, settings.redis_url)


def test_another_host_name_is_refused_unless_told_otherwise(front: TLSFront, ca_file: str) -> None:
    error = failure(connect(settings_for(front, "127.0.0.1", redis_ssl_ca_certs=ca_file)))
    assert classify(error) == "configuration"
    assert connect(settings_for(front, "127.0.0.1", redis_ssl_ca_certs=ca_file, redis_ssl_check_hostname=False)).ping()
    assert connect(settings_for(front, "127.0.0.1", redis_ssl_cert_reqs="none")).ping()


def test_authority_in_the_url(front: TLSFront, ca_file: str) -> None:
    assert connect(guarded.as_user(f"rediss://localhost:{front.port}/0?ssl_ca_certs={ca_file}")).ping()


def test_missing_certificate_file_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"redis_ssl_ca_certs '/no/such\.pem' .*can't be read"):
        connect(Settings(redis_url="rediss://localhost", redis_ssl_ca_certs="/no/such.pem"))


def test_tls_to_a_server_without_it_ends_in_time_and_says_so(spawn: Spawn) -> None:
    port = free_port()
    server = spawn("--port", str(port))
    assert server.client().ping()
    url = f"rediss://localhost:{port}/0"
    error = failure(connect(url, "worker", Settings(socket_timeout=0.2)))
    assert "is it running with TLS" in one_line(error, url)


def test_a_non_blocking_reader_over_tls_drains_what_was_read_ahead(front: TLSFront, ca_file: str) -> None:
    """A selector never wakes for bytes that OpenSSL holds already; hundreds of replies in one record are the way to get some."""
    client = connect(settings_for(front, redis_ssl_ca_certs=ca_file), "worker")
    client.set("rq:long", "x" * 100)
    reader = NonBlockingReader.of(client)
    try:
        for _ in range(2000):
            reader.send("GET", "rq:long")
        assert replies(reader, 2000) == [b"x" * 100] * 2000
        reader.send("BLPOP", "rq:wake:bell", 5)
        connect(settings_for(front, redis_ssl_ca_certs=ca_file)).rpush("rq:wake:bell", "1")
        assert replies(reader, 1) == [[b"rq:wake:bell", b"1"]]
    finally:
        reader.close()


class Sentinels:
    """One master, its replica, and one Sentinel that watches them."""

    def __init__(self, spawn: Spawn, binary: ServerBinary) -> None:
        self.ports = [free_port(), free_port()]
        common = ["--bind", "127.0.0.1", "--requirepass", "pw", "--masterauth", "pw", "--repl-diskless-sync-delay", "0"]
        self.servers = [spawn("--port", str(port), *common) for port in self.ports]
        self.client(1).replicaof("127.0.0.1", str(self.ports[0]))
        eventually(lambda: self.client(1).info("replication")["master_link_status"] == "up", timeout=20)
        self.port = free_port()
        config = self.servers[0].home / "sentinel.conf"
        config.write_text(
            f"port {self.port}\nsentinel monitor mymaster 127.0.0.1 {self.ports[0]} 1\nsentinel auth-pass mymaster pw\n"
            "sentinel down-after-milliseconds mymaster 500\nsentinel failover-timeout mymaster 2000\n"
        )
        self.process = SpawnedServer(binary.path, str(config), "--sentinel", socket_option=False)
        self.sentinel = redis.Redis("127.0.0.1", self.port, protocol=2)
        eventually(self._sees_replica, timeout=20)

    def client(self, number: int) -> redis.Redis:
        return redis.Redis.from_url(self.servers[number].url + "?password=pw", protocol=2)

    def _sees_replica(self) -> bool:
        try:
            return len(self.sentinel.execute_command("SENTINEL", "REPLICAS", "mymaster")) == 1  # type: ignore[no-untyped-call]
        except redis.RedisError:
            return False

    def close(self) -> None:
        self.process.close()


@pytest.fixture
def sentinels(spawn: Spawn, server_binary: ServerBinary) -> Iterator[Sentinels]:
    group = Sentinels(spawn, server_binary)
    yield group
    group.close()


def test_sentinel_finds_the_master_and_follows_a_failover(sentinels: Sentinels) -> None:
    url = f"redis+sentinel://:pw@127.0.0.1:{sentinels.port}/mymaster/1"
    conn = connect(url, "worker")
    assert conn.set("a", "1")
    assert sentinels.client(0).info("keyspace")["db1"]["keys"] == 1
    described = {"INSTANCES": [("127.0.0.1", sentinels.port)], "MASTER_NAME": "mymaster", "DB": 1, "PASSWORD": "pw"}
    assert connect(Settings(sentinel=described)).get("a") == b"1"
    assert connect(Settings(redis_url=url.replace(":pw@", ""), redis_password="pw")).get("a") == b"1"
    sentinels.servers[0].process.kill()

    troubles: list[str] = []

    def written_again() -> bool:
        try:
            return bool(conn.set("a", "2"))
        except redis.RedisError as error:
            troubles.append(classify(error))
            return False

    eventually(written_again, timeout=30, interval=0.1)
    assert set(troubles) == {"transient"}
    assert sentinels.client(1).execute_command("GET", "a") is None  # type: ignore[no-untyped-call]
    assert conn.info("server")["tcp_port"] == sentinels.ports[1]


def test_a_worker_of_a_program_whose_client_asks_sentinels(sentinels: Sentinels, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSION_TASKS", "tests.rq.tasks_of_rq")
    use_settings(None)
    manager = redis.Sentinel([("127.0.0.1", sentinels.port)])  # type: ignore[no-untyped-call]
    client = manager.master_for("mymaster", db=1, password="pw")  # type: ignore[no-untyped-call]
    assert url_for(client) == f"redis+sentinel://:pw@127.0.0.1:{sentinels.port}/mymaster/1"
    job = rq.Queue("work", connection=client).enqueue("tests.rq.tasks_of_rq.add", 1, 2)
    rq.Worker(["work"], connection=client).work(burst=True)
    assert job.return_value() == 3


@pytest.mark.parametrize("more", [{"ssl": True}, {"sentinel_kwargs": {"password": "pw"}}])
def test_what_no_url_says_of_sentinels_is_refused(more: dict[str, Any]) -> None:
    of_sentinels = {"sentinel_kwargs": more.pop("sentinel_kwargs", None)}
    client = redis.Sentinel([("127.0.0.1", 1)], **of_sentinels).master_for("mymaster", **more)  # type: ignore[no-untyped-call]
    with pytest.raises(ConfigurationError, match="set FUSION_SENTINEL for the worker"):
        url_for(client)


def test_an_unknown_master_name_and_no_sentinel_are_waited_for(sentinels: Sentinels) -> None:
    for url in (f"redis+sentinel://127.0.0.1:{sentinels.port}/other", f"redis+sentinel://127.0.0.1:{free_port()}/mymaster"):
        assert classify(failure(connect(url, "worker"))) == "transient"


def test_bad_instances_are_named() -> None:
    with pytest.raises(ConfigurationError, match="SENTINEL INSTANCES"):
        connect(Settings(sentinel={"INSTANCES": ["host"]}))
