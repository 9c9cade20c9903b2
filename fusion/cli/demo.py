"""`demo`: the whole road on one machine, with a built-in Redis and a sandbox of the providers. Leaves nothing behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fusion.cli.demo_report import Report, render
from fusion.cli.output import echo
from fusion.exceptions import ConfigurationError

if TYPE_CHECKING:
    from redis import Redis

#: Seconds between two one-time passwords.
_OTP_EVERY = 0.05
#: Seconds without progress after which a demo is a failure.
_LIMIT = 90.0


@click.command(epilog="\b\nExample:\n  run_worker.py demo")
@click.option("--workers", type=click.IntRange(1, 16), default=2, show_default=True, help="Worker processes.")
@click.option("--slots", type=click.IntRange(1, 64), default=2, show_default=True, help="Jobs each worker runs at a time.")
@click.option("--recipients", type=click.IntRange(1), help="Take only the first N of the campaign.")
def demo(workers: int, slots: int, recipients: int | None) -> None:
    """Watch Fusion work, with a built-in Redis and a sandbox.

    Loads the bundled campaign of 2,000 recipients at low priority, keeps sending one-time passwords at high priority while it drains, and
    ends with a table: who got what, how long it waited, what failed and why, and the event log's own count. Exit code 0 if all adds up.
    """
    try:
        payloads = list(import_module("tasks.demo").campaign())[:recipients]
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "tasks":
            raise ConfigurationError(str(error)) from None
        raise ConfigurationError(f"the demo runs from a checkout, where tasks/ and wrappers/ are ({error}); cd there") from None
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the demo as Ctrl-C does: with everything it started
    with ExitStack() as stack:
        report = _run(stack, payloads, workers, slots)
    echo(render(report))
    sys.exit(0 if report.adds_up else 1)


def _run(stack: ExitStack, campaign: list[tuple[str, dict[str, Any]]], workers: int, slots: int) -> Report:
    from fusion.settings import Settings, use_settings
    from fusion.store.client.connections import connect, pop_connection, push_connection

    home = tempfile.mkdtemp(prefix="fusion-demo", dir="/tmp")
    stack.callback(shutil.rmtree, home, ignore_errors=True)
    url = stack.enter_context(_redis(home))
    sandbox = stack.enter_context(_sandbox(home))
    _say(f"Redis    {url}")
    _say(f"sandbox  {sandbox['FUSION_SANDBOX_URL']} (HTTP), {sandbox['FUSION_SANDBOX_SMTP']} (SMTP)")
    use_settings(Settings.load(env={}, redis_url=url, home=home))
    connection = connect(url)
    push_connection(connection)
    stack.callback(pop_connection)
    log, events = Path(home) / "workers.log", Path(home) / "events.jsonl"
    stack.enter_context(_relay(url, {"FUSION_HOME": home}, events, log))
    for _ in range(workers):
        stack.enter_context(_worker(url, slots, {**sandbox, "FUSION_HOME": home}, log))
    _say(f"workers  {workers} with {slots} slots each, and a relay that writes every event to {events}")
    with _progress(len(campaign)) as bar:
        jobs = _drive(connection, campaign, bar, log)
    _wait_for_events(connection, log)
    return Report.collect(connection, jobs, sandbox["FUSION_SANDBOX_URL"], events)


def _wait_for_events(connection: Redis, log: Path) -> None:
    """Until the relay has written them all."""
    from fusion.store.access import event_inspector_of

    deadline = time.monotonic() + _LIMIT
    inspector = event_inspector_of(connection)
    while any(sink.behind for sink in inspector.sinks()) or not inspector.sinks():
        if time.monotonic() > deadline:
            raise ConfigurationError(
                f"the relay did not deliver all events in {_LIMIT:.0f} s; it said:\n{log.read_text()[-3000:]}"
            )
        time.sleep(0.02)


def _drive(connection: Redis, campaign: list[tuple[str, dict[str, Any]]], bar: Any, log: Path) -> list[str]:
    """Enqueue the campaign, then one-time passwords until it has drained; returns the ids of all jobs that were accepted."""
    from fusion.store.access import inspector_of

    task_queue = import_module("wrappers.task_queue")
    inspector = inspector_of(connection)
    names = {channel for channel, _ in campaign}
    ids = [job.id for job in task_queue.enqueue_bulk((f"{channel.upper()}_CAMPAIGN", payload) for channel, payload in campaign)]
    progress, before, next_otp, otps = time.monotonic(), -1, 0.0, 0
    while True:
        now = time.monotonic()
        queues = inspector.queues(sorted(names))
        left = sum(queue.low for queue in queues)
        if left != before:
            progress, before = now, left
        bar.show(len(campaign) - left, otps, inspector.failed_count())
        # Not more of them than of the campaign: a slow machine would do nothing else, as they always go first.
        if left and now >= next_otp and otps <= len(campaign) - left:
            otps += 1
            payload = {"to": f"+999300{otps:07d}"[:14], "text": f"Your code is {otps:06d}"}
            ids.append(task_queue.enqueue_sms(payload, "SMS_OTP").id)
            next_otp = now + _OTP_EVERY
        if not left and not any(queue.count or queue.started for queue in queues) and not inspector.totals().scheduled:
            return ids
        if now - progress > _LIMIT:
            raise ConfigurationError(
                f"the demo made no progress for {_LIMIT:.0f} s; the workers said:\n{log.read_text()[-3000:]}"
            )
        time.sleep(0.01)


# -- the parts, each ended with the demo


@contextmanager
def _redis(home: str) -> Iterator[str]:
    from fusion.store.embedded.instance import EmbeddedRedis

    server = EmbeddedRedis(home)
    try:
        yield server.start()
    finally:
        server.stop()


@contextmanager
def _sandbox(home: str) -> Iterator[dict[str, str]]:
    ready = Path(home) / "sandbox.json"
    command = [sys.executable, "-m", "tasks.sandbox", "--port", "0", "--smtp-port", "0", "--ready-file", str(ready)]
    with _child(command, {}, Path(home) / "sandbox.log") as process:
        deadline = time.monotonic() + 15
        while not ready.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise ConfigurationError(f"the sandbox did not start:\n{(Path(home) / 'sandbox.log').read_text()[-2000:]}")
            time.sleep(0.01)
        yield json.loads(ready.read_text())["env"]


@contextmanager
def _relay(url: str, env: dict[str, str], events: Path, log: Path) -> Iterator[None]:
    command = ["-m", "fusion", "relay", "--events-file", str(events), "--quiet", "--url", url]
    with _child([sys.executable, *command], env, log):
        yield


@contextmanager
def _worker(url: str, slots: int, env: dict[str, str], log: Path) -> Iterator[None]:
    command = ["-m", "fusion", "worker", "-c", "instance", "--customq", "all", "--slots", str(slots), "--quiet", "--url", url]
    with _child([sys.executable, *command], env, log):
        yield


@contextmanager
def _child(command: list[str], env: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a session of its own (Ctrl-C is for the demo, which ends its children itself), from this checkout."""
    root = str(Path(import_module("tasks").__file__ or "").resolve().parents[1])
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("FUSION_", "RQ_", "REDIS_"))}
    with log.open("ab") as out:
        process = subprocess.Popen(
            command,
            cwd=root,
            env={**clean, **env, "PYTHONPATH": root},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


# -- what a person sees meanwhile


class _Bar:
    """One line that is written over on a terminal; a line every few seconds elsewhere."""

    def __init__(self, total: int) -> None:
        self._total, self._live, self._next = total, sys.stderr.isatty(), 0.0

    def show(self, done: int, otps: int, failed: int) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + (0.1 if self._live else 3.0)
        width = 30
        filled = "#" * (width * done // self._total)
        text = f"campaign [{filled:<{width}}] {done}/{self._total}   one-time passwords {otps}   failed {failed}"
        click.echo(f"\r{text}" if self._live else text, err=True, nl=not self._live)


@contextmanager
def _progress(total: int) -> Iterator[_Bar]:
    bar = _Bar(total)
    yield bar
    if sys.stderr.isatty():
        click.echo(err=True)


def _say(text: str) -> None:
    echo(text, err=True)
