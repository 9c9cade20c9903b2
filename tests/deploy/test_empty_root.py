"""The wheel where there is nothing but Python: a root of its own without /etc, HOME, a network, or a checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.kit.process import ROOT
from tests.kit.waiting import unhurried
from tools.readme import extra_of_first_job, first_job

README = (ROOT / "README.md").read_text()
#: From an empty environment to the end of README's first job, without downloads.
PROMISED = 60.0
#: Mounts only programs and libraries into the new root; what is inside runs alone, as its own process 1. Its arguments: the root, what is mounted
#: into it as it is, read-only, and after `--` the command.
IN_EMPTY_ROOT = """
set -e
root=$1; shift
mount -t tmpfs -o mode=755 tmpfs "$root"
cd "$root"
mkdir proc dev tmp app
chmod 1777 tmp
for link in bin sbin lib lib32 lib64 libx32; do [ ! -L "/$link" ] || cp -P "/$link" "$root/"; done
while [ "$1" != -- ]; do
    mkdir -p "$root/$1"
    mount --rbind "$1" "$root/$1"
    mount -o remount,bind,ro "$root/$1" || true
    shift
done
shift
# No server but the one that the wheel's extra brings.
for server in redis-server valkey-server; do [ ! -e "usr/bin/$server" ] || mount --bind /dev/null "usr/bin/$server"; done
for file in null zero urandom; do : >"dev/$file"; mount --bind "/dev/$file" "dev/$file"; done
mount -t proc proc proc
exec "$(PATH=$PATH:/usr/sbin:/sbin command -v chroot)" "$root" /usr/bin/env -i PATH=/app/bin:/usr/bin:/bin "$@"
"""
FIRST_JOB = """
set -e
"$0" -m venv /app
/app/bin/python -m pip install --quiet --disable-pip-version-check --no-index --find-links "$1" "fusion-queue[$2]"
cp -R "$3" /tmp/shop
cd /tmp/shop
if fusion redis start 2>told; then exit 9; fi
cat told
export FUSION_HOME=/tmp/fusion
exec sh first.sh
"""


def isolated() -> list[str]:
    """The command that enters namespaces of its own, as root or as a user whom the kernel lets be root inside."""
    as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
    command = ["unshare", *as_root, "--mount", "--pid", "--fork", "--ipc", "--uts", "--net", "--kill-child"]
    if not shutil.which("unshare") or subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no `unshare` here, or namespaces are not allowed")
    return command


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, and what it needs."""
    folder = tmp_path_factory.mktemp("wheels")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = folder.glob("*.whl")
    wanted = f"{wheel}[{extra_of_first_job(README)}]"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "download",
        "--quiet",
        "--only-binary",
        ":all:",
        "--dest",
        folder,
        wanted,
    ]
    loaded = subprocess.run(pip, capture_output=True, text=True, check=False)
    if loaded.returncode:
        pytest.skip(f"pip can't download what the wheel needs: {loaded.stderr.strip().splitlines()[-1:]}")
    return folder


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_first_job_of_the_wheel_runs_in_an_empty_root_within_a_minute(wheels: Path, tmp_path: Path) -> None:
    unshare = isolated()
    root, shop = tmp_path / "root", tmp_path / "shop"
    root.mkdir()
    shop.mkdir()
    (shop / "first.sh").write_text(first_job(README, shop))
    mounted = ["/usr", str(wheels), str(shop)]
    if not sys.base_prefix.startswith("/usr"):
        mounted.append(sys.base_prefix)
    python = os.path.realpath(sys._base_executable)  # type: ignore[attr-defined]
    inside = ["/bin/sh", "-c", FIRST_JOB, python, str(wheels), extra_of_first_job(README), str(shop)]
    began = time.monotonic()
    done = subprocess.run(
        [*unshare, "sh", "-c", IN_EMPTY_ROOT, "sh", str(root), *mounted, "--", *inside],
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=unhurried(300),
        check=False,
    )
    took = time.monotonic() - began
    assert done.returncode == 0, done.stdout + done.stderr
    assert "finished" in done.stdout.splitlines(), done.stdout + done.stderr
    assert "to +4915112345678: 123456" in done.stdout
    assert "Redis started: Valkey" in done.stdout
    assert "set FUSION_HOME" in done.stdout, "where there is no home the error names what to set"
    print(f"first job after {took:.1f} s")
    assert took < unhurried(PROMISED)
