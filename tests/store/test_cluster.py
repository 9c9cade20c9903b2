"""Clients of a cluster connect to the node that serves their slot, also after the slot has moved."""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
import trustme

from fusion import AsyncQueue, Connection, Queue, Retry
from fusion.exceptions import ConfigurationError
from fusion.runtime.commands import STOP_JOB, Commands
from fusion.runtime.doorbells import Doorbell
from fusion.settings import Settings, get_settings, use_settings
from fusion.store.access import script_names
from fusion.store.client.async_connections import close_loops_client, twin
from fusion.store.client.connections import check_server, classify, connect, one_line, url_of
from fusion.store.client.given import url_for
from fusion.store.layout.acl import acl_rules, producer_rules
from fusion.store.layout.keys import Keys
from fusion.store.layout.records import TurnRequest
from fusion.store.layout.slots import GUARD
from fusion.store.redis_server.binary import ServerBinary
from fusion.store.scripting.constants import FleetConstants
from fusion.store.scripting.scripts import Script, load
from fusion.store.write.broker import Broker
from tests.kit.clusters import PREFIX, SLOT, ClusterOfTests, Node
from tests.kit.hands import Hand, put
from tests.kit.servers import TLSFront, closing_all
from tests.kit.waiting import eventually
from tests.store.test_script_line import heard

TASK = "tasks.sms.sendSMS"
KEYS = Keys(PREFIX)


def port_of(conn: redis.Redis) -> int:
    """Return the port of the node that serves this client. Any node answers INFO, so the client first uses a key."""
    conn.exists(f"{PREFIX}seq")
    return int(conn.info("server")["tcp_port"])


def broker_on(cluster: ClusterOfTests, conn: redis.Redis) -> Broker:
    return Broker.of(conn, get_settings())


def test_a_client_is_at_the_node_that_serves_its_slot(cluster: ClusterOfTests) -> None:
    for node in (*cluster.nodes[:3], cluster.replica_of(cluster.owner)):
        conn = connect(f"redis+cluster://127.0.0.1:{node.port}", settings=get_settings())
        assert port_of(conn) == cluster.owner.port
        conn.close()
    conn = connect()
    assert url_of(conn) == url_for(conn) == cluster.url
    assert check_server(conn, prefix=get_settings().prefix).cluster


def test_a_prefix_without_a_tag_is_refused_on_a_node_of_a_cluster(cluster: ClusterOfTests) -> None:
    with pytest.raises(ConfigurationError, match=r"runs in cluster mode.*FUSION_PREFIX='rq:\{fusion\}:'"):
        check_server(connect(cluster.owner.server.url), prefix="rq:")
    with pytest.raises(ConfigurationError, match="runs in cluster mode"):
        check_server(connect(cluster.owner.server.url))


def test_a_plain_url_of_a_wrong_node_says_what_to_use(cluster: ClusterOfTests) -> None:
    url = f"redis://127.0.0.1:{cluster.other(cluster.owner).port}/0"
    with pytest.raises(redis.ResponseError) as caught:
        connect(url, "worker").get(f"{PREFIX}seq")
    assert classify(caught.value) == "transient"
    assert "use redis+cluster://host:port" in one_line(caught.value, url)


@pytest.fixture
def moved(cluster: ClusterOfTests) -> Iterator[ClusterOfTests]:
    """Return the cluster. Move the slot back after the test."""
    before = cluster.owner
    yield cluster
    if cluster.wait_until_served() is not before:
        cluster.move(before)


def test_calls_of_producers_follow_the_slot(moved: ClusterOfTests) -> None:
    conn = connect()
    queue = Queue("sms", conn)
    queue.enqueue(TASK, 1)
    for _ in range(3):
        moved.move(moved.other(moved.owner))
        queue.enqueue(TASK, 2)
        queue.enqueue_many([Queue.prepare_data(TASK, (3,)) for _ in range(400)])
        assert port_of(conn) == moved.owner.port
    assert queue.count == 1 + 3 * 401
    conn.close()


def test_pipelines_and_other_commands_follow_the_slot(moved: ClusterOfTests) -> None:
    conn = connect()
    conn.set(f"{PREFIX}a", "1")
    moved.move(moved.other(moved.owner))
    pipe = conn.pipeline(transaction=False)
    for _ in range(3):
        pipe.get(f"{PREFIX}a")
    with contextlib.suppress(redis.RedisError):
        pipe.execute(raise_on_error=False)
    assert pipe.get(f"{PREFIX}a").execute() == [b"1"], "the connection of the wrong node was closed"
    conn.close()


