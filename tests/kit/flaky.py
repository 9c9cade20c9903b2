"""Tells a flaky test from a defect: `pytest --flaky=FILE` runs each failed test again, at the end, alone, five times.

A run is refused, as without the option, if
- a failure is a PromiseBroken (that one is never run again),
- more than five tests failed since FILE was new (steps of one gate share the file),
- a test fails again in any of its five runs,
- a test flakes that tests/flaky.toml lists without a cause.

Else the run passes, and each flaky test is printed as `FLAKY name` with its first failure and its entry for tests/flaky.toml. What was forgiven
is also appended to a log outside the checkout, which `python -m tests.kit.flaky` shows. `--check` refuses a list of three entries or more, and
an entry older than fourteen days: a race in a test looks like a race in the product, until its cause is known.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from tests.kit.promises import PromiseBroken

ROOT = Path(__file__).resolve().parents[2]
LIST = ROOT / "tests" / "flaky.toml"
RERUNS, MAX_FAILURES, MAX_ENTRIES, MAX_AGE = 5, 5, 2, timedelta(days=14)
#: Seconds for all reruns of a session: a gate decides in time.
RERUN_TIME = 900.0


@dataclass(frozen=True)
class Entry:
    """One test of tests/flaky.toml. `cause`: empty until it is known."""

    name: str
    date: date
    text: str
    cause: str = ""


def entries(path: Path = LIST) -> list[Entry]:
    """The flaky tests that are listed. Raises ValueError for an entry that lacks a field or has an unknown one."""
    rows = tomllib.loads(path.read_text()).get("flaky", []) if path.exists() else []
    try:
        return [Entry(**row) for row in rows]
    except TypeError as error:
        raise ValueError(f"{path.name}: an entry has name, date, text and cause: {error}") from None


def overdue(listed: list[Entry], today: date) -> list[str]:
    """The reasons why no change may land with this list."""
    reasons = [
        f"{one.name} is listed since {one.date}, over {MAX_AGE.days} days: mend it"
        for one in listed
        if today - one.date > MAX_AGE
    ]
    if len(listed) > MAX_ENTRIES:
        reasons.append(f"{len(listed)} flaky tests are listed, {MAX_ENTRIES} are allowed: mend some first")
    return reasons


def log_path() -> Path:
    """The log of forgiven failures: outside the checkout, so that it outlives the clone."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "fusion-ci" / "flaky.log"


def log_forgiven(name: str, text: str) -> str:
    """Append a failure that was forgiven to the log. The reason if that can't be done, else empty."""
    at = datetime.now(timezone.utc).isoformat(timespec="seconds")
    try:
        log_path().parent.mkdir(parents=True, exist_ok=True)
        with log_path().open("a") as log:
            log.write(json.dumps({"at": at, "name": name, "text": text[-4000:]}) + "\n")
    except OSError as error:
        return f"the log of flaky tests can't be written: {error}"
    return ""


def toml_entry(name: str, text: str, today: date) -> str:
    """The entry of a flaky test, ready for tests/flaky.toml."""
    lines = text.strip().splitlines() or ["no text"]
    first = next((line for line in lines if line.startswith("E ")), lines[-1])
    quoted = json.dumps(first.removeprefix("E ").strip()[:200], ensure_ascii=False)
    return f'[[flaky]]\nname = {json.dumps(name)}\ndate = {today}\ntext = {quoted}\ncause = ""\n'


