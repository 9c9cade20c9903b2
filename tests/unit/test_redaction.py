"""What is shown of a job's data, and that nothing of a secret is."""

from __future__ import annotations

import datetime
import decimal
import json
import pickle
import sys
import uuid
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusion.exceptions import SerializationError
from fusion.kernel.redaction import Secret, is_secret, masked_call, masked_result, masked_text, masked_value
from fusion.kernel.serializers import JSONSerializer, PickleSerializer, dumps_call, loads_call

PLAIN = JSONSerializer()


def call(*args: Any, **kwargs: Any) -> bytes:
    return dumps_call(PLAIN, "tasks.sms.sendSMS", args, kwargs)


def shown(*args: Any, **kwargs: Any) -> Any:
    """The masked call, read again."""
    return json.loads(masked_call(call(*args, **kwargs)))


@dataclass
class Order:
    number: int
    card_pin: str


# -- calls and results


def test_structure_stays_and_values_go() -> None:
    payload = {
        "to": "+4915112345678",
        "text": "Your code is 482913",
        "valid": True,
        "reply": None,
        "parts": 2,
        "price": -1.5,
        "lang": "de",
        "empty": [[], {}, ""],
    }
    assert shown(payload, "de", provider="swordfish") == {
        "args": [
            {
                "to": "+*************",
                "text": "Your code is ******",
                "valid": True,
                "reply": None,
                "parts": "*",
                "price": "-*.*",
                "lang": "de",
                "empty": [[], {}, ""],
            },
            "de",
        ],
        "kwargs": {"provider": "***"},
    }


def test_the_function_and_its_place_in_the_call_are_not_data() -> None:
    assert masked_call(call()) == '{"args":[],"kwargs":{}}'


@pytest.mark.parametrize(
    "key",
    [
        "password", "Passwd", "PASSPHRASE", "db_password", "passwordAgain", "pwd", "secret", "client-secret", "secrets", "token", "access_token",
        "refreshToken", "X-Api-Key", "apikey", "API_KEY", "Authorization", "proxy-authorization", "auth", "cookie", "Set-Cookie", "session",
        "sessionId", "otp", "OTP", "sms_otp", "userOTP", "OTPCode", "otp2", "pin", "PIN", "cardPin", "pin_code", "code", "verification_code",
        "smscode", "cvv", "CVC", "credential", "credentials", "private_key", "PrivateKey", "signature", "x-hub-signature", "jwt",
        "promoCode", "loginCode", "code_status", "tokencode",
    ],
)  # fmt: skip
def test_the_value_of_a_secret_key_goes_whatever_it_is(key: str) -> None:
    assert is_secret(key)
    for value in ("ab", 12, 1.5, True, ["ab"], {"a": "ab"}, ("ab", 1)):
        assert shown({key: value}, deep=[[{key: value}]]) == {"args": [{key: "***"}], "kwargs": {"deep": [[{key: "***"}]]}}


@pytest.mark.parametrize(
    "key",
    [
        "to", "text", "author", "shipping", "footprint", "pinned", "name", "html", "key", "template", "number", "body", "", "-",
        "utf8_decode", "b64encode", "unicode", "decoder", "urlencode", "barcode", "errcode", "errCode", "status_code", "statusCode", "Exit-Code",
        "country_code", "zipCode", "post_code", "STATUS_CODE",
    ],
)  # fmt: skip
def test_other_keys_are_none(key: str) -> None:
    assert not is_secret(key)
    assert shown({key: "ab"})["args"] == [{key: "ab"}]


def test_headers_in_pairs_are_secret_by_their_name() -> None:
    assert shown([["Cookie", "ab"], ["Via", "ab"]])["args"] == [[["***", "***"], ["Via", "ab"]]]


def test_types_that_json_lacks_are_named() -> None:
    values = [
        datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc),
        decimal.Decimal("12.5"),
        uuid.UUID(int=5),
        b"raw",
        ("a", 1),
        {"a"},
        {1: "a", ("b",): "c"},
        {"password": ("a",), 2: 3},
        Order(7, "abcd"),
        {"__fusion__": "mine"},
    ]
    assert shown(values)["args"] == [
        [
            "[datetime]",
            "[decimal]",
            "[uuid]",
            "[bytes]",
            ["a", "*"],
            ["a"],
            {"*": "a", '["b"]': "c"},
            {"password": "***", "*": "*"},
            {"number": "*", "card_pin": "***"},
            {"__fusion__": "mine"},
        ]
    ]


