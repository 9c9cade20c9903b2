"""`make release`: builds what is published, twice and in different surroundings, and tries it in an empty environment. Results are in dist/.

Nothing is uploaded, tagged or signed: the last lines say what a person does then. `make version VERSION=0.2.0` writes the number beforehand.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from tools.readme import extra_of_first_job, first_job

ROOT = Path(__file__).resolve().parents[1]
NUMBER = r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?"
#: Of the two builds: nothing that differs here may be in what is built.
SURROUNDINGS = (
    {"TZ": "UTC", "LC_ALL": "C", "PYTHONHASHSEED": "1", "umask": "022"},
    {"TZ": "Pacific/Chatham", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "2", "umask": "077"},
)


class ReleaseError(Exception):
    """What is to be released is not fit for it; the text says why and what to do."""


def say(text: str) -> None:
    print(f"==> {text}", file=sys.stderr, flush=True)


def run(*command: str | Path, cwd: Path = ROOT, env: Mapping[str, str] | None = None, timeout: float = 600) -> str:
    """Run a command and return its output. ReleaseError with its last lines if it fails."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )
    if done.returncode:
        last = "\n".join(done.stdout.splitlines()[-15:])
        raise ReleaseError(f"`{' '.join(map(str, command))}` ended with {done.returncode}:\n{last}")
    return done.stdout


def version_of(root: Path) -> str:
    """Return the version that the sources name."""
    found = re.search(rf'^__version__ = "({NUMBER})"$', (root / "fusion" / "__init__.py").read_text(), re.MULTILINE)
    if not found:
        raise ReleaseError("fusion/__init__.py names no version")
    return found[1]


def raise_version(root: Path, new: str, today: str) -> None:
    """Write a new version into the sources, README and CHANGELOG, whose "Unreleased" becomes its section. ReleaseError if it is not newer."""
    old = version_of(root)
    if not re.fullmatch(NUMBER, new):
        raise ReleaseError(f"{new} is no version; write it like 0.2.0 or 0.2.0rc1")
    if _order(new) <= _order(old):
        raise ReleaseError(f"{new} is not newer than {old}")
    changes = {
        root / "fusion" / "__init__.py": (f'__version__ = "{old}"', f'__version__ = "{new}"'),
        root / "README.md": (f"ersion {_short(old)}", f"ersion {_short(new)}"),
        root / "CHANGELOG.md": ("## Unreleased\n", f"## Unreleased\n\n## {new} - {today}\n"),
    }
    texts = {path: path.read_text() for path in changes}
    for path, (was, _) in changes.items():
        if len(re.findall(rf"{re.escape(was)}(?![.\d])", texts[path])) != 1:
            raise ReleaseError(f"{path.relative_to(root)} must have {was.strip()!r} once; nothing was changed")
    for path, (was, becomes) in changes.items():
        path.write_text(re.sub(rf"{re.escape(was)}(?![.\d])", lambda _, text=becomes: text, texts[path]))


