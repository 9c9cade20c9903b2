"""Applies each mutant to a copy of the project and has the tests that should notice it run there: `python -m tests.faults.teeth [letters] [0/3]`."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from xml.etree import ElementTree

from tests.faults.teeth.mutants import BASELINE, MUTANTS, STILL_WORKS, Mutant, table, without_case
from tests.kit.process import ROOT

_COPIED = (
    "fusion",
    "tests",
    "tasks",
    "wrappers",
    "deploy",
    "tools",
    "docs",  # whose statements tests run
    "docker-compose.yml",
    "Dockerfile",
    "run_worker.py",
    "pyproject.toml",
)
_LANES = 3  # most of the time is spent waiting
#: Seconds for the tests of one mutant; each has its own limit besides.
_LIMIT = 420
#: What is no verdict of a test: it only ran out of time.
_NO_VERDICT = "Failed: Timeout"


@dataclass(frozen=True)
class Verdict:
    """`survived`: tests that passed, did not run, or only ran out of time. `works`: without faults everything goes on as ever."""

    survived: tuple[str, ...]
    works: bool
    said: str
    seconds: float

    @property
    def caught(self) -> bool:
        return self.works and not self.survived


def copy_project(to: Path) -> Path:
    """The project without what is made of it."""
    to.mkdir()
    for name in _COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, to / name, ignore=shutil.ignore_patterns("__pycache__", ".*"))
        else:
            shutil.copy2(source, to / name)
    return to


@contextmanager
def mutated(copy: Path, mutant: Mutant) -> Iterator[None]:
    originals = {copy / edit.path: (copy / edit.path).read_text() for edit in mutant.edits}
    try:
        for edit in mutant.edits:
            _write(copy / edit.path, edit.applied((copy / edit.path).read_text()))
        build(copy, originals)
        yield
    finally:
        for path, text in originals.items():
            _write(path, text)
        build(copy, originals)


def build(copy: Path, changed: Iterable[Path]) -> None:
    """Build the scripts of a copy anew if a source of theirs has changed."""
    if any(path.suffix == ".lua" for path in changed):
        env = {**os.environ, "PYTHONPATH": f"{copy}:{ROOT}"}
        command = [sys.executable, "-P", "-m", "tools.lua_build"]
        built = subprocess.run(command, env=env, capture_output=True, text=True, timeout=240, check=False)
        if built.returncode:
            raise RuntimeError(f"a mutant's scripts can't be built: {built.stderr.strip().splitlines()[-1]}")


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):  # goes by size and second: too coarse here
        compiled.unlink()


def run_tests(copy: Path, nodes: Sequence[str], *flags: str, limit: float = _LIMIT) -> tuple[ElementTree.Element | None, str]:
    """What pytest reports of them in this copy, None if there is no report; and what it printed."""
    report = copy.with_suffix(".xml")
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *flags, *nodes]
    env = {key: value for key, value in os.environ.items() if not key.startswith(("FUSION_", "PYTEST_"))}
    env |= {key: value for key, value in os.environ.items() if key.startswith("FUSION_TEST_")}
    env["PYTHONPATH"] = str(copy)
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, cwd=copy, env=env, stdout=output, stderr=output, start_new_session=True)
        try:
            process.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        said = output.read()
    return (ElementTree.parse(report).getroot() if report.exists() else None), said  # noqa: S314 - our own


def judge(copy: Path, mutant: Mutant) -> Verdict:
    """Whether each of the tests fails on the mutant, which else still works."""
    began = time.monotonic()
    with mutated(copy, mutant):
        report, said = run_tests(copy, [STILL_WORKS, *mutant.caught_by])
    failures = {} if report is None else dict(reversed(list(_failures(report))))
    works = report is not None and failures.pop(STILL_WORKS, None) is None
    caught = [node for node, message in failures.items() if not message.startswith(_NO_VERDICT)]
    survived = tuple(node for node in mutant.caught_by if not any(_is_of(found, node) for found in caught))
    first = next((failures[node] for node in reversed(failures)), said[-2000:] if report is None else "")
    return Verdict(survived, works, _one_line(first), time.monotonic() - began)


def _failures(report: ElementTree.Element) -> Iterator[tuple[str, str]]:
    """Node id -> message."""
    for case in report.iter("testcase"):
        found = next((case.find(kind) for kind in ("failure", "error") if case.find(kind) is not None), None)
        if found is not None:  # an error is one of a fixture: processes are left behind, say
            yield _node(case), found.get("message") or ""


def _node(case: ElementTree.Element) -> str:
    return f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"


def _is_of(found: str, node: str) -> bool:
    return node == (found if "[" in node else without_case(found))


def _one_line(text: str) -> str:
    return " ".join(text.split())[:110]


def main(letters: Sequence[str]) -> int:
    """0 if every test passes without a mutant and fails with its own. `0/3` among the letters: every third mutant, from the first one on.
    `--table`: print what docs/guarantees.md has."""
    if letters == ["--table"]:
        print("\n".join(table()))
        return 0
    first, parts = (int(number) for number in next((word for word in letters if "/" in word), "0/1").split("/"))
    letters = [word for word in letters if "/" not in word]
    chosen = [mutant for mutant in MUTANTS if not letters or mutant.letter in letters or mutant.letter[0] in letters][
        first::parts
    ]
    if not chosen:
        print(f"no mutant {' '.join(letters)}; there are {', '.join(mutant.letter for mutant in MUTANTS)}")
        return 2
    for mutant in chosen:
        for edit in mutant.edits:
            edit.applied((ROOT / edit.path).read_text())
    began = time.monotonic()
    home = Path(tempfile.mkdtemp(prefix="teeth", dir="/tmp"))
    try:
        lanes = [copy_project(home / str(n)) for n in range(_LANES)]
        if not _passes_unchanged(lanes[0], chosen, baseline=not letters):
            return 1
        print(f"without a mutant all of them pass ({time.monotonic() - began:.0f} s)\n", flush=True)
        verdicts = list(_judged(lanes, chosen))
    finally:
        shutil.rmtree(home, ignore_errors=True)
    bad = [verdict for verdict in verdicts if not verdict.caught]
    print(f"\n{len(verdicts) - len(bad)} of {len(verdicts)} mutants caught ({time.monotonic() - began:.0f} s)")
    return bool(bad)


def _passes_unchanged(copy: Path, chosen: Iterable[Mutant], *, baseline: bool) -> bool:
    nodes = (
        list(dict.fromkeys([STILL_WORKS, *(node for mutant in chosen for node in mutant.caught_by)])) + [BASELINE[1]] * baseline
    )
    report, said = run_tests(copy, nodes, "-n", str(_LANES), "--dist", "worksteal", limit=2 * _LIMIT)
    failed = None if report is None else dict(_failures(report))
    ran = [] if report is None else [_node(case) for case in report.iter("testcase") if case.find("skipped") is None]
    idle = [node for node in nodes if not any(_is_of(found, node) for found in ran)]
    if failed == {} and not idle:
        return True
    print(f"without a mutant they do not all pass, {len(ran)} ran, of these nothing: {', '.join(idle) or '-'}\n{said[-6000:]}")
    return False


def _judged(lanes: Sequence[Path], chosen: Sequence[Mutant]) -> Iterator[Verdict]:
    """As many at a time as there are copies, told in their order."""
    free: SimpleQueue[Path] = SimpleQueue()
    for lane in lanes:
        free.put(lane)

    def one(mutant: Mutant) -> Verdict:
        lane = free.get()
        try:
            return judge(lane, mutant)
        finally:
            free.put(lane)

    with ThreadPoolExecutor(len(lanes)) as pool:
        for mutant, verdict in zip(chosen, pool.map(one, chosen), strict=True):
            word = "caught" if verdict.caught else "NOT CAUGHT"
            print(f"{mutant.letter:3} {word:10} {verdict.seconds:5.1f} s  {mutant.name}\n{'':22}{verdict.said}", flush=True)
            for node in verdict.survived:
                print(f"{'':22}did not fail: {node}", flush=True)
            if not verdict.works:
                print(f"{'':22}does not even work without faults", flush=True)
            yield verdict
