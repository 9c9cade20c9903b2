from __future__ import annotations

import json
import pickle
import re
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from fusion.callbacks import Callback
from fusion.enqueue import kinds
from fusion.enqueue.build import build
from fusion.enqueue.call import split_options
from fusion.enqueue.options import OPTION_NAMES, OPTIONS, SPELLINGS, EnqueueOptions, Spelling, from_text
from fusion.exceptions import InvalidName, OptionError, PayloadTooLarge, SerializationError
from fusion.kernel.nonces import new_nonce
from fusion.retry import Retry
from fusion.settings import Settings
from fusion.store.layout.records import NewJob

TASK = "tasks.sms.sendSMS"
#: A text for each field of an option.
TEXTS = {
    "priority": "high",
    "batch": "import-4711",
    "depends_on": "order-4711",
    "timeout": "5m",
    "result_ttl": "1d",
    "ttl": "90s",
    "failure_ttl": "-1",
    "description": "a text",
    "job_id": "j-1",
    "at_front": "true",
    "enqueue_in": "5m",
    "enqueue_at": "2030-01-31T09:00+01:00",
    "retry_max": "2",
    "retry_interval": "90s",
    "retry_within": "2h",
    "meta": '{"a": 1}',
    "log_tag": "SMS_OTP",
    "fair_key": "tenant-7",
    "success_task_handler": "https://example.com/",
    "failed_task_handler": "https://example.com/",
    "callback_url": "https://example.com/",
    "on_lost": "fail",
    "isolate": "true",
    "keep_logs": "true",
    "concurrency_key": "user:42",
    "max_concurrent": "2",
    "max_queue_length": "10000",
    "rate": "100/60s",
    "on_conflict": "discard",
    "limit_duration": "15m",
    "unique_key": "report:7",
    "unique": "true",
    "unique_until": "start",
    "unique_window": "10m",
    "on_duplicate": "skip",
    "max_delay": "5m",
    "durability": "replicated",
    "replicas": "2",
    "replicas_timeout": "3s",
}


def made(
    settings: Settings | None = None, *, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None, **options: Any
) -> NewJob:
    return build(TASK, args, kwargs or {}, EnqueueOptions(**options), settings or Settings()).new


def test_what_is_stored_without_options() -> None:
    job = made(args=(1,), kwargs={"to": "x"})
    kept = {name: value for name, value in job.fields.items() if value is not None}
    assert json.loads(kept.pop("data")) == [TASK, None, [1], {"to": "x"}]
    assert kept == {"description": TASK, "timeout": 180, "result_ttl": 500, "retryCount": 7}
    assert (job.priority, job.front, job.ttl) == (1, False, None)
    assert re.fullmatch("[A-Za-z0-9]{22}", job.id)
    assert job.nonce == job.id


def test_settings_are_the_defaults() -> None:
    settings = replace(Settings(), job_timeout=7, result_ttl=0)
    fields = made(settings).fields
    assert (fields["timeout"], fields["result_ttl"]) == (7, 0)
    assert made(settings, job_timeout=8, result_ttl=-1).fields["result_ttl"] == -1


@pytest.mark.parametrize(
    ("option", "value", "field", "stored"),
    [
        ("job_timeout", "5m", "timeout", 300),
        ("job_timeout", 2.5, "timeout", 2.5),
        ("job_timeout", -1, "timeout", -1),
        ("job_timeout", timedelta(hours=1), "timeout", 3600),
        ("result_ttl", 0, "result_ttl", 0),
        ("result_ttl", 0.5, "result_ttl", 1),
        ("result_ttl", "-1", "result_ttl", -1),
        ("failure_ttl", "1d", "failure_ttl", 86400),
        ("failure_ttl", 0, "failure_ttl", 0),
        ("ttl", "90s", "ttl", 90),
        ("description", "hello", "description", "hello"),
        ("log_tag", "SMS_OTP", "log_tag", "SMS_OTP"),
        ("success_task_handler", "https://x/", "success_task_handler", "https://x/"),
        ("failed_task_handler", "https://x/", "failed_task_handler", "https://x/"),
        ("on_lost", "fail", "on_lost", "fail"),
        ("on_lost", "requeue", "on_lost", None),
        ("meta", {"a": [1]}, "meta", '{"a": [1]}'),
        ("meta", {}, "meta", None),
        ("retry", Retry(max=2), "retry", '{"max": 2}'),
        ("retry", Retry(max=0), "retry", '{"max": 0}'),
    ],
)
def test_an_option_and_what_is_stored(option: str, value: Any, field: str, stored: Any) -> None:
    found = made(**{option: value}).fields.get(field)
    if field in ("meta", "retry") and stored is not None:
        assert json.loads(found) == json.loads(stored)
    else:
        assert found == stored
        assert isinstance(found, type(stored))


