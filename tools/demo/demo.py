"""`demo`: the whole road on one machine, with a built-in Redis and a sandbox of the providers. Leaves nothing behind."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fusion.cli.output import echo
from fusion.exceptions import ConfigurationError
from tools.demo import parts
from tools.demo.report import DemoReport, render

if TYPE_CHECKING:
    from redis import Redis

    from tools.demo.chaos import Chaos

T = TypeVar("T")

#: Seconds between two one-time passwords.
_OTP_EVERY = 0.05
#: Seconds without progress after which a demo is a failure.
_LIMIT = 90.0


@click.command(epilog="\b\nExamples:\n  run_worker.py demo\n  run_worker.py demo --chaos\n  run_worker.py demo --keep")
@click.option("--workers", type=click.IntRange(1, 16), default=2, show_default=True, help="Worker processes.")
@click.option("--slots", type=click.IntRange(1, 64), default=2, show_default=True, help="Jobs each worker runs at a time.")
@click.option("--recipients", type=click.IntRange(1), help="Take only the first N of the campaign.")
@click.option("--chaos", is_flag=True, help="Kill workers, fork servers and Redis meanwhile, and count what it cost.")
@click.option("--keep", is_flag=True, help="Then stay open until Ctrl-C, with a few new jobs all the time.")
def demo(workers: int, slots: int, recipients: int | None, chaos: bool, keep: bool) -> None:
    """Watch Fusion work, with a built-in Redis and a sandbox.

    Loads the bundled campaign of 2,000 recipients at low priority, keeps sending one-time passwords at high priority while it drains, and
    ends with a table: who got what, how long it waited, what failed and why, and the event log's own count. Exit code 0 if all adds up.
    The dashboard is at the address that it shows.

    With --chaos its workers, their fork servers and its Redis are killed by SIGKILL at random moments, and you may kill some, too: the pids
    are shown. Every job that was accepted must end, once.
    """
    if chaos and not sys.platform.startswith("linux"):
        raise ConfigurationError("--chaos finds what it may kill in /proc, which Linux alone has; leave the flag out here")
    try:
        payloads = list(import_module("tasks.demo").campaign())[:recipients]
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "tasks":
            raise ConfigurationError(str(error)) from None
        raise ConfigurationError(f"the demo runs from a checkout, where tasks/ and wrappers/ are ({error}); cd there") from None
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the demo as Ctrl-C does: with everything it started
    with ExitStack() as stack:
        stage = _Stage(stack, workers, slots, chaos, keep)
        report = stage.show(payloads)
        if keep:
            echo(render(report))
            stage.stay()
    if not keep:
        echo(render(report))
    sys.exit(0 if report.adds_up else 1)


class _Stage:
    """All that runs during a demo; `stack` ends it."""

    def __init__(self, stack: ExitStack, workers: int, slots: int, killing: bool, keep: bool) -> None:
        from fusion.settings import Settings, use_settings
        from fusion.store.client.connections import connect, pop_connection, push_connection

        home = tempfile.mkdtemp(prefix="fusion-demo", dir="/tmp")
        stack.callback(shutil.rmtree, home, ignore_errors=True)
        redis = stack.enter_context(parts.redis_server(home, fsync="always" if killing else "everysec"))
        sandbox = stack.enter_context(parts.sandbox(home))
        self._url, self._sandbox = redis.url, sandbox["FUSION_SANDBOX_URL"]
        _say(f"Redis      {self._url}")
        _say(f"sandbox    {self._sandbox} (HTTP), {sandbox['FUSION_SANDBOX_SMTP']} (SMTP)")
        use_settings(Settings.load(env={}, redis_url=self._url, home=home))
        self._connection = connect(self._url)
        push_connection(self._connection)
        stack.callback(pop_connection)
        log, self._events, served = (Path(home) / name for name in ("workers.log", "events.jsonl", "server.log"))
        env = {**sandbox, "FUSION_HOME": home}
        server = parts.fusion_command("server", "-c", "instance", "--no-auth", "--dashboard", "--port", "0", "--url", self._url)
        looking = stack.enter_context(parts.child(server, env, served))
        serving = ("-c", "instance", "--customq", "all", "--slots", str(slots), "--quiet", "--url", self._url)
        self._chaos = None
        if killing:
            from tools.demo.chaos import Chaos

            command = parts.fusion_command("start", "-n", str(workers), "--no-scheduler", "--shutdown-timeout", "5", *serving)
            env["FUSION_EVENTS_FILE"] = str(self._events)
            self._chaos = stack.enter_context(Chaos(redis, lambda: parts.spawn(command, env, log), workers))
        else:
            relay = parts.fusion_command("relay", "--events-file", str(self._events), "--quiet", "--url", self._url)
            for command in [relay, *[parts.fusion_command("worker", *serving)] * workers]:
                stack.enter_context(parts.child(command, env, log))
        _say(f"workers    {workers} with {slots} slots each, and a relay that writes every event to {self._events}")
        if self._chaos:
            _say(
                "chaos      they and Redis are killed while it runs, and replaced; kill some yourself: their pids are shown below"
            )
        self._dashboard = ""
        try:
            self._dashboard = f"{parts.address(looking, served)}/"
            _say(f"dashboard  {self._dashboard} (HTTP API: /api/v1/){'' if keep else '; `make demo KEEP=1` keeps it open'}")
        except ConfigurationError as error:  # the rest does without
            _say(f"dashboard  none: {error}")
        self._work = _Work(self._connection, log, self._chaos)

    def show(self, campaign: list[tuple[str, dict[str, Any]]]) -> DemoReport:
        """Have the campaign sent, and count what happened to it."""
        with _progress(len(campaign)) as bar:
            jobs = self._work.drive(campaign, bar)
        self._work.wait_for_events()
        toll = self._chaos.toll if self._chaos else None
        return self._work.patiently(lambda: DemoReport.collect(self._connection, jobs, self._sandbox, self._events, toll))

    def stay(self) -> None:
        """Enqueue a job now and then, until Ctrl-C or TERM."""
        from tools.demo.keep import Trickle, what_to_try

        try:
            trickle = Trickle(self._sandbox)
            _say(f"\n{what_to_try(self._url, self._dashboard)}")
            while True:
                if enqueue := trickle.due(time.monotonic()):
                    self._work.patiently(enqueue, repeat=True)
                for line in self._chaos.news() if self._chaos else ():
                    _say(line)
                time.sleep(0.05)
        except KeyboardInterrupt:
            _say("\nEnding what was started ...")


class _Work:
    """What the demo has its workers do."""

    def __init__(self, connection: Redis, log: Path, chaos: Chaos | None) -> None:
        from fusion.store.access import event_inspector_of, inspector_of

        self._inspector, self._event_inspector = inspector_of(connection), event_inspector_of(connection)
        self._log, self._chaos = log, chaos

    def patiently(self, call: Callable[[], T], *, repeat: bool = False) -> T:
        """Make a call of Redis; where that is killed, again and again until it answers."""
        return self._chaos.patiently(call, repeat=repeat) if self._chaos else call()

    def drive(self, campaign: list[tuple[str, dict[str, Any]]], bar: _Bar) -> list[str]:
        """Enqueue the campaign, then one-time passwords until it has drained; returns the ids of all jobs that were accepted."""
        task_queue, chaos = import_module("wrappers.task_queue"), self._chaos
        names = sorted({channel for channel, _ in campaign} | {"sms"})
        messages = [(f"{channel.upper()}_CAMPAIGN", payload) for channel, payload in campaign]
        ids = [job.id for job in self.patiently(lambda: task_queue.enqueue_bulk(messages), repeat=True)]
        progress, before, next_otp, otps = time.monotonic(), -1, 0.0, 0
        if chaos:
            chaos.begin(len(campaign))
        while True:
            now = time.monotonic()
            left = sum(queue.low for queue in self.patiently(lambda: self._inspector.queues(names)))
            if left != before:
                progress, before = now, left
            bar.show(len(campaign) - left, otps, self.patiently(self._inspector.failed_count))
            if chaos:
                chaos.ended(len(campaign) + otps - self._there(names))
                for line in chaos.news():
                    bar.say(line)
            busy = left > 0 or (chaos is not None and not chaos.toll.whole)
            # Not more of them than of the campaign: a slow machine would do nothing else, as they always go first.
            if busy and now >= next_otp and (not left or otps <= len(campaign) - left):
                otps += 1
                payload = {"to": f"+999300{otps:07d}"[:14], "text": f"Your code is {otps:06d}"}
                ids.append(self.patiently(lambda: task_queue.enqueue_sms(payload, "SMS_OTP"), repeat=True).id)  # noqa: B023
                next_otp = now + _OTP_EVERY
            if chaos and not busy:
                chaos.calm()
            if not busy and not self._there(names):
                return ids
            if now - progress > _LIMIT:
                raise ConfigurationError(
                    f"the demo made no progress for {_LIMIT:.0f} s; the workers said:\n{self._log.read_text()[-3000:]}"
                )
            time.sleep(0.01)

    def _there(self, queues: Sequence[str]) -> int:
        """Jobs that have not ended, whatever they wait for."""
        return self.patiently(lambda: sum(self._inspector.counters(queue).there for queue in queues))

    def wait_for_events(self) -> None:
        """Until the relay has written them all."""
        deadline = time.monotonic() + _LIMIT
        while not (sinks := self.patiently(self._event_inspector.sinks)) or any(sink.behind for sink in sinks):
            if time.monotonic() > deadline:
                raise ConfigurationError(
                    f"the relay did not deliver all events in {_LIMIT:.0f} s; it said:\n{self._log.read_text()[-3000:]}"
                )
            time.sleep(0.02)


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

    def say(self, text: str) -> None:
        """Show a line that stays."""
        if self._live:
            click.echo(f"\r{'':<90}\r" if self._live else "", err=True, nl=False)
        _say(text)
        self._next = 0.0


@contextmanager
def _progress(total: int) -> Iterator[_Bar]:
    bar = _Bar(total)
    yield bar
    if sys.stderr.isatty():
        click.echo(err=True)


def _say(text: str) -> None:
    echo(text, err=True)