def test_calls_of_coroutines_follow_the_slot(moved: ClusterOfTests) -> None:
    async def calls() -> int:
        queue = AsyncQueue("sms")
        await queue.enqueue(TASK, 1)
        moved.move(moved.other(moved.owner))
        await queue.enqueue(TASK, 2)
        client = twin(connect())
        assert (await client.info("server"))["tcp_port"] == moved.owner.port
        await client.aclose()
        await close_loops_client()
        return await AsyncQueue("sms").count()

    assert asyncio.run(calls()) == 2


def test_a_turn_on_its_own_line_follows_the_slot(moved: ClusterOfTests) -> None:
    broker = broker_on(moved, connect(role="worker"))
    hand, line = Hand(broker, "q"), broker.turn_line()
    put(broker, "q", "a")
    hand.turn()

    def send() -> None:
        hand.token += 1
        assert line.send(broker.turn_call(TurnRequest(hand.name, hand.incarnation, hand.token, [], ["q"], [0], 60, 420)))
        heard(line)

    send()
    assert [job.id for job in line.answer().jobs] == ["a"]
    put(broker, "q", "b")
    moved.move(moved.other(moved.owner))
    send()
    with pytest.raises(redis.ResponseError) as caught:
        line.answer()
    assert classify(caught.value) == "transient"
    hand.token -= 1
    with contextlib.suppress(redis.RedisError):
        hand.turn()  # at the new node the script is not known
    hand.turn()
    send()
    assert line.answer().status == "ok"
    line.drop()


def test_a_doorbell_rings_at_the_new_node(moved: ClusterOfTests) -> None:
    """A node that gives its slot away ends the waits of its clients."""
    bell = Doorbell(lambda: connect(role="blocking"), KEYS, 3.0)
    assert bell.arm(["sms", "mail"])
    moved.move(moved.other(moved.owner))
    eventually(lambda: bell.receive() is False and not bell.armed, why="the wait is over")
    eventually(lambda: bell.arm(["sms", "mail"]), why="a new wait")
    Queue("sms").enqueue(TASK)
    eventually(lambda: bell.receive() == "sms", why="it rang")
    bell.drop()


@pytest.mark.parametrize("published", ["SPUBLISH", "PUBLISH"])
def test_commands_come_by_channels_of_the_slot_and_by_those_of_all_nodes(moved: ClusterOfTests, published: str) -> None:
    """Processes of one fleet may know different versions of the server."""
    if published == "SPUBLISH" and moved.major < 7:
        pytest.skip("Redis before 7 has no channels of a slot")
    begun: list[int] = []
    commands = Commands(
        lambda: connect(role="blocking"), lambda: KEYS.pubsub("w"), KEYS.pubsub("_fleet"), lambda: begun.append(1), sharded=True
    )

    def subscribed() -> bool:
        commands.tick(time.monotonic())
        commands.receive()
        channels = moved.owner.client.execute_command("PUBSUB", "SHARDCHANNELS" if moved.major >= 7 else "CHANNELS")
        return bool(begun) and len(channels) == 2

    eventually(subscribed, why="subscribed")
    begun.clear()
    moved.move(moved.other(moved.owner))
    if moved.major >= 7:  # else the old node keeps the subscriber
        eventually(subscribed, why="subscribed at the new node")
    connect().execute_command(published, KEYS.pubsub("w"), '{"command": "stop-job", "job_id": "a"}')
    (command,) = eventually(commands.receive, why="a command")
    assert (command.name, command.job_id) == (STOP_JOB, "a")
    commands.close()


def test_stopping_a_job_tells_its_worker_by_the_channel_of_the_slot(cluster: ClusterOfTests) -> None:
    if cluster.major < 7:
        pytest.skip("Redis before 7 has no channels of a slot")
    broker = broker_on(cluster, connect())
    hand = Hand(broker, "q")
    put(broker, "q", "a")
    hand.take()
    with cluster.owner.client.pubsub() as listener:
        listener.ssubscribe(KEYS.pubsub(hand.name))
        assert eventually(listener.get_message)
        assert broker.stop("a") == "pending"
        assert broker.command(hand.name, "{}") == 1
        told = [eventually(lambda: listener.get_sharded_message() or listener.get_message()) for _ in range(2)]
    assert [message["data"] for message in told if message][1] == b"{}"


