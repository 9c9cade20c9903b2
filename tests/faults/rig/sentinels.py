"""A primary, its replica and three Sentinels that watch them and act within seconds."""

from __future__ import annotations

import redis

from tests.faults.rig.replicas import Pair
from tests.kit.servers import SpawnedServer, free_port
from tests.kit.waiting import eventually

NAME = "mymaster"


class Trio:
    def __init__(self, binary: str, pair: Pair) -> None:
        self.pair = pair
        self.ports = [free_port() for _ in range(3)]
        self._servers = [self._start(binary, port) for port in self.ports]
        self.clients = [redis.Redis("127.0.0.1", port, protocol=2, socket_timeout=2) for port in self.ports]
        eventually(
            lambda: all(map(self._knows_all, self.clients)), timeout=30, interval=0.05, why="the Sentinels know each other"
        )

    @property
    def url(self) -> str:
        return f"redis+sentinel://{','.join(f'127.0.0.1:{port}' for port in self.ports)}/{NAME}/0"

    @property
    def primary(self) -> int:
        """The port of the primary, as most of the Sentinels have it."""
        said = sorted(int(self._ask(client, "GET-MASTER-ADDR-BY-NAME")[1]) for client in self.clients)
        return said[1]

    def wait_for_primary(self, port: int) -> None:
        """It is the one for the Sentinels, and for itself."""
        there = redis.Redis("127.0.0.1", port, protocol=2, socket_timeout=2)

        def is_primary() -> bool:
            return there.info("replication")["role"] == "master" and self.primary == port

        eventually(is_primary, timeout=40, interval=0.05, why=f"{port} is promoted")

    def hand_over(self) -> None:
        """A failover without a failure. Refused for as long as a Sentinel knows no replica that is fit."""

        def taken() -> bool:
            try:
                return bool(self._ask(self.clients[0], "FAILOVER"))
            except redis.ResponseError as error:
                if "NOGOODSLAVE" in str(error) or "INPROG" in str(error):
                    return False
                raise

        eventually(taken, timeout=40, interval=0.1, why="a replica is fit")

    def close(self) -> None:
        for client in self.clients:
            client.close()
        for server in self._servers:
            server.close()

    def _start(self, binary: str, port: int) -> SpawnedServer:
        config = self.pair.primary.home / f"sentinel{port}.conf"
        config.write_text(
            f"port {port}\nbind 127.0.0.1\nsentinel monitor {NAME} 127.0.0.1 {self.pair.ports[0]} 2\n"
            f"sentinel down-after-milliseconds {NAME} 500\nsentinel failover-timeout {NAME} 2000\n"
        )
        return SpawnedServer(binary, str(config), "--sentinel", socket_option=False)

    def _knows_all(self, client: redis.Redis) -> bool:
        try:
            told = client.execute_command("SENTINEL", "MASTER", NAME)
        except redis.RedisError:
            return False
        if isinstance(told, list):
            told = dict(zip(told[::2], told[1::2], strict=True))
        facts = {str(k, "utf-8") if isinstance(k, bytes) else k: v for k, v in told.items()}
        return int(facts["num-slaves"]) == 1 and int(facts["num-other-sentinels"]) == 2

    @staticmethod
    def _ask(client: redis.Redis, what: str) -> list[bytes]:
        found: list[bytes] = client.execute_command("SENTINEL", what, NAME)
        return found
