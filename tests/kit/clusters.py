"""A cluster of six real servers on loopback: three primaries and a replica of each. Tests move its slot, and kill or pause its nodes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import redis

from fusion.store.layout.slots import slot_of
from tests.kit.servers import SpawnedServer, free_port
from tests.kit.waiting import eventually

#: A prefix with a hash tag: all its keys are in one slot.
PREFIX = "rq:{fusion}:"
SLOT = slot_of(PREFIX)
_SLOTS = 16384
_QUICK = (
    *("--save", "", "--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0", "--cluster-enabled", "yes"),
    *("--cluster-config-file", "nodes.conf", "--bind", "127.0.0.1", "--maxmemory-policy", "noeviction"),
)


class Node:
    """One server of a cluster. A test may kill, pause and restart it. Its port stays the same."""

    def __init__(self, binary: str, options: Sequence[str], *, tls: bool) -> None:
        self.port = free_port()
        ports = ("--port", "0", "--tls-port", str(self.port)) if tls else ("--port", str(self.port))
        self.server = SpawnedServer(binary, *ports, *_QUICK, *options)
        self.client = redis.Redis.from_url(self.server.url, protocol=2, socket_timeout=60)
        self.id = self.cluster("MYID").decode()

    def cluster(self, *words: Any) -> Any:
        """Send CLUSTER with these words, and return the reply."""
        return self.client.execute_command("CLUSTER", *words)

    def facts(self) -> dict[str, str]:
        """Return CLUSTER INFO."""
        lines: str = _text(self.cluster("INFO"))
        return dict(line.split(":", 1) for line in lines.split("\r\n") if ":" in line)

    def pause(self) -> None:
        """Stop the process. It still accepts connections, and answers none."""
        os.kill(self.server.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let the process go on."""
        os.kill(self.server.process.pid, signal.SIGCONT)

    def kill(self) -> None:
        """Kill the process, and wait for its end."""
        self.server.process.kill()
        self.server.process.wait(10)

    def close(self) -> None:
        self.client.close()
        with contextlib.suppress(ProcessLookupError):
            self.resume()
        self.server.close()


