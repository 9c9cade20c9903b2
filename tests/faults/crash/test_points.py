"""What failpoints do, and that the short matrix has them all. That each is struck: tests/architecture/test_failpoints.py."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.crash.matrix import MODES, VICTIMS, names, product, subset
from tests.kit.process import ROOT
from tests.kit.waiting import eventually


def test_the_short_matrix_has_each_place_each_way_to_strike_and_each_way_to_start() -> None:
    short, full = ([case for cases in some for case in cases] for some in (subset(6), product()))
    assert {case.point.name for case in short} == names()
    assert {case.victim for case in short} == {*VICTIMS, "server"}
    assert {case.mode for case in short} == {*MODES}
    assert {str(case) for case in short} <= {str(case) for case in full}
    assert len({str(case) for case in full}) == sum(len(point.victims) for mode in MODES for point in mode.points)


_PROGRAM = "from fusion.kernel.failpoints import failpoint\nfor n in range(3): failpoint('a.b'); print(n, flush=True)"


def _run(spec: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "FUSION_FAILPOINTS": spec} if spec else None
    return subprocess.run([sys.executable, "-c", _PROGRAM], cwd=ROOT, env=env, capture_output=True, text=True, timeout=30)


@pytest.mark.parametrize(
    ("spec", "code", "printed"),
    [
        ("", 0, "0 1 2"),
        ("a.c=kill", 0, "0 1 2"),
        ("a.b=kill@2", -signal.SIGKILL, "0"),
        ("a.c=kill;a.b=exit:7", 7, ""),
        ("a.b=sleep:0@2", 0, "0 1 2"),
    ],
)
def test_a_place_is_struck_at_the_pass_that_was_asked_for(spec: str, code: int, printed: str) -> None:
    found = _run(spec)
    assert (found.returncode, found.stdout.split()) == (code, printed.split())


def test_an_error_is_raised_by_name_and_an_unknown_action_names_those_there_are() -> None:
    assert "BlockingIOError: failpoint raised BlockingIOError" in _run("a.b=raise:BlockingIOError").stderr
    assert "unknown action 'explode'; use kill, stop, exit:N" in _run("a.b=explode").stderr


def test_one_process_of_all_waits_and_only_once_it_is_asked_for(tmp_path: Path) -> None:
    here = tmp_path / "armed" / "here"
    spec = f"a.b=wait:{here}"
    assert _run(spec).stdout.split() == ["0", "1", "2"], "there is no such directory: nobody waits"
    here.parent.mkdir()
    env = {**os.environ, "FUSION_FAILPOINTS": spec}
    with subprocess.Popen([sys.executable, "-c", _PROGRAM], cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True) as waiting:
        eventually(here.exists)
        assert int(here.read_text()) == waiting.pid
        assert _run(spec).stdout.split() == ["0", "1", "2"], "others pass"
        assert waiting.poll() is None
        here.unlink()
        assert waiting.communicate(timeout=30)[0].split() == ["0", "1", "2"]
