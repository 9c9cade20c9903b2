"""`demo`: one command shows it all, and when it is over nothing is left of it, however it ended."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote
from urllib.request import urlopen

import psutil
import pytest

from fusion.cli.main import COMMANDS
from tests.cli.conftest import ROOT, Invoke
from tests.kit.length import soak_case
from tests.kit.waiting import eventually
from tools.demo.chaos import Family


@dataclass
class Demo:
    """A running demo. Every process that it starts inherits the mark; a Redis writes its title over it, which names its home."""

    process: subprocess.Popen[bytes]
    mark: str
    directory: Path

    @property
    def out(self) -> str:
        return (self.directory / "out").read_text()

    @property
    def err(self) -> str:
        return (self.directory / "err").read_text()

    def end(self, timeout: float = 40.0) -> int:
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the demo did not end:\n{self.err}") from None

    @property
    def home(self) -> Path:
        """Where its Redis is."""
        found = re.search(r"^Redis +unix://(/\S*fusion-demo[^/]*)/", self.err, re.MULTILINE)
        assert found, self.err
        return Path(found[1])

    def processes(self, home: str = "") -> dict[int, str]:
        """Its command lines, by process id."""
        found = {}
        for process in psutil.process_iter():
            try:
                line = " ".join(process.cmdline())
                ours = process.environ().get("DEMO_MARK") == self.mark or (home and home in line)
                if ours and process.status() != psutil.STATUS_ZOMBIE:
                    found[process.pid] = line
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                pass
        return found

    def assert_nothing_left(self) -> None:
        assert self.processes(str(self.home)) == {}
        assert not self.home.exists()


@contextmanager
def running(directory: Path, *args: str) -> Iterator[Demo]:
    mark = uuid.uuid4().hex
    with (directory / "out").open("wb") as out, (directory / "err").open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, "run_worker.py", "demo", *args],
            cwd=ROOT,
            env={**os.environ, "DEMO_MARK": mark, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
        )
    demo = Demo(process, mark, directory)
    try:
        yield demo
    finally:
        if process.poll() is None:  # it ends what it started, as long as it can
            process.terminate()
        process.wait(40)
        for pid in demo.processes():  # of a demo that fails the test by leaving some
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.long
def test_it_ends_by_itself_and_its_table_adds_up(tmp_path: Path) -> None:
    with running(tmp_path, "--recipients", "60", "--workers", "1") as demo:
        assert demo.end() == 0, demo.out + demo.err
        demo.assert_nothing_left()
    assert demo.out.endswith("\nAll adds up.\n")
    assert re.search(r"^dashboard +http://127\.0\.0\.1:\d+/ .*KEEP=1", demo.err, re.MULTILINE), demo.err
    counts = re.search(r"^accepted (\d+), finished (\d+), failed (\d+), lost 0$", demo.out, re.MULTILINE)
    assert counts, demo.out
    accepted, finished, failed = map(int, counts.groups())
    rows = {line.split()[0]: [int(cell) for cell in line.split()[1:]] for line in _block(demo.out, "delivered")}
    assert list(rows) == ["email", "pn", "sms", "webhook", "whatsapp", "all"]
    assert all(sum(row[:3]) == row[3] for row in rows.values())
    assert rows["all"] == [sum(column) for column in zip(*list(rows.values())[:-1], strict=True)]
    high, moderate, low, everything = rows["all"]
    # The campaign is LOW, the one-time passwords are HIGH, and all of these go by SMS.
    assert (low + failed, moderate, rows["sms"][0]) == (60, 0, high)
    assert high > 0
    assert (accepted, finished) == (60 + high, everything)
    waits = [line.split() for line in _block(demo.out, "wait (ms)")]
    assert [(name, int(jobs)) for name, jobs, *_ in waits] == [("HIGH", high), ("LOW", 60)]


def _block(text: str, title: str) -> list[str]:
    """The lines below the one that begins with `title`, up to an empty one."""
    after = text[text.index(f"\n{title}") + 1 :]
    return after[: after.index("\n\n")].splitlines()[1:]


@pytest.mark.long
@pytest.mark.parametrize("number", [soak_case(signal.SIGINT), signal.SIGTERM])
def test_interrupted_in_the_middle_it_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    with running(tmp_path, "--workers", "1") as demo:
        eventually(lambda: "campaign [" in demo.err or demo.process.poll() is not None, 30, why="the first progress line")
        running_now = " ".join(demo.processes(str(demo.home)).values())
        for part in ("run_worker.py demo", f"{demo.home}/redis.sock", "tasks.sandbox", "fusion worker"):
            assert part in running_now
        demo.process.send_signal(number)
        assert demo.end() == 130, demo.err
        demo.assert_nothing_left()
    assert demo.err.endswith("Interrupted\n")
    assert "Traceback" not in demo.err
    assert demo.out == ""


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.skipif(sys.platform != "linux", reason="what may be killed is found in /proc")
def test_every_job_of_a_demo_with_chaos_ends_once_whatever_is_killed(tmp_path: Path) -> None:
    """The demo kills some of each kind, and a reader a worker, the supervisor and Redis: of each the account knows who did it."""
    with running(tmp_path, "--chaos", "--recipients", "150") as demo:
        for kind in ("worker", "Redis", "supervisor"):
            _kill_shown(demo, kind)
        assert demo.end(240) == 0, demo.out + demo.err
        demo.assert_nothing_left()
    assert demo.out.endswith("\nAll adds up.\n")
    counts = re.search(r"^accepted (\d+), finished (\d+), failed (\d+), lost 0$", demo.out, re.MULTILINE)
    assert counts, demo.out
    accepted, finished, failed = map(int, counts.groups())
    assert (accepted >= 150, finished + failed) == (True, accepted)
    assert f"\nended once    {accepted} jobs by the event log, {accepted} by the counters of the queues\n" in demo.out
    assert re.search(r"^killed +by the demo: \d+ workers?, \d+ fork servers?, \d+ Redis$", demo.out, re.MULTILINE), demo.out
    by_others = re.search(r"^ +by others, you perhaps: (.*)$", demo.out, re.MULTILINE)
    assert by_others
    assert by_others[1] == "1 worker, 1 supervisor, 1 Redis"


@pytest.mark.skipif(sys.platform != "linux", reason="who is there is found in /proc")
@pytest.mark.parametrize(("below", "begun"), [("sleep 60; :", False), ("setsid sleep 60 & wait", True)])
def test_a_worker_that_ended_before_it_had_a_fork_server_was_killed_by_nobody(below: str, begun: bool) -> None:
    """As one does that finds no Redis."""
    family = Family()
    worker = subprocess.Popen(["/bin/sh", "-c", below, "worker"], start_new_session=True)
    try:
        wanted = {"worker", "fork server"} if begun else {"worker"}
        eventually(
            lambda: family.look(os.getpid(), 0.0) or {one.kind for one in family.members.values()} == wanted, 10, why=below
        )
        members = list(family.members)
    finally:
        for pid in members:
            os.kill(pid, signal.SIGKILL)
        worker.wait()
    told = family.look(os.getpid(), 0.0) + family.look(os.getpid(), 0.0)
    assert [(member.pid, family.had_begun(member)) for member in told if member.kind == "worker"] == [(worker.pid, begun)]


def _kill_shown(demo: Demo, kind: str) -> None:
    """As a reader would, by a pid of the newest line that shows some; by the next line if the demo was there first."""

    def told() -> bool:
        assert demo.process.poll() is None, demo.out + demo.err
        if re.search(rf"^{kind} \d+ died, and not by the demo: ", demo.err, re.MULTILINE):
            return True
        for line in re.findall("^yours to `kill -9`: (.*)$", demo.err, re.MULTILINE)[-1:]:
            found = re.search(rf"(?<!fork )\b{kind}s? (\d+)", line)
            assert found, line
            with suppress(ProcessLookupError):
                os.kill(int(found[1]), signal.SIGKILL)
        return False

    eventually(told, 120, why=f"it reports that a {kind} died")


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.skipif(sys.platform != "linux", reason="what may be killed is found in /proc")
def test_interrupted_in_the_middle_of_chaos_it_leaves_nothing(tmp_path: Path) -> None:
    with running(tmp_path, "--chaos", "--workers", "1", "--recipients", "300") as demo:
        eventually(lambda: demo.err.count("\nkilled ") > 1 or demo.process.poll() is not None, 60, why="two were killed")
        demo.process.send_signal(signal.SIGINT)
        assert demo.end() == 130, demo.err
        demo.assert_nothing_left()
    assert demo.err.endswith("Interrupted\n")
    assert "Traceback" not in demo.err
    assert demo.out == ""


@pytest.mark.long
@pytest.mark.timeout(200)
@pytest.mark.parametrize("number", [signal.SIGINT, soak_case(signal.SIGTERM)])
def test_a_demo_kept_open_shows_its_results_and_ends_on_ctrl_c(tmp_path: Path, number: signal.Signals) -> None:
    """Each command works as it is printed, and there is something to see: jobs that fail, wait for their time, run."""
    with running(tmp_path, "--keep", "--recipients", "30") as demo:
        eventually(lambda: "until Ctrl-C" in demo.err or demo.process.poll() is not None, 90, why="it stays open")
        assert demo.out.endswith("\nAll adds up.\n")
        commands = [line.strip() for line in demo.err.splitlines() if line.startswith("  ")]
        assert {shlex.split(command)[2] for command in commands} >= {"info", "top", "jobs", "failures", "doctor"}
        for command in commands[:-2]:
            done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
            # Of doctor 3 says that somebody has to act: on a busy machine jobs wait for long, as they should be seen to.
            assert (done.returncode, done.stderr) in ((0, ""), (3 if " doctor " in command else 0, "")), (
                f"{command}: {done.stderr}"
            )
        live = [subprocess.Popen(c, shell=True, cwd=ROOT, stdout=subprocess.PIPE, process_group=0) for c in commands[-2:]]
        for process in live:
            assert process.stdout is not None
            assert process.stdout.readline()
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate(timeout=10)
        found = re.search(r"^See them in the dashboard, (http://127\.0\.0\.1:\d+)/$", demo.err, re.MULTILINE)
        assert found, demo.err

        def see(path: str) -> str:
            assert found is not None
            with urlopen(found[1] + path, timeout=20) as answer:
                return str(answer.read().decode())

        assert "<html" in see("/")
        for query in ("state:failed", "state:scheduled", "state:started queue:whatsapp"):
            eventually(lambda: json.loads(see("/api/v1/jobs?query=" + quote(query)))["jobs"], 60, why=query)  # noqa: B023
        demo.process.send_signal(number)
        assert demo.end() == 0, demo.err
        demo.assert_nothing_left()
    assert demo.err.endswith("\nEnding what was started ...\n")
    assert "Traceback" not in demo.err


@pytest.mark.parametrize(
    ("flags", "platform", "code", "says"),
    [
        (["--chaos=1"], "linux", 2, "'--chaos' does not take a value"),
        (["--keep", "forever"], "linux", 2, "Got unexpected extra argument (forever)"),
        (["--workers", "0", "--chaos"], "linux", 2, "0 is not in the range 1<=x<=16"),
        (["--kill"], "linux", 2, "No such option '--kill'"),
        (["--chaos"], "darwin", 1, "which Linux alone has; leave the flag out here"),
    ],
)
def test_wrong_options_are_refused_at_once(
    flags: list[str], platform: str, code: int, says: str, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(COMMANDS, "demo", ("tools.demo.demo:demo", ""))
    monkeypatch.setattr("tools.demo.demo.sys.platform", platform)
    ended = invoke("demo", *flags, code=code)
    assert says in ended.stderr
    assert ended.stdout == ""


@pytest.mark.parametrize(
    ("given", "flags"),
    [
        ("", ""),
        ("CHAOS=1", "--chaos"),
        ("CHAOS=0 KEEP=0", ""),
        ("KEEP=1 CHAOS=0", "--keep"),
        ("KEEP=1 CHAOS=1", "--chaos --keep"),
    ],
)
def test_make_hands_its_variables_on(given: str, flags: str) -> None:
    env = {
        name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    }  # of `make test`
    said = subprocess.run(
        ["make", "-n", "demo", *given.split()], cwd=ROOT, env=env, capture_output=True, text=True, check=True
    ).stdout
    assert said.splitlines()[-1].split() == [".venv/bin/python", "run_worker.py", "demo", *flags.split()]


def test_an_installed_fusion_names_the_checkout(invoke: Invoke) -> None:
    assert "No such command 'demo'; it runs from a checkout of Fusion: make demo" in invoke("demo", code=2).stderr


def test_it_names_the_extra_that_is_missing() -> None:
    code = "import runpy, sys; sys.modules['requests'] = None; sys.argv[1:] = ['demo']; runpy.run_path('run_worker.py', None, '__main__')"
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert "pip install '.[tasks]'" in line
