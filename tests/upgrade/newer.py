"""Another version of Fusion, in a directory of its own: a copy of this one that knows one layout more."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from fusion import __version__
from fusion.store.layout import schema

ROOT = Path(__file__).resolve().parents[2]
FIELD = b"field_of_the_newer"
_CHANGES = {
    "store/layout/schema.py": [
        (f"\nVERSION = {schema.VERSION}\n", f"\nVERSION = {schema.VERSION + 1}\n"),
        (f"\nMIN_READER = {schema.MIN_READER}\n", f"\nMIN_READER = {schema.VERSION + 1}\n"),
        (f"\nMIN_WRITER = {schema.MIN_WRITER}\n", f"\nMIN_WRITER = {schema.VERSION + 1}\n"),
    ],
    "store/lua/include/job/accept.lua": [
        ("'seq', seq, unpack(all)", f"'seq', seq, '{FIELD.decode()}', 'x', unpack(all)"),
        ("'seq', seq,\n      unpack(", f"'seq', seq, '{FIELD.decode()}', 'x',\n      unpack("),
    ],
    "__init__.py": [(f'__version__ = "{__version__}"', '__version__ = "99.0"')],
}
_PRODUCE = """
import json, sys
from fusion import Queue
queue, path, *ids = json.loads(sys.argv[1])
q = Queue(queue)
for job_id in ids:
    q.enqueue("tests.jobs.basic.sleep", 0.05, path, job_id, job_id=job_id)
"""


@dataclass(frozen=True)
class Version:
    """`home` holds the package `fusion` and run_worker.py; tasks come from this checkout."""

    home: Path

    def program(self, command: str) -> tuple[str, ...]:
        """For `Workers.start`."""
        return str(self.home / "run_worker.py"), command

    def run(self, *args: str) -> subprocess.CompletedProcess[str]:
        """A command to its end."""
        return self.python(str(self.home / "run_worker.py"), *args)

    def produce(self, queue: str, path: Path, ids: list[str]) -> subprocess.CompletedProcess[str]:
        """Enqueue a job per id, each of which leaves a line in `path`."""
        return self.python("-c", _PRODUCE, json.dumps([queue, str(path), *ids]))

    def python(self, *args: str) -> subprocess.CompletedProcess[str]:
        """A Python whose `fusion` is this version."""
        env = {**os.environ, "PYTHONPATH": str(self.home)}
        return subprocess.run(
            [sys.executable, *args], cwd=self.home, env=env, capture_output=True, text=True, timeout=60, check=False
        )


THIS = Version(ROOT)


def newer(directory: Path) -> Version:
    """Copy this version there, changed."""
    shutil.copytree(ROOT / "fusion", directory / "fusion", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "run_worker.py", directory)
    for name, changes in _CHANGES.items():
        path = directory / "fusion" / name
        text = path.read_text()
        for old, new in changes:
            assert text.count(old) == 1, (name, old)
            text = text.replace(old, new)
        path.write_text(text)
    env = {**os.environ, "PYTHONPATH": f"{directory}:{ROOT}"}
    subprocess.run([sys.executable, "-P", "-m", "tools.lua_build"], env=env, check=True, capture_output=True, timeout=60)
    return Version(directory)
