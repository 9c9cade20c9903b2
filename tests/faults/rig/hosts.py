"""Other hosts on this machine: each is a network namespace with its own connection to a Redis here, and its own host name."""

from __future__ import annotations

import functools
import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import redis

from tests.kit.servers import SpawnedServer, free_port

_ENTER = Path(__file__).with_name("elsewhere.py")
_numbers = itertools.count()


@functools.cache
def why_not() -> str | None:
    """Return what this machine lacks for it; None if nothing."""
    if sys.platform != "linux":
        return "network namespaces are Linux's"
    if os.geteuid() != 0:
        return "only root makes network namespaces"
    if not shutil.which("ip"):
        return "there is no `ip` (Debian's iproute2)"
    name = f"fus{os.getpid()}try"
    tried = subprocess.run(
        ["ip", "link", "add", name, "type", "veth", "peer", "name", f"{name}2"], capture_output=True, text=True
    )
    if tried.returncode == 0:
        _ip("link", "del", name)
        tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if tried.returncode == 0:
        _ip("netns", "del", name)
        return None
    return f"this kernel or container forbids it: {tried.stderr.strip()}"


class Host:
    """A host of its own: `name` is its host name, `url` the way to Redis from there."""

    def __init__(self, name: str) -> None:
        self.name = name
        number = next(_numbers)
        self._space, self._wire = f"fus{os.getpid()}-{number}", f"fu{os.getpid()}-{number}"
        # From 198.18.0.0/15, the range for tests of networks: four addresses for each host.
        block = 4 * ((os.getpid() * 8 + number) % 32768)
        near, far = (f"198.{18 + (block >> 16)}.{block >> 8 & 255}.{(block & 255) + n}" for n in (1, 2))
        self.near = near
        _ip("netns", "add", self._space)
        _ip("link", "add", self._wire, "type", "veth", "peer", "name", "wire", "netns", self._space)
        _ip("addr", "add", f"{near}/30", "dev", self._wire)
        _ip("link", "set", self._wire, "up")
        for words in (("addr", "add", f"{far}/30", "dev", "wire"), ("link", "set", "wire", "up"), ("link", "set", "lo", "up")):
            _ip("-n", self._space, *words)

    def program(self, *words: str) -> tuple[str, ...]:
        """Return the arguments for Python that run a program there, in the same process: signals reach it."""
        return (str(_ENTER), self._space, self.name, *words)

    def cut(self) -> None:
        """Cut the connection: what is sent is lost, and neither side gets an error."""
        _ip("link", "set", self._wire, "down")

    def mend(self) -> None:
        _ip("link", "set", self._wire, "up")

    def close(self) -> None:
        """Remove the connection at once. The namespace ends with its last process."""
        _ip("link", "del", self._wire)
        _ip("netns", "del", self._space)


class Hosts:
    """Redis here, and hosts that reach it by a wire of their own."""

    def __init__(self, binary: str, *names: str) -> None:
        self._made = [Host(name) for name in names]
        self._port = free_port()
        near = [host.near for host in self._made]
        self.server = SpawnedServer(
            binary, "--port", str(self._port), "--bind", *near, "--protected-mode", "no", "--save", "", "--appendonly", "no"
        )

    def __getitem__(self, name: str) -> Host:
        return next(host for host in self._made if host.name == name)

    def client(self) -> redis.Redis:
        return self.server.client()

    def url(self, name: str) -> str:
        return f"redis://{self[name].near}:{self._port}/0"

    def mend(self) -> None:
        for host in self._made:
            host.mend()

    def close(self) -> None:
        self.server.close()
        for host in self._made:
            host.close()


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)
