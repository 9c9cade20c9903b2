"""Signatures of jobs without Redis: what keys may be, what a signature covers, and what a worker does with one that is not good."""

from __future__ import annotations

import base64
import hashlib
import logging
import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusion.enqueue.build import build, sealed
from fusion.enqueue.options import EnqueueOptions
from fusion.exceptions import ConfigurationError
from fusion.kernel.signing import COVERED, Keyring, envelope
from fusion.retry import Retry
from fusion.settings import Settings
from fusion.store.layout.codec import RUN_FIELDS
from fusion.store.layout.records import Claimed
from fusion.worker.envelope import EnvelopeCheck

OLD, NEW = f"k1:{secrets.token_urlsafe(32)}", f"k2:{secrets.token_hex(32)}"
KEYS = Settings(secret_keys=(OLD,))
log = logging.getLogger("fusion.test")


def claimed(settings: Settings = KEYS, *, job_id: str = "j1", **options: Any) -> Claimed:
    """A job as a worker gets it that was signed by this producer, with every covered field. Its id may be one that callers can't give."""
    given: dict[str, Any] = {
        "retry": Retry(2, [1, 2.5]),
        "job_timeout": 2.5,
        "ttl": 90,
        "on_lost": "fail",
        "on_success": "tasks.a.b",
        "on_failure": "tasks.a.c",
        "success_task_handler": "https://a.example/x",
        "failed_task_handler": "https://a.example/y",
        "callback_url": "https://a.example/z",
    }
    new = build("tasks.sms.sendSMS", ("+49", "ä"), {}, EnqueueOptions(**{**given, **options}), settings).new
    new = replace(new, id=job_id, fields={"serializer": "json", **_present(new.fields)})
    (signed,) = sealed("sms", [new], settings)
    raw = {name.encode(): value if isinstance(value, bytes) else str(value).encode() for name, value in signed.fields.items()}
    raw[b"priority"] = str(signed.priority).encode()
    return Claimed("sms", signed.id, "exec", raw)