def test_keys_that_are_data_are_masked() -> None:
    data = {"4915112345678": 1, "anna@example.com": 2, "a1b2c3d4e5f6a7b8c9": 3, "line_1": 4, "x-hub-sha-256": 5}
    out = masked_call(call(data))
    assert [part.split('":')[0] for part in out.removeprefix('{"args":[{"').split(',"')][:5] == [
        "*************",
        "***",
        "***",
        "line_1",
        "x-hub-sha-***",
    ]


def test_urls_keep_their_host() -> None:
    urls = {
        "a": "https://user:swordfish@api.example.com:8443/hooks/swordfish?token=swordfish#swordfish",
        "b": "redis://:swordfish@db/0",
        "c": "https://example.com",
        "d": "swordfish://swordfish",
    }
    assert shown(urls)["args"] == [
        {"a": "https://api.example.com:****/***", "b": "***", "c": "https://example.com/***", "d": "***"}
    ]


WORD = st.text(st.characters(codec="utf-8", categories=["L", "Nd"]), min_size=6, max_size=40)
TEXT = st.text(max_size=20)


@given(
    canary=WORD,
    before=TEXT,
    after=TEXT,
    place=st.sampled_from(
        ["plain", "kwarg", "dict", "list", "tuple", "header", "url", "userinfo", "query", "json", "set", "bytes"]
    ),
)
def test_no_word_of_six_letters_or_digits_gets_through(canary: str, before: str, after: str, place: str) -> None:
    text = f"{before}{canary}{after}"
    args: dict[str, tuple[Any, ...]] = {
        "plain": (text,),
        "kwarg": (),
        "dict": ({"text": text, "a": {"b": [text]}},),
        "list": ([text, [text]],),
        "tuple": ((text, (text,)),),
        "header": ([["X-Note", text]],),
        "url": (f"https://example.com/{text}",),
        "userinfo": (f"https://u:{text}@example.com/",),
        "query": (f"https://example.com/?q={text}",),
        "json": (json.dumps({"password": text}),),
        "set": ({text},),
        "bytes": (text.encode(),),
    }
    kwargs = {"note": text} if place == "kwarg" else {}
    out = masked_call(dumps_call(PLAIN, "f", args[place], kwargs))
    assert canary not in out
    assert canary not in json.loads(json.dumps(out))
    json.loads(out)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ),
    st.integers(5, 400),
)
def test_the_text_is_json_within_its_limit(value: Any, limit: int) -> None:
    for out in (
        masked_value(value, limit),
        masked_value(value, limit, strict=False),
        masked_result(PLAIN.dumps(value), limit=limit),
    ):
        json.loads(out)
        assert len(out) <= limit
        assert out.isprintable()


def test_what_is_left_out_is_counted() -> None:
    out = json.loads(masked_call(call(list(range(1000)), {f"k{n:x}": "a" for n in range(500)}), limit=600))
    assert len(json.dumps(out)) < 700
    assert out["args"][0][-1].startswith("... ")
    assert out["args"][0][-1].endswith(" more")


def test_long_and_deep_values_are_cheap_and_short() -> None:
    deep: Any = "bottom"
    for _ in range(60):
        deep = [deep]
    assert "more]" in masked_call(call(deep))
    long = masked_call(call("word " * 100_000))
    assert len(long) < 600
    assert len(masked_call(call("x1" * 250_000))) < 50


@pytest.mark.parametrize(
    "raw",
    [
        b"{", b"\xff\xfe", b"[]", b"null", b'"text"', b'["f",null,[]]', b'["f","instance",[],{}]', b'[1,null,[],{}]', b'["f",null,"args",{}]',
        b"[" * 100_000, b'["f",null,[' + b"9" * 5000 + b"],{}]",
    ],
)  # fmt: skip
def test_what_is_no_call_is_unreadable(raw: bytes) -> None:
    assert masked_call(raw) == "[unreadable]"


def test_pickles_are_never_loaded() -> None:
    raw = dumps_call(PickleSerializer(), "f", ("swordfish",), {})
    assert (masked_call(raw, "pickle"), masked_result(raw, "pickle")) == ("[pickled]", "[pickled]")
    assert masked_call(raw) == "[unreadable]"
    assert masked_call(b"", "pickle") == masked_call(b"") == masked_result(b"") == ""


def test_results_are_masked_like_arguments() -> None:
    assert masked_result(b'{"message_id":"SM123456","ok":true,"token":"ab"}') == '{"message_id":"***","ok":true,"token":"***"}'
    assert masked_result(b"{") == "[unreadable]"