class Flaky:
    """Collects failures in the process that reports (xdist's controller), and decides at the end of the session."""

    def __init__(self, config: pytest.Config, state: Path) -> None:
        self._config, self._state = config, state
        self._list = config.rootpath / "tests" / LIST.name
        self._failures: dict[str, str] = {}
        self._broken: list[str] = []
        self._uncollected = False
        self._codes: dict[object, int] = {}

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """xdist calls this before it reports the test at which the process died. The exit code shows by which signal."""
        if error and (popen := getattr(node.gateway._io, "popen", None)):
            with suppress(subprocess.TimeoutExpired):
                self._codes[node] = popen.wait(5)

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            text = report.longreprtext
            if (code := self._codes.pop(getattr(report, "node", None), None)) is not None:
                text += f"\nits process ended with exit code {code}"
            self._failures.setdefault(report.nodeid, text)
            if getattr(report, "promise_broken", False):
                self._broken.append(report.nodeid)

    @pytest.hookimpl
    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._uncollected |= report.failed

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, object, object]:
        """After all else, also the summary: nothing of this session runs beside the reruns."""
        result = yield
        if session.exitstatus == pytest.ExitCode.TESTS_FAILED and self._failures and not self._uncollected:
            refusal = self._refusal()
            self._say(f"refused: {refusal}" if refusal else "passed: every failure was a flaky test, listed above")
            if not refusal:
                session.exitstatus = pytest.ExitCode.OK
        return result

    def _refusal(self) -> str:
        """The reason why these failures count, empty if all are flaky."""
        if self._broken:
            return f"a promise is broken in {', '.join(sorted(set(self._broken)))}"
        before = self._state.read_text().splitlines() if self._state.exists() else []
        if len(before) + len(self._failures) > MAX_FAILURES:
            return f"{len(before) + len(self._failures)} tests failed, {MAX_FAILURES} at most are run again"
        self._state.write_text("\n".join([*before, *self._failures]) + "\n")
        causes = {entry.name: entry.cause for entry in entries(self._list)}
        deadline = datetime.now(timezone.utc) + timedelta(seconds=RERUN_TIME)
        for name in self._failures:
            if not causes.get(name, "unlisted"):
                return f"{name} is in {LIST.name} without a cause, and failed again: find the cause first"
            if again := self._fails_again(name, deadline):
                return f"{name} failed, and failed again alone ({again})"
        for name, text in self._failures.items():
            self._forgive(name, text)
        return ""

    def _fails_again(self, name: str, deadline: datetime) -> str:
        """The run of the five that failed, with its output; empty if all passed."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", name]
        for nth in range(1, RERUNS + 1):
            left = (deadline - datetime.now(timezone.utc)).total_seconds()
            try:
                ran = subprocess.run(
                    command,
                    cwd=self._config.rootpath,
                    env=environment,
                    capture_output=True,
                    text=True,
                    errors="replace",
                    timeout=max(left, 1),
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return f"run {nth} of {RERUNS} did not end within the {RERUN_TIME:.0f} s for all reruns"
            if ran.returncode != pytest.ExitCode.OK:
                self._say(ran.stdout[-6000:] + ran.stderr[-2000:])
                return f"run {nth} of {RERUNS}"
        return ""

    def _forgive(self, name: str, text: str) -> None:
        today = datetime.now(timezone.utc).date()
        self._say(f"FLAKY {name}: it failed, and passed {RERUNS} times alone. Its first failure:\n{text}")
        self._say(f"For {LIST.relative_to(ROOT)}:\n\n{toml_entry(name, text, today)}")
        if trouble := log_forgiven(name, text):
            self._say(trouble)

    def _say(self, text: str) -> None:
        reporter: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        reporter.write_line(text)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--flaky", metavar="FILE", help="run failed tests again, alone; FILE counts failures over several sessions")


def pytest_configure(config: pytest.Config) -> None:
    if (state := config.getoption("--flaky")) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Flaky(config, Path(state)), "fusion-flaky")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.excinfo is not None and _holds_promise(call.excinfo.value):
        report.promise_broken = True  # type: ignore[attr-defined] # xdist carries it to the process that reports
    return report


def _holds_promise(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(_holds_promise(one) for one in error.exceptions)
    return isinstance(error, PromiseBroken)


def main(arguments: list[str] | None = None) -> int:
    """`make flaky`: the list and the log. `--check`: 1 if the list forbids landing."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.kit.flaky", description="Flaky tests: the list, and what runs forgave."
    )
    parser.add_argument("--check", action="store_true", help="fail if the list is too long or too old")
    check = parser.parse_args(arguments).check
    listed = entries()
    for one in listed:
        print(f"{one.date}  {one.name}\n            {one.text}\n            cause: {one.cause or 'not known yet'}")
    reasons = overdue(listed, datetime.now(timezone.utc).date())
    if check:
        print("\n".join(reasons) or f"flaky tests listed: {len(listed)}")
        return bool(reasons)
    print("\n".join(reasons) or f"{len(listed)} flaky tests are listed in {LIST.relative_to(ROOT)}")
    if not log_path().exists():
        print(f"no run has forgiven a failure: {log_path()} is not there")
        return 0
    print(f"forgiven by runs ({log_path()}):")
    for line in log_path().read_text().splitlines():
        row = json.loads(line)
        print(f"{row['at']}  {row['name']}\n            {row['text'].strip().splitlines()[-1][:200]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
