"""`python -m tests.rq_suite`: runs RQ's own tests against `fusion.rq` and compares them with the floor, the tests that passed before.

Each file of tests runs with a Redis server of its own, and each test in a process of its own.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fusion.store.redis_server.binary import find_server
from fusion.store.redis_server.instance import _death_pact
from tests.kit.servers import SpawnedServer, free_port
from tests.rq_suite.reruns import Name, forgiven
from tests.rq_suite.rewriting import copy_rewritten

_HERE = Path(__file__).parent
_ROOT = _HERE.parent.parent
_KEPT = _ROOT / ".venv" / "rq-sources"
_FLOOR, _ARGUED = _HERE / "floor.tsv", _HERE / "argued.tsv"
TARGET, SECOND = "3.0.0", "2.12.0"
#: Most tests, as a part of the public ones, that may be argued out.
_MOST_ARGUED = 0.05


@dataclass(frozen=True)
class Result:
    outcome: str
    why: str
    took: float


def read(path: Path) -> list[list[str]]:
    """Return the rows of a table, without its heading."""
    return [line.split("\t") for line in path.read_text().splitlines()[1:] if line] if path.exists() else []


def kinds() -> dict[Name, str]:
    """Return the kind of each of RQ's tests: public, internal, promise or unsupported."""
    return {(row[0], row[1], row[2]): row[3] for row in read(_HERE / "names.tsv")}


def floor() -> dict[Name, float]:
    """Return the tests that have to pass, and the seconds that each took."""
    return {(row[0], row[1], row[2]): float(row[3]) for row in read(_FLOOR)}


def argued() -> dict[Name, str]:
    """Return the tests that are argued out, with the sentence of RQ's documentation that each is against."""
    return {(row[0], row[1], row[2]): row[3] for row in read(_ARGUED)}


def sources(version: str) -> Path:
    """Return the folder of RQ's source distribution, from the package index at the first call."""
    folder = _KEPT / f"rq-{version}"
    if not folder.exists():
        with tempfile.TemporaryDirectory() as scratch:
            pip = [
                sys.executable,
                "-m",
                "pip",
                "download",
                "--disable-pip-version-check",
                "--quiet",
                "--no-binary",
                "rq",
                "--no-deps",
            ]
            subprocess.run([*pip, f"rq=={version}", "--dest", scratch], check=True)
            (archive,) = Path(scratch).glob("*.tar.gz")
            with tarfile.open(archive) as packed:
                packed.extractall(_KEPT, filter="data")
    return folder


def names_of(version: str) -> set[Name]:
    """Return the tests that a version of RQ has, as its files define them."""
    found: set[Name] = set()
    for path in (sources(version) / "tests").glob("test_*.py"):
        for owner in ast.parse(path.read_text()).body:
            inside = owner.body if isinstance(owner, ast.ClassDef) else [owner]
            name = owner.name if isinstance(owner, ast.ClassDef) else ""
            found |= {
                (path.name, name, one.name) for one in inside if isinstance(one, ast.FunctionDef) and one.name[:5] == "test_"
            }
    return found


@contextmanager
def server() -> Iterator[int]:
    """Run a Redis server with nothing in it; yield its port. The port is never 6379."""
    port = free_port()
    started = SpawnedServer(str(find_server().path), "--port", str(port), "--save", "", "--appendonly", "no", "--databases", "17")
    try:
        yield port
    finally:
        started.close()


def run(
    version: str, files: Iterable[str], wanted: set[Name] | None, options: argparse.Namespace
) -> tuple[dict[Name, Result], dict[str, str]]:
    """Run those files of RQ's tests. Return how each test ended, and the error of each file that could not be loaded."""
    with tempfile.TemporaryDirectory(prefix="rqtests") as scratch:
        copy_rewritten(sources(version) / "tests", Path(scratch) / "tests")

        there = [file for file in files if (Path(scratch) / "tests" / file).exists()]
        groups = [there] if options.gate else [[file] for file in there]
        with ThreadPoolExecutor(options.jobs) as pool:
            lines = [
                line
                for found in pool.map(lambda group: _run_files(Path(scratch), group, wanted, options), groups)
                for line in found
            ]
    broken = {str(line["file"]): str(line["error"]) for line in lines if "error" in line}
    results = {
        (str(line["file"]), str(line["class"]), str(line["test"])): Result(
            str(line["outcome"]), str(line["why"]), float(str(line["took"]))
        )
        for line in lines
        if "error" not in line
    }
    return results, broken