# -- messages


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sent to the provider", "sent to the provider"),
        ("3 of 10 sent to +49 151 1234", "3 of 10 sent to +** *** ****"),
        ("code ٤٨٢٩", "code ****"),
        ("redis://:swordfish@db:6379/0 is away", "redis://***@db:****/* is away"),
        ("redis://:sword/fish@db/0", "redis://***"),
        ("redis://:swordfish?x@db/0", "redis://***"),
        ("https://u:swordfish@example.com/a/b?x=swordfish&y=2#swordfish!", "https://***@example.com/a/b?x=***&y=***#***"),
        ("Authorization: Bearer swordfish", "Authorization: ***"),
        ("with Bearer swordfish", "with Bearer ***"),
        ("Basic c3dvcmRmaXNo", "Basic ***"),
        ("basic checks passed", "basic checks passed"),
        ("failed: token=swordfish, user=anna", "failed: token=***, user=anna"),
        ('{"password": "sword fish", "a": "b"}', '{"password": ***, "a": "b"}'),
        ('{\\"password\\": \\"swordfish\\"}', '{\\"password\\": ***}'),
        ("X-Api-Key: swordfish", "X-Api-Key: ***"),
        ("a=b=c password=swordfish", "a=b=c password=***"),
        ("key sk-swordfish", "key ***"),
        ("eyJhbGciOiJIUzI.eyJzdWIi.c2ln", "***"),
        ("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "***"),
        ("id 0b8f0c3e-3b0a-4f0e-9d0c-swordfish", "id ***"),
        ("two\nlines\ttab \x1b[2Jesc \u202eleft", "two lines tab \\x1b[2Jesc \\x202eleft"),
        ("", ""),
    ],
)
def test_messages(text: str, expected: str) -> None:
    assert masked_text(text) == expected


def test_a_message_is_bounded_and_no_cut_off_token_is_shown() -> None:
    out = masked_text("word " * 10_000)
    assert len(out) == 1024
    assert out.endswith("...")
    token = "a1" * 2000
    for filler in range(2030, 2060):
        assert "a" not in masked_text("-" * filler + " " + token, 1024)


@given(st.text(), st.integers(0, 50))
def test_any_text_is_a_message(text: str, limit: int) -> None:
    out = masked_text(text, limit)
    assert out.isprintable()
    assert len(out) <= max(limit, 3)
    assert not any(c.isdecimal() for c in out if c in text and not c.isascii())


class Loud:
    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_what_has_no_text_is_unreadable() -> None:
    assert masked_text(Loud()) == "[unreadable]"
    assert masked_value({"a": Loud()}) == '{"a":"[Loud]"}'
    assert masked_value({"a": 10**5000}) == "[unreadable]"


def test_what_somebody_chose_to_say_is_masked_less() -> None:
    fields = {"provider": "twilio", "token": "ab", "to": "+49151", "took": 1.25, "url": "https://u:p@example.com/a"}
    assert json.loads(masked_value(fields, strict=False)) == {
        "provider": "twilio",
        "token": "***",
        "to": "+*****",
        "took": "1.25",
        "url": "https://***@example.com/a",
    }


# -- Secret


def test_a_secret_does_not_print() -> None:
    secret = Secret("swordfish")
    assert f"{secret} {secret!r} {[secret]}" + str(secret) + "%s" % secret == "*** Secret('***') [Secret('***')]******"  # noqa: UP031
    assert secret.reveal() == "swordfish"
    assert secret == Secret("swordfish") != "swordfish"
    assert {secret: 1}[Secret("swordfish")] == 1
    assert not Secret("")
    with pytest.raises(TypeError, match="a secret is a text"):
        Secret(5)  # type: ignore[arg-type]


def test_a_secret_travels_and_stays_one() -> None:
    raw = call(Secret("abc"), {"a": Secret("abc")}, [Secret("abc")])
    assert loads_call(PLAIN, raw)[1] == (Secret("abc"), {"a": Secret("abc")}, [Secret("abc")])
    assert shown(Secret("abc"), {"a": Secret("abc")})["args"] == ["***", {"a": "***"}]
    assert masked_value([Secret("abc")], strict=False) == '["***"]'
    assert PLAIN.loads(PLAIN.dumps(Secret("abc"))).reveal() == "abc"
    assert pickle.loads(pickle.dumps(Secret("abc"))) == Secret("abc")  # noqa: S301


def test_a_secret_is_not_taken_for_a_plain_json_value() -> None:
    with pytest.raises(TypeError):
        json.dumps(Secret("abc"))
    with pytest.raises(SerializationError):
        PLAIN.dumps({Loud(): Secret("abc")})


def test_it_is_lean() -> None:
    import subprocess

    script = "import sys; before = set(sys.modules); import json, re; import fusion; base = set(sys.modules); import fusion.kernel.redaction; "
    script += "print(*sorted(set(sys.modules) - base))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout.split() == ["fusion.kernel", "fusion.kernel.redaction", "fusion.kernel.secret_names"]
