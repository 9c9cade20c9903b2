"""README.md does what it says, and every command line in the docs is one that the program understands."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import redis
from click.testing import CliRunner

from fusion import Queue
from fusion.cli.main import cli
from fusion.store.access import inspector_of
from fusion.store.embedded.binary import ServerBinary

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(text: str, *kinds: str) -> list[str]:
    """The fenced blocks of these kinds; "" for those without one."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [code for kind, code in found if kind in kinds]


def commands() -> list[str]:
    """The command lines in all blocks, without their comments, each behind its page's name."""
    found = set()
    for page in PAGES:
        for line in "".join(blocks(page.read_text(), "", "sh")).splitlines():
            parts = re.split(r"; (?=fusion|run_worker)", line.split(" #")[0])
            found |= {
                f"{page.name}: {part.removesuffix('&').strip()}"
                for part in parts
                if re.match(r"(fusion|run_worker\.py) [a-z]", part)
            }
    return sorted(found)


@pytest.mark.parametrize("line", commands())
def test_the_program_knows_the_command_and_its_flags(line: str) -> None:
    _, *words = shlex.split(line.partition(": ")[2])
    result = CliRunner().invoke(cli, [*words, "--help"])
    assert result.exit_code == 0, result.output


@pytest.mark.long
def test_the_first_job_runs_as_the_readme_has_it(tmp_path: Path, server_binary: ServerBinary) -> None:
    for code in blocks(README, "python"):
        if file := re.match(r"# (\w+\.py):", code):
            (tmp_path / file[1]).write_text(code)
    (script,) = [block for block in blocks(README, "sh") if "web.py" in block]
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, arguments in ("fusion", " -m fusion"), ("python", ""):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}"{arguments} "$@"\n')
        (programs / name).chmod(0o755)
    with tempfile.TemporaryDirectory(prefix="fus", dir="/tmp") as home:  # a short name: it holds a socket
        environment = {
            **{name: value for name, value in os.environ.items() if name != "FUSION_REDIS_URL"},
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "FUSION_HOME": home,
            "FUSION_REDIS_SERVER": server_binary.path,
        }
        script += "seen=$?\nkill $!\nwait $!\nfusion redis stop\nexit $seen\n"
        ran = subprocess.run(["sh", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert "finished" in ran.stdout.splitlines()
    assert "to +4915112345678: 123456" in ran.stdout.splitlines()


def test_the_examples_of_enqueue(conn: redis.Redis, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSION_REDIS_URL", redis_url)
    (code,) = [block for block in blocks(README, "python") if "enqueue_in" in block]
    names: dict[str, object] = {}
    exec(code, names)  # noqa: S102
    assert isinstance(names["sms"], Queue)
    scheduled = inspector_of(conn).scheduled_count()
    assert scheduled >= 1, "in five minutes"
    assert names["sms"].count + scheduled == 4
