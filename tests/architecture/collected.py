"""Tests as pytest finds them, with their marks and parameters: `python -m tests.architecture.collected FILE...` prints them as JSON."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from tests.architecture.source import ROOT
from tests.kit.workers import EXECUTORS


@dataclass(frozen=True)
class Case:
    """A test, or one of its cases. `places`: failpoints at which it strikes."""

    test: str
    case: str
    long: bool
    gate: bool
    browser: bool
    claims: tuple[str, ...]
    places: tuple[str, ...]

    @property
    def in_gate(self) -> bool:
        return self.gate or not (self.long or self.browser)

    @property
    def executor(self) -> str:
        """The one that its case names, or the default."""
        return next((name for name in EXECUTORS if name in self.case), "process")


def collected(files: Sequence[Path]) -> list[Case]:
    """In a process of its own, for all of these files."""
    command = [sys.executable, "-m", "tests.architecture.collected", *map(str, files)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=150, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return [Case(**row | {"claims": tuple(row["claims"]), "places": tuple(row["places"])}) for row in json.loads(ran.stdout)]


def _case(item: pytest.Item) -> Case:
    test, _, case = item.nodeid.partition("[")
    marks = {mark.name for mark in item.iter_markers()}
    claims = tuple(promise for mark in item.iter_markers("claim") for promise in mark.args)
    return Case(test, case, "long" in marks, "gate" in marks, "browser" in marks, claims, tuple(_places(item)))


def _places(item: pytest.Item) -> list[str]:
    """By the parameters that crash tests have."""
    given = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    if "cases" in given and "crash" in item.nodeid:
        return [case.point.name for case in given["cases"]]
    script = given.get("script") or getattr(given.get("operation"), "script", None)
    found = [f"{script}.{side}" for side in ("before", "after")] if script else [*given.get("pair", ()), given.get("place", "")]
    return [str(place).partition("=")[0] for place in found if "." in str(place)]


class _Collector:
    cases: list[Case]

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.cases = [_case(item) for item in session.items]


if __name__ == "__main__":
    collector = _Collector()
    with contextlib.redirect_stdout(io.StringIO()) as said:
        ended = pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", *sys.argv[1:]], plugins=[collector])
    if ended:
        sys.exit(said.getvalue())
    json.dump([asdict(case) for case in collector.cases], sys.stdout)
