"""The verdict on a fleet's health, with its causes. `info`, `doctor` and the server's `/readyz` all take it from here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from redis.exceptions import ResponseError

from fusion.doctor.checks import fleet, jobs, machine, queues, server, telling
from fusion.doctor.finding import Finding, counted, ordered, worst
from fusion.exceptions import ConfigurationError
from fusion.store.client.classify import classify, one_line

if TYPE_CHECKING:
    from fusion.doctor.look import Look

Word = Literal["healthy", "strained", "unhealthy"]


class Check(NamedTuple):
    """One check. `deep`: only `doctor` runs it."""

    name: str
    look: Callable[[Look], Iterator[Finding]]
    deep: bool = False


CHECKS = (
    Check("server", server.server),
    Check("eviction", server.eviction),
    Check("memory", server.memory),
    Check("failover", server.failover),
    Check("clocks", server.clocks),
    Check("queues", queues.queues),
    Check("workers", fleet.workers),
    Check("schedulers", fleet.schedulers),
    Check("cron", fleet.cron),
    Check("failing", jobs.failing),
    Check("poison", jobs.poison),
    Check("held", jobs.held),
    Check("stuck", jobs.stuck),
    Check("long_runs", jobs.long_runs),
    Check("relays", telling.relays),
    Check("sinks", telling.sinks),
    Check("stream", telling.stream),
    Check("callbacks", telling.callbacks),
    Check("clients", server.clients),
    Check("persistence", server.persistence, deep=True),
    Check("nodes", server.nodes, deep=True),
    Check("latency", server.latency, deep=True),
    Check("rights", server.rights, deep=True),
    Check("listpack", server.listpack, deep=True),
    Check("files", machine.files, deep=True),
    Check("kernel", machine.kernel, deep=True),
    Check("settings", machine.settings, deep=True),
    Check("versions", machine.versions, deep=True),
    Check("foreign", fleet.foreign, deep=True),
    Check("callbacks_in_python", jobs.callbacks_in_python, deep=True),
    Check("keyless", jobs.keyless, deep=True),
    Check("crowds", queues.crowds, deep=True),
    Check("all_fail", jobs.all_fail, deep=True),
    Check("circles", jobs.circles, deep=True),
    Check("dropped", jobs.dropped, deep=True),
    Check("unsigned", telling.unsigned, deep=True),
    # must be the last: the other checks collect the broken keys that it reports
    Check("keys", server.keys),
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """`word`: `strained` if something needs a person in working hours, `unhealthy` if it needs one now. `findings`: the causes, worst first,
    then the notes. `rate`: jobs that ended per minute, over the last ten minutes."""

    word: Word
    findings: tuple[Finding, ...]
    rate: float

    @property
    def causes(self) -> tuple[Finding, ...]:
        """Findings that need a person: warnings and failures."""
        return tuple(one for one in self.findings if one.level != "note")

    def sentence(self) -> str:
        """Return the verdict with its first cause, in one line."""
        rate = f"{self.rate:g} jobs end a minute"
        if not self.causes:
            return f"{self.word}; {rate}"
        more = len(self.causes) - 1
        return f"{self.word}: {self.causes[0].what}{f'; and {more} more' if more else ''}; {rate}"


def verdict(look: Look) -> Verdict:
    """Return the verdict of the cheap checks: about thirty round trips, whatever the amount of data."""
    return of(look, examine(look, [check for check in CHECKS if not check.deep]))


def of(look: Look, findings: Iterable[Finding]) -> Verdict:
    """Return the verdict that follows from these findings."""
    found = tuple(ordered(findings))
    word: Word = {"fail": "unhealthy", "warn": "strained"}.get(worst(found) or "", "healthy")  # type: ignore[assignment]
    try:
        rate = sum(sum(ended.values()) for ended in look.recent.values()) / 10
    except ResponseError:
        rate = 0.0
    return Verdict(word, found, rate)


def examine(look: Look, checks: Sequence[Check] = CHECKS, progress: Callable[[int], None] | None = None) -> list[Finding]:
    """Return the findings of these checks. A check that Redis refuses becomes a finding, and the others go on. An outage is raised. `progress`
    is called after each check with 1."""
    found = list[Finding]()
    for check in checks:
        try:
            found += check.look(look)
        except (ResponseError, ConfigurationError) as error:
            if isinstance(error, ResponseError) and classify(error) == "transient":
                raise
            what = f"the check {check.name} could not be made: {one_line(error)}"
            found.append(Finding("FUS-418", "warn", check.name, "", what, f"{look.redis_cli} ACL SETUSER USER {look.acl_rules}"))
        if progress:
            progress(1)
    return found


def told(verdict: Verdict) -> list[str]:
    """Return the verdict in lines: the word, each cause, and its fix."""
    lines = [
        verdict.sentence()
        if not verdict.causes
        else f"{verdict.word}: {counted(len(verdict.causes), 'cause')}; {verdict.rate:g} jobs end a minute"
    ]
    for one in verdict.causes:
        lines += [f"  {one.what}", *(f"    -> {fix}" for fix in one.fix.split("\n"))]
    return lines
