"""docker-compose.yml: what the Compose Specification says of such a file, and what names in it refer to."""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator

from fusion.web.auth import TokenFile, digest_of
from tests.deploy.compose import FILE, Outside, compose, seconds
from tests.kit.process import ROOT

SCHEMA = json.loads((Path(__file__).parent / "fixtures" / "compose-spec.json").read_text())
FOUND = compose()
SERVICES = FOUND["services"]


def faults(document: Any) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in Draft7Validator(SCHEMA).iter_errors(document)]


def test_the_compose_file_follows_the_specification() -> None:
    Draft7Validator.check_schema(SCHEMA)
    assert faults(FOUND) == []


def _set(path: str, value: Any) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        *parents, last = path.split("/")
        for name in parents:
            document = document[name]
        document[last] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        _set("services/worker/comand", ["start"]),
        _set("services/worker/environment", "A=1"),
        _set("services/worker/depends_on", {"redis": {"condition": "healthy"}}),
        _set("services/redis/healthcheck/retries", {}),
        _set("services/redis/tmpfs", 1),
        _set("service", {}),
    ],
)
def test_the_schema_refuses_a_wrong_file(change: Callable[[Any], None]) -> None:
    document = copy.deepcopy(FOUND)
    change(document)
    assert faults(document) != []


def test_everything_that_the_compose_file_names_exists() -> None:
    """Secrets, volumes, networks, files, and services that others wait for."""
    for name, service in SERVICES.items():
        assert set(service.get("secrets", [])) <= set(FOUND["secrets"]), name
        assert set(service.get("networks", ["default"])) <= set(FOUND["networks"]), name
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            assert (ROOT / source).is_dir() if source.startswith(".") else source in FOUND["volumes"], (name, source)
        for other, how in service.get("depends_on", {}).items():
            once = SERVICES[other]["restart"] == "no"
            assert how["condition"] == ("service_completed_successfully" if once else "service_healthy"), (name, other)
            assert once or "healthcheck" in SERVICES[other], (name, other)
            assert set(SERVICES[other].get("profiles", [])) <= set(service.get("profiles", [])), (name, other)
        used = re.findall(r"/run/secrets/(\w+)", json.dumps(service))
        assert set(used) == set(service.get("secrets", [])), name


def test_without_a_profile_it_is_redis_workers_and_the_server() -> None:
    profiles = {name: service.get("profiles", []) for name, service in SERVICES.items()}
    assert [name for name, found in profiles.items() if not found] == ["redis", "worker", "server"]
    assert {profile for found in profiles.values() for profile in found} == {"elasticsearch"}


def test_each_service_is_closed_as_far_as_it_can_be() -> None:
    for name, service in SERVICES.items():
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert all(re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port) for port in service.get("ports", [])), name
    # Who has no logins is where nothing else is: no jobs run there, and no port is open.
    assert SERVICES["elasticsearch"]["networks"] == ["elastic"]
    assert "ports" not in SERVICES["elasticsearch"]
    assert {name for name, service in SERVICES.items() if "elastic" in service.get("networks", [])} == {
        name for name, service in SERVICES.items() if service.get("profiles")
    }


def test_workers_get_the_time_that_they_ask_for() -> None:
    worker = SERVICES["worker"]
    asked = float(worker["command"][worker["command"].index("--shutdown-timeout") + 1])
    assert seconds(worker["stop_grace_period"]) >= asked + 20


def test_images_can_be_given_by_digest_and_those_of_elastic_are_of_one_version() -> None:
    given = {
        name: f"{name.lower()}@sha256:{'0' * 64}"
        for name in ("REDIS_IMAGE", "ELASTICSEARCH_IMAGE", "KIBANA_IMAGE", "PYTHON_IMAGE")
    }
    for service in compose(given)["services"].values():
        assert "@sha256:" in (service.get("image") or service["build"]["args"]["PYTHON_IMAGE"])
    versions = {name: SERVICES[name]["image"].rpartition(":")[2] for name in ("elasticsearch", "kibana", "kibana-setup")}
    assert len(set(versions.values())) == 1
    page = (ROOT / "docs" / "operations.md").read_text()
    assert [name for name in given if f"{name}=" not in page] == []


def test_its_head_says_how_it_is_started() -> None:
    """Each file that is named there exists, each profile, and each port."""
    head = FILE.read_text().partition("\nname:")[0]
    assert "sh deploy/secrets.sh" in head
    assert set(re.findall(r"--profile (\w+)", head)) == {"elasticsearch"}
    published = {port.split(":")[1] for service in SERVICES.values() for port in service.get("ports", [])}
    assert set(re.findall(r"http://localhost:(\d+)/", head)) == published
    assert [path for path in re.findall(r"\b(?:deploy|docs)/[\w.]+", head) if not (ROOT / path).exists()] == []


class TestSecrets:
    def test_secrets_are_made_once_and_only_the_hash_of_the_token_is_kept(self, tmp_path: Path) -> None:
        outside = Outside(tmp_path, {})
        said = outside.make_secrets()
        token = said.splitlines()[-1]
        password, line = ((tmp_path / "secrets" / name).read_text() for name in ("redis_password", "server_tokens"))
        assert re.fullmatch(r"[0-9a-f]{64}", password)
        assert password not in said
        (known,) = TokenFile(str(tmp_path / "secrets" / "server_tokens")).names()
        assert known == "operator"
        assert line == f"operator:admin:{digest_of(token)}\n"
        again = outside.make_secrets()
        assert token not in again
        assert [(tmp_path / "secrets" / name).read_text() for name in ("redis_password", "server_tokens")] == [password, line]

    def test_where_docker_made_directories_files_are_made(self, tmp_path: Path) -> None:
        for name in ("redis_password", "server_tokens"):
            (tmp_path / "secrets" / name).mkdir(parents=True)
        Outside(tmp_path, {}).make_secrets()
        assert all(path.is_file() for path in (tmp_path / "secrets").iterdir())

    def test_other_accounts_are_kept_out_and_other_users_of_a_container_are_not(self, tmp_path: Path) -> None:
        before = os.umask(0o077)
        try:
            Outside(tmp_path, {}).make_secrets()
        finally:
            os.umask(before)
        modes = {path.name: path.stat().st_mode & 0o777 for path in [tmp_path / "secrets", *(tmp_path / "secrets").iterdir()]}
        assert modes == {"secrets": 0o700, "redis_password": 0o644, "server_tokens": 0o644}

    def test_secrets_are_never_committed(self) -> None:
        ignored = subprocess.run(["git", "check-ignore", "secrets/redis_password"], cwd=ROOT, capture_output=True, check=False)
        if ignored.returncode == 128:
            pytest.skip("no git repository here")
        assert ignored.returncode == 0
