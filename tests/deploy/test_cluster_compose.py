"""docker-compose.cluster.yml: what the Compose Specification says of such a file, and what its nodes and its fleet have to agree on."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import pytest
import yaml

from fusion.settings import Settings
from fusion.store.client.cluster import read_url
from tests.deploy.compose import interpolated, seconds
from tests.deploy.test_compose import SERVICES as OF_ONE_REDIS
from tests.deploy.test_compose import faults
from tests.kit.process import ROOT

FILE = ROOT / "docker-compose.cluster.yml"
FOUND: dict[str, Any] = interpolated(yaml.safe_load(FILE.read_text()), {})
SERVICES = FOUND["services"]
NODES = [f"redis-{number}" for number in range(1, 7)]


def test_the_file_follows_the_specification() -> None:
    assert faults(FOUND) == []


def test_it_is_six_nodes_and_a_fleet() -> None:
    assert list(SERVICES) == [*NODES, "cluster-setup", "worker", "server"]
    assert set(SERVICES["cluster-setup"]["depends_on"]) == set(NODES)
    (names,) = re.findall(r"for name in ([^;]*);", SERVICES["cluster-setup"]["command"][2])
    assert names.split() == NODES
    assert {volume for node in NODES for volume in SERVICES[node]["volumes"]} == {f"{node}:/data" for node in NODES}
    assert set(FOUND["volumes"]) == set(NODES)


@pytest.mark.parametrize("name", ["worker", "server"])
def test_the_fleet_is_that_of_one_redis_by_another_url(name: str) -> None:
    env = SERVICES[name]["environment"]
    settings = Settings.load(env={**env, "FUSION_REDIS_PASSWORD_FILE": ""})
    assert settings.prefix == "rq:{fusion}:"
    seeds, _ = read_url(env["FUSION_REDIS_URL"])
    assert seeds == [(node, 6379) for node in NODES[:3]]
    assert SERVICES[name]["depends_on"] == {"cluster-setup": {"condition": "service_completed_successfully"}}
    for same in ("command", "ports", "healthcheck", "stop_grace_period", "secrets", "cap_drop", "security_opt", "init", "build"):
        assert SERVICES[name].get(same) == OF_ONE_REDIS[name].get(same), same


def test_nodes_keep_what_one_redis_keeps() -> None:
    for node in NODES:
        (*_, script) = SERVICES[node]["command"]
        words = script.split()
        for option in ("--appendonly", "--appendfsync", "--maxmemory-policy", "--dir"):
            there = OF_ONE_REDIS["redis"]["command"]
            assert words[words.index(option) + 1] == there[there.index(option) + 1], option
        assert "--cluster-enabled yes" in script
        assert SERVICES[node]["cap_drop"] == ["ALL"]
        assert "ports" not in SERVICES[node], "nobody outside of the network reaches a node"
        assert seconds(SERVICES[node]["stop_grace_period"]) >= 30


@pytest.mark.parametrize("name", ["redis-1", "cluster-setup"])
def test_its_scripts_are_scripts(name: str) -> None:
    *shell, script = SERVICES[name]["command"]
    assert shell == ["sh", "-c"]
    checked = subprocess.run(["sh", "-n", "-c", script], capture_output=True, text=True, timeout=10, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
