"""Logs what a failover of Redis would lose: at the start, and whenever that changes."""

from __future__ import annotations

import logging
from math import inf

from redis import Redis

from fusion.runtime.redis_link import RedisLink
from fusion.runtime.supervised import SupervisorLine
from fusion.store.client.failover import Risk, can_fail_over, read_risks

#: Seconds between two reads.
_INTERVAL = 60.0
_LEVELS = {"note": logging.INFO, "warn": logging.WARNING, "fail": logging.WARNING}


class FailoverWatch:
    """Reads the risks of a failover at the start, after each outage and, where one is possible, once a minute. Sends its warnings to the
    supervisor, for the probe of that."""

    def __init__(self, connection: Redis, link: RedisLink, supervisor: SupervisorLine, log: logging.Logger) -> None:
        self._connection, self._link, self._supervisor, self._log = connection, link, supervisor, log
        self._cluster = False
        self._risks: tuple[Risk, ...] = ()
        self._outages = 0
        self._next_at = inf

    @property
    def next_at(self) -> float:
        """When the risks are read next."""
        return self._next_at if self._outages == self._link.outages else 0.0

    @property
    def warnings(self) -> list[str]:
        """A line for each risk that is more than a note."""
        return [f"{risk.what} [{risk.code}]" for risk in self._risks if risk.level != "note"]

    def begin(self, *, cluster: bool) -> None:
        """Read the risks as soon as the loop runs. `cluster`: True if the server is a node of a cluster."""
        self._cluster, self._next_at = cluster, 0.0

    def tick(self, now: float) -> None:
        """Read the risks, and log which are new and which are over. RedisAway if Redis does not answer."""
        possible, found = self._link.attempt(self._read, look=True)
        self._next_at, self._outages = now + _INTERVAL if possible else inf, self._link.outages
        known, there = {risk.code for risk in self._risks}, {risk.code for risk in found}
        for risk in found:
            if risk.code not in known:
                command = risk.fix.partition("\n")[0].replace("{cli}", "redis-cli")
                self._log.log(_LEVELS[risk.level], "failover: %s; %s [%s]", risk.what, command, risk.code)
        for code in sorted(known - there):
            self._log.info("failover: this risk is gone [%s]", code)
        before, self._risks = self.warnings, tuple(found)
        if self.warnings != before:
            self._supervisor.say("WARN", " / ".join(self.warnings))

    def _read(self) -> tuple[bool, list[Risk]]:
        info = self._connection.info("replication")
        risks = read_risks(self._connection, info, cluster=self._cluster)
        return can_fail_over(self._connection, info, cluster=self._cluster), risks