def _short(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _order(version: str) -> tuple[int | str, ...]:
    numbers, kind, count = re.fullmatch(r"([\d.]+?)(?:(a|b|rc)(\d+))?", version).groups()  # type: ignore[union-attr]
    return (*map(int, numbers.split(".")), kind or "z", int(count or 0))


def notes(changelog: str, version: str) -> str:
    """Return the section of a version. ReleaseError if it is missing or empty."""
    found = re.search(rf"^## {re.escape(version)} - \d{{4}}-\d\d-\d\d\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if not found or not found[1].strip():
        raise ReleaseError(
            f"CHANGELOG.md has no section `## {version} - DATE`; `make version VERSION={version}` makes it of Unreleased"
        )
    return found[1].strip() + "\n"


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def build(work: Path, when: str, surroundings: Mapping[str, str]) -> list[Path]:
    """Clone the commit into `work`, build the sdist there, unpack it, and build the wheel of what it holds. Return both files."""
    clone, out = work / "clone", work / "out"
    run("git", "clone", "--quiet", ROOT, clone)
    env = {**surroundings, "SOURCE_DATE_EPOCH": when}
    mask = env.pop("umask")

    def hatchling(folder: Path, target: str) -> Path:
        before = set(out.glob("*"))
        command = f'umask {mask} && exec "$0" -m hatchling build --target {target} --directory "$1"'
        run("sh", "-c", command, sys.executable, out, cwd=folder, env=env)
        (made,) = set(out.glob("*")) - before
        return made

    sdist = hatchling(clone, "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(work / "unpacked", filter="data")
    (unpacked,) = (work / "unpacked").iterdir()
    return [sdist, hatchling(unpacked, "wheel")]


def try_first_job(programs: Path) -> float:
    """Run README's first job with the programs of an environment, in an empty folder, without this checkout. Return its seconds."""
    text = (ROOT / "README.md").read_text()
    with tempfile.TemporaryDirectory(prefix="fus", dir="/tmp") as folder:
        script = first_job(text, Path(folder))
        env = {"PATH": f"{programs}:/usr/bin:/bin", "FUSION_HOME": f"{folder}/home"}
        began = time.monotonic()
        done = subprocess.run(
            ["sh", "-c", script],
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        if done.returncode or "finished" not in done.stdout.splitlines():
            raise ReleaseError(f"README's first job did not finish with the wheel:\n{done.stdout}{done.stderr}")
        return time.monotonic() - began


def empty_environment(home: Path, wheel: Path, extra: str, sbom: Path) -> Path:
    """Install the wheel into an environment that holds nothing else; describe it in `sbom`; add `extra`. Return the folder of its programs."""
    run(sys.executable, "-m", "venv", "--without-pip", home)
    python = home / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python, "install", "--quiet"]
    run(*pip, wheel, cwd=home)
    describe = ["cyclonedx_py", "environment", "--output-reproducible", "--spec-version", "1.6", "--mc-type", "library"]
    run(sys.executable, "-m", *describe, "--pyproject", ROOT / "pyproject.toml", "--output-file", sbom, python, cwd=home)
    run(*pip, f"{wheel}[{extra}]", cwd=home)
    run(sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python, "check", cwd=home)
    return home / "bin"


def name_release(sbom: Path, version: str) -> None:
    """Write the version into an SBOM: the generator takes it from pyproject.toml, which leaves it to the sources."""
    document = json.loads(sbom.read_text())
    document["metadata"]["component"] |= {"version": version, "purl": f"pkg:pypi/fusion-queue@{version}"}
    sbom.write_text(json.dumps(document, indent=2) + "\n")


def check_tag(tag: str, version: str) -> None:
    """Raise ReleaseError if the tag is that of another version."""
    if tag != f"v{version}":
        raise ReleaseError(f"the tag {tag} is not of version {version}: name it v{version}, or tag the commit of that version")


def release(draft: bool, tag: str) -> None:
    """Build, compare, check, try; write dist/. `draft`: a commit whose CHANGELOG has no section of its version yet. `tag`: "" for none yet."""
    if run("git", "status", "--porcelain").strip():
        raise ReleaseError("there are changes that are not committed: what is released is a commit")
    version, commit = version_of(ROOT), run("git", "rev-parse", "HEAD").strip()
    if tag:
        check_tag(tag, version)
    told = "" if draft else notes((ROOT / "CHANGELOG.md").read_text(), version)
    when = run("git", "show", "--no-patch", "--format=%ct", commit).strip()
    with tempfile.TemporaryDirectory(prefix="fusion-release-") as folder:
        work = Path(folder)
        built: list[list[Path]] = []
        for number, surroundings in enumerate(SURROUNDINGS):
            say(
                f"building {version} of {commit[:12]}: {'once' if not number else 'once more, in another folder, time zone and umask'}"
            )
            built.append(build(work / f"{'b' * (1 + 20 * number)}", when, surroundings))
        for first, second in zip(*built, strict=True):
            if (first.name, digest(first)) != (second.name, digest(second)):
                raise ReleaseError(f"two builds of {first.name} differ: {digest(first)} and {digest(second)}")
        files = built[0]
        say("metadata")
        run(sys.executable, "-m", "twine", "check", "--strict", *files)
        say("the wheel in an empty environment, and README's first job in it")
        sbom = work / f"fusion_queue-{version}.cdx.json"
        programs = empty_environment(work / "empty", files[1], extra_of_first_job((ROOT / "README.md").read_text()), sbom)
        name_release(sbom, version)
        took = try_first_job(programs)
        dist = ROOT / "dist"
        shutil.rmtree(dist, ignore_errors=True)
        dist.mkdir()
        for file in (*files, sbom):
            shutil.copyfile(file, dist / file.name)
        sums = "".join(f"{digest(dist / file.name)}  {file.name}\n" for file in (*files, sbom))
        (dist / "SHA256SUMS").write_text(sums)
        if told:
            (dist / "NOTES.md").write_text(told)
    print(sums, end="")
    print(f"first job after {took:.1f} s; all of it is in dist/")
    if '"http' not in (ROOT / "pyproject.toml").read_text().split("[project.urls]")[-1].split("[")[0]:
        print("pyproject.toml has no [project.urls]: write the repository's address there before the first upload")
    print(
        f"next, by hand (CONTRIBUTING.md): git tag -s v{version} {commit[:12]}, push it, and upload what the workflow of the tag built and attested"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.release", description=__doc__)
    parser.add_argument("--draft", action="store_true", help="the CHANGELOG needs no section of this version")
    parser.add_argument("--tag", metavar="NAME", default="", help="a tag that the commit has; it must be that of the version")
    parser.add_argument("--version", metavar="NUMBER", help="write this version into the sources, README and CHANGELOG, and end")
    chosen = parser.parse_args()
    try:
        if chosen.version:
            raise_version(ROOT, chosen.version, datetime.now(UTC).date().isoformat())
        else:
            release(chosen.draft, chosen.tag)
    except ReleaseError as error:
        sys.exit(f"release: {error}")


if __name__ == "__main__":
    main()
