"""Someone who follows a page of the docs: writes its files, types its commands, and compares what they print with what the page shows."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from tests.kit.servers import free_port
from tests.kit.waiting import unhurried

ROOT = Path(__file__).resolve().parents[2]
#: Commands that go on until they are stopped, by their first words.
_RUNNING = re.compile(
    r"([A-Z_]+=\S+ )*(fusion (start|worker|dashboard|server|scheduler)|frq worker|flask|uvicorn|python manage\.py (runserver|fusion_start)) "
)
#: Commands that may be typed again until they print what the page shows.
_AGAIN = re.compile(r"(curl -s http|fusion cron run)")
#: How a program's own lines begin.
_TIMED = re.compile(r"\d\d:\d\d:\d\d ")
#: What differs between two runs of one command -> what stands for it. The order matters.
_MASKS = (
    (r"^\d\d:\d\d:\d\d ", ""),
    (r"unix://[^\s']+", "URL"),
    (r"(Redis|Valkey) \d+(\.\d+)+", "SERVER"),
    (r"\b[\w-]+\.\d{2,}\b", "NAME"),
    (r"\b(?=\w*\d)(?=\w*[A-Z])\w{22}\b", "ID"),
    (r"\d+\.\d+|\d{2,}", "#"),
    (r" in #s$| +$", ""),
    (r" +", " "),
)


def load_conf() -> ModuleType:
    """Return docs/conf.py, which knows what tabs are. It needs no Sphinx."""
    spec = importlib.util.spec_from_file_location("site_conf", ROOT / "docs" / "conf.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def chosen(text: str, tab: str) -> str:
    """Return the page as a reader of one tab sees it."""
    conf = load_conf()

    def body(match: re.Match[str]) -> str:
        _, *rest = conf._TAB.split(match[1])
        return dict(zip(rest[::2], rest[1::2], strict=True))[tab]

    return conf._TABS.sub(body, text)


def masked(text: str) -> list[str]:
    """The lines of an output, without what differs from run to run."""
    lines = text.strip().splitlines()
    for pattern, mark in _MASKS:
        lines = [re.sub(pattern, mark, line) for line in lines]
    return [line for line in lines if line]


def _own(text: str) -> list[str]:
    """The lines that begin with a time: a program logs them itself."""
    return masked("\n".join(line for line in text.strip().splitlines() if _TIMED.match(line)))


def _has(log: str, wanted: list[str], own: list[str]) -> bool:
    """Whether a log has these lines, and its program's own ones in this order. What jobs print comes into the same file at any place."""
    rest = iter(_own(log))
    return Counter(wanted) <= Counter(masked(log)) and all(line in rest for line in own)


class Reader:
    """Types in `home`, with the programs of `programs`. `skipped`: how commands begin that are not run, as the test did it before. `patience`:
    seconds that a program may take to print what the page shows, on a quiet machine. What pip prints is compared with nothing."""

    def __init__(
        self, home: Path, programs: Path, environment: Mapping[str, str], skipped: tuple[str, ...] = (), patience: float = 40
    ) -> None:
        self.here, self.home, self._skipped, self._patience = home, home, skipped, unhurried(patience)
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("FUSION_", "PYTHON", "REDIS_", "RQ_"))},
            "HOME": str(home),
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONUNBUFFERED": "1",
            **environment,
        }
        self._ports: dict[str, str] = {}
        self._running: list[tuple[subprocess.Popen[bytes], Path]] = []
        #: What the commands of the last block printed; None after one that goes on.
        self._printed: str | None = ""
        self._again: str | None = None

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._type("fusion redis stop", check=False)
        for process, _ in self._running:
            process.terminate()
        for process, _ in self._running:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)

    def follow(self, text: str) -> int:
        """Do all blocks in order. Return how many there were. AssertionError if one prints other things than the page shows."""
        found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        for kind, code in found:
            if kind == "python":
                self._write(code)
            elif kind == "sh":
                self._printed, self._again = "", None
                for line in code.splitlines():
                    if not line.startswith(self._skipped):
                        self._do(line)
            else:
                self._compare(code)
        return len(found)

    def _write(self, code: str) -> None:
        named = re.match(r"# ([\w/.]+\.py)(, at its end)?\n", code)
        if not named:  # it runs as it stands
            self._type(f"python -c {shlex.quote(code)}")
            return
        file = self.here / named[1]
        file.write_text((file.read_text() if named[2] else "") + code)

    def _do(self, line: str) -> None:
        if to := re.fullmatch(r"cd (.+)", line):
            self.here = Path(to[1].replace("~", str(self.home)))
        elif _RUNNING.match(line):
            self._start(line)
        else:
            self._again = line if _AGAIN.match(line) else None
            printed = self._type(line, check=not self._again)
            # What pip prints is on no page.
            self._printed = (self._printed or "") + ("" if line.startswith("pip ") else printed)

    def _with_ports(self, line: str) -> str:
        """The page's ports may be in use here."""
        return re.sub(r"\b\d{4}\b", lambda m: self._ports.setdefault(m[0], str(free_port())), line)

    def _type(self, line: str, check: bool = True) -> str:
        done = subprocess.run(
            ["bash", "-c", self._with_ports(line)],
            cwd=self.here,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0 or not check, f"{line}: {done.returncode}\n{done.stdout}"
        return done.stdout

    def _start(self, line: str) -> None:
        log = self.home / f"{len(self._running)}.log"
        with log.open("wb") as file:
            words = shlex.split(self._with_ports(line), comments=True)
            given = dict(word.split("=", 1) for word in words if re.match(r"[A-Z_]+=", word))
            process = subprocess.Popen(
                words[len(given) :],
                cwd=self.here,
                env=self._environment | given,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        self._running.append((process, log))
        self._printed = None
        if port := re.search(r"(?:--port|runserver) (\d+)", line):
            self._answers(f"http://127.0.0.1:{self._ports[port[1]]}/", log)

    def _answers(self, url: str, log: Path) -> None:
        ends, failed = time.monotonic() + self._patience, ""
        while time.monotonic() < ends:
            try:
                with urllib.request.urlopen(url, timeout=10):
                    return
            except urllib.error.HTTPError as error:
                if error.code < 500:
                    return  # an application without a page there
                failed = str(error)
                time.sleep(0.2)
            except OSError as error:
                failed = str(error)
                time.sleep(0.2)
        raise AssertionError(f"{url}: {failed}\n{log.read_text()}")

    def _compare(self, shown: str) -> None:
        """Of a command that has ended: all its output. Of one that goes on: lines of its log."""
        wanted, own = masked(shown), _own(shown)
        ends = time.monotonic() + self._patience
        while True:
            if self._printed is not None and masked(self._printed) == wanted:
                return
            if any(_has(log.read_text(), wanted, own) for _, log in self._running):
                return
            printed = self._printed if self._printed is not None else ""
            logs = "\n".join(log.read_text() for _, log in self._running)
            assert time.monotonic() < ends, f"the page shows\n{shown}\nbut what came is\n{printed}\n{logs}"
            time.sleep(0.2)
            if self._again:
                self._printed = self._printed and "\n".join(
                    [*self._printed.splitlines()[:-1], self._type(self._again, check=False)]
                )