def _present(fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def flaw(job: Claimed, *keys: str) -> str:
    return Keyring(keys or (OLD,)).flaw(job.id, job.queue, job.fields)


def changed(job: Claimed, name: bytes, value: bytes | None) -> Claimed:
    fields = {**job.fields, name: value}
    return replace(job, fields={key: found for key, found in fields.items() if found is not None})


# -- fields that came later


def test_a_job_without_the_later_fields_is_signed_as_ever() -> None:
    job = claimed()
    values = [job.fields.get(name.encode()) for name in COVERED]
    text = envelope(b"job", job.id, job.queue, job.fields[b"priority"], values)
    assert job.fields[b"signature"] == Keyring((OLD,))._seal(b"k1", text)


def test_a_callback_that_came_later_is_covered() -> None:
    job = claimed(on_stopped="tasks.a.d")
    assert flaw(job) == ""
    assert "does not fit" in flaw(changed(job, b"on_stopped", None))
    assert "does not fit" in flaw(changed(job, b"on_stopped", b'{"func": "tasks.a.e", "timeout": 60.0}'))
    assert "does not fit" in flaw(changed(claimed(), b"on_stopped", job.fields[b"on_stopped"]))


# -- keys


@pytest.mark.parametrize(
    "keys",
    [
        "k1:" + "correct horse battery staple, or a longer text".replace(",", ""),
        f"k1:{secrets.token_urlsafe(32)},k2:{secrets.token_hex(32)}",
        f"# the new one\nk2:{base64.b64encode(secrets.token_bytes(32)).decode()}\n\nk1:{secrets.token_urlsafe(32)}\n",
        [OLD, NEW],
    ],
    ids=["one", "two", "lines", "list"],  # the keys differ in every process
)
def test_keys_are_read_from_text_and_lists(keys: Any) -> None:
    found = Settings(secret_keys=keys)
    assert found.secret_keys is not None
    assert found.keyring is not None
    assert found.keyring.ids == tuple(key.partition(":")[0] for key in found.secret_keys)


@pytest.mark.parametrize(
    ("keys", "rule"),
    [
        ("k1:" + "S3CR3T-short", "too weak"),
        ("k1:" + "S3CR3T-S3CR3T-S3CR3T-S3CR3T-S3C", "too weak"),  # 31 characters
        ("k1:" + "ab" * 40, "too weak"),
        ("k1:" + secrets.token_hex(31), "64 or more hex digits"),
        ("S3CR3T-" + secrets.token_urlsafe(32), "key 1 must be id:secret"),
        ("k 1:S3CR3T-" + secrets.token_urlsafe(32), "key 1 must be id:secret"),
        ("k.1:S3CR3T-" + secrets.token_urlsafe(32), "key 1 must be id:secret"),
        (f"{OLD},S3CR3T", "key 2 must be id:secret"),
        (f"{OLD},k1:S3CR3T-{secrets.token_urlsafe(32)}", "two keys have the id k1"),
        ("# nothing\n", "name at least one"),
        (7, "use a list of texts"),
    ],
    ids=["short", "31", "hex-few", "hex-short", "no-id", "space", "dot", "second", "twice", "comment", "number"],
)
def test_what_is_no_key_is_refused_with_the_fix_and_without_the_secret(keys: Any, rule: str) -> None:
    with pytest.raises(ConfigurationError, match=rule) as caught:
        Settings.load(
            env={"FUSION_SECRET_KEYS": keys} if isinstance(keys, str) else {},
            **({} if isinstance(keys, str) else {"secret_keys": keys}),
        )
    text = str(caught.value)
    assert "S3CR3T" not in text
    assert OLD.partition(":")[2] not in text
    assert isinstance(keys, int) or "token_urlsafe" in text or "two keys" in text


def test_no_output_of_the_settings_shows_a_key() -> None:
    settings = Settings.load(env={"FUSION_SECRET_KEYS": f"{OLD},{NEW}"})
    shown = f"{settings!r} {settings} {settings.masked()} {settings.keyring!r} {vars(settings)['origins']}"
    for key in (OLD, NEW):
        assert key.partition(":")[2] not in shown
    assert settings.masked()["secret_keys"] == "***"
    assert repr(settings.keyring) == "Keyring(k1, k2)"


def test_keys_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(f"{NEW}\n{OLD}\n")
    settings = Settings.load(env={"FUSION_SECRET_KEYS_FILE": str(path)})
    assert settings.keyring is not None
    assert settings.keyring.ids == ("k2", "k1")
    assert flaw(claimed(settings), NEW) == ""
    with pytest.raises(ConfigurationError, match="secret_keys is given too"):
        Settings.load(env={"FUSION_SECRET_KEYS_FILE": str(path), "FUSION_SECRET_KEYS": OLD})


@pytest.mark.parametrize(
    ("content", "told"), [(None, "No such file"), ("", "name at least one"), ("k1:S3CR3T", "too weak"), (b"\xff", "UTF-8")]
)
def test_a_file_without_good_keys_signs_nothing_and_is_named(tmp_path: Path, content: str | bytes | None, told: str) -> None:
    path = tmp_path / "keys"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    settings = Settings(secret_keys_file=str(path))
    with pytest.raises(ConfigurationError, match=told) as caught:
        sealed("sms", [build("tasks.a.b", (), {}, EnqueueOptions(), settings).new], settings)
    assert str(path) in str(caught.value)
    assert "S3CR3T" not in str(caught.value)


def test_without_keys_nothing_is_signed() -> None:
    job = claimed(Settings())
    assert b"signature" not in job.fields
    assert EnvelopeCheck(Settings(), log).refuse(job) is None


# -- what a signature covers


def test_a_signature_as_another_language_would_make_it() -> None:
    """The format is a promise: written out here with nothing of ours, HMAC (RFC 2104) included."""
    key = "k1:0123456789abcdefghijklmnopqrstuvwxyz"
    text = b'12:fusion-job-1,3:job,2:j1,3:sms,1:2,28:["tasks.a.b",null,["\xc3\xa4"],{}],-,3:2.5,-,-,-,-,-,-,4:fail,2:90,'
    block = key.partition(":")[2].encode().ljust(64, b"\0")
    inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in block) + text).digest()
    outer = hashlib.sha256(bytes(byte ^ 0x5C for byte in block) + inner).digest()
    expected = "v1.k1." + base64.urlsafe_b64encode(outer).decode().rstrip("=")
    fields = {"data": '["tasks.a.b",null,["ä"],{}]', "timeout": 2.5, "on_lost": "fail", "ttl": 90, "serializer": None}
    assert Keyring([key]).sign("j1", "sms", 2, fields) == expected


