"""The service on one library, with a Redis of its own: started, struck, restarted as a supervisor would, and watched by what its jobs wrote down."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import redis

from benchmarks.compare.contenders import GRACE
from benchmarks.compare.shop import Shop
from benchmarks.guard import guarded_home
from benchmarks.server import binary

ROOT = Path(__file__).resolve().parents[2]
#: The environment with requirements.txt.
HOME = ROOT / ".venv" / "compare"
#: Seconds after which a process that ended is started again, as systemd and containers do.
RESTART = 1.0
#: Seconds from TERM to KILL: two more than each library is set to.
KILL = GRACE + 2.0


@dataclass
class Runs:
    """What happened to one job: when runs began, when they ended. `sent`: when the call that enqueued it began; `error`: what it raised."""

    kind: str
    sent: float
    error: str | None = None
    starts: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)

    @property
    def wait(self) -> float:
        """Seconds from the call to the first run."""
        return self.starts[0] - self.sent


class Running:
    """A context manager: the service is up, and an OTP and a mail were run."""

    def __init__(self, name: str, python: Path = HOME / "bin" / "python") -> None:
        self.name, self.restarts, self._python = name, 0, python
        self._jobs: dict[str, Runs] = {}
        self._held, self._ended, self._turn = False, threading.Event(), threading.RLock()
        self._processes: list[subprocess.Popen[bytes] | None] = []

    def __enter__(self) -> Running:
        with ExitStack() as stack:
            self.home = Path(stack.enter_context(TemporaryDirectory(dir=guarded_home())))
            self._witness, self._log = self.home / "witness", self.home / "log"
            self._witness.touch()
            with socket.create_server(("127.0.0.1", 0)) as probe:
                self._port = probe.getsockname()[1]
            self.shop = stack.enter_context(Shop())
            self.start_redis()
            stack.callback(self.kill_redis)
            url = f"redis://127.0.0.1:{self._port}/0"
            others = ("FUSION_", "RQ_", "REDIS_", "PYTHONDONTWRITEBYTECODE")
            ours = {name: value for name, value in os.environ.items() if not name.startswith(others)}
            self._env = ours | {
                "PYTHONPATH": str(ROOT), "COMPARE_REDIS_URL": url, "FUSION_REDIS_URL": url, "COMPARE_SHOP": self.shop.url,
                "COMPARE_WITNESS": str(self._witness), "NO_PROXY": "127.0.0.1", "FUSION_CALLBACK_PORTS": str(self.shop.port),
                "PYTHONUNBUFFERED": "1",
            }  # fmt: skip
            self._producer = self._start(["-m", "benchmarks.compare.producer", self.name], subprocess.PIPE)
            stack.callback(self._producer.kill)
            self.version, self._commands, env = self._answer()
            self._env |= env
            stack.callback(self._end)
            self.start()
            keeper = threading.Thread(target=self._keep, daemon=True)
            keeper.start()
            stack.callback(keeper.join)
            stack.callback(self._ended.set)
            self.enqueue("otp", "first-otp")
            self.enqueue("mail", "first-mail", 0.0)
            if not self.until(lambda: all(self.jobs()[job].ends for job in ("first-otp", "first-mail")), 180):
                raise RuntimeError(f"{self.name} runs no jobs: {self.log()[-800:]}")
            self._jobs.clear()
            self._ends = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._ends.close()

    # What a scenario does.

    def enqueue(self, kind: str, job: str, seconds: float = 1.0) -> Runs:
        """Have the producer enqueue a job, and remember it with what the call raised."""
        with self._turn:
            runs = self._jobs[job] = Runs("mail" if kind == "told" else kind, time.time())
            assert self._producer.stdin
            self._producer.stdin.write((json.dumps([kind, job, seconds]) + "\n").encode())
            self._producer.stdin.flush()
            runs.error = self._answer()
            return runs

    def start(self) -> None:
        """Start all processes of the service."""
        with self._turn:
            self._processes = [self._start(command) for command in self._commands]
            self._held = False

    def kill(self) -> None:
        """SIGKILL all processes of the service at one moment, as the loss of their host does. They are restarted."""
        with self._turn:
            for signum in (signal.SIGSTOP, signal.SIGKILL):
                while alive := self._alive(signum):
                    for pid in alive:
                        with suppress(ProcessLookupError):
                            os.kill(pid, signum)
            for process in self._processes:
                if process:
                    process.wait(10)

    def deploy(self) -> float:
        """TERM each process, KILL what is left after the grace, then start all of them anew. Returns the seconds of the stop."""
        with self._turn:
            self._held = True
            began = time.monotonic()
            old = [process for process in self._processes if process and process.poll() is None]
            for process in old:
                process.send_signal(signal.SIGTERM)
        while any(process.poll() is None for process in old) and time.monotonic() < began + KILL:
            time.sleep(0.02)
        took = time.monotonic() - began
        self.kill()
        self.start()
        return took

    def start_redis(self) -> None:
        """Start its Redis with an append-only file, written down each second, as Redis' own documentation advises; wait until it answers."""
        kept = [
            "--appendonly",
            "yes",
            "--appendfsync",
            "everysec",
            "--save",
            "",
            "--dir",
            str(self.home),
            "--loglevel",
            "warning",
        ]
        command = [binary().path, "--port", str(self._port), "--bind", "127.0.0.1", *kept]
        self._redis = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
        with redis.Redis(port=self._port) as connection:
            while True:
                with suppress(redis.ConnectionError):  # a loading server raises a kind of it
                    connection.ping()
                    return
                time.sleep(0.02)

    def kill_redis(self) -> None:
        self._redis.kill()
        self._redis.wait(10)

    # What it saw.

    def jobs(self) -> dict[str, Runs]:
        """All jobs that were enqueued so far, with the runs until now. `tick` is the recurring one."""
        with self._turn:
            found = {job: Runs(runs.kind, runs.sent, runs.error) for job, runs in self._jobs.items()}
        for line in self._witness.read_text().splitlines():
            what, kind, job, at, _ = line.split()
            if kind == "tick":
                found.setdefault("tick", Runs("tick", 0.0)).starts.append(float(at))
            elif job in found and kind == found[job].kind:
                (found[job].starts if what == "start" else found[job].ends).append(float(at))
        return found

    def until(self, condition: object, limit: float) -> bool:
        """Wait until it is true, this many seconds at most. Returns whether it is."""
        assert callable(condition)
        end = time.monotonic() + limit
        while not (true := condition()) and time.monotonic() < end:
            time.sleep(0.1)
        return bool(true)

    def log(self) -> str:
        """What its processes wrote to their outputs."""
        return self._log.read_text(errors="replace")

    # What happens beside.

    def _keep(self) -> None:
        while not self._ended.wait(0.1):
            with self._turn:
                if self._held:
                    continue
                for at, process in enumerate(self._processes):
                    if process and process.poll() is not None:
                        self.restarts += 1
                        self._ended.wait(RESTART)
                        self._processes[at] = self._start(self._commands[at])

    def _start(self, command: list[str], pipe: int | None = None) -> subprocess.Popen[bytes]:
        with open(self._log, "ab") as log:
            return subprocess.Popen(
                [self._python, *command], cwd=ROOT if "run_worker.py" in command else self.home, env=self._env,
                stdin=pipe or subprocess.DEVNULL, stdout=pipe or log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def _answer(self) -> object:
        assert self._producer.stdout
        line = self._producer.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name}: its producer ended: {self.log()[-800:]}")
        return json.loads(line)

    def _alive(self, signum: int) -> list[int]:
        """All processes of the service, by their environment, whichever process started them; for SIGSTOP those that do not stand still."""
        wanted, found = f"COMPARE_WITNESS={self._witness}".encode(), []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                pid = int(process.name)
                if pid == self._producer.pid or wanted not in (process / "environ").read_bytes().split(b"\0"):
                    continue
                if signum != signal.SIGSTOP or (process / "stat").read_text().rpartition(")")[2].split()[0] not in "TZX":
                    found.append(pid)
        return found

    def _end(self) -> None:
        self._held = True
        self.kill()
