"""RQ's command lines in a project: Procfile, systemd units, compose files, Dockerfiles, scripts of a shell and supervisord."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fusion.rq.check.sources import Found
from fusion.rq.check.verdicts import CHANGE, MISSING, Verdict
from fusion.rq.cli import main
from fusion.rq.cli.setup import REFUSED, UNNECESSARY

_LINE = re.compile(
    r"(?<![\w./-])(?:[\w./-]*/)?(?:python3? -m )?(rq|rqworker|rqinfo|rqscheduler|rqgenload|rq-dashboard)(?![\w.=:/-])[ \t]*(.*)"
)
_LIST = re.compile(r"\[\s*(\"[^\]]*\")\s*\]")
_INSTEAD = {
    "rqworker": "frq worker",
    "rqinfo": "frq info",
    "rqscheduler": "fusion scheduler, for recurring jobs; every worker enqueues single ones that are due",
    "rq-dashboard": "fusion server (docs/dashboard.md)",
    "rqgenload": "nothing: it is a tool of RQ's own tests",
}


def is_read(name: str) -> bool:
    """Return True for a file that may hold command lines."""
    lower = name.lower()
    return (
        lower.startswith(("procfile", "dockerfile", "makefile"))
        or lower.endswith((".service", ".sh", ".conf", ".ini", ".procfile"))
        or ("compose" in lower and lower.endswith((".yml", ".yaml")))
    )


def read(text: str) -> Iterator[Found]:
    """Yield each command line of RQ's with its verdict."""
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped.startswith(("#", ";")):
            continue
        plain = _LIST.sub(lambda found: " ".join(part.strip().strip("\"'") for part in found[1].split(",")), stripped)
        if (found := _LINE.search(plain)) is not None and _is_command(plain, found.start()):
            yield Found(number, found[0].strip(), _verdict(found[1], found[2]))


def _is_command(line: str, start: int) -> bool:
    """Return True if the word stands where a program does, and not in a list of packages."""
    before = line[:start].rstrip()
    return not re.search(r"\b(pip3?|apt|apt-get|uv|poetry)\b.*\b(install|add)\b", before) and not before.endswith(
        ("image:", "name:", "from")
    )


def _verdict(program: str, rest: str) -> Verdict:
    if program != "rq":
        instead = _INSTEAD[program]
        same = {"rqworker": "worker", "rqinfo": "info"}.get(program)
        return Verdict(CHANGE, instead) if same is None else _flags(same, rest, f"{instead} {rest}".strip())
    command, _, flags = rest.partition(" ")
    if command not in main.commands:
        return Verdict(MISSING, f"frq has no command {command!r}") if command else Verdict(CHANGE, "frq")
    return _flags(command, flags, f"frq {rest}".strip())


def _flags(command: str, rest: str, instead: str) -> Verdict:
    """Return the verdict for a command's flags."""
    known = {flag: option.name or "" for option in main.commands[command].params for flag in option.opts}
    notes = []
    for word in rest.split():
        flag = word.partition("=")[0]
        if not flag.startswith("-") or flag == "-":
            continue
        name = known.get(flag)
        if name is None:
            return Verdict(MISSING, f"frq {command} has no {flag}")
        if name in REFUSED and not (name == "results_ttl" and "500" in rest.split()):
            return Verdict(MISSING, f"{flag}: {REFUSED[name]}")
        if name in UNNECESSARY:
            notes.append(f"{flag} is not needed: {UNNECESSARY[name]}")
    return Verdict(CHANGE, "; ".join([instead, *notes]))
