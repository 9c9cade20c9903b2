"""docker-compose.yml as compose reads it, and its services without containers: names of the network and paths in a container stand for
places of this machine."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.kit.process import ROOT, ProcessUnderTest

FILE = ROOT / "docker-compose.yml"
_VARIABLE = re.compile(r"\$(\$|\{(\w+):-([^}]*)\})")


def compose(env: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The file, with variables replaced: those of `env`, else their defaults."""
    return interpolated(yaml.safe_load(FILE.read_text()), env or {})


def interpolated(value: Any, env: Mapping[str, str]) -> Any:
    """Values alone, as compose does it."""
    if isinstance(value, dict):
        return {key: interpolated(one, env) for key, one in value.items()}
    if isinstance(value, list):
        return [interpolated(one, env) for one in value]
    if isinstance(value, str):
        return _VARIABLE.sub(lambda found: "$" if found[1] == "$" else env.get(found[2]) or found[3], value)
    return value


def seconds(text: str) -> float:
    """Of `215s`."""
    assert re.fullmatch(r"\d+s", text), text
    return float(text[:-1])


@dataclass
class Outside:
    """`directory` holds what compose keeps in volumes; `hosts`: what `redis:6379` and the like are here."""

    directory: Path
    hosts: dict[str, str]
    services: dict[str, Any] = field(default_factory=lambda: compose()["services"])

    def command(self, name: str) -> list[str]:
        """Entrypoint and command. Images that are built here have the entrypoint of the Dockerfile."""
        service = self.services[name]
        entrypoint = service.get("entrypoint")
        if "build" in service:
            (line,) = re.findall(r"^ENTRYPOINT (.*)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
            program, *entrypoint = json.loads(line)
            assert program == "python"
            entrypoint = [sys.executable, *entrypoint]
        return [self._here(name, word) for word in (*entrypoint, *service["command"])]

    def environment(self, name: str) -> dict[str, str]:
        """That of the service, and of this process nothing that Fusion reads."""
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("FUSION_", "RQ_", "REDIS_"))}
        return clean | {key: self._here(name, value) for key, value in self.services[name].get("environment", {}).items()}

    def run(self, name: str, *more: str, **env: str) -> Process:
        """Start it, with arguments and variables for which a container has its own network."""
        return Process(self.directory / f"{name}.log", [*self.command(name), *more], self.environment(name) | env)

    def is_healthy(self, name: str) -> bool:
        """What the health check says now."""
        kind, *words = (self._here(name, word) for word in self.services[name]["healthcheck"]["test"])
        assert kind in ("CMD", "CMD-SHELL")
        command = (
            ["sh", "-c", *words] if kind == "CMD-SHELL" else [sys.executable if words[0] == "python" else words[0], *words[1:]]
        )
        return subprocess.run(command, cwd=ROOT, capture_output=True, timeout=20, check=False).returncode == 0

    def _here(self, name: str, text: str) -> str:
        service = self.services[name]
        places = dict(self.hosts)
        for volume in service.get("volumes", []):
            source, target = volume.split(":")[:2]
            kept = self.directory / "volumes" / source
            kept.mkdir(parents=True, exist_ok=True) if not source.startswith(".") else None
            places[target] = str((ROOT / source).resolve() if source.startswith(".") else kept)
        for secret in service.get("secrets", []):
            places[f"/run/secrets/{secret}"] = str(self.directory / "secrets" / secret)
        for there, here in places.items():
            text = text.replace(there, here)
        return text

    def make_secrets(self) -> str:
        """By the script that is shipped; returns what it says."""
        (self.directory / "deploy").mkdir(exist_ok=True)
        script = shutil.copy(ROOT / "deploy" / "secrets.sh", self.directory / "deploy")
        return subprocess.run(["sh", script], check=True, capture_output=True, text=True, timeout=20).stdout


class Process(ProcessUnderTest):
    """A service, whatever program it is."""

    FAREWELL = signal.SIGTERM

    def __init__(self, log: Path, command: list[str], env: dict[str, str]) -> None:
        self.log = log
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
            )
