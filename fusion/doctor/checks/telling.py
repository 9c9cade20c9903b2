"""Check notifications: relays, sinks, the event stream, and callbacks to URLs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from fusion.doctor.finding import Finding, Remedy, counted, some, span, words
from fusion.kernel import defaults
from fusion.kernel.redaction import masked_text
from fusion.store.layout.names import CALLBACKS

if TYPE_CHECKING:
    from fusion.doctor.look import Look
    from fusion.store.read.callback_inspector import DeliveryInfo

#: Seconds without a relay's heartbeat after which a sink counts as unserved: two of the longest leases.
_UNSERVED = 2 * defaults.RELAY_LEASE
#: When a sink counts as far behind: seconds, events; and the fill of the stream in percent of its cap.
_BEHIND, _MANY, _FULL = 300.0, 10_000, 80.0
#: Seconds that a callback may wait before it is reported.
_OLD = (300.0, 1800.0)
_UNFETCHED = 30.0
#: Callbacks that one remedy retries at most.
_AGAIN = 20


def relays(look: Look) -> Iterator[Finding]:
    """Report sinks that no relay serves."""
    call = look.program
    lost = [sink for sink in look.sinks if sink.behind and not _served(look, sink.name)]
    if lost:
        oldest = max(sink.oldest for sink in lost)
        names = ", ".join(f"{sink.name} ({counted(sink.behind, 'event')} behind)" for sink in lost[:5])
        what = f"no relay is alive for {names}; the oldest event has waited {span(oldest)}"
        yield Finding(
            "FUS-460",
            "fail",
            "relays",
            lost[0].name,
            what,
            f"{call} relay\nor {call} events forget {words(lost[0].name)}, if it is no longer wanted",
        )
    missing = [name for name in look.settings.sinks if name not in {sink.name for sink in look.sinks}]
    if missing and not any(name in relay.sinks for relay in look.relays for name in missing):
        yield Finding(
            "FUS-461", "warn", "relays", missing[0], f"configured, and no relay serves it: {', '.join(missing)}", f"{call} relay"
        )


def _served(look: Look, name: str) -> bool:
    return any(name in relay.sinks for relay in look.relays)


def sinks(look: Look) -> Iterator[Finding]:
    """Report sinks that fail, have refused events, or are far behind."""
    call = look.program
    for sink in look.sinks:
        if sink.failing_since is not None:
            since = span((look.at - sink.failing_since).total_seconds())
            what = f"the sink {sink.name} has failed for {since}, {counted(sink.failures, 'time')} in a row: {masked_text(sink.error, 200)}"
            yield Finding(
                "FUS-462",
                "fail" if sink.breaker_open else "warn",
                "sinks",
                sink.name,
                what,
                f"start it again, or mend its settings, then restart the relay\n{call} events stats",
            )
        if sink.parked:
            why = masked_text(sink.error, 200) or "see there"
            what = f"the sink {sink.name} refused {counted(sink.parked, 'event')} for good, which are parked: {why}"
            yield Finding(
                "FUS-463",
                "warn",
                "sinks",
                sink.name,
                what,
                f"mend the cause, then: {call} events replay --sink {words(sink.name)}",
            )
        if sink.dropped:
            what = f"the sink {sink.name} will never get {counted(sink.dropped, 'event')}: it was too far behind"
            yield Finding(
                "FUS-464", "note", "sinks", sink.name, what, "export FUSION_EVENTS_BACKLOG=N: how many are kept for sinks"
            )
        if _served(look, sink.name) and (sink.oldest > _BEHIND or sink.behind > _MANY):
            what = f"the sink {sink.name} is {counted(sink.behind, 'event')} behind, the oldest {span(sink.oldest)} old"
            yield Finding(
                "FUS-465", "warn", "sinks", sink.name, what, f"{call} events stats\n{call} relay, once more: they share the work"
            )


def stream(look: Look) -> Iterator[Finding]:
    """Report a stream that is near the cap at which events are dropped."""
    cap, behind = look.stream.cap, max((sink.behind for sink in look.sinks), default=0)
    if cap and behind and 100 * behind / cap > _FULL:
        what = f"{behind:,} of the {cap:,} events that are kept for sinks wait: the oldest will soon be dropped"
        yield Finding("FUS-466", "fail", "stream", "", what, f"{look.program} relay\nexport FUSION_EVENTS_BACKLOG={2 * cap}")


def callbacks(look: Look) -> Iterator[Finding]:
    """Report undelivered callbacks: no relay is alive, or a host does not accept them."""
    call = look.program
    count, shown = look.deliveries
    if count:
        oldest = min((one.created_at for one in shown if one.created_at), default=None)
        age = 0.0 if oldest is None else (look.at - oldest).total_seconds()
        if not look.couriers and age > _UNFETCHED:
            what = f"{counted(count, 'callback waits', 'callbacks wait')}, the oldest for {span(age)}, and no relay is alive to deliver them"
            yield Finding("FUS-467", "fail", "callbacks", "", what, f"{call} relay")
        tried = [one for one in shown if one.tries]
        if tried or age > _OLD[0]:
            hosts = Counter(_host(one.url) for one in tried or shown).most_common(3)
            names = ", ".join(f"{host} ({number})" for host, number in hosts)
            said = next((f"; {masked_text(one.answer, 120)}" for one in tried if one.answer), "")
            more = ", and others wait behind them" if count > len(shown) else ""
            what = f"{counted(count, 'callback is', 'callbacks are')} not delivered, the oldest for {span(age)}: "
            what += f"{names} does not take them{said}{more}"
            first = (tried or shown)[0]
            fix = f"{call} callbacks list --status retrying\nonce the host answers: {call} callbacks retry --to {words(first.id)}"
            yield Finding(
                "FUS-468", "fail" if age > _OLD[1] else "warn", "callbacks", hosts[0][0], what, fix, _again(tried or shown)
            )
    failed = [one for one in look.failures if one.queue == CALLBACKS]
    if failed:
        what = f"{counted(len(failed), 'callback')} could not be delivered and failed; the last: {masked_text(failed[-1].reason, 160)}"
        fix = f"{call} callbacks list --status failed\n{call} callbacks retry --all"
        yield Finding(
            "FUS-469",
            "warn",
            "callbacks",
            failed[-1].id,
            what,
            fix,
            Remedy("retry_callbacks", tuple(one.id for one in failed[-_AGAIN:])),
        )


def _again(deliveries: Sequence[DeliveryInfo]) -> Remedy:
    return Remedy("retry_callbacks", tuple(one.id for one in deliveries[:_AGAIN]))


def unsigned(look: Look) -> Iterator[Finding]:
    """Report hosts that receive callbacks without a signature."""
    if look.unsigned_hosts:
        what = f"callbacks to {some(look.unsigned_hosts)} go out without a signature, so that anybody could have sent them"
        yield Finding(
            "FUS-470",
            "note",
            "unsigned",
            look.unsigned_hosts[0],
            what,
            "set callback_secrets where relays run (docs/callbacks.md)",
        )


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or "a host"
    except ValueError:
        return "a host"
