"""deploy/kubernetes as a cluster reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml

from tests.kit.process import ROOT

PLACE = ROOT / "deploy" / "kubernetes"
FILES = sorted(PLACE.glob("*.yaml"))


def documents(name: str) -> list[dict[str, Any]]:
    return [found for found in yaml.safe_load_all((PLACE / name).read_text()) if found]


#: All objects, the one for KEDA included.
OBJECTS = [found for file in FILES if file.name != "kustomization.yaml" for found in documents(file.name)]
(CONFIG,) = [found["data"] for found in OBJECTS if found["kind"] == "ConfigMap"]
(KEDA,) = [found for found in OBJECTS if found["kind"] == "ScaledObject"]


@dataclass(frozen=True)
class Pod:
    """What a Deployment starts: its pod and the one container in it."""

    name: str
    deployment: dict[str, Any]

    @property
    def spec(self) -> dict[str, Any]:
        found: dict[str, Any] = self.deployment["spec"]["template"]["spec"]
        return found

    @property
    def container(self) -> dict[str, Any]:
        (found,) = self.spec["containers"]
        return dict(found)

    @property
    def args(self) -> list[str]:
        return list(self.container["args"])

    def flag(self, name: str) -> str:
        return self.args[self.args.index(name) + 1]

    @property
    def port_flag(self) -> str:
        return "--port" if "--port" in self.args else "--probe-port"

    @property
    def probes(self) -> dict[str, dict[str, Any]]:
        return {kind: self.container[f"{kind}Probe"] for kind in ("liveness", "readiness")}


PODS = {found["metadata"]["name"]: Pod(found["metadata"]["name"], found) for found in OBJECTS if found["kind"] == "Deployment"}
