"""Is it healthy, and if not, why: in words. `info`, `doctor` and the server's `/readyz` ask here, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from redis.exceptions import ResponseError

from fusion.doctor import waiting
from fusion.doctor.checks import fleet, jobs, machine, server, telling
from fusion.doctor.finding import Finding, counted, ordered, worst
from fusion.exceptions import ConfigurationError
from fusion.store.client.classify import classify, one_line

if TYPE_CHECKING:
    from fusion.doctor.look import Look

Word = Literal["healthy", "strained", "unhealthy"]


class Check(NamedTuple):
    """One thing that is looked at. `deep`: only `doctor` does."""

    name: str
    look: Callable[[Look], Iterator[Finding]]
    deep: bool = False


CHECKS = (
    Check("server", server.server),
    Check("eviction", server.eviction),
    Check("clocks", server.clocks),
    Check("queues", waiting.queues),
    Check("workers", fleet.workers),
    Check("schedulers", fleet.schedulers),
    Check("cron", fleet.cron),
    Check("failing", jobs.failing),
    Check("poison", jobs.poison),
    Check("held", jobs.held),
    Check("stuck", jobs.stuck),
    Check("relays", telling.relays),
    Check("sinks", telling.sinks),
    Check("stream", telling.stream),
    Check("callbacks", telling.callbacks),
    Check("clients", server.clients),
    Check("persistence", server.persistence, deep=True),
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
    Check("circles", jobs.circles, deep=True),
    Check("dropped", jobs.dropped, deep=True),
    Check("unsigned", telling.unsigned, deep=True),
    # the last: by then the others have come across what is broken
    Check("keys", server.keys),
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """`word`: `strained` if something needs a person in working hours, `unhealthy` if it needs one now. `findings`: the causes, the worst first,
    and what is only good to know. `rate`: jobs that ended a minute, in the last ten."""

    word: Word
    findings: tuple[Finding, ...]
    rate: float

    @property
    def causes(self) -> tuple[Finding, ...]:
        """What needs a person."""
        return tuple(one for one in self.findings if one.level != "note")

    def sentence(self) -> str:
        """The verdict with its first cause, in a line."""
        rate = f"{self.rate:g} jobs end a minute"
        if not self.causes:
            return f"{self.word}; {rate}"
        more = len(self.causes) - 1
        return f"{self.word}: {self.causes[0].what}{f'; and {more} more' if more else ''}; {rate}"


def verdict(look: Look) -> Verdict:
    """The verdict by the checks that are cheap enough for everybody: some thirty round trips, whatever there is."""
    return of(look, examine(look, [check for check in CHECKS if not check.deep]))


def of(look: Look, findings: Iterable[Finding]) -> Verdict:
    """The verdict by what was found."""
    found = tuple(ordered(findings))
    word: Word = {"fail": "unhealthy", "warn": "strained"}.get(worst(found) or "", "healthy")  # type: ignore[assignment]
    try:
        rate = sum(sum(ended.values()) for ended in look.recent.values()) / 10
    except ResponseError:
        rate = 0.0
    return Verdict(word, found, rate)


def examine(look: Look, checks: Sequence[Check] = CHECKS) -> list[Finding]:
    """What these checks find. One that Redis refuses to answer is told of in a finding, and holds up no other; an outage is raised."""
    found = list[Finding]()
    for check in checks:
        try:
            found += check.look(look)
        except (ResponseError, ConfigurationError) as error:
            if isinstance(error, ResponseError) and classify(error) == "transient":
                raise
            what = f"the check {check.name} could not be made: {one_line(error)}"
            found.append(Finding("warn", check.name, "", what, f"{look.redis_cli} ACL SETUSER USER {look.acl_rules}"))
    return found


def told(verdict: Verdict) -> list[str]:
    """The verdict in lines: the word, each cause, and what mends it."""
    lines = [
        verdict.sentence()
        if not verdict.causes
        else f"{verdict.word}: {counted(len(verdict.causes), 'cause')}; {verdict.rate:g} jobs end a minute"
    ]
    for one in verdict.causes:
        lines += [f"  {one.what}", *(f"    -> {fix}" for fix in one.fix.split("\n"))]
    return lines
