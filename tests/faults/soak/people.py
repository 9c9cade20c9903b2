"""A person at a soak: wants jobs to end, and keeps what was answered."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import redis

from fusion import Batch
from fusion.exceptions import FusionError
from fusion.store.write.broker import Broker
from tests.faults.soak.plan import Job


@dataclass(frozen=True)
class Answer:
    job_id: str
    wish: str
    said: str
    at: float


class Person:
    """Reads whom the producer has enqueued. A call that was not answered is made again."""

    def __init__(self, url: str, acknowledged: Path, witness: Path, plan: Iterable[Job]) -> None:
        self._conn = redis.Redis.from_url(url, socket_timeout=2)
        self._broker = Broker(self._conn)
        self._paths = {acknowledged: 0, witness: 0}
        self._witness = witness
        self._wishes = {job.id: job for job in plan if job.wish}
        self._noted: set[str] = set()
        self._due: list[tuple[float, str]] = []
        self.answers: list[Answer] = []

    def act(self) -> None:
        """Say what it is time to say."""
        self._look()
        now = time.monotonic()
        for at, job_id in sorted(self._due):
            if at > now:
                return
            spec = self._wishes[job_id]
            try:
                said = self._say(spec)
            except (redis.RedisError, FusionError, OSError):
                return  # Redis is away: later
            self.answers.append(Answer(job_id, spec.wish, said, time.time()))
            self._due.remove((at, job_id))

    def _say(self, spec: Job) -> str:
        if spec.wish == "cancel batch":
            Batch.fetch(spec.batch, self._conn).cancel()
            return "done"
        return str(self._broker.stop(spec.id) if spec.wish == "stop" else self._broker.cancel(spec.id))

    def _look(self) -> None:
        for path, read in self._paths.items():
            if not path.exists():
                continue
            with path.open("rb") as file:
                file.seek(read)
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._paths[path] = read + len(whole)
            for words in map(str.split, whole.decode().splitlines()):
                if path != self._witness:
                    self._note(words[0], running=False)
                elif words[0] == "begin":
                    self._note(words[1], running=True)

    def _note(self, job_id: str, *, running: bool) -> None:
        """It is there, or runs: the first time counts."""
        spec = self._wishes.get(job_id)
        if spec is not None and spec.wish_running == running and job_id not in self._noted:
            self._noted.add(job_id)
            self._due.append((time.monotonic() + spec.wish_after, job_id))

    @property
    def is_done(self) -> bool:
        return not self._due