class ClusterOfTests:
    """Three primaries, and with `replicas` one replica of each. A node keeps its port when its role changes."""

    def __init__(self, binary: str, *options: str, replicas: bool = True, node_timeout: int = 15_000, tls: bool = False) -> None:
        """`options`: of each server. `node_timeout`: milliseconds after which a silent node counts as dead. `tls`: the ports speak TLS."""
        count = 6 if replicas else 3
        given = (*options, "--cluster-node-timeout", str(node_timeout))
        self.nodes: list[Node] = []
        try:
            for _ in range(count):
                self.nodes.append(Node(binary, given, tls=tls))
            self._form()
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        """Return a URL that names three of the nodes."""
        return f"redis+cluster://{','.join(f'127.0.0.1:{node.port}' for node in self.nodes[:3])}"

    @property
    def major(self) -> int:
        """Return the major version of the servers, 7 for Valkey."""
        return int(self.nodes[0].client.info("server")["redis_version"].partition(".")[0])

    @property
    def owner(self) -> Node:
        """Return the node that serves the slot of `PREFIX`, according to most nodes."""
        return self.owner_of(SLOT)

    def owner_of(self, slot: int) -> Node:
        """Return the node that serves a slot, according to most nodes."""
        said = [port for node in self.live() if (port := self._owner_port(node, slot))]
        port = max(set(said), key=said.count)
        return next(node for node in self.nodes if node.port == port)

    def replica_of(self, primary: Node) -> Node:
        """Return the replica of this primary."""
        for line in _text(self.live()[0].cluster("NODES")).splitlines():
            words = line.split()
            if words[3] == primary.id:
                return next(node for node in self.nodes if node.id == words[0])
        raise LookupError(f"{primary.port} has no replica")

    def live(self) -> list[Node]:
        """Return the nodes that run and answer."""
        return [node for node in self.nodes if node.server.process.poll() is None and not _stopped(node)]

    def wait_until_served(self, slot: int = SLOT, *, by: Node | None = None, timeout: float = 60) -> Node:
        """Wait until one node serves the slot, and all nodes agree on it. Return that node. `by`: it must be this one."""

        def served() -> Node | None:
            with contextlib.suppress(redis.RedisError, ValueError):
                owner = self.owner_of(slot)
                if (
                    (by is None or owner is by)
                    and all(self._owner_port(node, slot) == owner.port for node in self.live())
                    and _text(owner.client.execute_command("ROLE")[0]) == "master"
                    and owner.facts()["cluster_state"] == "ok"
                ):
                    return owner
            return None

        found = eventually(served, timeout=timeout, interval=0.05, why=f"slot {slot} is served")
        assert found is not None
        return found

    def other(self, node: Node) -> Node:
        """Return another primary."""
        return next(one for one in self.live() if one is not node and _text(one.client.execute_command("ROLE")[0]) == "master")

    # -- moving a slot key by key

    def begin_move(self, target: Node, slot: int = SLOT) -> Node:
        """Begin to move the slot to `target`. Return its owner."""
        source = self.owner_of(slot)
        target.cluster("SETSLOT", slot, "IMPORTING", source.id)
        source.cluster("SETSLOT", slot, "MIGRATING", target.id)
        return source

    def move_keys(self, source: Node, target: Node, keys: Sequence[bytes | str]) -> None:
        """Move these keys to `target`."""
        if keys:
            source.client.execute_command("MIGRATE", "127.0.0.1", target.port, "", 0, 20_000, "KEYS", *keys)

    def end_move(self, target: Node, slot: int = SLOT) -> None:
        """Tell all primaries that `target` serves the slot."""
        target.cluster("SETSLOT", slot, "NODE", target.id)
        for node in self.live():
            if node is not target and _text(node.client.execute_command("ROLE")[0]) == "master":
                node.cluster("SETSLOT", slot, "NODE", target.id)

    def give_up_move(self, source: Node, target: Node, slot: int = SLOT) -> None:
        """Move the keys back, and leave the slot with its owner."""
        source.cluster("SETSLOT", slot, "STABLE")  # else it would take no key that it lacks
        while keys := target.cluster("GETKEYSINSLOT", slot, 1000):
            target.client.execute_command("MIGRATE", "127.0.0.1", source.port, "", 0, 20_000, "REPLACE", "KEYS", *keys)
        target.cluster("SETSLOT", slot, "STABLE")

    def move(self, target: Node, slot: int = SLOT, step: int = 100) -> None:
        """Move the whole slot, key by key."""
        source = self.begin_move(target, slot)
        while keys := source.cluster("GETKEYSINSLOT", slot, step):
            self.move_keys(source, target, keys)
        self.end_move(target, slot)

    def move_at_once(self, target: Node, slot: int = SLOT) -> None:
        """Move the whole slot in one step, as Valkey 9 does."""
        self.owner_of(slot).cluster("MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", target.id)
        self.wait_until_served(slot, by=target)

    def flush(self) -> None:
        """Remove all keys of all nodes. Scripts stay."""
        for node in self.live():
            if _text(node.client.execute_command("ROLE")[0]) == "master":
                node.client.flushall()

    def close(self) -> None:
        for node in self.nodes:
            node.close()

    def _form(self) -> None:
        primaries, replicas = self.nodes[:3], self.nodes[3:]
        for number, node in enumerate(self.nodes):
            node.cluster("SET-CONFIG-EPOCH", number + 1)
        for number, node in enumerate(primaries):
            first, last = number * _SLOTS // 3, (number + 1) * _SLOTS // 3
            node.cluster("ADDSLOTS", *range(first, last))
        for node in self.nodes:
            for other in self.nodes[: self.nodes.index(node)]:
                node.cluster("MEET", "127.0.0.1", other.port)
        eventually(lambda: all(node.facts()["cluster_known_nodes"] == str(len(self.nodes)) for node in self.nodes), why="all met")
        for primary, replica in zip(primaries, replicas, strict=False):
            eventually(lambda: _replicates(replica, primary), why="the replica knows its primary")  # noqa: B023
        eventually(lambda: all(node.facts()["cluster_state"] == "ok" for node in self.nodes), why="the cluster is formed")
        eventually(lambda: all(map(_in_step, replicas)), why="the replicas follow")
        # A primary drops a request for its place from a node that it does not know as its replica yet.
        pairs = {(replica.id, primary.id) for primary, replica in zip(primaries, replicas, strict=False)}
        eventually(lambda: all(pairs <= _replicas(node) for node in self.nodes), why="all know each replica's primary")

    def _owner_port(self, node: Node, slot: int) -> int | None:
        for first, last, primary, *_ in _rows(node):
            if first <= slot <= last:
                return int(primary[1])
        return None


class ClusterAsServer:
    """Takes the place of the one server of a test run. Tests that need that server get the node of the slot."""

    def __init__(self, cluster: ClusterOfTests) -> None:
        self.cluster = cluster

    @property
    def url(self) -> str:
        return self.cluster.url

    @property
    def process(self) -> subprocess.Popen[bytes]:
        return self.cluster.owner.server.process

    @property
    def socket(self) -> Path:
        return Path(self.cluster.owner.server.socket)


def _replicas(node: Node) -> set[tuple[str, str]]:
    """Return the pairs of a node and its primary that this node knows."""
    return {(words[0], words[3]) for line in _text(node.cluster("NODES")).splitlines() if (words := line.split())}


def _rows(node: Node) -> list[Any]:
    client = redis.Redis.from_url(node.server.url, protocol=2, socket_timeout=5)
    try:
        connection: Any = client.connection_pool.get_connection()
        connection.send_command("CLUSTER", "SLOTS")
        found: list[Any] = connection.read_response()
        return found
    finally:
        client.close()


def _replicates(replica: Node, primary: Node) -> bool:
    try:
        replica.cluster("REPLICATE", primary.id)
    except redis.ResponseError:  # it has not met that one yet
        return False
    return True


def _in_step(replica: Node) -> bool:
    return replica.client.info("replication").get("master_link_status") == "up"


def _stopped(node: Node) -> bool:
    with contextlib.suppress(OSError):
        stat = Path(f"/proc/{node.server.process.pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] in "Tt"
    return False


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
