"""The contributor's door: files of .github against their schemas, and hooks and pages that name what the Makefile has."""

from __future__ import annotations

import copy
import json
import re
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from tools.matrix import DIAGONAL

ROOT = Path(__file__).resolve().parents[2]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted(GITHUB.glob("workflows/*.yml"))
FORMS = sorted(set(GITHUB.glob("ISSUE_TEMPLATE/*.yml")) - {GITHUB / "ISSUE_TEMPLATE" / "config.yml"})
SCHEMAS = {
    **dict.fromkeys(WORKFLOWS, "github-workflows"),
    **dict.fromkeys(FORMS, "github-issue-forms"),
    GITHUB / "ISSUE_TEMPLATE" / "config.yml": "github-issue-config",
    GITHUB / "dependabot.yml": "dependabot",
}
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def read(path: Path) -> Any:
    document = yaml.safe_load(path.read_text())
    if True in document:  # YAML 1.1 reads the key `on` as a truth value
        document["on"] = document.pop(True)
    return document


def faults(document: Any, schema: str) -> list[str]:
    text = resources.files("check_jsonschema.builtin_schemas.vendor").joinpath(f"{schema}.json").read_text()
    return [f"{error.json_path}: {error.message}" for error in Draft7Validator(json.loads(text)).iter_errors(document)]


@pytest.mark.parametrize("path", SCHEMAS, ids=lambda path: path.name)
def test_each_file_follows_its_schema(path: Path) -> None:
    assert faults(read(path), SCHEMAS[path]) == []


@pytest.mark.parametrize("path", SCHEMAS, ids=lambda path: path.name)
def test_the_schema_refuses_a_wrong_key(path: Path) -> None:
    document = copy.deepcopy(read(path))
    if path.name == "dependabot.yml":
        document["updates"][0]["shedule"] = {}
    else:
        document["runs_on"] = "a mistake"
    assert faults(document, SCHEMAS[path]) != []


def steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in read(path)["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_only_read_and_ends_in_time_and_names_actions_by_their_commit(path: Path) -> None:
    document = read(path)
    assert document["permissions"] == {"contents": "read"}
    assert all(job["timeout-minutes"] for job in document["jobs"].values())
    used = [step["uses"] for step in steps(path) if "uses" in step]
    assert used
    assert [one for one in used if not re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", one)] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_what_a_workflow_runs_is_here(path: Path) -> None:
    text = "\n".join(step.get("run", "") for step in steps(path))
    named = re.findall(r"(?:bash|python3?|sh) ([\w/][\w./-]*|\.[\w./-]+)", text)
    named += [f"{module.replace('.', '/')}.py" for module in re.findall(r"python3? -m ([\w.]+)", text)]
    made = set(re.findall(r"\bmake ([a-z-]+)", text))
    assert named or made
    assert [one for one in named if not (ROOT / one).is_file()] == []
    assert made - TARGETS == set()


def test_no_code_of_the_project_runs_where_a_token_can_write() -> None:
    jobs = [job for path in WORKFLOWS for job in read(path)["jobs"].values()]
    signing = [job for job in jobs if "write" in job.get("permissions", {}).values()]
    assert [job["permissions"] for job in signing] == [{"contents": "read", "id-token": "write", "attestations": "write"}]
    assert not any("run" in step or "checkout" in step["uses"] for job in signing for step in job["steps"])


def test_the_workflow_of_the_matrix_has_the_cells_of_the_diagonal() -> None:
    (job,) = read(GITHUB / "workflows" / "matrix.yml")["jobs"].values()
    cells = job["strategy"]["matrix"]["include"]
    assert [one["cell"] for one in cells] == list(DIAGONAL)
    assert all(one["cell"].startswith(f"{one['python']}/") for one in cells)


def test_each_hook_runs_what_the_lint_runs() -> None:
    recipe = (ROOT / "Makefile").read_text().split("\nlint:")[1].split("\n\n")[0].replace("$(BIN)", ".venv/bin")
    entries = [hook["entry"] for repo in read(ROOT / ".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]
    assert entries
    assert [one for one in entries if one.replace(" --force-exclude", "") not in recipe] == []


def test_commands_and_paths_of_the_guide_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    assert set(re.findall(r"(?<=`)make ([a-z-]+)", text)) - TARGETS == set()
    paths = {one for one in re.findall(r"`([\w.]+/[\w./-]*)`", text) if one != "built/" and "VERB" not in one}
    inside = {ROOT, ROOT / "fusion" / "store"}
    assert len(paths) > 20
    assert {one for one in paths if not any((base / one).exists() for base in inside)} == set()


def test_every_path_of_the_owners_exists() -> None:
    lines = [line.split()[0] for line in (GITHUB / "CODEOWNERS").read_text().splitlines() if line and not line.startswith("#")]
    assert lines
    assert [line for line in lines if not (ROOT / line.lstrip("/")).exists()] == []
