"""Sentences about what holds a queue back: a pause, its maximum length, and the limits of concurrency keys."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from fusion.cli.context import seconds
from fusion.cli.output import styled

if TYPE_CHECKING:
    from fusion.doctor.verdict import Verdict
    from fusion.store.layout.pauses import QueuePause
    from fusion.store.read.blocked import BlockedJobs
    from fusion.store.read.callback_inspector import CallbackCounts
    from fusion.store.read.event_inspector import SinkInfo
    from fusion.store.read.inspector import CallbackErrors, Keyless, QueueInfo
    from fusion.store.read.limit_inspector import LimitInfo


def was_paused(pause: QueuePause, at: datetime) -> str:
    """Return the rest of a sentence about a pause that is over; empty if nothing is known about it."""
    told = _told("for", pause, at)
    return f"; it was paused{told}" if told else ""


def remarks(queue: QueueInfo, at: datetime, program: str) -> list[str]:
    """Return sentences about the queue, if it is paused or full."""
    found = []
    if queue.pause is not None:
        since = _told("since", queue.pause, at)
        left = "" if queue.pause.left is None else f" for {seconds(queue.pause.left)} more,"
        found.append(f"The queue {queue.name} is paused{left}{since}; to go on: {program} unpause {queue.name}")
    most = queue.bounds.max_length
    if most is not None and queue.length >= most:
        found.append(
            f"The queue {queue.name} is full: {queue.length} of {most} wait, enqueues are refused (max_queue_length);"
            f" to set another number: {program} queue set {queue.name} --max-length N"
        )
    return found


def of_keys(queues: Iterable[QueueInfo], others: Iterable[BlockedJobs], program: str) -> list[str]:
    """Return a sentence for each queue in which jobs wait for a slot of their key. `others`: jobs that are blocked for another reason."""
    counts = {queue.name: queue.blocked for queue in queues}
    for one in others:
        counts[one.queue] = counts.get(one.queue, 0) - one.count
    return [
        f"{count} blocked in {name} by the limits of their concurrency keys; to see these: {program} limit list"
        for name, count in counts.items()
        if count > 0
    ]


def stuck(key: LimitInfo, program: str) -> str:
    """Return a sentence with the jobs that hold the slots of a stuck key."""
    name = key.limit.key
    shown = ", ".join(f"{one.job_id} ({one.status} in {one.queue})" for one in key.holders[:3])
    more = f" and {key.held - 3} more" if key.held > 3 else ""
    return (
        f"The key {name} is stuck: {key.blocked} wait, and none has started for ten minutes. Its slots are held by {shown}{more};"
        f" to see more: {program} limit show {name}"
    )


def keyless(one: Keyless, at: datetime) -> str:
    """Return a sentence about a function that declares a limit but whose jobs ran without it, with the fix."""
    ago = seconds(max(0.0, (at - one.at).total_seconds()))
    return (
        f"{one.count} {'job' if one.count == 1 else 'jobs'} of {one.function} ran without the concurrency key that its @job declares,"
        f" the last one {ago} ago: where the function can't be imported, give concurrency_key= with the enqueue"
    )


def raised(errors: CallbackErrors, at: datetime) -> str:
    """Return a sentence about Python callbacks that raised, with the place to look."""
    age = None if errors.at is None else max(0.0, (at - errors.at).total_seconds())
    when = "" if age is None else f" {seconds(age)} ago"
    return (
        f"{errors.count} callbacks (on_success, on_failure) raised an error, the last one{when}, of the job {errors.job_id}:"
        " its field callback_error tells which, and what (Job.callback_error)"
    )


def verdict(found: Verdict, program: str) -> str:
    """Return the verdict with its first cause and the fix, in one line."""
    colour = {"healthy": "green", "strained": "yellow", "unhealthy": "red"}[found.word]
    if not found.causes:
        return styled(found.sentence(), fg=colour)
    others = f"; and {len(found.causes) - 1} more" if len(found.causes) > 1 else ""
    mend = found.causes[0].fix.partition("\n")[0]
    return (
        styled(found.word, fg=colour)
        + f": {found.causes[0].what}; {mend}{others}; see {program} doctor; {found.rate:g} jobs end a minute"
    )


def deliveries(sinks: Iterable[SinkInfo], callbacks: CallbackCounts | None, program: str) -> list[str]:
    """Return a sentence about each sink that is behind or fails, and one about callbacks."""
    lines = []
    for one in sinks:
        if one.failing_since is not None or one.parked or one.dropped or one.behind:
            behind = f"{one.behind:,} events behind" + (f", the oldest {seconds(one.oldest)} old" if one.behind else "")
            trouble = ", it fails" * (one.failing_since is not None) + f", {one.parked:,} parked" * bool(one.parked)
            said = f"The sink {one.name}: {behind}{trouble}" + f", {one.dropped:,} dropped" * bool(one.dropped)
            bad = one.failing_since is not None or one.dropped or one.parked
            lines.append(styled(f"{said}; to see more: {program} events stats", fg="red" if bad else None))
    if callbacks is not None and (callbacks.waiting or callbacks.gone or callbacks.refused or callbacks.dropped):
        more = f", {callbacks.gone} endpoints accept no more" * bool(callbacks.gone)
        more += f", {callbacks.refused + callbacks.dropped} were not accepted" * bool(callbacks.refused or callbacks.dropped)
        told = f"{callbacks.waiting} callbacks wait to be delivered{more}; to see more: {program} callbacks list"
        lines.append(styled(told, fg="yellow" if more else None))
    return lines


def _told(word: str, pause: QueuePause, at: datetime) -> str:
    """Return the pause in words, like ` since 3 min by deploy@web1: the provider is down`."""
    time = "" if pause.since is None else f" {word} {seconds((at - pause.since).total_seconds())}"
    return time + (f" by {pause.by}" if pause.by else "") + (f": {pause.reason}" if pause.reason else "")
