"""Redis Cluster: `redis+cluster://[user:password@]host:port,host2:port`. All keys of a prefix with a hash tag are in one slot, and one node
serves it at a time. A connection finds that node when it connects, as one behind Sentinel finds the master.

Each node returns the id of the node that serves a slot, and its own. A connection is right if they are the same. Addresses are not compared:
those that nodes have for each other may not work from here (containers, NAT).
"""

from __future__ import annotations

import re
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any

from redis import exceptions as errors
from redis.connection import SSLConnection

from fusion.exceptions import ConfigurationError
from fusion.kernel.defaults import CLUSTER_TAG
from fusion.settings import mask_url
from fusion.store.client.classify import classify
from fusion.store.client.sockets import NamedConnection
from fusion.store.layout import codec
from fusion.store.layout.slots import slot_of, tag_of

Address = tuple[str, int]

#: The commands that each node gets: which node serves which slots, and the node's own id.
QUESTIONS = (("CLUSTER", "SLOTS"), ("CLUSTER", "MYID"))
#: Replies after which a connection finds the node anew.
LOST = (errors.AskError, errors.ClusterDownError)  # MOVED is an ASK to redis-py

_URL = re.compile(r"redis(?P<tls>s?)\+cluster://(?:(?P<login>[^/]*)@)?(?P<hosts>[^/@?]+)(?P<rest>[/?].*)?\Z", re.DOTALL)
_HOST = re.compile(r"(\[[^]]+\]|[^:?#\s\[\]]+)(?::(\d{1,5}))?\Z")
_PORT = 6379
#: Most nodes that are asked in one attempt to connect.
_ASKED = 3
#: The names for a host that a node does not know. The host at which this node was reached is meant.
_UNKNOWN = ("", "?")
#: How redis-py begins the text of a connection that failed.
_BEGINNING = re.compile(r"^Error \S+ connecting to \S+\. ")


def is_cluster_url(url: str) -> bool:
    """Return True for a url that names nodes of a cluster."""
    return url.startswith(("redis+cluster://", "rediss+cluster://"))


def read_url(url: str) -> tuple[list[Address], str]:
    """Return the nodes that a url names, and the url of the first of them. ConfigurationError if it can't be parsed."""
    match = _URL.match(url)
    hosts = [_HOST.match(item) for item in match["hosts"].split(",")] if match else []
    seeds = [(host[1].strip("[]"), int(host[2] or _PORT)) for host in hosts if host]
    if match is None or len(seeds) < len(hosts) or any(not 0 < port < 65536 for _, port in seeds):
        raise ConfigurationError(
            f"Redis url {mask_url(url)!r} can't be parsed; use redis+cluster://user:password@host:6379,host2:6379", code="FUS-205"
        )
    login = "" if match["login"] is None else f"{match['login']}@"
    return seeds, f"redis{match['tls']}://{login}{written(seeds[0])}{match['rest'] or ''}"


def nodes_of(seeds: list[Address], prefix: str, nat: Mapping[str, str] | None) -> ClusterNodes:
    """Make what connections to the slot of this prefix share. ConfigurationError for a prefix without a hash tag."""
    if not tag_of(prefix):
        raise ConfigurationError(untagged(prefix), code="FUS-206")
    return ClusterNodes(seeds, slot_of(prefix), nat or {})


def untagged(prefix: str) -> str:
    """Word the refusal of a prefix without a hash tag."""
    return (
        f"this Redis runs in cluster mode, and the prefix {prefix!r} has no hash tag: its keys would be on several nodes; set"
        f" FUSION_PREFIX='{prefix}{{{CLUSTER_TAG}}}:' and FUSION_REDIS_URL=redis+cluster://host:port"
    )


def written(address: Address) -> str:
    """Write an address as `host:port`."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A node as another one names it: its id, and where to reach it."""

    id: str
    address: Address


#: First slot, last slot, and the nodes that have them: the primary, then its replicas.
SlotRange = tuple[int, int, list[ClusterNode]]


