"""`doctor`, a worker's log and its probe report what a failover would lose, with real replicas, Sentinels and cluster nodes."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import redis

from fusion import Queue, StoreUnavailable
from fusion.doctor.finding import Finding
from fusion.doctor.look import Look
from fusion.doctor.verdict import CHECKS, examine, verdict
from fusion.settings import Settings, get_settings
from fusion.store.client.connections import connect
from fusion.store.client.failover import read_risks
from fusion.store.redis_server.binary import ServerBinary
from tests.faults.rig.replicas import Pair
from tests.faults.rig.sentinels import Trio
from tests.jobs import basic
from tests.kit.clusters import PREFIX, ClusterOfTests
from tests.kit.servers import SpawnedServer, free_port
from tests.kit.waiting import eventually
from tests.kit.workers import Workers
from tests.worker.test_probes import get, url_of

FAILOVER = [check for check in CHECKS if check.name == "failover"]


def found(conn: redis.Redis) -> list[Finding]:
    return examine(Look(conn, get_settings()), FAILOVER)


def levels(conn: redis.Redis) -> dict[str, str]:
    return {one.code: one.level for one in found(conn)}


@pytest.fixture
def pair(server_binary: ServerBinary) -> Iterator[Pair]:
    made = Pair(server_binary.path)
    yield made
    made.close()


@pytest.fixture
def trio(server_binary: ServerBinary, pair: Pair) -> Iterator[Trio]:
    made = Trio(server_binary.path, pair)
    yield made
    made.close()


@pytest.fixture
def node(server_binary: ServerBinary) -> Iterator[Callable[[int, int], SpawnedServer]]:
    """`node(first, last)`: a node of a cluster that has these slots."""
    made = list[SpawnedServer]()

    def start(first: int, last: int) -> SpawnedServer:
        made.append(
            SpawnedServer(
                server_binary.path, "--port", str(free_port()), "--bind", "127.0.0.1", "--cluster-enabled", "yes", "--save", ""
            )
        )
        # Redis 6.2 knows no ranges here.
        made[-1].client().execute_command("CLUSTER", "ADDSLOTS", *range(first, last + 1))
        return made[-1]

    yield start
    for one in made:
        one.close()


def test_a_single_redis_has_nothing_to_fail_over_to(conn: redis.Redis) -> None:
    assert found(conn) == []


def test_a_replica_in_sync_and_one_that_is_not(pair: Pair) -> None:
    conn = pair.client(0)
    assert levels(conn) == {"FUS-445": "note"}
    pair.lose_step()
    assert levels(conn) == {"FUS-444": "warn", "FUS-445": "note"}
    one = found(conn)[0]
    assert f"127.0.0.1:{pair.ports[1]} is wait_bgsave" in one.what
    assert one.fix.startswith(f"redis-cli -u redis://127.0.0.1:{pair.ports[0]}/0 INFO replication")
    assert verdict(Look(conn, get_settings())).word == "strained"
    conn.config_set("min-replicas-to-write", "1")
    assert levels(conn) == {"FUS-444": "warn"}
    with pytest.raises(StoreUnavailable) as refused:
        Queue("q", connect(pair.url(0), "worker")).enqueue(basic.noop)
    assert refused.value.nothing_written
    assert "NOREPLICAS" in str(refused.value)
    pair.replica.process.kill()
    eventually(lambda: found(conn) == [], why="without a replica there is nothing to fail over to")


def test_a_replica_reports_nothing_of_this(pair: Pair) -> None:
    assert found(pair.client(1)) == []


def test_the_setting_is_known_to_a_user_who_may_not_read_settings(pair: Pair) -> None:
    admin = pair.primary.client()
    admin.execute_command("ACL", "SETUSER", "meagre", "on", ">secret", "+@all", "-@dangerous", "+info", "~*")
    meagre = redis.Redis("127.0.0.1", pair.ports[0], username="meagre", password="secret")
    with pytest.raises(redis.ResponseError):
        meagre.config_get("min-replicas-to-write")
    assert levels(meagre) == {"FUS-445": "note"}
    admin.config_set("min-replicas-to-write", "1")
    assert found(meagre) == []


@pytest.mark.parametrize(
    ("row", "total", "code"),
    [
        ({"state": "online", "offset": 90, "lag": 1}, 100, None),
        ({"state": "online", "offset": 90, "lag": 11}, 100, "silent for 11 s"),
        ({"state": "online", "offset": 0, "lag": 2}, 100, "loading"),
        ({"state": "online", "offset": 0, "lag": 0}, 0, None),
        ({"state": "send_bulk", "offset": 0, "lag": 0}, 100, "send_bulk"),
    ],
)
def test_what_counts_as_in_sync(row: dict[str, Any], total: int, code: str | None) -> None:
    info = {"role": "master", "connected_slaves": 1, "slave0": {"ip": "h", "port": 1, **row}, "min_slaves_good_slaves": 1}
    risks = read_risks(redis.Redis(), {**info, "master_repl_offset": total}, cluster=False)
    assert [f"(h:1 is {code})" in risk.what for risk in risks] == [True] * (code is not None)
    second = {"slave1": {"ip": "i", "port": 2, "state": "online", "offset": 99, "lag": 0}, "connected_slaves": 2}
    assert read_risks(redis.Redis(), {**info, **second, "master_repl_offset": total}, cluster=False) == []


def test_behind_sentinels_it_needs_a_person_now(trio: Trio) -> None:
    conn = connect(trio.url)
    assert levels(conn) == {"FUS-445": "note"}
    trio.pair.lose_step()
    assert levels(conn) == {"FUS-444": "fail", "FUS-445": "note"}
    trio.pair.replica.process.kill()
    eventually(lambda: levels(conn) == {"FUS-443": "warn"}, why="no replica is left")


def test_a_node_of_a_cluster(node: Callable[[int, int], SpawnedServer]) -> None:
    server = node(0, 16383)
    admin = server.client()
    assert levels(admin) == {"FUS-443": "warn", "FUS-447": "note"}
    admin.config_set("cluster-require-full-coverage", "no")
    assert levels(admin) == {"FUS-443": "warn"}
    admin.execute_command("ACL", "SETUSER", "meagre", "on", ">secret", "+@all", "-@dangerous", "+info", "~*")
    meagre = redis.Redis(unix_socket_path=server.socket, username="meagre", password="secret")
    assert levels(meagre) == {"FUS-443": "warn", "FUS-448": "note"}
    admin.execute_command("ACL", "SETUSER", "meagre", "-cluster")
    assert levels(meagre) == {"FUS-443": "warn", "FUS-448": "note"}


def test_another_primary_of_the_cluster_without_a_replica(node: Callable[[int, int], SpawnedServer]) -> None:
    ours, other = node(0, 8191), node(8192, 16383)
    port = int(other.client().info("server")["tcp_port"])
    ours.client().execute_command("CLUSTER", "MEET", "127.0.0.1", port)
    eventually(lambda: "FUS-446" in levels(ours.client()), timeout=30, why="the nodes know each other")
    one = next(one for one in found(ours.client()) if one.code == "FUS-446")
    assert f"127.0.0.1:{port}" in one.what
    assert one.what.endswith("if one dies, all queues stop")
    ours.client().config_set("cluster-require-full-coverage", "no")
    assert levels(ours.client()) == {"FUS-443": "warn"}


def test_a_cluster_with_a_replica_of_each_primary(cluster: ClusterOfTests) -> None:
    conn = connect(cluster.url)
    eventually(lambda: levels(conn) == {"FUS-445": "note", "FUS-447": "note"}, why="all replicas are in sync")
    fix = found(conn)[-1].fix
    assert fix.startswith(f"redis-cli -c -h 127.0.0.1 -p {cluster.owner.port} CONFIG SET cluster-require-full-coverage no")


@pytest.mark.long
def test_replicas_of_a_cluster_die(server_binary: ServerBinary, tmp_path: Path) -> None:
    """Another primary's replica, then the one of the node that has the keys; a worker there says the same."""
    with closing(ClusterOfTests(server_binary.path, node_timeout=2000)) as cluster:
        conn, owner = connect(Settings(redis_url=cluster.url, prefix=PREFIX)), cluster.owner
        other = cluster.other(owner)
        # A node counts the replica of another node once it knows its offset: in a new, empty cluster after some seconds.
        eventually(lambda: levels(conn) == {"FUS-445": "note", "FUS-447": "note"}, why="all replicas are in sync")
        cluster.replica_of(other).kill()
        eventually(lambda: "FUS-446" in levels(conn), why="it has no replica any more")
        one = next(one for one in found(conn) if one.code == "FUS-446")
        assert (one.level, one.about) == ("warn", f"127.0.0.1:{other.port}")
        cluster.replica_of(owner).kill()
        eventually(lambda: levels(conn).get("FUS-443") == "warn", why="nor has the other")
        workers = Workers(cluster.url, tmp_path)
        try:
            worker = workers.start("q")
            for code in ("FUS-443", "FUS-446", "FUS-447"):
                worker.says(f"[{code}]")
        finally:
            workers.stop()
        for node in cluster.live():
            node.client.config_set("cluster-require-full-coverage", "no")
        assert levels(conn) == {"FUS-443": "warn"}