@given(
    st.lists(st.one_of(st.none(), st.binary(max_size=6)), max_size=4),
    st.lists(st.one_of(st.none(), st.binary(max_size=6)), max_size=4),
)
def test_two_jobs_never_have_the_same_envelope(one: list[bytes | None], other: list[bytes | None]) -> None:
    made = [envelope(b"job", "i", "q", b"1", values) for values in (one, other)]
    assert (made[0] == made[1]) == (one == other)


def test_what_a_worker_needs_for_the_check_it_is_given() -> None:
    assert {*COVERED, "signature", "priority"} <= set(RUN_FIELDS)


def test_a_signed_job_is_good() -> None:
    job = claimed()
    assert {name.encode() for name in COVERED} < set(job.fields), "each covered field has a value here"
    assert flaw(job) == ""
    assert EnvelopeCheck(KEYS, log).refuse(job) is None


@pytest.mark.parametrize("name", [*COVERED, "priority", "signature"])
def test_each_byte_counts(name: str) -> None:
    job = claimed()
    value = job.fields[name.encode()]
    for at in range(len(value)):
        for bit in (1, 0x20, 0x80):
            other = value[:at] + bytes([value[at] ^ bit]) + value[at + 1 :]
            assert flaw(changed(job, name.encode(), other)), f"byte {at} of {name}"
    for other in (value + b"0", value[:-1], value + b"=", b"", None):
        assert flaw(changed(job, name.encode(), other)), f"{name} = {other!r}"


def test_an_absent_field_is_no_empty_one_and_none_can_be_added() -> None:
    new = build("tasks.a.b", (), {}, EnqueueOptions(job_id="j1"), KEYS).new
    (signed,) = sealed("sms", [new], KEYS)
    raw = {
        name.encode(): value if isinstance(value, bytes) else str(value).encode()
        for name, value in _present(signed.fields).items()
    }
    job = Claimed("sms", "j1", "exec", {**raw, b"priority": b"1"})
    assert flaw(job) == ""
    absent = [name for name in COVERED if name.encode() not in job.fields]
    assert len(absent) >= 6
    for name in absent:
        for value in (b"", b"0", b"json"):
            assert flaw(changed(job, name.encode(), value)), name


def test_the_same_under_another_id_or_in_another_queue_is_not_good() -> None:
    job = claimed()
    assert "another id" in flaw(replace(job, id="j2"))
    assert "another queue" in flaw(replace(job, queue="email"))


def test_what_tasks_and_scripts_change_is_not_covered() -> None:
    job = claimed()
    for name in (b"meta", b"retryCount", b"attempts", b"origin", b"enqueued_at", b"held_since", b"description", b"log_tag"):
        assert flaw(changed(job, name, b"8")) == "", name


# -- rotation


def test_rotation_the_first_signs_and_all_check() -> None:
    before, after = claimed(), claimed(Settings(secret_keys=(NEW, OLD)))
    assert after.fields[b"signature"].startswith(b"v1.k2.")
    assert flaw(before, NEW, OLD) == flaw(after, NEW, OLD) == ""
    assert flaw(after, NEW) == ""
    assert "key 'k1', which is none of this worker's (k2)" in flaw(before, NEW)


def test_another_secret_under_the_same_id_is_not_good() -> None:
    assert "does not fit" in flaw(claimed(), f"k1:{secrets.token_urlsafe(32)}")


