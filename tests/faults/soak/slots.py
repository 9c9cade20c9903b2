"""Concurrency keys as the AOF has them: who holds a slot of which and who waits for one, after each transaction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import inf


@dataclass
class Slots:
    """Of a key: what its record says, and the scores of those that hold a slot (`inf`: they have started) and of those that wait for one.
    `ran`: how many had started before the transaction."""

    fields: dict[str, str] = field(default_factory=dict)
    held: dict[str, float] = field(default_factory=dict)
    waiting: dict[str, float] = field(default_factory=dict)
    ran: int = 0

    def settle(self, name: str, states: Mapping[str, str]) -> Iterator[str]:
        """What is against the rules now. `states`: of jobs."""
        running, idle = [], {}
        for job_id, score in self.held.items():
            if score == inf:
                running.append(job_id)
            else:
                idle[job_id] = score
        rated = {"rate", "pinned_rate"} & self.fields.keys()
        limit = float(self.fields.get("pinned") or self.fields.get("max") or (inf if rated else 1))
        if (idle and len(self.held) > limit) or self.ran < len(running) > limit:
            yield f"key {name}: {sorted(running)} run and {sorted(idle)} may, of {limit:.0f} at a time"
        if both := self.held.keys() & self.waiting.keys():
            yield f"key {name}: {sorted(both)} hold a slot and wait for one"
        if self.waiting and len(self.held) < limit and not rated and "paused" not in self.fields:
            yield f"key {name}: {sorted(self.waiting)} wait, and {limit - len(self.held):.0f} slots are free"
        if self.waiting and idle and max(self.waiting.values()) > min(idle.values()):
            yield f"key {name}: one of {sorted(self.waiting)} is better than one of {sorted(idle)}, which has not started"
        for job_id in self.held:
            if states.get(job_id) not in ("queued", "started", "scheduled", "blocked"):
                yield f"key {name}: {job_id} is {states.get(job_id) or 'gone'} and holds a slot"
        for job_id in self.waiting:
            if states.get(job_id) != "blocked":
                yield f"key {name}: {job_id} is {states.get(job_id) or 'gone'} and waits for a slot"
        self.ran = len(running)


class KeySlots:
    """Follows the writes."""

    def __init__(self) -> None:
        self.keys: dict[str, Slots] = {}
        self._touched: set[str] = set()

    def take(self, verb: bytes, key: bytes, rest: list[bytes]) -> None:
        """A write to a key of Redis; what is about no concurrency key is passed over."""
        kind, _, name = key.decode("utf-8", "replace").removeprefix("rq:").partition(":")
        if kind == "limit":
            self._write(self._of(name).fields, verb, rest)
        elif kind == "limits" and name.startswith(("held:", "waiting:")):
            where, _, name = name.partition(":")
            slots = self._of(name)
            self._move(slots.held if where == "held" else slots.waiting, verb, rest)

    def settle(self, states: Mapping[str, str]) -> list[str]:
        """A transaction is over: what is wrong with the keys that it was about."""
        wrong = [what for name in sorted(self._touched) for what in self.keys[name].settle(name, states)]
        self._touched.clear()
        return wrong

    def _of(self, name: str) -> Slots:
        self._touched.add(name)
        return self.keys.setdefault(name, Slots())

    @staticmethod
    def _write(fields: dict[str, str], verb: bytes, rest: list[bytes]) -> None:
        if verb in (b"HSET", b"HMSET"):
            texts = [part.decode("utf-8", "replace") for part in rest]
            fields.update(zip(texts[::2], texts[1::2], strict=True))
        elif verb == b"HDEL":
            for one in rest:
                fields.pop(one.decode("utf-8", "replace"), None)
        elif verb in (b"DEL", b"UNLINK"):
            fields.clear()

    @staticmethod
    def _move(members: dict[str, float], verb: bytes, rest: list[bytes]) -> None:
        if verb == b"ZADD":
            only = rest[0] == b"XX"  # of those that are there
            pairs = rest[1 + (rest[1] == b"CH") :] if only else rest
            scores = {pairs[i + 1].decode(): float(pairs[i]) for i in range(0, len(pairs), 2)}
            members.update((one, score) for one, score in scores.items() if not only or one in members)
        elif verb == b"ZREM":
            for one in rest:
                members.pop(one.decode(), None)
        else:
            raise ValueError(f"{verb!r} on slots of a key: this reader does not know it")