def test_ttl_priority_front_and_id_go_beside_the_fields() -> None:
    job = made(ttl="2m", priority=0, at_front=True, job_id="my_id-1")
    assert (job.ttl, job.priority, job.front, job.id) == (120, 0, True, "my_id-1")


def test_a_time_goes_beside_the_fields_too() -> None:
    when = datetime(2026, 1, 31, 9, 30, tzinfo=timezone.utc)
    job = made(enqueue_at=when, ttl=5, at_front=True)
    assert (job.due, job.delay, job.ttl, job.front) == (when.timestamp(), None, 5, True)
    job = made(enqueue_in="5m")
    assert (job.due, job.delay) == (None, 300)
    assert made().fields.keys() == job.fields.keys()
    assert (made().due, made().delay) == (None, None)
    with pytest.raises(ValueError, match="enqueue_at or enqueue_in, not both"):
        made(enqueue_at=when, enqueue_in=0)


def test_callbacks() -> None:
    fields = made(on_success=TASK, on_failure=Callback(TASK, timeout="2m")).fields
    assert json.loads(fields["on_success"]) == {"func": TASK, "timeout": 60.0}
    assert json.loads(fields["on_failure"]) == {"func": TASK, "timeout": 120}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"job_timeout": 0}, "job_timeout"),
        ({"job_timeout": -2}, "job_timeout"),
        ({"job_timeout": "soon"}, "job_timeout"),
        ({"job_timeout": float("nan")}, "job_timeout"),
        ({"job_timeout": "nan"}, "job_timeout"),
        ({"job_timeout": 1e10}, r"job_timeout=10000000000.0: use a duration over 0, up to 1000000000 s \(31 years\)"),
        ({"job_timeout": timedelta.max}, "job_timeout"),
        ({"job_timeout": 10**400}, "job_timeout"),
        ({"ttl": 1e12}, "ttl"),
        ({"enqueue_in": 1e12}, "enqueue_in"),
        ({"result_ttl": -2}, "result_ttl"),
        ({"result_ttl": "x"}, "result_ttl"),
        ({"failure_ttl": 2e9}, "failure_ttl"),
        ({"ttl": 0}, "ttl"),
        ({"ttl": -1}, "ttl"),
        ({"priority": 256}, "priority"),
        ({"priority": "highest"}, "priority"),
        ({"priority": True}, "priority"),
        ({"on_lost": "retry"}, "on_lost"),
        ({"retry": 3}, "Retry"),
        ({"enqueue_in": -1}, "enqueue_in"),
        ({"enqueue_in": "soon"}, "enqueue_in"),
        ({"enqueue_at": datetime(2026, 1, 31)}, "enqueue_at"),  # noqa: DTZ001 - the point
    ],
)
def test_a_wrong_option_raises_at_the_call_and_is_named(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        made(**wrong)


@pytest.mark.parametrize("job_id", ["", "a b", "a:b", "x" * 129, "../x", "ä"])
def test_ids_that_rq_would_refuse(job_id: str) -> None:
    with pytest.raises(InvalidName):
        made(job_id=job_id)


def test_an_unserializable_value_raises_at_the_call() -> None:
    with pytest.raises(SerializationError, match="argument 2"):
        made(args=(1, object()))
    with pytest.raises(SerializationError, match="meta"):
        made(meta={"a": object()})
    with pytest.raises(SerializationError, match="meta"):
        made(meta={"a": float("nan")})
    with pytest.raises(PayloadTooLarge):
        made(replace(Settings(), max_payload=1000), args=("x" * 1000,))
    with pytest.raises(SerializationError):
        build(lambda: None, (), {}, EnqueueOptions(), Settings())


def test_options_are_told_from_the_tasks_own_arguments() -> None:
    options, rest = split_options({"priority": 2, "to": "x", "timeout": 5, "job_timeout": 9, "meta": {"a": 1}, "queue": "q"})
    assert (options.priority, options.job_timeout, options.meta) == (2, 9, {"a": 1})
    assert rest == {"to": "x", "timeout": 5, "queue": "q"}
    assert split_options({})[0] == EnqueueOptions()


@pytest.mark.parametrize("name", ["repeat", "group_id"])
def test_options_of_rq_that_are_not_there_yet_are_not_passed_on_to_the_task(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}= is not supported"):
        split_options({name: "something"})


def test_options_over_others() -> None:
    base = EnqueueOptions(priority=2, result_ttl=9, job_timeout=5, at_front=True, description="base")
    mine = EnqueueOptions(priority=0, result_ttl=0, description="mine").over(base)
    assert (mine.priority, mine.result_ttl, mine.job_timeout, mine.at_front, mine.description) == (0, 0, 5, True, "mine")
    assert EnqueueOptions().over(base) == base
    assert base.over(EnqueueOptions()) == base
    assert set(OPTION_NAMES) >= {"priority", "job_timeout", "retry", "on_lost"}


def test_every_option_is_explained_and_all_but_callables_and_transactions_can_be_said_in_text() -> None:
    only_here = ["on_success", "on_failure", "on_stopped", "on_commit"]
    assert [option.name for option in OPTIONS if not option.spellings] == only_here
    assert all(option.meaning.endswith((".", "]")) for option in OPTIONS)
    flags = [spelling.flag for spelling in SPELLINGS.values()]
    assert len({*flags}) == len(flags) == len(OPTIONS) - len(only_here) + 2  # a retry has three parts


@pytest.mark.parametrize("spelling", SPELLINGS.values(), ids=lambda spelling: spelling.field)
def test_an_option_from_a_text_is_one_that_can_be_stored(spelling: Spelling) -> None:
    assert spelling.field in TEXTS, f"give TEXTS a text for {spelling.field}"
    text = TEXTS[spelling.field]
    read = spelling.reads.from_text(text)
    needed = {"max_concurrent": 1, "unique_key": "k"} | ({"on_duplicate": "replace"} if spelling.field == "max_delay" else {})
    options = from_text({"retry_max": 1, **needed, spelling.field: [read] if spelling.reads.repeats else read})
    assert options != EnqueueOptions(retry=Retry(1), **needed)
    made(**{name: getattr(options, name) for name in OPTION_NAMES})


def test_an_option_error_is_told_by_the_name_that_its_reader_knows() -> None:
    with pytest.raises(OptionError) as caught:
        made(job_timeout=0)
    rule = "use a duration over 0, up to 1000000000 s (31 years), or -1 for no limit"
    assert (caught.value.name, caught.value.rule) == ("job_timeout", rule)
    assert caught.value.spelled("--timeout", " ") == f"--timeout 0: {rule}"
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.text(), again.name) == (f"job_timeout=0: {rule}", "job_timeout")


def test_a_nonce_is_new_each_time() -> None:
    assert len({new_nonce() for _ in range(1000)}) == 1000


@pytest.mark.parametrize("timeout", [0, -1, 1e12, float("inf"), "1e400"])
def test_a_callbacks_own_limit_is_a_duration(timeout: float | str) -> None:
    with pytest.raises(ValueError, match="duration"):
        Callback(TASK, timeout=timeout)


@pytest.mark.parametrize("value", ["", "x" * 201, "two words", "a\nb", "half of a pair \ud800"[-1], 5, True, b"x"])
def test_a_key_is_a_text_that_can_be_sent(value: object) -> None:
    with pytest.raises(OptionError, match="use a text of 1 to 200 characters"):
        kinds.key("concurrency_key", value)
    assert [kinds.key("fair_key", one) for one in ("a{b}:c=d", "ü" * 200, "-", "*")] == ["a{b}:c=d", "ü" * 200, "-", "*"]
