"""What the tests of the courier share: jobs that end, a receiver that remembers, couriers in threads and in processes."""

from __future__ import annotations

import json
import secrets
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis

from fusion import Queue
from fusion.courier import Courier
from fusion.settings import Settings
from fusion.store.layout.names import CALLBACKS
from fusion.store.write.broker import Broker
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import Hand, fields_of, status_of
from tests.kit.process import ProcessUnderTest
from tests.kit.receivers import Receiver
from tests.kit.waiting import eventually

SECRET = "whsec_" + "c2VjcmV0" * 4
OLD_SECRET = "whsec_" + "b2xkb2xk" * 4

#: Where the receivers of tests are.
HERE = ("127.0.0.1", "127.0.0.2", "127.0.0.3", "localhost")
EVERY_PORT = tuple(range(1, 65536))


@dataclass(frozen=True)
class Post:
    """A request as it came. `at`: monotonic."""

    headers: dict[str, str]
    body: bytes
    path: str
    at: float

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def data(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)["data"]
        return found


@dataclass
class Endpoint:
    """Answers every POST with what `answer` says, after `gate` is open; knows how many were there at the same time."""

    answer: Callable[[Post], bytes] = lambda post: b"HTTP/1.1 204 No Content\r\n\r\n"
    gate: threading.Event = field(default_factory=threading.Event)
    posts: list[Post] = field(default_factory=list)
    at_once: int = 0
    most: int = 0

    def __post_init__(self) -> None:
        self.gate.set()
        self._lock = threading.Lock()

    def __call__(self, channel: socket.socket, receiver: Receiver) -> None:
        with self._lock:
            self.at_once += 1
            self.most = max(self.most, self.at_once)
        try:
            found = _read(receiver.read(channel))
            if found is None:  # its sender was killed half-way
                return
            with self._lock:
                self.posts.append(found)
            self.gate.wait(30)
        finally:
            with self._lock:
                self.at_once -= 1  # before the answer: with that the sender may begin another
        channel.sendall(self.answer(found))

    @property
    def ids(self) -> list[str]:
        return [post.id for post in list(self.posts)]

    @property
    def jobs(self) -> Counter[str]:
        return Counter(post.data["job_id"] for post in list(self.posts))


def _read(raw: bytes) -> Post | None:
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    whole = first.startswith("GET ") and raw.endswith(b"\r\n\r\n")
    if len(body) < int(headers.get("content-length", 1)) and not whole:
        return None
    return Post(headers, body, first.split(" ")[1], time.monotonic())


def answers(status: int, *headers: str) -> Callable[[Post], bytes]:
    lines = (f"HTTP/1.1 {status} Said", "Content-Length: 0", *headers, "", "")
    return lambda post: "\r\n".join(lines).encode()


def allowing(*receivers: Receiver, **changes: Any) -> dict[str, Any]:
    """Settings under which these servers of the test may be called, short times included."""
    ports = tuple(dict.fromkeys(one.port for one in receivers))
    return {
        "callback_allow_http": True,
        "callback_ports": ports or (443,),
        "callback_allowed_hosts": HERE,
        "callback_secrets": {"*": [SECRET]},
        "lease": 1.0,
        "reap_interval": 0.2,
        "idle_wait": 0.5,
        **changes,
    }


def env_of(settings: dict[str, Any]) -> dict[str, str]:
    def text(value: Any) -> str:
        if isinstance(value, dict):
            return json.dumps(value)
        return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)

    return {f"FUSION_{name.upper()}": text(value) for name, value in settings.items()}


class CourierProcess(ProcessUnderTest):
    """The courier as it lives: in a relay, which can be killed."""

    def end(self) -> int:
        """Ask it to go; its exit code."""
        self.signal(signal.SIGTERM)
        return self.wait(20)


class World:
    """One Redis, a worker's hands that end jobs, and couriers."""

    def __init__(self, conn: redis.Redis, url: str, directory: Path) -> None:
        self.conn, self.url, self.broker = conn, url, Broker(conn)
        self._hand: Hand | None = None
        self._directory = directory
        self._couriers: list[Courier] = []
        self._processes: list[CourierProcess] = []

    # -- jobs

    def end(self, url: str, count: int = 1, kind: str = "finished", **options: Any) -> list[str]:
        """Jobs that end so, with a call of `url` for each; their ids."""
        self._hand = self._hand or Hand(self.broker, "q", name="host.99")
        prefix = secrets.token_hex(3)
        ids = [f"{prefix}-{i}" for i in range(count)]
        urls = {"callback_url": url, **options}
        queue = Queue("q", self.conn)
        queue.enqueue_many([queue.prepare_data("tasks.sms.sendSMS", ({"text": "S3CR3T"},), job_id=i, **urls) for i in ids])
        done = 0
        while done < count:
            held = self._hand.claim(min(50, count - done))
            for claimed in held:
                fields = {"result": '"S3CR3T"'} if kind == "finished" else {"error_class": "builtins.ValueError"}
                assert self._hand.tell(claimed, kind, reason="builtins.ValueError: S3CR3T", fields=fields) == "ok"
            done += len(held)
        return ids

    # -- deliveries

    def deliveries(self) -> list[str]:
        return sorted(key.decode().removeprefix("rq:job:") for key in self.conn.scan_iter("rq:job:cb-*"))

    def states(self) -> Counter[str | None]:
        return Counter(status_of(self.conn, one) for one in self.deliveries())

    def fields(self, delivery: str | None = None) -> dict[str, str]:
        """Of the only one, if it is not named."""
        if delivery is None:
            (delivery,) = self.deliveries()
        return fields_of(self.conn, delivery)

    def settled(self, timeout: float = 15.0, **counts: int) -> None:
        """This many deliveries are in these states, and none in another."""
        eventually(lambda: self.states() == Counter(counts), timeout, why=f"{counts}")

    def due(self, *deliveries: str) -> None:
        """As if the time of these (or of all that are scheduled) had come."""
        for one in deliveries or [raw.decode() for raw in self.conn.zrange("rq:scheduler:scheduled_jobs", 0, -1)]:
            self.conn.zadd("rq:scheduler:scheduled_jobs", {one: 1}, xx=True)
        self.broker.promote(1000)

    def check(self, jobs: Iterable[str]) -> None:
        check_conservation(self.conn, [*jobs, *self.deliveries()])

    # -- couriers

    def settings(self, **given: Any) -> Settings:
        return Settings.load(redis_url=self.url, **given)

    def courier(self, settings: dict[str, Any], **options: Any) -> Courier:
        found = Courier(self.settings(**settings), **options)
        self._couriers.append(found)
        found.start()
        return found

    def process(self, settings: dict[str, Any], **env: str) -> CourierProcess:
        log = self._directory / f"courier{len(self._processes)}.log"
        found = CourierProcess(self.url, log, "run_worker.py", "relay", env={**env_of(settings), **env})
        self._processes.append(found)
        return found

    def close(self) -> None:
        for courier in self._couriers:
            courier.stop(0)
            assert not courier.is_alive()
        for process in self._processes:
            if process.process.poll() is None:
                process.kill()


def registered(conn: redis.Redis) -> list[str]:
    """Couriers that Redis knows of."""
    names = (raw.decode().removeprefix("rq:worker:") for raw in conn.smembers("rq:workers"))
    return sorted(name for name in names if conn.hget(f"rq:worker:{name}", "queues") == CALLBACKS.encode())
