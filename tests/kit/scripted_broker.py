"""A Broker without Redis: it answers from a list, and remembers what it was told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any

from redis import exceptions as errors

from fusion.store.layout.keys import Keys
from fusion.store.layout.records import Claimed, Turn, TurnRequest


class ScriptedCall:
    """A `ScriptCall` of a turn."""

    def __init__(self, call: Callable[[], Turn]) -> None:
        self._call = call
        self.encoded = False

    def __call__(self) -> Turn:
        return self._call()

    def encode(self) -> None:
        self.encoded = True


def answer(
    *jobs: Claimed,
    status: str = "ok",
    answers: Sequence[str] = (),
    again: bool = False,
    next_in: float | None = None,
    bad: Sequence[tuple[str, str]] = (),
    waits: tuple[str, list[str]] | None = None,
) -> Turn:
    """The answer to a turn."""
    return Turn(status, list(answers), list(jobs), list(bad), again, next_in, waits)


def claimed(job_id: str = "job-1", queue: str = "sms", *, ahead: bool = False, **fields: bytes) -> Claimed:
    """A claimed job; `ahead`: to wait behind another."""
    given = {name.encode(): value for name, value in fields.items()}
    return Claimed(queue, job_id, f"{job_id}:1{'a' if ahead else ''}", given)


class ScriptedLine:
    """A `ScriptLine` without Redis: a call that was sent is made when its answer is taken.

    `is_there`: the answer has come; `refuses`: what sending raises.
    """

    def __init__(self) -> None:
        self.is_there = False
        self.refuses: Exception | None = None
        self.wants_write = False
        self.channel = None
        self.dropped = 0
        self._call: Callable[[], Turn] | None = None

    @property
    def busy(self) -> bool:
        return self._call is not None

    @property
    def next_at(self) -> float:
        return inf if self._call is None else 0.0 if self.is_there else 1e9

    def fileno(self) -> int | None:
        return None

    def send(self, call: Callable[[], Turn]) -> bool:
        if self.refuses is not None:
            raise self.refuses
        self._call, self.is_there = call, False
        return True

    def receive(self) -> None:
        self.is_there = self.busy

    def answer(self) -> Turn:
        call, self._call = self._call, None
        assert call is not None
        if not self.is_there:
            raise errors.TimeoutError("Timeout reading from socket")
        return call()

    def drop(self) -> None:
        self.dropped += self.busy
        self._call = None


class ScriptedBroker:
    """Each turn takes the next of `turns`: an answer, or an exception to raise. When they are used up, a turn accepts all and brings nothing.

    - `names`: names that live others have; `known`: whether the entry of this process is there;
    - `fails`: by method, the exceptions to raise at the next calls;
    - `calls`: names of the methods called, in order; `sent`: the turns; `made`: their calls, whether sent or not.
    """

    def __init__(self, *turns: Turn | Exception) -> None:
        self.keys = Keys("rq:")
        self.line = ScriptedLine()
        self.turns = list(turns)
        self.names: set[str] = set()
        self.known = True
        self.lost: set[str] = set()
        self.fails: dict[str, list[Exception]] = {}
        self.calls: list[str] = []
        self.sent: list[TurnRequest] = []
        self.made: list[ScriptedCall] = []
        self.entries: list[tuple[str, dict[str, Any]]] = []
        self.leases: list[list[tuple[str, str]]] = []
        self.rung: list[str] = []
        self.pruned: list[str] = []
        self.more_to_survey = False

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if self.fails.get(name):
            raise self.fails[name].pop(0)

    def turn_line(self) -> ScriptedLine:
        return self.line

    def turn_call(self, request: TurnRequest) -> ScriptedCall:
        def call() -> Turn:
            self._called("turn")
            self.sent.append(request)
            given = self.turns.pop(0) if self.turns else answer(answers=["ok"] * len(request.commits))
            if isinstance(given, Exception):
                raise given
            return given

        self.made.append(ScriptedCall(call))
        return self.made[-1]

    def register(self, name: str, incarnation: str, lease: float, worker_ttl: float, fields: Mapping[str, Any]) -> bool:
        self._called("register")
        self.entries.append((name, dict(fields)))
        if name in self.names:
            return False
        self.known = True
        return True

    def extend(
        self, name: str, incarnation: str, held: Sequence[tuple[str, str]], lease: float, worker_ttl: float, state: str
    ) -> tuple[bool, list[str]]:
        self._called("extend")
        self.leases.append(list(held))
        return self.known, ["lost" if job in self.lost else "ok" for job, _ in held]

    def deregister(self, name: str, incarnation: str) -> int:
        self._called("deregister")
        return 0

    def ring(self, queue: str) -> None:
        self._called("ring")
        self.rung.append(queue)

    def survey(self, wildcards: Mapping[str, str], interval: float) -> bool:
        self._called("survey")
        return self.more_to_survey

    def promote(self, limit: int = 80) -> tuple[int, float | None, float | None, float | None]:
        self._called("promote")
        return 0, None, None, None

    def expire(self, limit: int = 80) -> tuple[int, float | None]:
        self._called("expire")
        return 0, None

    def clean(self, *, interval: float = 0) -> bool:
        self._called("clean")
        return False

    def sample(self, interval: float) -> bool:
        self._called("sample")
        return False

    def running_operations(self) -> list[str]:
        self._called("running_operations")
        return []

    def reap(self, lease: float, interval: float, queues: Sequence[str] = ()) -> tuple[int, bool]:
        self._called("reap")
        return 0, False

    def prune(self, lease: float, name: str = "", **rest: Any) -> list[tuple[str, int]]:
        self._called("prune")
        self.pruned.append(name)
        return []
