"""Signatures as in Standard Webhooks."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusion.delivery.signing import InvalidSignature, new_secret, sign, verify
from fusion.exceptions import ConfigurationError

# github.com/standard-webhooks/standard-webhooks: libraries/python/tests/test_webhooks.py `test_sign_function` and
# libraries/javascript/src/webhook.test.ts "sign function works".
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ID, STAMP, BODY = "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}'
SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
HEADERS = {"webhook-id": ID, "webhook-timestamp": str(STAMP), "webhook-signature": SIGNATURE}
# The same file, "multi sig payload is valid".
OTHER = "Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc="


def test_the_reference_vector_is_signed_alike() -> None:
    assert sign(ID, BODY, SECRET, STAMP) == HEADERS


def test_the_reference_vector_is_accepted_with_and_without_the_secrets_prefix() -> None:
    for secret in (SECRET, SECRET.removeprefix("whsec_")):
        assert verify(HEADERS, BODY, secret, now=STAMP) == ID
    assert verify({name.title(): value for name, value in HEADERS.items()}, bytearray(BODY), SECRET, now=STAMP) == ID


def test_one_good_signature_among_others_is_enough() -> None:
    many = f"v1,{OTHER} v2,{OTHER} {SIGNATURE} v1,{OTHER}"
    assert verify({**HEADERS, "webhook-signature": many}, BODY, SECRET, now=STAMP) == ID


@pytest.mark.parametrize(
    "signature",
    [
        "",
        "v1,",
        "v1",
        SIGNATURE[:8],
        SIGNATURE[:-2],
        "v1,dawfeoifkpqwoekfpqoekf",
        "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OA=",
        f"v1,{OTHER}",
        SIGNATURE.replace("v1,", "v2,"),
        SIGNATURE.replace("v1,", "v1a,"),
        SIGNATURE.replace("v1,", "V1,"),
        SIGNATURE.removeprefix("v1,"),
        SIGNATURE.replace(",", ", "),
        SIGNATURE + SIGNATURE,
        "v1,ümlaut",
        f"v1,{OTHER} " * 32 + SIGNATURE,
    ],
)
def test_no_other_signature_is_accepted(signature: str) -> None:
    with pytest.raises(InvalidSignature):
        verify({**HEADERS, "webhook-signature": signature}, BODY, SECRET, now=STAMP)


@pytest.mark.parametrize("missing", HEADERS)
def test_no_header_may_be_missing(missing: str) -> None:
    with pytest.raises(InvalidSignature, match="missing"):
        verify({name: value for name, value in HEADERS.items() if name != missing}, BODY, SECRET, now=STAMP)


@pytest.mark.parametrize("body", [b"", b'{"test":2432232314}', BODY + b" ", BODY + b"\n", BODY.replace(b"4}", b"5}")])
def test_another_body_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidSignature, match="no signature fits"):
        verify(HEADERS, body, SECRET, now=STAMP)


@given(st.integers(0, len(BODY) * 8 - 1))
def test_every_bit_of_the_body_counts(bit: int) -> None:
    body = bytearray(BODY)
    body[bit // 8] ^= 1 << bit % 8
    with pytest.raises(InvalidSignature):
        verify(HEADERS, body, SECRET, now=STAMP)


@pytest.mark.parametrize("change", [{"webhook-id": ID[:-1]}, {"webhook-id": "other"}, {"webhook-timestamp": str(STAMP + 1)}])
def test_another_id_or_timestamp_is_refused(change: dict[str, str]) -> None:
    with pytest.raises(InvalidSignature, match="no signature fits"):
        verify({**HEADERS, **change}, BODY, SECRET, now=STAMP)


@pytest.mark.parametrize(
    ("message_id", "stamp", "rest"),
    [(f"{ID}.{STAMP}", STAMP, BODY), (ID, f"{STAMP}.", BODY), (f"{ID}.1", 5, BODY)],
    ids=["id", "timestamp", "both"],
)
def test_a_full_stop_can_not_move_from_one_part_to_the_next(message_id: str, stamp: object, rest: bytes) -> None:
    """`a` + `.` + `1.2` and `a.1` + `.` + `2` are signed alike: so neither id nor timestamp has one."""
    key = base64.b64decode(SECRET.removeprefix("whsec_"))
    made = base64.b64encode(hmac.new(key, f"{message_id}.{stamp}.".encode() + rest, hashlib.sha256).digest()).decode()
    forged = {"webhook-id": message_id, "webhook-timestamp": str(stamp), "webhook-signature": f"v1,{made}"}
    with pytest.raises(InvalidSignature, match="malformed"):
        verify(forged, rest, SECRET, now=STAMP)


@pytest.mark.parametrize(
    "stamp",
    ["hello", "", "-1614265330", "1614265330.0", "1.6e9", "+1614265330", " 1614265330", "\u0661614265330", "0x60", "9" * 400],
)
def test_a_timestamp_is_whole_seconds_in_ascii(stamp: str) -> None:
    with pytest.raises(InvalidSignature, match="malformed"):
        verify({**HEADERS, "webhook-timestamp": stamp}, BODY, SECRET, now=STAMP)


def test_a_stamp_six_minutes_off_is_refused_in_either_direction() -> None:
    for now in (STAMP - 300, STAMP, STAMP + 300):
        assert verify(HEADERS, BODY, SECRET, now=now) == ID
    with pytest.raises(InvalidSignature, match="360 s old; at most 300 s"):
        verify(HEADERS, BODY, SECRET, now=STAMP + 360)
    with pytest.raises(InvalidSignature, match="301 s ahead"):
        verify(HEADERS, BODY, SECRET, now=STAMP - 301)
    with pytest.raises(InvalidSignature):
        verify(HEADERS, BODY, SECRET)  # by this machine's clock it is years old
    assert verify(HEADERS, BODY, SECRET, now=STAMP + 360, tolerance=400) == ID


def test_a_retry_has_the_same_id_a_new_timestamp_and_a_new_signature() -> None:
    first, second = sign("1-42", BODY, SECRET, STAMP), sign("1-42", BODY, SECRET, STAMP + 3600)
    assert first["webhook-id"] == second["webhook-id"]
    assert first["webhook-signature"] != second["webhook-signature"]
    assert verify(second, BODY, SECRET, now=STAMP + 3600) == "1-42"


def test_the_timestamp_is_now_unless_given() -> None:
    assert verify(sign("1-42", BODY, SECRET), BODY, SECRET) == "1-42"


def test_while_a_secret_is_replaced_both_are_good() -> None:
    old, new, foreign = new_secret(), new_secret(), new_secret()
    both = sign(ID, BODY, [new, old], STAMP)
    assert re.fullmatch(r"v1,\S{44} v1,\S{44}", both["webhook-signature"])
    for receivers in (old, new, [new, old], [foreign, old]):
        assert verify(both, BODY, receivers, now=STAMP) == ID
    with pytest.raises(InvalidSignature):
        verify(both, BODY, foreign, now=STAMP)
    only_new = sign(ID, BODY, new, STAMP)
    assert verify(only_new, BODY, [old, new], now=STAMP) == ID
    with pytest.raises(InvalidSignature):
        verify(only_new, BODY, old, now=STAMP)


def _secret(length: int) -> str:
    return "whsec_" + base64.b64encode(b"k" * length).decode()


@pytest.mark.parametrize("length", [24, 25, 26, 32, 64])
def test_a_secret_has_24_to_64_bytes(length: int) -> None:
    for secret in (_secret(length), _secret(length).rstrip("=")):
        assert verify(sign(ID, BODY, secret, STAMP), BODY, secret, now=STAMP) == ID


@pytest.mark.parametrize(
    "secret",
    [
        _secret(23),
        _secret(65),
        _secret(0),
        "",
        "whsec_",
        "whsec_S3CR3T not base64 at all, really not",
        _secret(32) + "\n",
        "ü" * 40,
        [],
        (),
    ],
)
def test_an_invalid_secret_is_refused_and_not_shown(secret: str) -> None:
    for call in (lambda: sign(ID, BODY, secret), lambda: verify(sign(ID, BODY, SECRET), BODY, secret)):
        with pytest.raises(ConfigurationError, match="secret") as refused:
            call()
        assert "S3CR3T" not in str(refused.value)


def test_new_secrets_are_good_and_never_the_same() -> None:
    made = {new_secret() for _ in range(50)}
    assert len(made) == 50
    assert all(re.fullmatch(r"whsec_[A-Za-z0-9+/]{43}=", secret) for secret in made)


@pytest.mark.parametrize("message_id", ["", "a.b", "a b", "a\r\nb", "a\n", "ä", "\u010a", "x" * 129, "a/b", "a,b"])
def test_an_id_that_could_not_be_signed_safely_is_refused(message_id: str) -> None:
    with pytest.raises(ValueError, match="webhook-id"):
        sign(message_id, BODY, SECRET)


def test_a_body_that_was_parsed_or_decoded_is_a_mistake_of_the_receivers_program() -> None:
    for body in (BODY.decode(), {"test": 2432232314}, None):
        with pytest.raises(TypeError, match="bytes"):
            verify(HEADERS, body, SECRET, now=STAMP)


def test_all_pairs_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every secret with every signature, by hmac.compare_digest, also after a hit."""
    compared, real = [], hmac.compare_digest

    def watched(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return real(one, other)

    monkeypatch.setattr(hmac, "compare_digest", watched)
    verify({**HEADERS, "webhook-signature": f"{SIGNATURE} v1,{OTHER}"}, BODY, [SECRET, new_secret()], now=STAMP)
    assert len(compared) == 4
