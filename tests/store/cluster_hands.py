"""A slot that is half moved from one node of a cluster to another, and calls of scripts meanwhile."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import redis

from fusion.store.client.classify import is_moving
from fusion.store.layout.slots import GUARD
from fusion.store.scripting.scripts import Script
from tests.kit.clusters import PREFIX, SLOT, ClusterOfTests

#: The words of a call behind the script.
Words = tuple[Any, ...]
#: The dump of each key, and when it expires.
Held = Mapping[bytes, tuple[bytes, int]]
KEY = f"{PREFIX}{GUARD}"
#: How nodes refuse a command inside of a script. The second is Redis 8's, for EXISTS.
_REFUSALS = ("non local key", "undeclared keys were accessed")
_WORD = re.compile(rb'"((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class Step:
    """One command inside of a script."""

    keys: list[bytes]
    writes: bool


class HalfMoved:
    """A slot of which some keys are on another node. What a test sends at one stop is one pipeline: single commands took minutes."""

    def __init__(self, cluster: ClusterOfTests, script: Script, words: Words) -> None:
        self.cluster, self.source = cluster, cluster.owner
        self.target = cluster.other(self.source)
        self.keys: list[bytes] = sorted(self._in_slot())
        self.words = words
        self.sha = self.source.client.script_load(script.text)

    @property
    def named(self) -> set[bytes]:
        """The keys that the call names in KEYS."""
        return {key.encode() for key in self.words[1 : int(self.words[0]) + 1]}

    @contextmanager
    def moving(self) -> Iterator[None]:
        """Begin to move the slot. Bring all keys back at the end."""
        self.cluster.begin_move(self.target)
        try:
            yield
        finally:
            self.cluster.give_up_move(self.source, self.target)

    def stop(self, stops: Sequence[tuple[Sequence[bytes], Sequence[bytes]]]) -> list[tuple[Any, Held, Held]]:
        """At each stop move some keys, then call the script. `stops`: the keys to move, and those that are left. Return for each stop the
        answer of the script, the keys before the call, and the keys after it."""
        pipe = self.source.client.pipeline(transaction=False)
        for move, left in stops:
            if move:
                pipe.execute_command("MIGRATE", "127.0.0.1", self.target.port, "", 0, 20_000, "KEYS", *move)
            self._dump(pipe, left)
            pipe.execute_command("EVALSHA", self.sha, *self.words)
            self._dump(pipe, left)
        replies, found = pipe.execute(raise_on_error=False), []
        for move, left in stops:
            if move:
                assert replies.pop(0) == b"OK"
            count = 1 + 2 * len(left)
            found.append((replies[count], _held(replies[:count], left), _held(replies[count + 1 :], left)))
            replies = replies[2 * count + 1 :]
        return found

    def tears(self) -> bool:
        """Return True if only a part of the call is done: with no key moved, or with one of those that it uses after its first write. It says
        so, or a write to the moved key is lost without an error."""
        whole, steps = self._dumps(), self.steps()
        for away in ((), *([key] for key in late(steps) if key in whole)):
            left = [key for key in self.keys if key not in away]
            with self.moving():
                ((answer, before, after),) = self.stop([(away, left)])
            refused = any(text in str(answer) for text in _REFUSALS)
            assert not isinstance(answer, Exception) or is_moving(answer) or refused, answer
            lost = any(step.writes and key in step.keys for step in steps for key in away)
            if after != before and (isinstance(answer, Exception) or refused or lost):
                return True
            self._restore(whole)
        return False

    def steps(self) -> list[Step]:
        """Return the commands that the script calls. Undo them."""
        whole = self._dumps()
        with redis.Redis.from_url(self.source.server.url, protocol=2) as client, _monitored(client) as lines:
            self.source.client.evalsha(self.sha, *self.words)
            self.source.client.echo("over")
            steps = [step for line in lines if (step := self._step(line))]
        self._restore(whole)
        return steps

    def _step(self, line: bytes) -> Step | None:
        words = [re.sub(rb"\\(.)", rb"\1", word) for word in _WORD.findall(line)]
        conn = self.source.client.connection_pool.get_connection()
        try:
            conn.send_command("COMMAND", "GETKEYS", *words)
            keys = conn.read_response()
            conn.send_command("COMMAND", "INFO", words[0])
            return Step(keys, b"write" in conn.read_response()[0][2])
        except redis.ResponseError:  # it has no keys
            return None
        finally:
            self.source.client.connection_pool.release(conn)

    def _dumps(self) -> Held:
        pipe = self.source.client.pipeline(transaction=False)
        self._dump(pipe, keys := self._in_slot())
        return _held(pipe.execute(), keys)

    def _restore(self, held: Held) -> None:
        pipe = self.source.client.pipeline(transaction=False)
        pipe.flushall()
        for key, (dump, expires) in held.items():
            pipe.restore(key, max(expires, 0), dump, absttl=expires >= 0)
        pipe.execute()

    def _in_slot(self) -> list[bytes]:
        found: list[bytes] = self.source.cluster("GETKEYSINSLOT", SLOT, 100_000)
        return found

    @staticmethod
    def _dump(pipe: Any, keys: Sequence[bytes]) -> None:
        pipe.execute_command("CLUSTER", "GETKEYSINSLOT", SLOT, 100_000)
        for key in keys:
            pipe.dump(key)
            pipe.pexpiretime(key)


def _held(replies: Sequence[Any], keys: Sequence[bytes]) -> Held:
    there = set(replies[0])
    rows: Held = {key: (replies[1 + 2 * nth], replies[2 + 2 * nth]) for nth, key in enumerate(keys) if key in there}
    return {**rows} | dict.fromkeys(there - set(keys), (b"new", 0))


@contextmanager
def _monitored(client: redis.Redis) -> Iterator[Iterator[bytes]]:
    """Give the commands of scripts from now on, until ECHO."""
    connection = client.connection_pool.get_connection()
    connection.send_command("MONITOR")
    connection.read_response()

    def lines() -> Iterator[bytes]:
        while b'"ECHO"' not in (line := _bytes(connection.read_response())):
            if b" lua] " in line:
                yield line

    try:
        yield lines()
    finally:
        connection.disconnect()


def _bytes(line: bytes | str) -> bytes:
    return line if isinstance(line, bytes) else line.encode()


def before_first_write(steps: Sequence[Step]) -> list[bytes]:
    """Return the keys that a script uses up to its first write, that included."""
    found = list[bytes]()
    for step in steps:
        found += step.keys
        if step.writes:
            break
    return found


def late(steps: Sequence[Step]) -> list[bytes]:
    """Return the keys that a script uses only after its first write."""
    early = before_first_write(steps)
    return list(dict.fromkeys(key for step in steps for key in step.keys if key not in early))


def without_guard(words: Words) -> Words:
    """Return the words of a call as they would be without its guard."""
    count = int(words[0])
    assert words[count] == KEY
    return (str(count - 1), *words[1:count], *words[count + 1 :])


@contextmanager
def calls_caught() -> Iterator[list[tuple[Script, Words]]]:
    """Collect the calls of scripts. The first is not sent, and ends the block."""
    caught: list[tuple[Script, Words]] = []
    real = Script.command

    class Caught(Exception):
        pass

    def command(script: Script, *args: Any, **more: Any) -> Words:
        caught.append((script, real(script, *args, **more)))
        raise Caught

    with patch.object(Script, "command", command):
        try:
            yield caught
        except Caught:
            return
