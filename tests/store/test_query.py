"""The query language: what is written comes back, nothing but InvalidQuery is raised, and what fits is what a plain reading says."""

from __future__ import annotations

import re
import time
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusion.exceptions import InvalidQuery
from fusion.kernel.scope import EVERYTHING, Scope
from fusion.kernel.timeutil import to_iso
from fusion.store.query.grammar import STATES, Query, entered_at, state_of

NOW = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)


def ago(**span: float) -> bytes:
    return to_iso(NOW - timedelta(**span)).encode()


def row(status: str = "failed", **fields: str | bytes) -> dict[str, bytes | None]:
    known = {
        "origin": "sms",
        "func": "tasks.sms.sendSMS",
        "created_at": ago(hours=3),
        "enqueued_at": ago(hours=3),
        "ended_at": ago(hours=1),
    }
    return {
        name: value.encode() if isinstance(value, str) else value for name, value in ({"status": status} | known | fields).items()
    }


FAILED = row(
    error_class="requests.exceptions.ReadTimeout",
    error_bases="requests.exceptions.Timeout\nrequests.exceptions.RequestException\nbuiltins.OSError",
    log_tag="SMS_OTP",
    failure_group="3f1d9c2ab86e",
    worker_name="web1.4711",
    priority="2",
)


@pytest.mark.parametrize(
    "text",
    [
        "", "state:failed", "state:canceled,failed", "state:f*", "-state:finished", "queue:sms", "queue:s*", "queue:otp,sms", "-queue:otp",
        "error:timeout", "error:ReadTimeout", "error:requests.exceptions.ReadTimeout", "error:oserror", "error:RequestException",
        "error:*.Timeout", "error:readtime", "error:builtins.*", "group:3f1d9c2ab86e", "id:job-1", "id:job-*", "id:job-?", "func:sendSMS",
        "func:tasks.sms.sendSMS", "func:tasks.*", "func:sms.sendsms", "tag:SMS_OTP", "worker:web1.*", "priority:high", "priority:2",
        "older:30m", "newer:2h", "older:30m newer:2h", "job-1", "sendsms", "readtimeout", "-otp", '"job-1"', "tasks*send",
        "state:failed error:Timeout newer:2h -queue:otp",
    ],
)  # fmt: skip
def test_a_matching_query(text: str) -> None:
    assert Query.parse(text).matches("job-1", FAILED, NOW)


@pytest.mark.parametrize(
    "text",
    [
        "state:queued", "-state:failed", "queue:SMS", "queue:otp", "queue:?", "error:KeyError", "error:requests", "error:exceptions",
        "group:3f1d9c2ab86", "id:JOB-1", "id:job", r"id:job-\?", "func:send", "func:tasks", "func:ks.sms.sendSMS", "tag:SMS", "key:k", "-tag:SMS*",
        "unique:u", "batch:b", "cron:*", "priority:low,moderate", "older:2h", "newer:30m", "is:quarantined", "is:held", "job-2", "-job", "failed",
    ],
)  # fmt: skip
def test_a_query_that_does_not_match(text: str) -> None:
    assert not Query.parse(text).matches("job-1", FAILED, NOW)


def test_the_rest_of_the_fields() -> None:
    tied = row(
        "blocked", concurrency_key="tenant 7", unique_key="a*b", batch="b1", cron="nightly", waits_in="held:sms:t", held_since="1"
    )
    for text in (
        'key:"tenant 7"',
        r"unique:a\*b",
        'unique:"a\\*b"',
        "batch:b1",
        "cron:nightly",
        "is:held",
        "priority:moderate",
        "-priority:high",
    ):
        assert Query.parse(text).matches("x", tied, NOW), text
    assert not Query.parse("is:held").matches("x", tied | {"waits_in": b"limit:tenant 7"}, NOW)
    set_aside = row(quarantined="bug 815")
    assert Query.parse("is:quarantined").matches("x", set_aside, NOW)
    assert not Query.parse("-is:quarantined").matches("x", set_aside, NOW)


def test_fusions_own_queues_are_meant_only_by_their_name_or_a_jobs_id() -> None:
    delivery = row(origin="_callbacks")
    for text in ("", "state:failed", "queue:*", "queue:_*", "-queue:sms", "id:cb-*"):
        assert not Query.parse(text).matches("cb-1", delivery, NOW), text
    for text in ("queue:_callbacks", "id:cb-1", "id:cb-1 state:failed"):
        assert Query.parse(text).matches("cb-1", delivery, NOW), text


def test_masked_values_cannot_be_found_by_a_query() -> None:
    described = row(description="tasks.sms.sendSMS('+49 171 5550123', password='hunter22')")
    for text in ("hunter22", "5550123", "password=hunt*"):
        assert not Query.parse(f'"{text}"').matches("x", described, NOW)
    assert Query.parse("sendsms").matches("x", row(description="Send one to Hamburg"), NOW)
    assert Query.parse("hamburg").matches("x", row(description="Send one to Hamburg"), NOW)


