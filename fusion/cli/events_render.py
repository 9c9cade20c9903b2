"""The output of the `events` commands as text or JSON: pure functions of the data."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from fusion.cli.context import seconds
from fusion.cli.output import styled
from fusion.cli.tables import table_of
from fusion.cli.times import here
from fusion.events.wording import message_of
from fusion.kernel.redaction import printable
from fusion.kernel.timeutil import now
from fusion.views.events import EventsSnapshot as EventsSnapshot
from fusion.views.events import SinkView

if TYPE_CHECKING:
    from datetime import datetime

    from fusion.store.read.event_inspector import SinkInfo
    from fusion.store.write.event_broker import StreamEntry

_COLOURS = {"completed": "green", "failed": "red", "retry": "yellow", "abandoned": "yellow", "expired": "yellow"}


def text(snapshot: EventsSnapshot, program: str) -> str:
    """Return `events stats` as text."""
    stream = snapshot.stream
    cap = f"{stream.cap:,} at most" if stream.cap else f"{snapshot.cap:,} at most, no sink has asked for more"
    since = f", the oldest {seconds((now() - stream.first).total_seconds())} old" if stream.first else ""
    lines = [f"Stream: {stream.length:,} events{since}; {cap}"]
    alive = [relay for relay in snapshot.relays if relay.alive]
    for relay in alive:
        busy = styled(f"; waits for {relay.busy}", fg="yellow") if relay.busy else ""
        lines.append(f"Relay {printable(relay.name)}: {', '.join(relay.sinks)}, alive {seconds(relay.silent)} ago{busy}")
    if not alive:
        lines.append("No relay runs" + (f"; start one: {program} relay" if snapshot.sinks or snapshot.configured else ""))
    if snapshot.sinks:
        order = ("name", "behind", "oldest_seconds", "delivered", "parked", "dropped", "state")
        lines += ["", *table_of(SinkView, [SinkView.of(sink) for sink in snapshot.sinks], order=order, cells=_SINK)]
    else:
        lines.append("No sink has been served yet")
    missing = [name for name in snapshot.configured if name not in {sink.name for sink in snapshot.sinks}]
    if missing and snapshot.sinks:
        lines.append(f"Configured and not served yet: {', '.join(missing)}")
    lines += [f"{sink.name}: {_trouble(sink)}" for sink in snapshot.sinks if sink.error]
    if any(sink.parked for sink in snapshot.sinks):
        lines.append(f"Parked events can be delivered again once the cause is mended: {program} events replay")
    return "\n".join(lines)


_SINK: dict[str, Callable[[SinkView], str]] = {
    "name": lambda sink: printable(sink.name),
    "behind": lambda sink: f"{sink.behind:,}",
    "oldest_seconds": lambda sink: seconds(sink.oldest_seconds) if sink.behind else "",
    "delivered": lambda sink: f"{sink.delivered:,}",
    "parked": lambda sink: styled(f"{sink.parked:,}", fg="yellow") if sink.parked else "0",
    "dropped": lambda sink: styled(f"{sink.dropped:,}", fg="red") if sink.dropped else "0",
    "state": lambda sink: _state(sink),
}


def _state(sink: SinkView) -> str:
    if sink.state == "unserved":
        since = sink.served_seconds_ago
        return styled("no relay" + ("" if since is None else f" for {seconds(since)}"), fg="yellow")
    if sink.state == "delivering":
        return styled("ok", fg="green")
    assert sink.failing_since is not None
    breaker = ", breaker open" if sink.state == "open" else ""
    return styled(f"failing for {seconds(_age(sink.failing_since))}{breaker}", fg="red")


def _age(moment: datetime) -> float:
    return (now() - moment).total_seconds()


def _trouble(sink: SinkInfo) -> str:
    when = f"{seconds(_age(sink.error_at))} ago" if sink.error_at else "once"
    past = "" if sink.failing_since else ", works again"
    times = f", {sink.failures} times in a row" if sink.failures > 1 else ""
    return f"last error {when}{times}{past}: {printable(sink.error)}"


def line(entry: StreamEntry) -> str:
    """Return an event in one line, like `14:03:07.123 completed sms 4f1c: completed in 0.120 s`."""
    from fusion.store.read.event_inspector import moment_of

    fields = {name: printable(value) for name, value in entry.fields.items()}
    at = here(moment_of(entry.id)).strftime("%H:%M:%S.%f")[:-3]
    event = fields.get("event", "")
    shown = styled(f"{event:<10}", fg=_COLOURS.get(event))
    return f"{at} {shown} {fields.get('queue', '')} {fields.get('job_id', '')}: {message_of(fields)}"


def raw_line(entry: StreamEntry) -> str:
    """Return one event as a line of JSON."""
    return json.dumps({"entry": entry.id, **entry.fields}).replace("\x7f", "\\u007f")