class ClusterNodes:
    """The nodes of a cluster, by which one slot is found. All connections of a client share it, and those of its asyncio twin."""

    def __init__(self, seeds: list[Address], slot: int, nat: Mapping[str, str]) -> None:
        """`nat`: the addresses at which nodes are reached from here, by those that the nodes have for each other."""
        self.seeds, self.slot, self._nat = tuple(seeds), slot, nat
        #: The addresses to ask, in this order: the right one first, those that gave no answer last.
        self.known = list(seeds)

    def read(self, reply: Any, asked: Address) -> list[SlotRange]:
        """Read the reply to CLUSTER SLOTS of the node at the address `asked`."""
        return [(int(row[0]), int(row[1]), [self._node(node, asked) for node in row[2:]]) for row in reply]

    def route(self, patience: float) -> Generator[Address, tuple[Any, Any], None]:
        """Find the node that serves the slot. Yields an address to connect to, and is sent the replies of the node there, or thrown the error.
        The last address is the right one. No attempt begins after `patience` seconds. Raises the error of the last attempt."""
        until, failed = time.monotonic() + patience, dict[Address, Exception]()
        last: Exception | None = None
        for asked in self.known[:_ASKED]:
            if asked in failed:
                continue
            if last is not None and time.monotonic() > until:
                break
            try:
                slots, own = yield asked
            except (errors.RedisError, OSError) as error:
                last = failed[asked] = self._failed(asked, error)
                continue
            owner = self._learn(self.read(slots, asked), asked)
            if owner is None:
                last = errors.ClusterDownError(f"CLUSTERDOWN no node serves the slot {self.slot}")
                continue
            found = asked if owner.id == codec.text(own) else (yield from self._reach(owner, asked, failed))
            if found:
                self.known = [found, *(one for one in self.known if one != found)]
                return
            last = failed.get(owner.address, last)
        raise last or errors.ConnectionError("Error connecting to the cluster: no node was asked")

    def _reach(
        self, owner: ClusterNode, asked: Address, failed: dict[Address, Exception]
    ) -> Generator[Address, tuple[Any, Any], Address | None]:
        """Connect to a node at its address, else at its port of the host that was asked. Returns the address; None if it is not there."""
        for address in (owner.address, (asked[0], owner.address[1])):
            if address == asked or address in failed:
                continue
            try:
                _, own = yield address
            except (errors.RedisError, OSError) as error:
                failed[address] = self._failed(address, error)
                continue
            if owner.id == codec.text(own):
                return address
            failed[address] = errors.ConnectionError(f"Error connecting to the node {written(address)}: another node is there")
        return None

    def _node(self, row: Any, asked: Address) -> ClusterNode:
        host = codec.text(row[0] or b"")
        address = (asked[0] if host in _UNKNOWN else host, int(row[1]))
        if there := self._nat.get(written(address)):
            host, _, port = there.rpartition(":")
            address = (host.strip("[]"), int(port))
        return ClusterNode(codec.text(row[2]), address)

    def _learn(self, ranges: list[SlotRange], asked: Address) -> ClusterNode | None:
        """Note the addresses of all nodes, and return the node that serves the slot."""
        there = dict.fromkeys(node.address for _, _, nodes in ranges for node in nodes)
        kept = [one for one in self.known if one in there or one in self.seeds or one == asked]
        self.known = list(dict.fromkeys([*kept, *there]))
        return next((nodes[0] for first, last, nodes in ranges if first <= self.slot <= last), None)

    def _failed(self, address: Address, error: Exception) -> Exception:
        """Note that a node gave no answer, and return the error to raise. An error that no other node would mend is raised at once."""
        if classify(error) == "configuration":
            raise error
        self.known = [*(one for one in self.known if one != address), *(one for one in self.known if one == address)]
        reason = _BEGINNING.sub("", str(error)).rstrip(".")
        told = errors.ConnectionError(f"Error connecting to the node {written(address)}: {reason}")
        told.__cause__ = error
        return told


class ClusterConnection(NamedConnection):
    """A TCP connection to the node that serves a slot."""

    #: True while `host` and `port` are those of a node to ask.
    _asking = False

    def __init__(self, nodes: ClusterNodes, **options: Any) -> None:
        self.nodes = nodes
        super().__init__(**options)  # type: ignore[no-untyped-call, unused-ignore]

    def connect(self) -> None:
        """Connect to the node that serves the slot now."""
        if self._sock is None:
            self.retry.call_with_retry(self._find, lambda error: None)

    def connect_check_health(self, *args: Any, **options: Any) -> None:
        """Do the same where redis-py would connect to the last address again."""
        if self._asking:
            super().connect_check_health(*args, **options)  # type: ignore[no-untyped-call, unused-ignore]
        else:
            self.connect()

    def read_response(self, *args: Any, **options: Any) -> Any:
        """Read a reply. After one that says that another node serves the slot, the connection is closed."""
        try:
            return super().read_response(*args, **options)  # type: ignore[no-untyped-call, unused-ignore]
        except LOST:
            self.disconnect()  # type: ignore[no-untyped-call, unused-ignore]
            raise

    def _find(self) -> None:
        steps = self.nodes.route(2 * (self.socket_connect_timeout or 0))
        try:
            address = next(steps)
            while True:
                try:
                    replies = self._ask(address)
                except (errors.RedisError, OSError) as error:
                    address = steps.throw(error)
                else:
                    address = steps.send(replies)
        except StopIteration:
            return
        except BaseException:
            self.disconnect()  # type: ignore[no-untyped-call, unused-ignore]
            raise

    def _ask(self, address: Address) -> tuple[Any, Any]:
        self.disconnect()  # type: ignore[no-untyped-call, unused-ignore]
        self.host, self.port = address
        self._asking = True
        try:
            super().connect()  # type: ignore[no-untyped-call, unused-ignore]
        finally:
            self._asking = False
        for words in QUESTIONS:
            self.send_command(*words, check_health=False)  # type: ignore[no-untyped-call, unused-ignore]
        return self.read_response(), self.read_response()


class ClusterSSLConnection(SSLConnection, ClusterConnection):
    """A TLS connection to the node that serves a slot."""