def test_a_job_of_the_first_layout_is_found_by_the_function_in_its_call() -> None:
    older = {"status": b"queued", "origin": b"sms", "func": None, "data": b'["tasks.mail.send",null,[],{}]'}
    assert Query.parse("func:mail.send").matches("x", older, NOW)
    assert not Query.parse("func:send").matches("x", older | {"data": b"\x80garbage", "serializer": b"pickle"}, NOW)


@pytest.mark.parametrize(
    ("text", "column", "names"),
    [
        ("stat:failed", 1, "did you mean 'state'"),
        ("queue:sms foo:bar", 11, "use one of state"),
        ("state:runing", 1, "use state:started"),
        ("state:running", 1, "use state:started"),
        ("state:faild", 1, "use state:failed"),
        ("state:zzz", 1, "use one of started"),
        ("queue:sms state:", 17, "needs a value"),
        ("queue:a,,b", 9, "needs a value"),
        ('error:"Read', 7, "not closed"),
        ("a\\", 2, "backslash"),
        ("-", 2, "word is missing"),
        ("older:soon", 1, "older:90s"),
        ("newer:-1h", 1, "newer:90s"),
        ("older:1h,2h", 1, "one time"),
        ("priority:urgent", 1, "low, moderate, high"),
        ("priority:256", 1, "0 to 255"),
        ("is:quarantine", 1, "quarantined"),
        ("state:failed state:queued", 0, "state:failed,queued"),
        ("a" * 10_001, 0, "longer than"),
        ("id:" + ",".join("a" * 101), 0, "more than 100 values"),
        ("a\udcff", 2, "UTF-8"),
        ("http://x", 1, "in quotes"),
    ],
)
def test_an_invalid_query_says_what_to_write(text: str, column: int, names: str) -> None:
    with pytest.raises(InvalidQuery, match=re.escape(names)) as error:
        Query.parse(text)
    assert error.value.column == column
    assert str(error.value).startswith(f"column {column}: ") == bool(column)


def test_states_values_and_fields() -> None:
    query = Query.parse("state:queued,failed error:Timeout group:a,b id:one id:one,two func:x*,y")
    assert query.states == ("failed", "queued")
    assert Query.parse("error:x").states == ()
    assert Query.parse("-state:finished").states == tuple(STATES)[:-1]
    assert Query.parse("is:quarantined").states == () and Query.parse("is:quarantined").implied == ("failed",)
    assert query.values("group") == ("a", "b") and query.value("group") is None
    assert query.value("id") == "one"
    assert query.values("func") == query.values("queue") == ()
    assert {"status", "origin", "error_class", "error_bases", "failure_group", "func"} <= query.fields


def test_only_the_queues_of_a_scope() -> None:
    query = Query.parse("state:failed")
    assert query.within(EVERYTHING) is query
    for queues, seen in ((("sms",), True), (("s*", "otp"), True), (("[st]ms",), True), (("otp",), False), ((), False)):
        narrow = query.within(Scope(queues))
        assert narrow.matches("x", FAILED, NOW) == seen
        assert Query.parse(narrow.text) == narrow
    assert not Query.parse("queue:sms").within(Scope(("otp",))).matches("x", FAILED, NOW)
    moved = row(origin="sms", original_queue="otp")
    assert not query.within(Scope(("sms",))).matches("x", moved, NOW)
    assert query.within(Scope(("sms", "o*"))).matches("x", moved, NOW)
    assert not query.within(Scope(("*",))).matches("x", row(origin=""), NOW)
    own = row(origin="_callbacks")
    assert not Query.parse("id:cb-1").within(Scope(("*",))).matches("cb-1", own, NOW)
    assert Query.parse("id:cb-1").within(Scope(("_callbacks",))).matches("cb-1", own, NOW)


def test_when_a_job_entered_its_state() -> None:
    times = {"created_at": ago(hours=9), "enqueued_at": ago(hours=8), "started_at": ago(hours=7), "ended_at": ago(hours=6)}
    entered = {
        "started": 7,
        "failed": 6,
        "finished": 6,
        "stopped": 6,
        "canceled": 6,
        "queued": 6,
        "scheduled": 6,
        "deferred": 6,
        "blocked": 6,
    }
    for state, hours in entered.items():
        assert entered_at(row(state, **times)) == NOW - timedelta(hours=hours), state
    held = str(int((NOW - timedelta(hours=1)).timestamp() * 1000))
    assert entered_at(row("blocked", **times, held_since=held)) == NOW - timedelta(hours=1)
    assert entered_at(row("queued", enqueued_at=ago(hours=2), ended_at=b"")) == NOW - timedelta(hours=2)
    assert entered_at(row("failed", ended_at="garbage")) is None
    assert entered_at({}) is None and state_of({}) == "" and state_of({"status": b"\xff"}) == "�"


# -- for any text, any value and any row

WILD = st.text('ab*?\\" ,:-.Z\u00e9', max_size=12)
NAMES = st.sampled_from(["id", "func", "error", "tag", "queue", "key", "text"])


@given(st.one_of(st.text(max_size=2000), st.text('state:queue,fid*?"\\- older:2h', max_size=60)))
def test_any_text_is_read_or_refused_and_comes_back(text: str) -> None:
    try:
        query = Query.parse(text)
    except InvalidQuery:
        return
    again = Query.parse(query.text)
    assert again == query
    assert again.text == query.text
    for state in STATES:
        assert isinstance(query.matches("id", row(state), NOW), bool)


