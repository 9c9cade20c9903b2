"""What is shipped for systemd and containers."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from fusion.store.layout.acl import acl_rules
from tests.architecture.source import ROOT, pyproject

UNIT = ROOT / "deploy" / "systemd" / "fusion.service"
LOCK = (ROOT / "requirements.lock").read_text()
#: What the image is for: workers, relays and the HTTP service, with the service's own tasks.
EXTRAS = ("elasticsearch", "opentelemetry", "prometheus", "sentry", "tasks", "web", "worker")


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze (Debian: apt-get install systemd) is not installed"
)
def test_the_unit_is_rated_below_three(tmp_path: Path) -> None:
    shutil.copy(UNIT, tmp_path)
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=30", str(tmp_path / UNIT.name)]
    found = subprocess.run(command, check=False, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout[-300:] + found.stderr
    assert "Overall exposure level" in found.stdout
    assert "Unknown" not in found.stderr, "a line that systemd does not know protects from nothing"


def test_the_page_names_each_line_that_a_task_may_need_relaxed() -> None:
    """What the table advises to change is in the unit, or is a list that widens one of its lines."""
    page = (ROOT / "docs" / "operations.md").read_text()
    table = page.split("### What the systemd unit takes from jobs")[1].split("### ")[0]
    advised = set(re.findall(r"`([A-Z]\w+)=", table))
    there = set(re.findall(r"^(\w+)=", UNIT.read_text(), re.MULTILINE))
    assert len(advised) > 10
    assert advised - there <= {"ReadWritePaths", "DeviceAllow", "IPAddressDeny", "IPAddressAllow"}


def locked() -> dict[str, Version]:
    return {name: Version(version) for name, version in re.findall(r"^([a-z0-9._-]+)==(\S+)", LOCK, re.MULTILINE)}


def test_the_lock_file_holds_what_pyproject_asks_for() -> None:
    project = pyproject()["project"]
    wanted = [*project["dependencies"], *(line for extra in EXTRAS for line in project["optional-dependencies"][extra])]
    assert len(wanted) > len(EXTRAS)
    found = locked()
    for line in wanted:
        asked = Requirement(line)
        assert asked.name in found, f"{asked.name} is not locked; run: sh tools/lock.sh"
        assert asked.specifier.contains(found[asked.name]), f"{line}, and {found[asked.name]} is locked; run: sh tools/lock.sh"
    assert {"hiredis", "urllib3"} <= set(found), "what those need in turn is there, too"


def test_every_locked_package_has_hashes_and_nothing_says_where_from() -> None:
    entries = re.split(r"^(?=[a-z0-9])", LOCK, flags=re.MULTILINE)[1:]
    assert len(entries) == len(locked())
    assert [entry for entry in entries if not re.search(r"--hash=sha256:[0-9a-f]{64}", entry)] == []
    assert re.search(r"https?:|file:|index-url|find-links|trusted-host", LOCK) is None


def test_the_image_installs_from_the_lock_file_alone() -> None:
    text = (ROOT / "Dockerfile").read_text()
    (install,) = re.findall(r"^RUN pip install (.*)$", text, re.MULTILINE)
    assert "--require-hashes" in install
    assert install.endswith("-r requirements.lock")
    assert "!requirements.lock" in (ROOT / ".dockerignore").read_text().split()
    copied = {name.rstrip("/") for line in re.findall(r"^COPY (.*) \S+$", text, re.MULTILINE) for name in line.split()}
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().split() if line.startswith("!")}
    assert copied <= allowed
    assert all((ROOT / name).exists() for name in copied)


def test_base_images_can_be_given_by_digest() -> None:
    docker, compose = (ROOT / "Dockerfile").read_text(), (ROOT / "docker-compose.yml").read_text()
    assert re.findall(r"^FROM (.*)$", docker, re.MULTILINE) == ["${PYTHON_IMAGE}"]
    (default,) = re.findall(r"^ARG PYTHON_IMAGE=(.*)$", docker, re.MULTILINE)
    assert f"PYTHON_IMAGE: ${{PYTHON_IMAGE:-{default}}}" in compose
    assert re.search(r"image: \$\{REDIS_IMAGE:-redis:[\w.-]+\}", compose)


def test_the_users_of_compose_have_the_documented_rights() -> None:
    lines = (ROOT / "deploy" / "redis" / "users.acl").read_text().splitlines()
    # Off, but with its rights: some versions replay the transactions in an AOF with them.
    assert lines == ["user default off ~* &* +@all", f"user fusion on #PASSWORD_SHA256 {acl_rules()}"], (
        "write the rules of fusion/store/layout/acl.py into deploy/redis/users.acl"
    )
