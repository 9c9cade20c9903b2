"""The blocks of a page, done as they stand by somebody who follows it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.contrib.harness import Managed, Manages

#: Commands that go on until they are ended, by their first two words.
_RUNNING = {("manage.py", "fusion_start"): "ready for jobs", ("manage.py", "fusion_outbox", "run"): "it forwards now"}


class Follower:
    """In an empty directory `home`. `without`: lines of a shell that are left out, by how they begin."""

    def __init__(self, manages: Manages, home: Path, without: Sequence[str] = ()) -> None:
        self._manages, self._home, self._without = manages, home, ("pip ", "cd ", *without)
        self.project = home / "shop"
        #: What the commands said, in order.
        self.said: list[str] = []
        self.started: list[Managed] = []

    def follow(self, text: str) -> None:
        """Do all blocks of that part of a page. AssertionError for a command that fails."""
        for kind, code in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            if kind == "python":
                self._write(code)
            else:
                for line in code.splitlines():
                    if not line.startswith(self._without):
                        self._run(line)

    def _write(self, code: str) -> None:
        head, _, text = code.partition("\n")
        file = self.project / head.removeprefix("# ").partition(",")[0]
        file.write_text((file.read_text() if "at its end" in head else "") + text)

    def _run(self, line: str) -> None:
        words = shlex.split(line, comments=True)
        env = dict(word.split("=", 1) for word in words if re.match(r"[A-Z_]+=", word))
        words = [word for word in words[len(env) :] if word != "python"]
        for running, ready in _RUNNING.items():
            if tuple(words[: len(running)]) == running:
                self.started.append(self._manages.start(*words[1:], program=(str(self.project / "manage.py"),)))
                self.started[-1].says(ready, timeout=60)
                return
        here = str(Path(sys.executable).with_name(words[0]))
        done = subprocess.run(
            [here, *words[1:]] if words[0] == "django-admin" else [sys.executable, *words],
            cwd=self.project if self.project.exists() else self._home,
            env={**os.environ, "FUSION_REDIS_URL": self._manages.redis_url, **env},
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        self.said.append(done.stdout)
