"""`doctor --watch`: looks again and again; when the verdict turns, logs it, and has the courier send an alert to a URL."""

from __future__ import annotations

import json
import logging
import secrets
import socket
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from fusion.callbacks import shown_url
from fusion.doctor.look import Look
from fusion.doctor.verdict import Verdict, told, verdict
from fusion.kernel.timeutil import to_iso
from fusion.runtime.context import ProcessContext
from fusion.runtime.probes import HealthReport
from fusion.runtime.process import Process
from fusion.runtime.redis_link import CallRefused, refusable
from fusion.settings import Settings
from fusion.store.write.broker import Broker
from fusion.worker.relay_child import RelayChild

log = logging.getLogger("fusion.doctor")

#: Causes in one alert at most, characters of a text in it, and characters of all.
_CAUSES, _LONGEST, _LARGEST = 5, 400, 20_480
#: What a process ends with whose last verdict was bad, and without Redis.
_BAD, _AWAY = 3, 1


class Watch(Process):
    """Looks every few seconds. Two looks in a row make a verdict, so that a moment tells nobody.

    - the verdict of the last alert is in Redis, and is changed by the script that writes the callback: of several watchers one sends it;
    - if callbacks wait and no relay is alive, it starts one, as workers do;
    - without Redis no alert can be sent: its log and its exit code are all that shows that.
    """

    kind = "doctor"

    def __init__(
        self, settings: Settings, url: str | None, every: float, *, strict: bool, relay: Sequence[str], program: str
    ) -> None:
        """`url`: a checked one, or None to send none. `strict`: `strained` is bad, too. `relay`: the command line of a relay."""
        super().__init__(settings, log, "no alert can be sent")
        self._url, self._every, self._strict, self._program = url, every, strict, program
        self._broker = Broker.of(self.connection, settings)
        process = ProcessContext(replace(settings, probe_port=None), self._broker, self.link, self.loop, log)
        self._relay = RelayChild(process, relay if url else ())
        self._relay.schedule(self.timers)
        self.closing.callback(self._relay.close)
        self.timers.every(every, self._look, redis=True)
        #: Whether the last look was bad; the verdict that two looks agreed on; the one that Redis knows. None: none yet.
        self._seen: bool | None = None
        self._bad: bool | None = None
        self._noted: bool | None = None
        #: Of the last turn; the callback that tells it; how many outages there had been.
        self._nonce = self._callback = ""
        self._outages = 0

    def boot(self) -> None:
        """Say what will be done."""
        whom = (
            f"{shown_url(self._url)} gets an alert when the verdict turns"
            if self._url
            else "no alert is sent: --notify URL would send one"
        )
        log.info("a look every %g s; %s", self._every, whom)

    def due(self, now: float) -> None:
        """Do nothing: all work has its time."""

    def _look(self, now: float) -> None:
        found, at = self.link.attempt(self._examine, look=True)
        if self.link.outages != self._outages:  # what Redis knew may be lost with its last second
            self._outages, self._noted = self.link.outages, None
        bad = found.word == "unhealthy" or (self._strict and found.word == "strained")
        if self._seen is None:
            log.info("%s", found.sentence())
        if bad != self._seen:
            self._seen = bad
            return
        if bad != self._bad:
            if bad or self._bad is not None:
                for line in told(found):
                    log.log(logging.ERROR if bad else logging.INFO, "%s", line)
            self._bad, self._nonce = bad, secrets.token_hex(8)
        if self._url and bad != self._noted:
            self._tell(self._url, found, bad, at)

    def _examine(self) -> tuple[Verdict, datetime]:
        look = Look(self.connection, self.settings, self._program)
        return verdict(look), look.at

    def _tell(self, url: str, found: Verdict, bad: bool, at: datetime) -> None:
        level, body = "strained" if self._strict else "unhealthy", alert(found, bad, at)
        try:
            answer = self.link.attempt(
                refusable(lambda: self._broker.tell_verdict(url, level, bad, self._nonce, found.word, body))
            )
        except CallRefused as error:
            log.error("%s gets no alert, the next look tries again: %s", shown_url(url), error)
            return
        if answer is None:
            log.error("%s gets no alert, the next look tries again: too many callbacks wait (`callbacks list`)", shown_url(url))
            return
        self._noted = bad
        if not answer and bad:
            log.info("%s has the alert already", shown_url(url))
        elif answer and answer != self._callback:
            self._callback = answer
            log.info("alert %s goes to %s", answer, shown_url(url))

    def end(self) -> int:
        """Return what the last verdict means, as `doctor` does."""
        return _AWAY if self.link.away_since is not None else _BAD if self._bad else 0

    def status(self) -> tuple[str, bool]:
        """See `Process`."""
        return "watching", True

    def live(self) -> HealthReport:
        """Return healthy: an answer proves that the loop turns."""
        return HealthReport()

    def ready(self) -> HealthReport:
        """Return whether Redis can be asked."""
        return HealthReport(self.link.trouble)


def alert(found: Verdict, bad: bool, at: datetime) -> str:
    """Return the body of a callback that tells a verdict, as JSON in ASCII, in the form that Standard Webhooks recommends. It has what `doctor`
    shows: names of queues, tasks, hosts and classes of errors; no arguments, results or messages. It is below 20 KiB."""
    for count in range(_CAUSES, -1, -1):
        causes = [
            {
                "code": one.code,
                "level": one.level,
                "check": one.check,
                "about": one.about[:_LONGEST],
                "what": one.what[:_LONGEST],
                "fix": one.fix[:_LONGEST],
            }
            for one in found.causes[:count]
        ]
        data = {
            "verdict": found.word,
            "text": found.sentence()[:_LONGEST],
            "causes": causes,
            "more_causes": len(found.causes) - len(causes),
            "jobs_per_minute": found.rate,
            "host": socket.gethostname(),
        }
        kind = "alert.firing" if bad else "alert.resolved"
        text = json.dumps({"type": kind, "timestamp": to_iso(at), "data": data}, separators=(",", ":"))
        if len(text) < _LARGEST:
            break
    return text
