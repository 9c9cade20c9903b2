"""A primary and its replica for tests: two real servers, the link between them at the test's disposal."""

from __future__ import annotations

import os
import signal

import redis

from fusion.store.client.connections import connect
from tests.kit.servers import SpawnedServer, free_port
from tests.kit.waiting import eventually

#: Replication starts at once and is noticed at once.
_QUICK = ("--save", "", "--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1")


class Pair:
    """`primary` and `replica`; the ports stay theirs when they change parts."""

    def __init__(self, binary: str) -> None:
        self._binary = binary
        self.ports = (free_port(), free_port())
        self.primary = self.start(0)
        self.replica = self.start(1, primary=0)
        self.wait_in_step()

    def start(self, number: int, *, primary: int | None = None) -> SpawnedServer:
        of = () if primary is None else ("--replicaof", "127.0.0.1", str(self.ports[primary]))
        options = ("--port", str(self.ports[number]), "--bind", "127.0.0.1", *_QUICK, *of)
        return SpawnedServer(self._binary, *options)

    def url(self, number: int) -> str:
        return f"redis://127.0.0.1:{self.ports[number]}/0"

    def client(self, number: int) -> redis.Redis:
        """As a producer has it."""
        return connect(self.url(number))

    def wait_in_step(self) -> None:
        """The replica has all that the primary has."""

        def in_step() -> bool:
            try:
                told = self.replica.client().info("replication")
                asked = self.primary.client().info("replication")
            except redis.RedisError:
                return False
            there = asked.get("slave0", {})
            # It acknowledges once a second.
            return told.get("master_link_status") == "up" and there.get("state") == "online" and bool(there["offset"])

        eventually(in_step, timeout=30, why="the replica follows")

    def lose_step(self) -> None:
        """Connect the replica, but let it wait for a first copy that does not come."""
        self.primary.client().config_set("repl-diskless-sync-delay", "3600")
        self.replica.client().replicaof("NO", "ONE")
        self.replica.client().flushall()
        self.replica.client().replicaof("127.0.0.1", str(self.ports[0]))
        told = self.primary.client().info
        eventually(lambda: told("replication").get("slave0", {}).get("state") == "wait_bgsave", timeout=30, why="it waits")

    def halt_replica(self) -> None:
        """It acknowledges nothing, and its connection stays."""
        os.kill(self.replica.process.pid, signal.SIGSTOP)

    def release_replica(self) -> None:
        os.kill(self.replica.process.pid, signal.SIGCONT)

    def cut(self) -> None:
        """The link is gone, and the replica does not know of it: it is to be promoted with what it has."""
        self.replica.client().replicaof("NO", "ONE")
        self.primary.client().client_kill_filter(_type="slave")

    def close(self) -> None:
        for server in (self.replica, self.primary):
            server.close()