@pytest.mark.parametrize(
    "given",
    [
        b"x",
        b"v1",
        b"v1.k1",
        b"v1.k1.",
        b"v2.k1.abc",
        b"v1..abc",
        b"v1.k\n1.abc",
        b"v1.\xff.abc",
        b"." * 9,
        b"v1." + b"k" * 99 + b".a",
    ],
)
def test_a_signature_that_is_none_is_told_in_one_printable_line(given: bytes) -> None:
    told = flaw(changed(claimed(), b"signature", given))
    assert told.isprintable()
    assert len(told) < 400


# -- cron entries


def entry_job(job_id: str) -> Claimed:
    new = build("tasks.a.b", (1,), {}, EnqueueOptions(), KEYS).new
    ring = Keyring([OLD])
    raw = {
        name.encode(): value if isinstance(value, bytes) else str(value).encode() for name, value in _present(new.fields).items()
    }
    raw |= {b"priority": b"1", b"signature": ring.sign_entry("nightly", "sms", 1, new.fields).encode()}
    return Claimed("sms", job_id, "exec", raw)


@pytest.mark.parametrize("job_id", ["cron-nightly-20261120T090000Z", "cron-nightly-manual-1", "cron-nightly-manual-4711"])
def test_the_jobs_of_an_entry_have_its_signature(job_id: str) -> None:
    assert flaw(entry_job(job_id)) == ""


@pytest.mark.parametrize(
    "job_id",
    [
        "nightly",
        "cron-nightly",
        "cron-nightly-",
        "cron-nightly-manual-",
        "cron-nightly-manual-x",
        "cron-nightly-20261120T0900Z",
        "cron-nightly-20261120T090000Z-manual-1",
        "cron-other-20261120T090000Z",
        "cron-nightly-20261120T090000Zx",
        "xcron-nightly-20261120T090000Z",
    ],
)
def test_and_no_other_job_has(job_id: str) -> None:
    assert flaw(entry_job(job_id))


def test_a_job_that_is_called_like_a_tick_is_good_for_its_own_id_alone() -> None:
    job = claimed(job_id="cron-nightly-20261120T090000Z")
    assert flaw(job) == ""
    assert flaw(replace(job, id="cron-nightly-20261121T090000Z"))


# -- the worker's check


def refused(job: Claimed, settings: Settings = KEYS) -> str:
    decision = EnvelopeCheck(settings, log).refuse(job)
    if decision is None:
        return ""
    assert decision.kind == "failed"
    assert decision.delay == 0
    assert decision.fields["error_class"] == "fusion.exceptions.BadSignature"
    assert decision.reason == decision.fields["reason"] == decision.fields["exc_info"]
    assert "\n" not in decision.reason
    return decision.reason


Change = Callable[[Claimed], Claimed]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda job: changed(job, b"signature", None), "has no signature"),
        (lambda job: changed(job, b"signature", b""), "has no signature"),
        (lambda job: changed(job, b"data", b"[]"), "was altered"),
        (lambda job: changed(job, b"signature", b"v1.k9.abc"), "'k9'"),
    ],
)
def test_what_is_not_good_fails_at_once_whatever_its_policy(change: Change, told: str) -> None:
    assert told in refused(change(claimed()))


def test_while_keys_are_introduced_only_what_has_no_signature_runs_too() -> None:
    lenient = replace(KEYS, require_signatures=False)
    job = claimed()
    unsigned = changed(job, b"signature", None)
    assert refused(unsigned, lenient) == ""
    assert refused(changed(unsigned, b"serializer", None), lenient) == ""
    assert "was altered" in refused(changed(job, b"data", b"[]"), lenient)
    for serializer in (b"pickle", b"PICKLE", b"x"):
        assert "has no signature" in refused(changed(unsigned, b"serializer", serializer), lenient)


def test_a_reload_reads_the_file_and_keeps_the_keys_if_it_can_not_be_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "keys"
    path.write_text(OLD)
    held = EnvelopeCheck(Settings(secret_keys_file=str(path)), log)
    job = claimed()
    assert held.refuse(job) is None
    path.write_text("k2:S3CR3T")
    held.reload()
    path.unlink()
    held.reload()
    assert held.refuse(job) is None
    assert caplog.text.count("the keys stay as they were") == 2
    assert "S3CR3T" not in caplog.text
    path.write_text(NEW)
    held.reload()
    assert held.refuse(job) is not None