@given(st.lists(st.tuples(NAMES, st.lists(WILD.filter(bool), min_size=1, max_size=3), st.booleans()), max_size=4))
def test_quoted_values_survive_parsing(written: list[tuple[str, list[str], bool]]) -> None:
    def quoted(value: str) -> str:
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'

    text = " ".join(
        "-" * negative + (quoted(values[0]) if name == "text" else f"{name}:" + ",".join(map(quoted, values)))
        for name, values, negative in written
    )
    query = Query.parse(text)
    assert len(query.terms) == len(written)
    assert Query.parse(query.text) == query


def glob(pattern: str, text: str) -> bool:
    """By its definition: a star is nothing, or a character and a star."""
    if not pattern:
        return not text
    if pattern[0] == "*":
        return glob(pattern[1:], text) or (bool(text) and glob(pattern, text[1:]))
    return bool(text) and pattern[0] in ("?", text[0]) and glob(pattern[1:], text[1:])


@given(
    st.lists(st.text("ab*?", min_size=1, max_size=6), min_size=1, max_size=3),
    st.text("abAB.", min_size=1, max_size=8),
    st.booleans(),
)
def test_values_fit_as_a_plain_reading_says(values: list[str], given_text: str, negative: bool) -> None:
    sign, listed = "-" * negative, ",".join(values)
    stored = row(log_tag=given_text, func=given_text, error_class=given_text, error_bases="", origin=given_text)
    suffixes = ["", *(part for i in range(9) if (part := ".".join(given_text.lower().split(".")[i:])))]
    expected = {
        "id": any(glob(value, given_text) for value in values),
        "tag": any(glob(value, given_text) for value in values),
        "queue": any(glob(value, given_text) for value in values),
        "func": any(glob(value, suffix) for value in values for suffix in suffixes[1:]),
        "error": any(
            glob(value, text)
            or ("*" not in value and "?" not in value and value in suffixes[-1] * (not given_text.endswith(".")))
            for value in values
            for text in (given_text.lower(), given_text.lower().rpartition(".")[2])
        ),
    }
    for name, fits in expected.items():
        assert Query.parse(f"{sign}{name}:{listed}").matches(given_text, stored, NOW) == (fits != negative), name


_MANY, _OF_MANY = "*" + "a" * 240 + "b*", "a" * 1_000_000
#: The dearest of each kind that is still read.
DEAR = [
    "func:" + "*" + "a." * 200 + "b*",
    "func:" + "*a" * 249,
    f"func:{_MANY},{_MANY}",
    f"tag:{_MANY},{_MANY}",
    f"key:{_MANY},{_MANY}",
    "tag:*" + "?" * 240 + "b*",
    "key:" + "?" * 498,
    f"error:{_MANY},{_MANY}",
    "error:" + ",".join(["*aaab"] * 30),
    "error:" + ",".join(["a" * 90 + "b"] * 100),
    f"id:{_MANY},{_MANY}",
    "queue:" + ",".join(["*aaab"] * 30),
    "a" * 9000 + "b",
    '"' + _MANY + '"',
    " ".join(["-" + "a" * 90 + "b"] * 100),
]


@pytest.mark.parametrize("text", DEAR, ids=range(len(DEAR)))
def test_no_job_is_matched_for_long_whatever_it_is_called(text: str) -> None:
    """A clock is looked at between two jobs: what one takes is what a page, or a worker that carries an operation on, is late by."""
    query, takes = Query.parse(text), list[float]()
    for n in range(5):
        long = f"{_OF_MANY}{n}"
        stored = row(
            func=f"{'a.' * 500_000}{n}", log_tag=long, concurrency_key=long, error_class=long, error_bases="\n".join([long[:200]] * 5000),
            description=long, origin=long,
        )  # fmt: skip
        began = time.thread_time()
        query.matches(f"id-{long}", stored, NOW)
        takes.append(time.thread_time() - began)
    assert min(takes) < 0.02, "a hundred times less is usual"


@pytest.mark.parametrize("text", ["func:" + "*a" * 251, "tag:" + ",".join(["a*"] * 31), "key:" + "?" * 501, "*" + "a" * 500])
def test_wildcards_are_bounded(text: str) -> None:
    with pytest.raises(InvalidQuery, match="more than 30 values with wildcards, or 500 characters"):
        Query.parse(text)
    scope = Scope(tuple(f"team-{n}-*" for n in range(300)))
    assert Query.parse(Query.parse("func:a*").within(scope).text).may_be_in("team-299-x"), "those of a scope are not counted"


def test_wildcards_match_only_the_beginning_of_a_long_text() -> None:
    assert Query.parse("tag:a*").matches("x", row(log_tag="a" * 600 + "b"), NOW)
    assert not Query.parse("tag:*b").matches("x", row(log_tag="a" * 600 + "b"), NOW)
    assert Query.parse("tag:" + "a" * 600).matches("x", row(log_tag="a" * 600), NOW), "without wildcards it is compared whole"
