"""`doctor --watch --notify`, the URL that it tells, and a fleet that turns bad and well."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import redis

from fusion import Queue
from fusion.delivery.signing import verify
from tests.courier.harness import SECRET, Endpoint, allowing, answers, env_of
from tests.kit.process import ProcessUnderTest
from tests.kit.receivers import Receiver
from tests.kit.waiting import eventually


@dataclass(frozen=True)
class Told:
    """One delivery: its id, the type, and what it says."""

    id: str
    type: str
    data: dict[str, Any]


class Watcher(ProcessUnderTest):
    """A process that watches."""


class Watching:
    """One Redis, watchers of it, and the receiver of alerts. With no worker there, jobs that wait are bad at once."""

    def __init__(self, conn: redis.Redis, url: str, directory: Path, *, status: int = 200) -> None:
        self.conn, self._url, self._directory = conn, url, directory
        self.endpoint = Endpoint(answers(status))
        self.receiver = Receiver(self.endpoint)
        self.processes: list[Watcher] = []
        self.hook = f"http://127.0.0.1:{self.receiver.port}/hook?token=S3CR3T"
        self.settings = env_of(allowing(self.receiver))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        for one in self.processes:
            one.dismiss()
        for one in self.processes:
            one.stop()
        self.receiver.stop()

    def start(self, *args: str, **env: str) -> Watcher:
        log = self._directory / f"watcher{len(self.processes)}.log"
        given = {**self.settings, "FUSION_DOCTOR_NOTIFY": self.hook, **env}
        found = Watcher(self._url, log, "run_worker.py", "doctor", "--watch", "--every", "1", *args, env=given)
        self.processes.append(found)
        return found

    def make_bad(self) -> None:
        Queue("sms", self.conn).enqueue("tests.jobs.basic.noop")

    def make_well(self) -> None:
        Queue("sms", self.conn).empty()

    @property
    def told(self) -> list[Told]:
        """What arrived, each id once; all of it is signed."""
        found: dict[str, Told] = {}
        for post in self.endpoint.posts:
            body = json.loads(post.body)
            found[verify(post.headers, post.body, SECRET)] = Told(post.headers["webhook-id"], body["type"], body["data"])
        return list(found.values())

    def until(self, count: int, timeout: float = 200.0) -> list[Told]:
        eventually(
            lambda: len(self.told) >= count, timeout, why=f"told {count} times:\n" + "\n".join(p.output for p in self.processes)
        )
        return self.told
