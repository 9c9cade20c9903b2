"""Stores the declared cron entries in Redis: when the scheduler starts, at each reload, and after an outage."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from fusion.exceptions import ConfigurationError, DataTooOld
from fusion.kernel import program
from fusion.runtime.loop import Loop
from fusion.runtime.redis_link import CallRefused, RedisLink, ServerFull, refusable
from fusion.scheduler.loading import Loading, Sources
from fusion.settings import Settings, mask_url
from fusion.store.write.cron_broker import CronBroker

#: Entries stored in a row, so that ticks don't wait for a thousand of them.
_STEPS = 50
#: Seconds until a process that could not be started is tried again.
_RETRY = 30.0
#: Seconds between two attempts while Redis is full.
_FULL = 2.0


class Declaring:
    """Loads the modules in a separate process, waits for it without blocking, then stores the entries one by one.

    - a mistake in one entry is shown at that entry and in the log; its stored version goes on;
    - if a module can't be loaded, no entry is removed, as its entries are unknown;
    - while a scheduler with a higher version of the app is alive, nothing is stored; the entries are stored once it is gone;
    - an interrupted run is simply repeated.
    """

    def __init__(
        self,
        settings: Settings,
        sources: Sources,
        broker: CronBroker,
        link: RedisLink,
        loop: Loop,
        log: logging.Logger,
    ) -> None:
        self._settings, self._sources = settings, sources
        self._broker, self._link, self._loop, self._log = broker, link, loop, log
        self._loading: Loading | None = None
        self._found: dict[str, Any] | None = None
        self._steps: deque[Callable[[], None]] = deque()
        self._again_at = float("inf")
        self._full_until = 0.0
        self._outdated = self._was_outdated = self._repeated = False
        self._stored = 0
        #: True once the declarations were stored, or could not be.
        self.done = not sources

    @property
    def next_at(self) -> float:
        """Monotonic time of the next step."""
        if self._steps:
            return self._full_until
        return min(self._again_at, self._loading.give_up_at if self._loading else float("inf"))

    def load(self) -> None:
        """Load the modules, or load them again."""
        self.close()
        self._steps.clear()
        self._found, self._again_at = None, float("inf")
        if not self._sources:
            return
        try:
            self._loading = Loading(self._settings, self._sources, self._loop, self._take, self._give_up)
        except OSError as error:
            self._again_at = time.monotonic() + _RETRY
            self._give_up(f"no process can be started for it: {error.strerror}")
        except ConfigurationError as error:
            self._again_at = time.monotonic() + _RETRY
            self._give_up(str(error))

    def repeat(self, after: float) -> None:
        """Store the entries again `after` that many seconds: Redis may have lost them, or the higher version may be gone."""
        if self._found is not None:
            self._again_at = min(self._again_at, time.monotonic() + after)

    def tick(self, now: float) -> None:
        """Do the steps that are due. After RedisAway or ServerFull the rest is tried again."""
        if self._loading is not None:
            self._loading.tick(now)
        if now >= self._again_at and not self._steps:
            self._again_at = float("inf")
            if self._found is None:
                self.load()
            else:
                self._plan(self._found, repeated=True)
        for _ in range(min(_STEPS, len(self._steps))):
            try:
                self._steps[0]()
            except ServerFull:
                self._full_until = now + _FULL
                raise
            self._steps.popleft()
            self.done = self.done or not self._steps

    def close(self) -> None:
        """End the process that loads modules, if one runs."""
        if self._loading is not None:
            self._loading.close()
            self._loading = None

    def _take(self, found: dict[str, Any]) -> None:
        self._loading, self._found = None, found
        self._plan(found)

    def _give_up(self, why: str) -> None:
        self._loading, self.done = None, True
        names = ", ".join(dict.fromkeys([*self._sources.modules, *self._sources.tasks]))
        self._log.error("loading %s: %s; the cron entries stay as they are", names, why)

    # -- what is declared

    def _plan(self, found: dict[str, Any], *, repeated: bool = False) -> None:
        app, version = self._settings.app, self._settings.app_version
        self._repeated, self._was_outdated, self._outdated = repeated, repeated and self._outdated, False
        self._stored = 0
        level = logging.DEBUG if repeated else logging.ERROR  # logged once
        for module, why in found["broken"].items():
            if module in self._sources.unnamed:
                message = "the default task module %s can't be imported, so no cron entry is removed: %s"
                self._log.log(min(level, logging.WARNING), message, module, mask_url(why))
                continue
            trace = mask_url("\n" + found["traces"][module]) if found["traces"][module] else ""
            self._log.log(level, "module %s can't be loaded, what it declares is not known: %s%s", module, mask_url(why), trace)
        for entry in found["entries"]:
            self._steps.append(partial(self._put, **entry))
        for entry_id, why in found["faults"].items():
            self._log.log(level, "cron entry %s is declared with a mistake: %s", entry_id, why)
            self._steps.append(partial(self._put, entry_id, "", "", "", why))
        names = [entry["entry"] for entry in found["entries"]] + list(found["faults"])
        if not found["broken"]:
            self._steps.append(partial(self._retire, app, version, names))
        self._steps.append(partial(self._conclude, app, version, len(names)))

    def _report(self, level: int, message: str, *args: object) -> None:
        """Log a message; at DEBUG if the last run logged it already."""
        self._log.log(logging.DEBUG if self._repeated and self._outdated == self._was_outdated else level, message, *args)

    def _put(self, entry: str, plan: str, spec: str, rev: str, error: str = "") -> None:
        if self._outdated:
            return
        app, version = self._settings.app, self._settings.app_version
        try:
            answer = self._link.attempt(
                refusable(lambda: self._broker.cron_put(entry, plan, spec, rev, app=app, version=version, error=error))
            )
        except ServerFull:
            raise
        except DataTooOld as refused:
            self._report(logging.ERROR, "cron entry %s can't be stored: %s", entry, refused)
            return
        except CallRefused as refused:
            self._report(logging.ERROR, "cron entry %s can't be stored: %s; what its key holds is not ours", entry, refused)
            return
        if answer == "outdated":
            self._outdated = True
        elif answer.startswith("taken"):
            owner = answer.removeprefix("taken ").strip()
            whose = f"is declared by app {owner}" if owner else "was made at run time"
            message = "cron entry %s %s: choose another id, or remove it first (%s cron remove %s)"
            self._report(logging.ERROR, message, entry, whose, program.name(), entry)
        elif answer != "faulty":
            self._stored += 1
            if answer != "same":
                self._log.info("cron entry %s: %s", entry, answer)

    def _retire(self, app: str, version: str, names: list[str]) -> None:
        if self._outdated:
            return
        try:
            status, removed, left = self._link.attempt(refusable(lambda: self._broker.cron_retire(app, version, names)))
        except CallRefused as refused:
            self._report(logging.ERROR, "what app %s no longer declares can't be removed: %s", app, refused)
            return
        self._outdated = status == "outdated"
        for entry in removed:
            self._log.info("cron entry %s: removed, version %s of %s no longer declares it", entry, version, app)
        for entry in left:
            message = "cron entry %s is stored and not in the code: a higher --app-version removes it, or %s cron remove %s"
            self._report(logging.WARNING, message, entry, program.name(), entry)

    def _conclude(self, app: str, version: str, declared: int) -> None:
        if self._outdated:
            message = "a scheduler with a higher version of %s than %s is alive: what this one declares is ignored"
            self._report(logging.WARNING, message, app, version)
            self.repeat(self._settings.lease)
        else:
            wrong = f", {declared - self._stored} with a mistake" if self._stored < declared else ""
            self._report(logging.INFO, "app %s version %s: %d cron entries declared%s", app, version, self._stored, wrong)
