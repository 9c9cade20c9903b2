"""A worker without Redis: drives a real fork server."""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import psutil

from fusion.execution.frames import unpack
from fusion.forkserver.client import ForkServerClient
from fusion.forkserver.horse_link import Horse
from fusion.forkserver.messages import ForkFailed, ForkServerConfig, HorseExited, Message, Ready, ServerClosed, describe_death
from fusion.kernel.serializers import JSONSerializer, dumps_call

ROOT = str(Path(__file__).resolve().parents[2])
#: Seconds for anything that should happen at all.
PATIENCE = 20.0


def job_fields(func: str, *args: Any, **more: Any) -> dict[bytes, bytes]:
    """A job frame. Keyword arguments are fields; `kwargs` is the call's."""
    kwargs = more.pop("kwargs", {})
    fields = {
        b"id": b"job-1",
        b"execution_id": b"1:1:0",
        b"data": dumps_call(JSONSerializer(), func, args, kwargs),
        b"timeout": b"10",
        b"meta": b"{}",
        b"origin": b"sms",
        b"priority": b"1",
        b"created_at": b"2026-01-02T03:04:05.000006Z",
    }
    for key, value in more.items():
        fields[key.encode()] = value if isinstance(value, bytes) else str(value).encode()
    return fields


#: What is no outcome: that a horse has its imports, and what a job notes.
_BESIDE = (b"ready", b"meta", b"stands")


class Ran:
    """What one job came to."""

    def __init__(self, frames: list[dict[bytes, bytes]], exited: HorseExited, seconds: float) -> None:
        self.frames = frames
        self.exited = exited
        #: From hand-out to EXIT.
        self.seconds = seconds

    @property
    def outcome(self) -> dict[bytes, bytes]:
        outcomes = [frame for frame in self.frames if frame[b"kind"] not in _BESIDE]
        assert len(outcomes) == 1, (self.frames, self.exited)
        stood = next((frame[b"frame"] for frame in self.frames if frame[b"kind"] == b"stands"), None)
        return outcomes[0] if stood is None else {**unpack(stood[4:]), **outcomes[0]}

    @property
    def kind(self) -> str:
        return self.outcome[b"kind"].decode()

    @property
    def result(self) -> Any:
        assert self.kind == "finished", self.outcome
        raw = self.outcome.get(b"result")
        return None if raw is None else JSONSerializer().loads(raw)

    @property
    def line(self) -> str:
        return self.outcome[b"exc_line"].decode()

    @property
    def death(self) -> str:
        assert not [frame for frame in self.frames if frame[b"kind"] not in _BESIDE], self.frames
        return describe_death(self.exited.status)


class Driver:
    def __init__(self, *, grace: float = 0.4, wait: bool = True, **config: Any) -> None:
        self.messages: list[Message] = []
        self.exits: dict[int, HorseExited] = {}
        config.setdefault("tasks", ("tests.jobs",))
        path = (str(config.pop("path")),) if "path" in config else ()
        config.setdefault("modules", ("tests.jobs.plain", "tests.jobs.hostile"))
        self.server = ForkServerClient(ForkServerConfig(sys_path=(*path, ROOT, *sys.path), grace=grace, **config))
        self.server.start()
        if wait:
            self.wait_for(Ready)

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *exc: object) -> None:
        self.server.destroy()

    @property
    def closed(self) -> bool:
        return any(isinstance(message, ServerClosed) for message in self.messages)

    def pump(self, seconds: float = 0.05) -> None:
        fd = self.server.fileno()
        if fd < 0:
            return
        self.server.flush()
        select.select([fd], [], [], seconds)
        for message in self.server.receive():
            self.messages.append(message)
            if isinstance(message, HorseExited):
                self.exits[message.serial] = message

    def wait_for(self, kind: type[Any]) -> Any:
        """The first message of this kind, now or later."""
        return self.wait_until(lambda: next((found for found in self.messages if isinstance(found, kind)), None), str(kind))

    def wait_until(self, check: Callable[[], Any], why: str) -> Any:
        deadline = time.monotonic() + PATIENCE
        while not (answer := check()):
            assert time.monotonic() < deadline, f"not within {PATIENCE} s: {why}; messages: {self.messages}"
            assert not self.closed, f"the server closed while waiting for {why}: {self.messages}"
            self.pump()
        return answer

    def hand_out(self, fields: dict[bytes, bytes], horse: Horse | None = None) -> Horse:
        horse = horse or self.server.fork()
        timeout = float(fields[b"timeout"] or -1)
        self.server.run(horse, time.monotonic() + timeout + self.server.config.grace if timeout > 0 else inf, fields)
        return horse

    def finish(self, horse: Horse) -> Ran:
        """Wait for the end of a horse, reading what it says."""
        started = time.monotonic()
        frames: list[dict[bytes, bytes]] = []
        while horse.serial not in self.exits:
            assert time.monotonic() < started + PATIENCE, f"no EXIT; frames {frames}, messages {self.messages}"
            assert not self.closed, self.messages
            assert ForkFailed(horse.serial, ANY) not in self.messages, self.messages
            readable: list[Any] = [self.server] if horse.at_eof else [self.server, horse]
            writable = [horse] if horse.unsent else []
            ready, able, _ = select.select(readable, writable, [], 0.05)
            if able:
                horse.flush()
            if horse in ready:
                frames += horse.receive()
            self.pump(0)
        frames += horse.drain()
        horse.close()
        return Ran(frames, self.exits[horse.serial], time.monotonic() - started)

    def run(self, func: str, *args: Any, **fields: Any) -> Ran:
        if "." not in func:
            func = f"tests.jobs.plain.{func}"
        return self.finish(self.hand_out(job_fields(func, *args, **fields)))

    def hostile(self, func: str, *args: Any, **fields: Any) -> Ran:
        return self.run(f"tests.jobs.hostile.{func}", *args, **fields)


def is_gone(pid: int) -> bool:
    """True if the process does not run any more; a zombie that waits for somebody else's wait counts as gone."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def pids_in(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def wait_gone(pids: list[int], timeout: float = 3.0) -> None:
    deadline = time.monotonic() + timeout
    while left := [pid for pid in pids if not is_gone(pid)]:
        assert time.monotonic() < deadline, f"still alive: {left}"
        time.sleep(0.01)
