"""The fields of a query: what each means of a job, and which stored fields tell it."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from fusion.exceptions import InvalidQuery
from fusion.kernel.redaction import masked_text
from fusion.kernel.states import STATES
from fusion.kernel.timeutil import parse_seconds
from fusion.store.layout.calls import function_of
from fusion.store.layout.codec import text
from fusion.store.layout.names import MAX_NAME, is_reserved
from fusion.store.query.lexer import WORD, Term
from fusion.store.query.patterns import SEEN, compiled, escaped, fits, literal, shell
from fusion.store.query.rows import ENTERED_FIELDS, ERROR_FIELDS, QUEUE_FIELDS, STATE_FIELDS, Row, entered_at, error_of, queue_of

#: What people say in place of a state.
_ALSO = {"running": "started", "active": "started", "waiting": "queued", "pending": "queued", "enqueued": "queued", "done": "finished",
         "success": "finished", "successful": "finished", "complete": "finished", "completed": "finished", "error": "failed",
         "cancelled": "canceled", "expired": "canceled", "delayed": "scheduled", "retrying": "scheduled", "retry": "scheduled",
         "held": "blocked"}  # fmt: skip
IS = ("quarantined", "held")
#: The field of the term that leaves the queues of a scope.
WITHIN = "within"
#: Names of priorities: HIGH has all above it.
PRIORITIES = {"low": range(1), "moderate": range(1, 2), "high": range(2, 256)}
#: Fields whose value is compared as it stands with one stored field.
_PLAIN = {"group": "failure_group", "tag": "log_tag", "key": "concurrency_key", "unique": "unique_key", "batch": "batch",
          "worker": "worker_name", "cron": "cron"}  # fmt: skip
#: Every field, with an example for who wrote one that can't be read.
FIELDS = {
    "state": "state:failed,queued", "queue": "queue:sms,otp-*", "error": "error:Timeout", "group": "group:3f1d9c2ab86e", "id": "id:otp-4711",
    "func": "func:tasks.sms.*", "tag": "tag:SMS_OTP", "unique": "unique:report-7", "key": "key:tenant-7", "batch": "batch:4f1d9c2ab86e",
    "worker": "worker:web1.4711", "cron": "cron:nightly", "priority": "priority:high", "older": "older:2h", "newer": "newer:30m",
    "is": "is:quarantined", WITHIN: "within:sms,sms-*",
}  # fmt: skip

#: Answers that a term keeps.
_KEPT = 500
#: Bytes of the names of all bases of an error's class, and of a description: more than what is shown of it is made of.
_BASES, _DESCRIBED = 2000, 16_384
#: A job's id, its row and the clock to: does it fit.
Test = Callable[[str, Row, datetime], bool]


@dataclass(frozen=True)
class Meaning:
    """The meaning of a term: the stored fields that it reads, and the test."""

    reads: frozenset[str]
    test: Test


def meaning(term: Term) -> Meaning:
    """Read a term. InvalidQuery, with its column, if it means nothing."""
    found = _meaning(term)
    if not term.negative:
        return found
    test = found.test
    return Meaning(found.reads, lambda job_id, row, now: not test(job_id, row, now))


def _meaning(term: Term) -> Meaning:
    name, values = term.field, term.values
    if name in _PLAIN:
        stored, means = _PLAIN[name], _any(values)
        return Meaning(frozenset({stored}), lambda job_id, row, now: bool(row.get(stored)) and means(text(row[stored])))
    if name == "id":
        means = _any(values)
        return Meaning(frozenset(), lambda job_id, row, now: means(job_id))
    if name == "state":
        states = states_of(term)
        return Meaning(STATE_FIELDS, lambda job_id, row, now: text(row.get("status")) in states)
    if name == "queue":
        return Meaning(QUEUE_FIELDS, _queue(values))
    if name == WITHIN:
        return Meaning(QUEUE_FIELDS, _within(values))
    if name == "error":
        return Meaning(ERROR_FIELDS, _error(values))
    if name == "func":
        named = lru_cache(_KEPT)(_named(_lower(values)))
        return Meaning(frozenset({"func"}), lambda job_id, row, now: named(function_of(row)))
    if name == "priority":
        return Meaning(frozenset({"priority"}), _priority(term))
    if name in ("older", "newer"):
        return Meaning(ENTERED_FIELDS, _age(term))
    if name == "is":
        return _is(term)
    if name == WORD:
        return Meaning(ERROR_FIELDS | {"func", "description"}, _words(values[0].lower()))
    raise InvalidQuery(
        _unknown(name, FIELDS, "field") + '; to look for the text itself put it in quotes: "' + name + ':..."', term.column
    )


def _unknown(name: str, known: Iterable[str], what: str) -> str:
    near = difflib.get_close_matches(name, list(known), 1, 0.5)
    shown = name if len(name) <= 40 else name[:37] + "..."
    return (
        f"{shown!r} is not a {what}: " + (f"did you mean {near[0]!r}? There are " if near else "use one of ") + ", ".join(known)
    )


def _lower(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(value.lower() for value in values)


def _any(values: Iterable[str]) -> Callable[[str], bool]:
    """A test for one of these values."""
    plain = frozenset(found for value in values if (found := literal(value)) is not None)
    globs = [compiled(value) for value in values if literal(value) is None]
    if not globs:
        return plain.__contains__
    return lambda given: given in plain or fits(globs, given)


def states_of(term: Term) -> frozenset[str]:
    """The states that a term of `state:` names."""
    found: set[str] = set()
    for value in _lower(term.values):
        states = [state for state in STATES if compiled(value).match(state)]
        if not states:
            near = difflib.get_close_matches(value, [*STATES, *_ALSO], 1, 0.6)
            also = _ALSO.get(near[0], near[0]) if near else ""
            rest = f"use state:{also}" if also else "use one of " + ", ".join(STATES)
            raise InvalidQuery(f"{value[:40]!r} is not a state: {rest}", term.column)
        found.update(states)
    return frozenset(found)


def _allows(values: tuple[str, ...]) -> Callable[[str], bool]:
    """As for workers, no wildcard stands for one of Fusion's own. `[` begins a wildcard here: no queue's name has one."""
    names = frozenset(values) | {found for value in values if (found := literal(value)) is not None}
    globs = [value for value in values if any(char in value for char in "*?[")]

    @lru_cache(_KEPT)
    def allows(queue: str) -> bool:
        if queue in names:
            return True
        return not is_reserved(queue) and len(queue) <= MAX_NAME and any(shell(glob).match(queue) for glob in globs)

    return allows


def _queue(values: tuple[str, ...]) -> Test:
    allows = _allows(values)
    return lambda job_id, row, now: allows(queue_of(row))


def _within(values: tuple[str, ...]) -> Test:
    """The queue that it is in, and the one to which it goes back."""
    allows = _allows(values)

    def test(job_id: str, row: Row, now: datetime) -> bool:
        return bool(row.get("origin")) and all(allows(text(row[name])) for name in QUEUE_FIELDS if row.get(name))

    return test


def _named(values: tuple[str, ...]) -> Callable[[str], bool]:
    """A test for a dotted name which, or what follows one of its dots, is one of these: by one look at it, however many dots it has."""
    ends = tuple("." + found for value in values if (found := literal(value)) is not None)
    globs = [compiled("*." + value) for value in values if literal(value) is None]

    def test(name: str) -> bool:
        dotted = "." + name.lower()
        return bool(name) and (dotted.endswith(ends) or fits(globs, dotted))

    return test


def _error(values: tuple[str, ...]) -> Test:
    lowered = _lower(values)
    means = _any(lowered)
    parts = [part for value in lowered if (part := literal(value)) is not None]

    @lru_cache(_KEPT)  # the same few errors come again and again
    def judged(own: str, bases: bytes) -> bool:
        own = own.lower()
        last = own.rpartition(".")[2]
        if own and (means(own) or means(last) or any(part in last for part in parts)):
            return True
        kinds = text(bases).lower().split("\n")
        return any(kind and (means(kind) or means(kind.rpartition(".")[2])) for kind in kinds)

    return lambda job_id, row, now: judged(error_of(row)[:SEEN], (row.get("error_bases") or b"")[:_BASES])


def _words(word: str) -> Test:
    plain, globs = literal(word), [compiled(f"*{word}*")]
    has: Callable[[str], bool] = (
        (lambda text: fits(globs, text.lower())) if plain is None else (lambda text: plain in text.lower())
    )
    within = lru_cache(_KEPT)(has)

    def test(job_id: str, row: Row, now: datetime) -> bool:
        function = function_of(row)
        if has(job_id[:SEEN]) or within(error_of(row)[:SEEN]) or within(function):
            return True
        described = (row.get("description") or b"")[:_DESCRIBED]
        return described not in (b"", function.encode()) and has(_shown(described))

    return test


@lru_cache(_KEPT)
def _shown(described: bytes) -> str:
    """A description as it may be shown: nobody is to find out by asking what is masked."""
    return masked_text(text(described))


def _priority(term: Term) -> Test:
    wanted: set[int] = set()
    for value in _lower(term.values):
        if value in PRIORITIES:
            wanted.update(PRIORITIES[value])
        elif value.isascii() and value.isdecimal() and len(value) < 4 and int(value) < 256:
            wanted.add(int(value))
        else:
            raise InvalidQuery(f"priority:{value[:40]}: use low, moderate, high or a number from 0 to 255", term.column)
    stored = {str(number).encode() for number in wanted} | ({None, b""} if 1 in wanted else set())
    return lambda job_id, row, now: row.get("priority") in stored


def _age(term: Term) -> Test:
    try:
        if len(term.values) > 1:
            raise ValueError
        seconds = parse_seconds(term.values[0])
        if seconds < 0:
            raise ValueError
    except ValueError:
        raise InvalidQuery(f"{term.field}: needs one time, like {term.field}:90s, 5m, 2h or 1d", term.column) from None
    older = term.field == "older"

    def test(job_id: str, row: Row, now: datetime) -> bool:
        since = entered_at(row)
        if since is None:
            return False
        age = (now - since).total_seconds()
        return age >= seconds if older else age <= seconds

    return test


def _is(term: Term) -> Meaning:
    values = frozenset(_lower(term.values))
    for value in sorted(values - set(IS)):
        raise InvalidQuery(f"is:{value[:40]}: " + _unknown(value, IS, "value of is:"), term.column)

    def test(job_id: str, row: Row, now: datetime) -> bool:
        state = text(row.get("status"))
        return ("quarantined" in values and state == "failed" and bool(row.get("quarantined"))) or (
            "held" in values and state == "blocked" and text(row.get("waits_in")).startswith("held:")
        )

    return Meaning(frozenset({"status", "quarantined", "waits_in"}), test)


def of_queues(queues: Iterable[str]) -> Term:
    """The term that leaves only these queues, names and wildcards."""
    values = tuple(name if any(char in name for char in "*?[") else escaped(name) for name in queues)
    return Term(WITHIN, values) if values else Term("queue", ("*",), negative=True)