@pytest.mark.parametrize("name", script_names())
def test_calls_without_a_hash_tag_are_as_on_any_redis(name: str) -> None:
    """With a hash tag, a call names one more key, and publishes on channels of the slot."""
    source = load(name)
    made = {prefix: Script(name, connect("redis://nowhere"), FleetConstants(prefix=prefix), (7,)) for prefix in ("rq:", PREFIX)}
    keys, args = dict.fromkeys(source.keys, "key"), dict.fromkeys(source.args, "arg")
    plain = made["rq:"].command(keys, args, ["rest"])
    assert plain == (str(len(source.keys)), *["key"] * len(source.keys), *["arg"] * len(source.args), "rest")
    guarded = made[PREFIX].command(keys, args, ["rest"])
    assert guarded == (
        str(len(source.keys) + 1),
        *plain[1 : len(source.keys) + 1],
        f"{PREFIX}{GUARD}",
        *plain[len(source.keys) + 1 :],
    )
    assert "SPUBLISH" not in made["rq:"].text
    assert made["rq:"].text.count("'PUBLISH'") == made[PREFIX].text.count("'SPUBLISH'")


# -- while the slot is on its way


def test_a_producer_waits_until_the_slot_has_moved(moved: ClusterOfTests) -> None:
    queue = Queue("sms")
    queue.enqueue(TASK, 1)
    target = moved.other(moved.owner)
    source = moved.begin_move(target)
    ended: list[float] = []

    def enqueue() -> None:
        with Connection(connect()):
            Queue("sms").enqueue(TASK, 2)
        ended.append(time.monotonic())

    thread = threading.Thread(target=enqueue)
    thread.start()
    time.sleep(3)  # more than a producer's usual tries
    assert not ended
    while keys := source.cluster("GETKEYSINSLOT", SLOT, 100):
        moved.move_keys(source, target, keys)
    over = time.monotonic()
    moved.end_move(target)
    thread.join(20)
    assert 0 < ended[0] - over < 10
    assert Queue("sms").count == 2


def test_a_worker_does_not_wait(moved: ClusterOfTests) -> None:
    broker = broker_on(moved, connect(role="worker"))
    put(broker, "q", "a")
    target = moved.other(moved.owner)
    source = moved.begin_move(target)
    began = time.monotonic()
    with pytest.raises(redis.ResponseError) as caught:
        put(broker, "q", "b")
    assert time.monotonic() - began < 2
    assert classify(caught.value) == "transient"
    moved.give_up_move(source, target)


# -- users and TLS


def test_a_user_with_the_documented_rights_works_on_a_cluster(cluster: ClusterOfTests) -> None:
    for node in cluster.nodes:
        for name, rules in (
            ("ann", acl_rules(PREFIX, server=cluster.major)),
            ("bob", producer_rules(PREFIX, server=cluster.major)),
        ):
            node.client.execute_command("ACL", "SETUSER", name, "reset", "on", ">pw", *_terms(rules))
    hosts = cluster.url.partition("//")[2]
    producer = connect(f"redis+cluster://bob:pw@{hosts}")
    with Connection(producer):
        Queue("sms").enqueue(TASK)
        Queue("sms").enqueue_many([Queue.prepare_data(TASK, retry=Retry(3))])
    assert port_of_url(f"redis+cluster://ann:pw@{hosts}") == cluster.owner.port
    hand = Hand(broker_on(cluster, connect(f"redis+cluster://ann:pw@{hosts}", "worker")), "sms")
    assert len(hand.claim(2)) == 2
    commands = Commands(
        lambda: connect(f"redis+cluster://ann:pw@{hosts}", "blocking"),
        lambda: KEYS.pubsub("w"),
        KEYS.pubsub("_fleet"),
        sharded=True,
    )
    commands.tick(time.monotonic())
    eventually(lambda: commands.receive() or hand.broker.command("w", "{}"), why="subscribed, and allowed to send")
    assert commands.channel is not None
    commands.close()
    with pytest.raises(redis.RedisError) as caught:
        connect(f"redis+cluster://ann:wrong@{hosts}", "worker").ping()
    assert classify(caught.value) == "configuration"


