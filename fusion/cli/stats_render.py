"""The output of `stats`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fusion.cli.output import shown
from fusion.cli.tables import table, table_of
from fusion.cli.times import told
from fusion.kernel.timeutil import from_iso
from fusion.store.read.totals import WENT_OUT
from fusion.views.queue import QueueStatsView

_BARS = " ▁▂▃▄▅▆▇█"
#: Columns of a sparkline.
_WIDTH = 60


def listing(queues: Sequence[QueueStatsView]) -> str:
    """Return a line for each queue."""
    if not queues:
        return "No job was ever enqueued"
    order = ("name", "queue_length", "active_count", "total_enqueued", "total_completed", "total_failed")
    return "\n".join(table_of(QueueStatsView, queues, order=order, only=True))


def text(found: Mapping[str, Any]) -> str:
    """Return the document of a queue, a key or a function as text for people."""
    titles = {"name": "queue", "key": "key", "function": "function"}
    lines = [" ".join(f"{title} {shown(found[what])}" for what, title in titles.items() if what in found)]
    if "active_count" in found:
        lines += _counters(found)
    if "history" in found:
        lines += _lines_of_history(found["history"])
        lines += _seconds(found["seconds"])
    if found.get("slowest_run") is not None:
        lines.append(f"  slowest run {_time(found['slowest_run'])}, in the hour from {told(from_iso(found['slowest_run_at']))}")
    if found.get("peak_memory") is not None:
        peak = f"{found['peak_memory'] / 2**20:.0f} MB"
        lines.append(f"  peak memory {peak}, in the hour from {told(from_iso(found['peak_memory_at']))}")
    return "\n".join(lines)


def sparkline(values: Sequence[int], together: Callable[[Sequence[int]], int] = sum) -> str:
    """Return a bar for each value, scaled to the highest. If there are more values than columns, neighbours are combined by `together`."""
    step = -(-len(values) // _WIDTH) or 1
    sums = [together(values[i : i + step]) for i in range(0, len(values), step)]
    top = max(sums, default=0)
    return "".join(_BARS[-(-value * (len(_BARS) - 1) // top) if top else 0] for value in sums)


def _counters(found: Mapping[str, Any]) -> list[str]:
    now = [f"{found['queue_length']} wait"]
    if "held_count" in found:
        now = [f"{found['blocked_count']} blocked", f"{found['held_count'] - found['active_count']} queued"]
    limit = found.get("max_concurrent")
    now.append(f"{found['active_count']} run" + (f" (at most {limit})" if limit else ""))
    if oldest := found.get("oldest_enqueued_at"):
        now.append(f"the oldest since {told(from_iso(oldest))}")
    ever = [f"{found[f'total_{name}']} {name}" for name in ("enqueued", "requeued", *WENT_OUT) if found[f"total_{name}"]]
    return [f"  now   {', '.join(now)}", f"  ever  {', '.join(ever) or 'nothing'}"]


def _lines_of_history(steps: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = []
    for name in ("completed", "failed", "retried"):
        values = [step[name] for step in steps]
        if any(values) or name == "completed":
            lines.append(f"  {name:9} |{sparkline(values)}| {sum(values)}")
    depths = [sum(one["depth"] for one in step["waiting"].values()) for step in steps]
    ages = [max((one["oldest"] for one in step["waiting"].values()), default=0) for step in steps]
    if any(depths):
        lines.append(f"  {'waiting':9} |{sparkline(depths, max)}| at most {max(depths)}")
        lines.append(f"  {'oldest':9} |{sparkline(ages, max)}| at most {_time(max(ages))}")
    return lines


def _seconds(seconds: Mapping[str, Mapping[str, Mapping[str, float | None]]]) -> list[str]:
    head = ("", "wait p50", "p95", "p99", "run p50", "p95", "p99")
    rows = []
    for priority, times in seconds.items():
        cells = [_time(times.get(what, {}).get(share)) for what in ("wait", "run") for share in ("p50", "p95", "p99")]
        rows.append((priority.upper(), *cells))
    return [f"  {line}" for line in table(head, rows, range(1, len(head)), within=None)] if rows else []


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