def test_a_worker_says_it_at_its_start_and_its_probe_says_so_until_it_is_over(pair: Pair, tmp_path: Path) -> None:
    pair.lose_step()
    workers = Workers(pair.url(0), tmp_path)
    try:
        worker = workers.start("q", "--probe-port", "0", env={"FUSION_SOCKET_TIMEOUT": "1"})
        worker.says("failover: no replica is in sync with this Redis")
        worker.says("[FUS-444]")
        worker.says("failover: min-replicas-to-write is 0")
        url = f"{url_of(worker)}/readyz"
        asked = get(url)
        assert asked.status == 200
        assert asked.text.splitlines()[0] == "ok"
        assert asked.text.splitlines()[1].endswith("[FUS-444]")
        (told,) = json.loads(get(f"{url}?json").text)["warnings"]
        assert told.startswith("no replica is in sync")
        pair.primary.client().config_set("repl-diskless-sync-delay", "0")
        pair.replica.client().replicaof("NO", "ONE")
        pair.replica.client().replicaof("127.0.0.1", str(pair.ports[0]))
        pair.wait_in_step()
        # After an outage it reads the risks again.
        os.kill(pair.primary.process.pid, signal.SIGSTOP)
        worker.says("Redis is away")
        os.kill(pair.primary.process.pid, signal.SIGCONT)
        worker.says("failover: this risk is gone [FUS-444]")
        assert get(url).text == "ok\n"
        assert worker.count("[FUS-445]") == 1
    finally:
        workers.stop()


@pytest.mark.long
def test_the_probe_of_a_supervisor_says_it_too(pair: Pair, tmp_path: Path) -> None:
    pair.lose_step()
    workers = Workers(pair.url(0), tmp_path)
    try:
        args = ("-n", "2", "--customq", "q", "--no-scheduler", "--probe-port", "0")
        started = workers.start(*args, ready=False, program=("run_worker.py", "start"))
        url = f"{url_of(started)}/readyz"
        eventually(lambda: get(url).text.startswith("ok\nno replica is in sync"), timeout=30, why="both workers are ready")
        assert get(url).text.count("FUS-444") == 1
    finally:
        workers.stop()
