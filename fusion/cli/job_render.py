"""The output of `job show`: a pure function of a job's sheet."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from fusion.cli.context import prog, seconds
from fusion.cli.output import shown, styled
from fusion.cli.tables import room, table
from fusion.cli.times import here, told
from fusion.jobs.sheet import Sheet
from fusion.kernel.states import LIGHTS
from fusion.kernel.timeutil import from_iso
from fusion.store.layout.score import CLASSES
from fusion.views.base import EVERYONE, to_json
from fusion.views.job_parts import CutView
from fusion.views.job_sheet import JobView
from fusion.views.revealed import RevealedView

#: Columns of the labels; columns of a text without a terminal.
_LABEL = 12
_COLOURS = {name: {"good": "green", "bad": "red", "warn": "yellow"}[light] for name, light in LIGHTS.items()}
_MARKED = frozenset(("no_worker", "lost_place", "unknown_state", "no_promoter", "throttled", "unloaded"))
#: What `--reveal` adds, with its labels.
_REVEALED = {
    "description": "Said to be",
    "arguments": "Arguments",
    "meta": "Meta",
    "cursor": "Goes on at",
    "returned": "Returned",
    "reason": "Reason",
    "callback_error": "Callback",
    "result_error": "No result",
    "quarantined_for": "Set aside",
    "trace": "Trace",
}
_NAMES = {number: name for name, number in CLASSES.items()}


def lines(sheet: Sheet, *, trace: bool = False) -> list[str]:
    """Return all lines, section by section; empty sections are left out."""
    known = to_json(JobView.of(sheet, about=True, trace=trace, log=True), EVERYONE)
    sections = (_head, _why, _error, _output, _way, _tries, _call, _kin, _ends, _events, _log)
    found: list[str] = []
    for section in sections:
        part = list(section(sheet, known))
        found += ["", *part] if found and part else part
    return found


def revealed_lines(sheet: Sheet) -> Iterator[str]:
    """Yield the data of a job without masks."""
    known = RevealedView.of(sheet)
    yield ""
    yield "Without masks (the audit has an entry that you saw this):"
    for name, label in _REVEALED.items():
        yield from _block(label, getattr(known, name))
    for run in known.runs:
        yield from _block(f"Earlier run, {run.outcome}", run.error)


def _block(label: str, value: CutView | None) -> Iterator[str]:
    if value is None:
        return
    yield f"{label}, the first {len(value.text):,} characters of {value.bytes:,} bytes:" if value.cut else f"{label}:"
    yield from (f"  {line}" for line in value.text.splitlines())


def _at(iso: str | None) -> str:
    return told(from_iso(iso))


def _labelled(pairs: Iterable[tuple[str, Any]]) -> Iterator[str]:
    """Yield lines like `Name:  value`, wrapped on a terminal. Pairs without a value are left out."""
    width = room()
    for name, value in pairs:
        if value is None or value == "" or value == []:
            continue
        label = f"{name}:".ljust(_LABEL)
        text = shown(str(value), 10_000)
        if width is None or "\x1b" in text:
            yield f"{label} {text}"
            continue
        wrapped = textwrap.wrap(text, max(20, width - _LABEL - 1), break_on_hyphens=False) or [""]
        yield f"{label} {wrapped[0]}"
        yield from (" " * (_LABEL + 1) + line for line in wrapped[1:])


def _coloured(state: str) -> str:
    return styled(shown(state, 40), _COLOURS.get(state))


def _head(sheet: Sheet, known: dict[str, Any]) -> Iterator[str]:
    since = f" for {seconds((sheet.at - sheet.entered_at).total_seconds())}" if sheet.entered_at else ""
    aside = styled(" (quarantined)", "yellow") if known["quarantined"] else ""
    called = shown(known["function"] or "")
    yield f"{called}{'  ' * bool(called)}{sheet.id} {_coloured(sheet.status)}{since}{aside}"
    priority = _NAMES.get(min(sheet.priority, CLASSES["high"]))
    queue = sheet.origin or "-"
    if sheet.original_queue != sheet.origin:
        queue += f" (enqueued to {sheet.original_queue})"
    foreign = "Not Fusion's own: another program's, perhaps RQ's" if sheet.is_foreign else None
    yield from _labelled(
        (
            ("Function", None if known["function"] else "can't be read"),
            ("Said to be", known["description"]),
            ("Record", foreign),
            ("Queue", f"{queue}, priority {sheet.priority}" + (f" ({priority})" if priority else "")),
            ("Tag", sheet.log_tag),
            ("Set aside", known["quarantined_for"]),
            ("Progress", _progress(sheet)),
        )
    )


def _progress(sheet: Sheet) -> str | None:
    far = sheet.progress
    if far is None:
        return None
    percent = f" ({far.percent:.0f} %)" if far.percent is not None else ""
    return f"{far.figures}{percent}" + (f", said {told(far.at)}" if far.at else "") + (f": {far.note}" if far.note else "")


def _why(sheet: Sheet, known: dict[str, Any]) -> Iterator[str]:
    for wait in known["waits"]:
        text = wait["text"]
        marked = styled("It waits for:", "red" if wait["code"] in _MARKED else None)
        yield from _sentence(marked, text)
    if (run := known["run"]) is not None:
        limit = run["timeout"]
        ran = "-" if run["seconds"] is None else seconds(run["seconds"])
        used = (
            f" of {seconds(limit)}" + (f" ({100 * run['used']:.0f} %)" if run["used"] is not None else "")
            if limit
            else ", no timeout"
        )
        alive = "" if run["worker_alive"] else styled(", which is dead", "red")
        what = "It is claimed and waits behind another job in a process of" if run["ahead"] else "It runs at"
        yield f"{what} {shown(run['worker'] or '?', 200)}{alive}, for {ran}{used}"
        if run["lease_left"] is not None:
            late = run["lease_left"] < 0
            lease = (
                f"ended {seconds(-run['lease_left'])} ago" if late else f"ends in {seconds(run['lease_left'])}, unless renewed"
            )
            yield styled(f"Its lease {lease}", "red" if late else None)
        if run["told"]:
            yield f"It is to be {'stopped' if run['told'] == 'stop' else 'canceled'} when this run ends without finishing or failing"


def _sentence(label: str, text: str) -> Iterator[str]:
    width = room()
    plain = "It waits for: "
    wrapped = textwrap.wrap(text, max(20, (width or 10_000) - 2), initial_indent=" " * len(plain)) or [""]
    yield f"{label} {wrapped[0].lstrip()}"
    yield from (f"  {line}" for line in wrapped[1:])


def _error(sheet: Sheet, known: dict[str, Any]) -> Iterator[str]:
    error = known["error"]
    if error is not None:
        yield styled(f"Error: {shown(error['class'], 300)}", "red") + (f" at {shown(error['at'], 300)}" if error["at"] else "")
    if known["reason_text"]:
        yield from _labelled((("Reason", known["reason_text"]),))
    yield from _labelled((("Callback", known["callback_error_text"]), ("No result", known["result_error"])))
    trace = known["trace"]
    if trace["lines"]:
        more = trace["of"] - len(trace["lines"])
        yield f"Trace, the last {len(trace['lines'])} of {trace['of']} lines (--trace shows all):" if more else "Trace:"
        yield from (f"  {line}" for line in trace["lines"])


def _output(sheet: Sheet, known: dict[str, Any]) -> Iterator[str]:
    log = known["log"]
    if log is None:
        return
    before = f", {log['left_out']} before them are not kept" if log["left_out"] else ""
    yield f"Log of attempt {log['attempt']}, the last {len(log['lines'])} lines{before}:"
    yield from (f"  {_moment(line['at'])}  {line['text']}" for line in log["lines"])


def _way(sheet: Sheet, known: dict[str, Any]) -> Iterator[str]:
    rows = []
    for step, own in zip(known["timeline"]["steps"], sheet.steps, strict=True):
        lasted = "" if own.seconds is None else seconds(own.seconds)
        what = ", ".join(filter(None, (step["worker"], step["cause"], step["why"])))
        rows.append((_moment(step["at"]), _coloured(step["state"]), lasted, what))
    if rows:
        yield from table(("SINCE", "STATE", "FOR", "WHAT"), rows, right=(2,))
        if not known["timeline"]["complete"]:
            yield "From its record, and its events that are still in the stream: more may have happened"


def _moment(iso: str) -> str:
    at: datetime | None = from_iso(iso)
    return "-" if at is None else f"{here(at):%Y-%m-%d %H:%M:%S.%f}"[:-3]


def _tries(sheet: Sheet, known: dict[str, Any]) -> Iterator[str]:
    rows = []
    for one in known["tries"]:
        peak = "-" if not one["peak_memory"] else f"{one['peak_memory'] / 2**20:.0f} MB"
        took = "-" if one["seconds"] is None else seconds(one["seconds"])
        error = "; ".join(filter(None, (one["ending"], one["error"])))
        rows.append((_at(one["started_at"]), took, one["outcome"], one["worker"], peak, error))
    if rows:
        yield "Runs that did not finish, the last 10 at most:"
        yield from table(("STARTED", "TOOK", "OUTCOME", "WORKER", "PEAK", "ERROR"), rows, right=(1, 4))


def _call(sheet: Sheet, known: dict[str, Any]) -> Iterator[str]:
    times, retry, signature = known["times"], known["retry"], known["signature"]
    left = "" if retry["left"] is None else f"; {retry['left']} left"
    word = signature["state"]
    sign = styled(word, "red") if word == "bad" else word
    yield from _labelled(
        (
            ("Arguments", known["arguments"]),
            ("Meta", known["meta"]),
            ("Goes on at", known["cursor"]),
            ("Returned", known["returned"]),
            ("Retries", f"{retry['policy']}{left}"),
            ("Next try", retry["next_at"] and _at(retry["next_at"])),
            ("Timeout", "none" if times["timeout"] is None else seconds(times["timeout"])),
            ("Expires", times["expires_at"] and _at(times["expires_at"])),
            ("Kept until", times["kept_until"] and _at(times["kept_until"])),
            ("Signature", f"{sign}: {signature['why']}" if signature["why"] else sign),
            ("Size", f"{known['size']['bytes']:,} bytes"),
            ("Too large", ", ".join(known["size"]["too_large"])),
        )
    )


def _kin(sheet: Sheet, known: dict[str, Any]) -> Iterator[str]:
    yield from _labelled(
        (
            ("Waits for", _jobs(known["parents"])),
            ("For it wait", _jobs(known["children"])),
            ("Batch", _batch(known["batch"])),
            ("Chain", "given what the step before it returned" if known["in_chain"] else None),
            ("Unique key", _unique(known["unique"])),
            ("Key", _key(known["limits"])),
            ("Fair key", known["fair_key"]),
            ("Cron entry", known["cron"]),
            (
                "Failures",
                known["failure_group"] and f"in the group {known['failure_group']} (`failures {known['failure_group']}`)",
            ),
            ("Copy of", known["copied_from"]),
            ("Copied to", ", ".join(known["copied_to"])),
            ("Replaces", known["replaces"]),
            ("Replaced by", known["replaced_by"]),
        )
    )


def _jobs(kin: dict[str, Any]) -> str | None:
    named = ", ".join(f"{one['id']} ({one['status']})" for one in kin["jobs"])
    more = kin["total"] - len(kin["jobs"])
    return f"{named} and {more:,} more" if more > 0 else named or None


def _batch(batch: dict[str, Any] | None) -> str | None:
    if batch is None:
        return None
    named = f" ({batch['name']})" if batch["name"] else ""
    return f"{batch['id']}{named}, {batch['state']}" + ("" if batch["is"] == "member" else f"; called when it is {batch['is']}")


def _unique(unique: dict[str, Any] | None) -> str | None:
    if unique is None:
        return None
    has = "it has it" if unique["has_it"] else f"{unique['holder']} has it" if unique["holder"] else "nobody has it now"
    return f"{unique['key']} until {unique['until']}: {has}"


def _key(limits: dict[str, Any] | None) -> str | None:
    if limits is None:
        return None
    most = "any number" if limits["max_concurrent"] is None else limits["max_concurrent"]
    slot = "has a slot" if limits["has_slot"] else "has no slot"
    rate = f", rate {limits['rate']}" if limits["rate"] else ""
    return f"{limits['key']}: {slot}; {limits['held']} of {most} taken, {limits['waiting']:,} wait{rate}"


def _ends(sheet: Sheet, known: dict[str, Any]) -> Iterator[str]:
    rows = []
    for one in known["callbacks"]:
        sent = one["delivery"]
        told_ = "-"
        if sent is not None:
            state = styled(sent["status"], "red") if sent["status"] == "failed" else sent["status"]
            told_ = f"{state} ({sent['tries']} tries)" if sent["tries"] else state
        rows.append((one["on"], one["function"] or one["url"] or "-", told_, (sent or {}).get("answer") or ""))
    if rows:
        yield from table(("ON", "CALLED", "DELIVERY", "ANSWER"), rows)


def _events(sheet: Sheet, known: dict[str, Any]) -> Iterator[str]:
    entries = known["events"]["entries"]
    steps = {"queued", "processing", "completed", "scheduled", "deferred"}
    said = [one for one in entries if one["event"] not in steps and not one["log"]]
    if said:
        rows = [(_moment(one["at"]), one["event"], one["message"] or "") for one in said]
        yield from table(("EVENT AT", "EVENT", "MESSAGE"), rows)


def _log(sheet: Sheet, known: dict[str, Any]) -> Iterator[str]:
    """Yield the lines that its task wrote by `Log`, the events of its run, and where to find more."""
    said = [one for one in known["events"]["entries"] if one["log"]]
    if said:
        yield from table(("LOG AT", "LINE"), [(_moment(one["at"]), one["message"] or "") for one in said])
    if not known["events"]["complete"] and (said or sheet.started_at):
        yield f"There may be more lines: {prog()} events tail --job {sheet.id}"
