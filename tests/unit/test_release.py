"""The parts of `make release` that need no build: the number of a version, its section, and README's first job as files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tools.readme import blocks, extra_of_first_job, first_job
from tools.release import ROOT, ReleaseError, check_tag, name_release, notes, raise_version, version_of

CHANGELOG = "# Changelog\n\n## Unreleased\n\n### Added\n- A thing.\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Only the files that name a version, as they are here."""
    (tmp_path / "fusion").mkdir()
    shutil.copyfile(ROOT / "fusion" / "__init__.py", tmp_path / "fusion" / "__init__.py")
    shutil.copyfile(ROOT / "README.md", tmp_path / "README.md")
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    return tmp_path


def test_a_version_is_written_wherever_one_stands(checkout: Path) -> None:
    raise_version(checkout, "7.3.0", "2026-12-01")
    assert version_of(checkout) == "7.3.0"
    assert "ersion 7.3\n" in (readme := (checkout / "README.md").read_text()) or "ersion 7.3 (" in readme
    written = (checkout / "CHANGELOG.md").read_text()
    assert "## Unreleased\n\n## 7.3.0 - 2026-12-01\n" in written
    assert notes(written, "7.3.0") == "### Added\n- A thing.\n"


@pytest.mark.parametrize("version", ["0.0.9", "0.1", "v9.0.0", "9.0.0-beta", ""])
def test_a_version_that_is_older_or_none_changes_nothing(checkout: Path, version: str) -> None:
    before = [path.read_bytes() for path in sorted(checkout.rglob("*")) if path.is_file()]
    with pytest.raises(ReleaseError):
        raise_version(checkout, version, "2026-12-01")
    assert [path.read_bytes() for path in sorted(checkout.rglob("*")) if path.is_file()] == before


def test_a_candidate_comes_before_its_release(checkout: Path) -> None:
    raise_version(checkout, "7.3.0rc1", "2026-12-01")
    raise_version(checkout, "7.3.0rc2", "2026-12-02")
    raise_version(checkout, "7.3.0", "2026-12-03")
    with pytest.raises(ReleaseError, match=r"7\.3\.0rc3 is not newer than 7\.3\.0"):
        raise_version(checkout, "7.3.0rc3", "2026-12-04")


def test_a_file_without_its_place_for_the_version_stops_all(checkout: Path) -> None:
    (checkout / "CHANGELOG.md").write_text("# Changelog\n")
    with pytest.raises(ReleaseError, match=r"CHANGELOG\.md must have '## Unreleased' once; nothing was changed"):
        raise_version(checkout, "7.3.0", "2026-12-01")
    assert version_of(checkout) == version_of(ROOT)


@pytest.mark.parametrize("text", [CHANGELOG, CHANGELOG + "\n## 7.3.0 - 2026-12-01\n\n## 0.1.0 - 2026-01-01\n- First.\n"])
def test_a_version_without_a_section_is_not_released(text: str) -> None:
    with pytest.raises(ReleaseError, match=r"make version VERSION=7\.3\.0"):
        notes(text, "7.3.0")


def test_a_tag_is_that_of_the_version() -> None:
    check_tag("v7.3.0", "7.3.0")
    for tag in ("7.3.0", "v7.3", "v7.3.0rc1", "v7.3.1"):
        with pytest.raises(ReleaseError, match=f"the tag {tag} is not of version 7"):
            check_tag(tag, "7.3.0")


def test_the_sbom_names_what_is_released(tmp_path: Path) -> None:
    sbom = tmp_path / "sbom.json"
    sbom.write_text('{"components": [], "metadata": {"component": {"name": "fusion-queue", "type": "library"}}}')
    name_release(sbom, "7.3.0")
    component = json.loads(sbom.read_text())["metadata"]["component"]
    assert (component["name"], component["version"], component["purl"]) == (
        "fusion-queue",
        "7.3.0",
        "pkg:pypi/fusion-queue@7.3.0",
    )


def test_the_first_job_is_two_modules_and_a_script(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text()
    script = first_job(text, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"shop.py", "web.py"}
    assert "python web.py\n" in script and script.endswith("exit $seen\n")
    assert extra_of_first_job(text) == "embedded"
    assert blocks("```sh\na\n```\n\n```\nb\n```\n", "") == ["b\n"]
