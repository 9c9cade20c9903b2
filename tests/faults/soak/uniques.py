"""Unique keys as the AOF has them: who holds which, after each transaction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

_ENDED = {"", "finished", "failed", "canceled", "stopped"}


@dataclass
class Key:
    """`owner`: whom it names; `window`: it goes by itself, as that one has passed the point up to which it held it. `indexed`: it is in the
    list of those that are held. `jobs`: all that ever wanted it, and until when."""

    owner: str = ""
    window: bool = False
    indexed: bool = False
    jobs: dict[str, str] = field(default_factory=dict)


class UniqueKeys:
    """Follows the writes. `passed`: jobs that gave their key up when they started."""

    def __init__(self) -> None:
        self.keys: dict[str, Key] = {}
        self._wants: dict[str, str] = {}
        self._passed: set[str] = set()
        self._touched: set[str] = set()
        self._wrong: list[str] = []

    def take(self, verb: bytes, key: bytes, rest: list[bytes]) -> None:
        """A write to a key of Redis; what is about no unique key is passed over."""
        name = key.decode("utf-8", "replace").removeprefix("rq:")
        if name == "uniques":
            for one in rest[1::2] if verb == b"ZADD" else rest:
                self._of(one.decode()).indexed = verb == b"ZADD"
        elif name.startswith("unique:"):
            self._own(name.removeprefix("unique:"), verb, rest)

    def _own(self, name: str, verb: bytes, rest: list[bytes]) -> None:
        found = self._of(name)
        if verb == b"SET":
            if found.window:
                self._wrong.append(f"{rest[0].decode()}: took the unique key {name} inside the window of {found.owner}")
            found.owner, found.window = rest[0].decode(), len(rest) > 1
        elif verb in (b"PEXPIREAT", b"PEXPIRE"):
            found.window = True
        elif verb in (b"DEL", b"UNLINK"):
            found.owner, found.window = "", False

    def note(self, job_id: str, fields: Mapping[bytes, str]) -> None:
        """What is written into a job's record."""
        if b"unique_key" in fields:
            name = fields[b"unique_key"]
            self._wants[job_id] = name
            self._of(name).jobs[job_id] = fields.get(b"unique_until", "end")
        if job_id in self._wants and b"status" in fields:
            self._touched.add(self._wants[job_id])
            if fields[b"status"] == "started":
                self._passed.add(job_id)

    def settle(self, states: Mapping[str, str]) -> list[str]:
        """A transaction is over: what is wrong with the keys that it was about."""
        wrong = [*self._wrong, *(what for name in sorted(self._touched) for what in self._check(name, states))]
        self._touched.clear()
        self._wrong.clear()
        return wrong

    def _check(self, name: str, states: Mapping[str, str]) -> Iterator[str]:
        key = self.keys[name]
        holders = [
            job_id
            for job_id, until in key.jobs.items()
            if until != "accept" and not (until == "start" and job_id in self._passed) and states.get(job_id, "") not in _ENDED
        ]
        for job_id in set(key.jobs) - set(holders):
            if states.get(job_id, "") in _ENDED:
                del key.jobs[job_id]
        if len(holders) > 1:
            yield f"unique key {name}: {holders} have it at the same time"
        elif holders and (key.owner != holders[0] or key.window or not key.indexed):
            yield f"unique key {name}: {holders[0]} holds it, and it names {key}"
        elif not holders and (key.indexed or (key.owner and not key.window)):
            yield f"unique key {name}: nobody holds it, and it names {key}"

    def left(self) -> list[str]:
        """Names that are still taken for good."""
        return [name for name, key in self.keys.items() if key.indexed or (key.owner and not key.window)]

    def _of(self, name: str) -> Key:
        self._touched.add(name)
        return self.keys.setdefault(name, Key())