def _run_files(scratch: Path, files: list[str], wanted: set[Name] | None, options: argparse.Namespace) -> list[dict[str, object]]:
    results = scratch / f"{files[0]}.results"
    with server() as port:
        environment = {
            key: value for key, value in os.environ.items() if not key.startswith(("FUSION_", "RQ_", "REDIS", "PYTEST"))
        } | {
            "FUSION_RQ_SUITE_PORT": str(port),
            "FUSION_RQ_SUITE_LIMIT": str(options.limit),
            "FUSION_RQ_SUITE_RESULTS": str(results),
            "FUSION_RQ_SUITE_SHOW": "1" if options.show else "",
            "FUSION_REDIS_URL": f"redis://127.0.0.1:{port}/0",
            "FUSION_TASKS": "*",  # RQ's tests run functions of Python's own, too
            "FUSION_ALLOW_PICKLE": "1",
            "FUSION_CALLBACK_ALLOW_HTTP": "1",  # RQ's webhooks go to http://example.com
            "RUN_SLOW_TESTS_TOO": "1",
            "PYTHONPATH": os.pathsep.join((str(_HERE / "site"), str(scratch), str(_ROOT))),
        }
        _check_redirected(environment, port)
        names = [f"tests/{file}" for file in files]
        if wanted is not None:
            chosen = [name for name in sorted(wanted) if name[0] in files]
            names = ["tests/" + "::".join(part for part in name if part) for name in chosen]
        selected = ["-k", options.k] if options.k else []
        subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-p",
                "no:cacheprovider",
                "-p",
                "fusion_rq_suite",
                "--rootdir",
                str(scratch),
                *selected,
                *names,
            ],
            cwd=scratch,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=None if options.show else subprocess.DEVNULL,
            check=False,
            preexec_fn=_death_pact(),
        )
    return [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []


def _passes(name: Name, options: argparse.Namespace) -> bool:
    """Run one test alone; True if it passes."""
    result = run(options.version, [name[0]], {name}, options)[0].get(name)
    return result is not None and result.outcome == "passed"


def _check_redirected(environment: dict[str, str], port: int) -> None:
    """Raise an error unless a client of port 6379 reaches the server of this run: RQ's kit flushes what it finds there."""
    code = "import redis; print(redis.Redis(db=4).config_get('port')['port'])"
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    if found.stdout.strip() != str(port):
        raise SystemExit(f"a client of port 6379 does not reach the server of this run: {found.stdout}{found.stderr}")


def _table(results: dict[Name, Result], known: dict[Name, str], files: Iterable[str]) -> str:
    rows = ["file                               public passed     all passed"]
    for file in files:
        names = [name for name in known if name[0] == file]
        public = [name for name in names if known[name] == "public"]
        passed = [name for name in names if name in results and results[name].outcome == "passed"]
        of_public = [name for name in passed if known[name] == "public"]
        rows.append(f"{file:<34} {len(public):6} {len(of_public):6}  {len(names):6} {len(passed):6}")
    return "\n".join(rows)


def _figures(results: dict[Name, Result], known: dict[Name, str]) -> str:
    passed = {name for name, result in results.items() if result.outcome == "passed" and name in known}
    public = {name for name, kind in known.items() if kind == "public"}
    out = argued()
    text = f"passed / public: {len(passed & public)} / {len(public)} = {len(passed & public) / len(public):.1%}"
    text += f"    passed / all: {len(passed)} / {len(known)} = {len(passed) / len(known):.1%}"
    return f"{text}    argued out: {len(out)} (at most {int(_MOST_ARGUED * len(public))})"


def _causes(results: dict[Name, Result], broken: dict[str, str], known: dict[Name, str], files: Iterable[str]) -> str:
    """Return the failed public tests by cause, the most frequent first."""
    by_cause: dict[str, list[str]] = defaultdict(list)
    for name, kind in known.items():
        if kind != "public" or name[0] not in files or (name in results and results[name].outcome == "passed"):
            continue
        result = results.get(name)
        why = (
            f"{result.outcome}: {result.why}"
            if result
            else f"did not run: {broken.get(name[0], 'not among the tests of this version')}"
        )
        by_cause[why].append(f"{name[0]}::{name[1]}::{name[2]}")
    ordered = sorted(by_cause.items(), key=lambda item: (-len(item[1]), item[0]))
    return "\n".join(f"{len(names):4}  {why}\n" + "\n".join(f"        {name}" for name in names) for why, names in ordered)


def _write_floor(passed: dict[Name, float]) -> None:
    rows = ["\t".join((*name, f"{took:.1f}")) for name, took in sorted(passed.items())]
    _FLOOR.write_text("\n".join(("file\tclass\ttest\tseconds", *rows)) + "\n")


def _fastest(names: dict[Name, float], known: dict[Name, str], budget: float) -> set[Name]:
    """Return the fastest public tests of the floor, as many as take that many seconds together."""
    chosen, spent = set(), 0.0
    for name, took in sorted(names.items(), key=lambda item: (item[1], item[0])):
        if known.get(name) == "public" and spent + took <= budget:
            chosen.add(name)
            spent += took
    return chosen


def main(arguments: list[str] | None = None) -> int:
    """Run what the arguments choose. 1 if a test of the floor fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.rq_suite", description=__doc__)
    parser.add_argument("--version", default=os.environ.get("VERSION") or TARGET, help=f"of RQ: {TARGET}, or {SECOND}")
    parser.add_argument("--raise", dest="raise_", action="store_true", help="add the tests that pass to the floor")
    parser.add_argument("--gate", action="store_true", help="only the fastest public tests of the floor, 20 s of them")
    parser.add_argument("--floor", action="store_true", help="only the tests of the floor")
    parser.add_argument("--public", action="store_true", help="only the public tests")
    parser.add_argument("--limit", type=float, default=30.0, help="seconds for each test")
    parser.add_argument("--jobs", type=int, default=2, help="files at a time")
    parser.add_argument("--causes", type=Path, help="write the failed public tests by cause into this file")
    parser.add_argument("--show", action="store_true", help="print the traceback of each failure")
    parser.add_argument("-k", help="as pytest's -k")
    parser.add_argument("files", nargs="*", help="files of RQ's tests, like test_job.py; none: all")
    options = parser.parse_args(arguments)

    known, low = kinds(), floor()
    if len(out := argued()) > _MOST_ARGUED * sum(kind == "public" for kind in known.values()):
        print(f"{len(out)} tests are argued out, which is more than {_MOST_ARGUED:.0%} of the public ones")
        return 1
    wanted: set[Name] | None = None
    if options.gate:
        wanted = _fastest(low, known, 20.0)
    elif options.floor:
        wanted = set(low)
    elif options.public:
        wanted = {name for name, kind in known.items() if kind == "public"}
    if wanted is not None and not wanted:
        print("the floor has no such test yet: nothing to run")
        return 0
    files = options.files or sorted({name[0] for name in wanted or known})
    try:
        sources(options.version)
    except (subprocess.CalledProcessError, OSError) as error:
        print(f"skipped: the package index gives no source distribution of RQ {options.version}: {error}")
        return 0
    if options.version != TARGET:  # its tests are those of 3.0.0 as far as their names are the same
        there = names_of(options.version)
        known = {name: kind for name, kind in known.items() if name in there}
        wanted = {*known} if wanted is None else wanted & there
        files = [file for file in files if any(name[0] == file for name in wanted)]
    results, broken = run(options.version, files, wanted, options)
    chosen = {name for name in low if name[0] in files and (wanted is None or name in wanted) and not options.k}
    if options.version == TARGET and (
        fallen := {name for name in chosen if name not in results or results[name].outcome != "passed"}
    ):
        # RQ's tests give a worker a second or less for what takes a busy machine longer.
        failed = {name: results[name].why if name in results else broken.get(name[0], "did not run") for name in fallen}
        results |= {name: Result("passed", "", low[name]) for name in forgiven(failed, lambda name: _passes(name, options))}

    print(_table(results, known, files))
    print(
        "outcomes: "
        + ", ".join(f"{count} {outcome}" for outcome, count in Counter(one.outcome for one in results.values()).most_common())
    )
    for file, error in sorted(broken.items()):
        print(f"could not be loaded: {file}: {error}")
    print(f"RQ {options.version}: {_figures(results, known)}")
    if options.causes:
        options.causes.write_text(_causes(results, broken, known, files) + "\n")
    if options.version != TARGET:
        return 0
    passed = {name: result.took for name, result in results.items() if result.outcome == "passed" and name in known}
    fallen = sorted(chosen - passed.keys())
    for name in fallen:
        result = results.get(name)
        print(f"FELL {'::'.join(name)}: {result.why if result else broken.get(name[0], 'did not run')}")
    if options.raise_:
        added = {name: took for name, took in passed.items() if name not in low}
        _write_floor(low | added)
        print(f"the floor has {len(low) + len(added)} tests, {len(added)} of them new")
    return 1 if fallen else 0


if __name__ == "__main__":
    raise SystemExit(main())
