"""The supervisor: starts the processes of a service, watches them, replaces what dies, and ends them in order. It runs no job itself."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from fusion.kernel.failpoints import failpoint
from fusion.kernel.linux import become_subreaper
from fusion.runtime.child_process import Child, Kind, cause_of, named
from fusion.runtime.loop import Loop
from fusion.runtime.probes import HealthReport, Page, Probes
from fusion.runtime.signals import Signals
from fusion.settings import Settings
from fusion.store.write.broker import Broker
from fusion.supervisor.dead_workers import DeadWorkers
from fusion.supervisor.post import Post
from fusion.supervisor.rolling import Rolling

if TYPE_CHECKING:
    from fusion.metrics.figures import Series

log = logging.getLogger("fusion.supervisor")

#: Seconds between two rounds while work is under way, and at rest. Reports and deaths of children wake it at once.
_TICK, _REST = 0.25, 1.0
#: Seconds after which a ready child counts as healthy: if it dies later, that is no crash loop.
_HEALTHY = 10.0
#: Seconds between QUIT and KILL; and seconds at the end to report the last dead workers to Redis.
_QUIT_LIMIT, _FAREWELL = 10.0, 5.0


class Notifier:
    """Sends states to the service manager that started this process, if there is one. `env`: the environment, for tests."""

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        env = os.environ if env is None else env
        self._address = env.get("NOTIFY_SOCKET", "")
        usec, pid = env.get("WATCHDOG_USEC", ""), env.get("WATCHDOG_PID", "")
        mine = not pid.isdecimal() or int(pid) == os.getpid()
        #: Seconds between two pings of the watchdog, half of what it allows; None without one.
        self.watchdog_every = int(usec) / 2e6 if usec.isdecimal() and mine else None

    def send(self, **values: str | int) -> None:
        """Send values, such as `send(READY=1, STATUS="4 workers")`."""
        if not self._address.startswith(("/", "@")):
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        message = "\n".join(f"{name}={value}" for name, value in values.items())
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
                # Don't wait for a manager that does not read: the eleventh datagram would block this process.
                channel.sendto(message.encode(), socket.MSG_DONTWAIT, address)
        except OSError:
            pass  # an error of the service manager must not end this process


class Supervisor:
    """Keeps the processes of `kinds` running. `program`: what starts the command line, e.g. `python run_worker.py`.

    - one that dies is replaced: at once if it was healthy, with growing pauses in a crash loop. A dead worker's jobs go back at once;
    - one that is silent for `hang_timeout` seconds is killed and replaced;
    - TERM or INT: all get `shutdown_timeout` seconds for a warm end, then QUIT, then KILL; twice, or QUIT: QUIT at once;
    - TSTP: no child takes another job, CONT: all do again;
    - HUP: one after the other is replaced, each only once its successor is ready;
    - if the supervisor itself dies, its children notice it and end warm.
    """

    def __init__(
        self,
        settings: Settings,
        broker: Broker,
        kinds: Sequence[Kind],
        program: Sequence[str],
        notifier: Notifier | None = None,
    ) -> None:
        self._settings, self._broker, self._program = settings, broker, program
        self._posts = [Post(f"{kind.name} {n + 1}", kind.arguments) for kind in kinds for n in range(kind.count)]
        self._notifier = notifier or Notifier()
        self._loop, self._signals = Loop(), Signals()
        self._rolling = Rolling(self._start, settings.shutdown_timeout, log)
        self._probes = Probes(
            self._loop,
            {"/livez": self._report_live, "/readyz": self._report_ready},
            {"/metrics": self._metrics, "/targets": self._targets},
        )
        self._stopping = self._cold = self._quiet = self._announced = self._unclean = False
        self._status = ""
        #: Processes that it started, and those that ended otherwise than asked.
        self._started = self._crashed = 0
        #: The counters that pages of `/metrics` have shown.
        self._shown_series: Series = set()
        self._pause = 0.0
        self._tell_at = 0.0
        self._last_step = time.monotonic()
        self._empty_since: float | None = None

    def run(self) -> int:
        """Run until stopped, or until all children have done their work.

        Return 0 if every child ended warm; 1 if one was killed, or crashed during the stop.
        """
        if self._settings.probe_port is not None:
            log.info(
                "probes: %s/livez, /readyz, /metrics and /targets",
                self._probes.open(self._settings.probe_host, self._settings.probe_port),
            )
        become_subreaper()  # this process adopts a dead worker's fork server: the worker's jobs go back only once it has ended
        self._dead_workers = DeadWorkers(self._broker, self._settings.lease, log)
        self._signals.install()
        self._loop.watch(self._signals.fileno(), self._signals.drain)
        previous = signal.signal(signal.SIGCHLD, lambda *_: None)  # wakes the loop
        log.info("supervisor (pid %d) keeps %s", os.getpid(), ", ".join(post.label for post in self._posts))
        try:
            while self._step():
                self._loop.run_once(self._pause)
        finally:
            signal.signal(signal.SIGCHLD, previous)
            self._signals.restore()
            self._probes.close()
        log.info("supervisor ended")
        return int(self._unclean)

    @property
    def _all(self) -> list[Child]:
        return [child for post in self._posts for child in post.children]

    def _step(self) -> bool:
        now = time.monotonic()
        self._forgive(now)
        self._pause = _REST
        self._obey_signals(now)
        for post in self._posts:
            self._look_after(post, now)
        self._dead_workers.tick(now, {child.pid for child in self._all})
        if not self._stopping:
            self._rolling.tick(now)
            self._fill(now)
        self._publish(now)
        self._probes.tick(now)
        restless = self._stopping or self._dead_workers or self._rolling.under_way or any(not post.child for post in self._posts)
        self._pause = min(self._pause, _TICK if restless else max(0.0, self._tell_at - now))
        return not self._is_done(now)

    def _forgive(self, now: float) -> None:
        """Ignore the children's silence while this process was stopped itself (a frozen container, a debugger)."""
        stood = now - self._last_step - self._pause
        self._last_step = now
        if stood > 1.0:
            for child in self._all:
                child.heard += stood

    def _is_done(self, now: float) -> bool:
        if self._all or not (self._stopping or all(post.done for post in self._posts)):
            return False
        self._empty_since = self._empty_since or now
        return not self._dead_workers or now > self._empty_since + _FAREWELL

    # -- children

    def _look_after(self, post: Post, now: float) -> None:
        for child in post.children:
            code = child.collect()
            if code is not None:
                self._on_exit(post, child, code, now)
            elif now > child.stop_by:
                self._insist(child, now)
            elif now - child.heard > self._settings.hang_timeout and child.told != "SIGKILL":
                child.hung = True
                log.error("%s has given no sign of life for %.0f s and is killed", child, now - child.heard)
                child.signal(signal.SIGKILL, now + _QUIT_LIMIT)

    def _fill(self, now: float) -> None:
        """Start at most one process each round, so that many starts don't delay giving back the jobs of dead workers."""
        empty = [post for post in self._posts if post.child is None and not post.done and now >= post.start_at]
        if empty:
            self._start(empty[0])
        if len(empty) > 1:
            self._pause = 0.0

    def _start(self, post: Post) -> None:
        try:
            child = Child(post.label, [*self._program, *post.arguments], self._settings.shutdown_timeout)
        except OSError as error:  # no memory, no process, no descriptor left
            again = self._put_off(post, time.monotonic())
            log.error("%s can't be started: %s%s", post.label, error.strerror, again)
            return
        failpoint("supervisor.birth")
        self._started += 1
        post.child = child
        self._loop.watch(child.fileno(), lambda: self._hear(child))

    def _put_off(self, post: Post, now: float) -> str:
        """Set the time of the next start; return it in words."""
        pause = post.backoff.next()
        post.start_at = now + pause
        return f"; a new one starts in {pause:.1f} s" if pause else "; a new one starts"

    def _hear(self, child: Child) -> None:
        was_ready, was_known = child.ready, bool(child.name)
        if not child.listen():
            self._loop.unwatch(child.fileno())
        if self._quiet and child.name and not was_known:
            child.set_quiet(True)
        if child.ready and not was_ready:
            log.info("%s is ready", child)

    def _on_exit(self, post: Post, child: Child, code: int, now: float) -> None:
        self._hear(child)  # its last words
        self._loop.unwatch(child.fileno())
        child.close()
        # A clean end of a ready child is no crash: it reached a limit, or a person sent it TERM.
        clean = code == 0 and (child.ready or child.done or bool(child.told))
        again = ""
        if child is not post.child:
            post.leaving.remove(child)
        else:
            post.child = None
            again = self._plan_next(post, child, clean, now)
        if clean:
            log.info("%s ended%s", child, again)
            return
        self._unclean = self._unclean or (self._stopping and child.ready)  # a child that is still starting has no jobs to lose
        self._crashed += 1
        cause = cause_of(child, code)
        say = log.warning if child.told and not child.hung else log.error
        say("%s%s", named(cause), again)
        if child.name:
            self._dead_workers.add(child.name, child.incarnation, named(cause), now)

    def _plan_next(self, post: Post, child: Child, clean: bool, now: float) -> str:
        if clean and child.done:
            post.done = True
        if self._stopping or post.done:
            return ""
        if clean or (child.ready_at is not None and now - child.ready_at > _HEALTHY):
            post.backoff.reset()
            post.start_at = 0.0
        return "; a new one starts" if clean else self._put_off(post, now)

    # -- the end

    def _obey_signals(self, now: float) -> None:
        if self._signals.reload:
            self._signals.reload = False
            if not self._stopping:
                self._rolling.start(self._posts, now)
        if self._signals.set_quiet is not None:
            self._quiet, self._signals.set_quiet = self._signals.set_quiet, None
            for child in self._all:
                child.set_quiet(self._quiet)
        if self._signals.quit or self._signals.stops > 1:
            if not self._cold:
                self._cold = True
                self._stop("at once: running jobs go back to their place")
                for child in self._all:
                    child.signal(signal.SIGQUIT, now + _QUIT_LIMIT)
        elif self._signals.stops and not self._stopping:
            self._stop(f"within {self._settings.shutdown_timeout:g} s, when their jobs are done")
            for child in self._all:
                child.release(now + self._settings.shutdown_timeout)

    def _stop(self, how: str) -> None:
        log.info("stopping %d process(es) %s", len(self._all), how)
        self._stopping = True
        self._notifier.send(STOPPING=1)

    def _insist(self, child: Child, now: float) -> None:
        number = signal.SIGQUIT if child.told == "stop" else signal.SIGKILL
        log.warning("%s has not ended in time: %s", child, number.name)
        child.signal(number, now + _QUIT_LIMIT)

    # -- status

    def _report_live(self) -> HealthReport:
        return HealthReport([], {"pid": os.getpid()})

    def _report_ready(self) -> HealthReport:
        missing = [f"{post.label} is not ready" for post in self._posts if not any(child.ready for child in post.children)]
        reasons = ["stopping"] * self._stopping + ["quiet"] * self._quiet + missing
        warnings = sorted({child.warning for child in self._all if child.warning})
        return HealthReport(reasons, {"pid": os.getpid(), "processes": [str(child) for child in self._all]}, warnings)

    def _metrics(self, host: str) -> Page:
        from fusion.metrics.catalogue import CRASHED_TOTAL, PROCESSES, STARTED_TOTAL
        from fusion.metrics.figures import Figures
        from fusion.metrics.process import process_page

        figures = Figures()
        for child in self._all:
            figures.put(PROCESSES, 1, child.state.partition(" ")[0])
        figures.put(STARTED_TOTAL, self._started)
        figures.put(CRASHED_TOTAL, self._crashed)
        return process_page(figures, "supervisor", self._shown_series)

    def _targets(self, host: str) -> Page:
        """Return the probe ports of its processes, as Prometheus's `http_sd_configs` reads them. Where they listen at every address of this
        machine, it is called as the client called it."""
        found = []
        for child in self._all:
            if child.probe:
                there = urlsplit(child.probe)
                name = host or socket.gethostname() if there.hostname in ("0.0.0.0", "::") else there.netloc.rpartition(":")[0]
                found.append({"targets": [f"{name}:{there.port}"], "labels": {"process": child.label}})
        return lambda: ("application/json", json.dumps(found).encode())

    def _publish(self, now: float) -> None:
        if now < self._tell_at:
            return
        self._tell_at = now + min(1.0, self._notifier.watchdog_every or 1.0)
        children = self._all
        states = [child.state for child in children]
        status = ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states)))
        news: dict[str, str | int] = {} if status == self._status else {"STATUS": status}
        self._status = status
        if not self._announced and all(any(child.ready for child in post.children) for post in self._posts):
            self._announced, news["READY"] = True, 1
        if self._notifier.watchdog_every is not None:
            news["WATCHDOG"] = 1
        if news:
            self._notifier.send(**news)