def port_of_url(url: str) -> int:
    return port_of(connect(url))


def _terms(rules: str) -> list[str]:
    return re.findall(r"\([^)]*\)|\S+", rules)


@pytest.fixture
def fronts(cluster: ClusterOfTests, tmp_path: Path) -> Iterator[Settings]:
    """Put TLS in front of each node, at another port, as behind a load balancer."""
    authority, ca_file = trustme.CA(), tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(ca_file))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    with closing_all() as keep:
        nat = dict[str, str]()
        for node in cluster.nodes:
            front = TLSFront(context, node.server.socket)
            keep(front)
            nat[f"127.0.0.1:{node.port}"] = f"localhost:{front.port}"
        yield Settings(redis_url=f"rediss+cluster://{next(iter(nat.values()))}", redis_ssl_ca_certs=str(ca_file), cluster_nat=nat)


def test_tls_in_front_of_nodes_with_other_addresses(fronts: Settings, cluster: ClusterOfTests) -> None:
    conn = connect(fronts)
    assert port_of(conn) == cluster.owner.port
    with Connection(conn):
        Queue("sms").enqueue(TASK)

    async def port() -> int:
        client = twin(conn)
        try:
            return int((await client.info("server"))["tcp_port"])
        finally:
            await client.aclose()

    assert asyncio.run(port()) == cluster.owner.port
    with pytest.raises(redis.RedisError) as caught:
        connect(Settings(redis_url=fronts.redis_url), "worker").ping()
    assert classify(caught.value) == "configuration", "the authority is not known"


def _has_tls(binary: str) -> bool:
    """Return True if this server has TLS. One without ends at once, with an error."""
    ended = subprocess.run([binary, "--port", "0", "--tls-port", "1"], capture_output=True, text=True, timeout=20, check=False)
    return "Failed finding TLS support" not in ended.stdout and "tls-port" not in ended.stderr


def test_nodes_that_speak_tls_themselves(server_binary: ServerBinary, tmp_path: Path) -> None:
    authority = trustme.CA()
    paths = {name: str(tmp_path / name) for name in ("ca.pem", "cert.pem", "key.pem")}
    authority.cert_pem.write_to_path(paths["ca.pem"])
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(paths["key.pem"])
    for pem in issued.cert_chain_pems:
        pem.write_to_path(paths["cert.pem"], append=True)
    options = (
        *("--tls-ca-cert-file", paths["ca.pem"], "--tls-cert-file", paths["cert.pem"], "--tls-key-file", paths["key.pem"]),
        *("--tls-auth-clients", "no", "--tls-cluster", "yes", "--tls-replication", "yes"),
    )
    if not _has_tls(server_binary.path):
        pytest.skip(f"{server_binary} was built without TLS")
    with contextlib.closing(ClusterOfTests(server_binary.path, *options, replicas=False, tls=True)) as cluster:
        settings = Settings(redis_url=f"rediss+cluster://127.0.0.1:{cluster.nodes[0].port}", redis_ssl_ca_certs=paths["ca.pem"])
        use_settings(settings)
        conn = connect()
        conn.set(f"{PREFIX}a", 1)
        cluster.move(cluster.other(cluster.owner))
        assert conn.get(f"{PREFIX}a") == b"1"
        with Connection(conn):
            Queue("sms").enqueue(TASK)


def test_a_replica_takes_over(cluster: ClusterOfTests) -> None:
    """An operator starts the failover. No node fails."""
    owner = cluster.owner
    replica = cluster.replica_of(owner)
    conn, queue = connect(), Queue("sms")
    queue.enqueue(TASK, 1)
    _take_over(cluster, replica)
    queue.enqueue(TASK, 2)
    assert (queue.count, port_of(conn)) == (2, replica.port)
    _take_over(cluster, owner, "TAKEOVER")  # without a vote
    queue.enqueue(TASK, 3)
    assert (queue.count, port_of(conn)) == (3, owner.port)


def _take_over(cluster: ClusterOfTests, node: Node, *how: str) -> None:
    written = cluster.owner.client.info("replication")["master_repl_offset"]

    def follows() -> bool:
        facts = node.client.info("replication")
        return facts.get("master_link_status") == "up" and facts["slave_repl_offset"] >= written

    eventually(follows, why="the replica has what was written")
    node.cluster("FAILOVER", *how)
    cluster.wait_until_served(by=node)
