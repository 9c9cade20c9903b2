"""RQ's argument grammar, checked against RQ itself."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rq.cli.helpers import parse_function_args

from fusion.cli.arguments import parse

CASES = [
    ["text"],
    [""],
    ["a", "b", "c"],
    ["1", ":1", "%1"],
    [':{"to": "+49", "body": "a=b:c%d"}'],
    [":[1, 2.5, null, true]", ':"@at"'],
    ["%(1, 2)", "%{'a': b'x'}", "%{1, 2}", "%None"],
    ["key=text", "other="],
    ["key:=5", 'second:={"a": [1]}'],
    ["key%=(1, 2)"],
    ["key=a=b", "k2=:1", "k3=%1"],
    ["=text"],
    ["a:b", "a%b", "https://example.com/x"],
    ["text", "key:=1", "more"],
]


@pytest.mark.parametrize("arguments", CASES, ids=" ".join)
def test_as_rq_reads_it(arguments: list[str]) -> None:
    assert parse(arguments) == parse_function_args(arguments)


@pytest.mark.long
@given(key=st.from_regex(r"[a-z_][a-z0-9_]{0,5}", fullmatch=True), sign=st.sampled_from(["=", ":=", "%="]), number=st.integers())
def test_keywords_as_rq_reads_them(key: str, sign: str, number: int) -> None:
    assert parse([f"{key}{sign}{number}"]) == parse_function_args([f"{key}{sign}{number}"])


@given(st.text(st.characters(exclude_characters="=", codec="utf-8")).filter(lambda text: text[:1] not in (":", "%", "@")))
def test_a_text_without_signs_stays_as_it_is(text: str) -> None:
    assert parse([text]) == ([text], {})


def test_values_from_files(tmp_path: Path) -> None:
    file = tmp_path / "payload"
    file.write_text('{"a": 1}')
    arguments = [f"@{file}", f":@{file}", f"%@{file}", f"k:=@{file}", f"t=@{file}"]
    assert parse(arguments) == parse_function_args(arguments)
    assert parse([f":@{file}"]) == ([{"a": 1}], {})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a", ":nope"], "argument 2: 'nope' is not JSON"),
        ([":1e400"], "argument 1: '1e400' is not JSON that can be sent: 1e400 is too large for a number"),
        ([":-1e400"], "argument 1: '-1e400' is not JSON that can be sent"),
        (["a:=[NaN]"], "keyword 'a': '[NaN]' is not JSON that can be sent: NaN is not JSON"),
        ([":Infinity"], "Infinity is not JSON"),
        ([':{"a": 1, "a": 2}'], "the key 'a' occurs twice"),
        (["k:={"], "keyword 'k': '{' is not JSON"),
        (["%open('x')"], "is not a Python literal"),
        (["%("], "is not a Python literal"),
        (["k%=x"], "keyword 'k': 'x' is not a Python literal"),
        (["k=1", "k=2"], "keyword 'k' is given twice"),
        (["@/no/such/file"], "file '/no/such/file' can't be read: No such file or directory"),
        (["@/"], "file '/' can't be read"),
        (["https://example.com/?a=b"], "can't be a keyword; for a text write it as JSON"),
    ],
)
def test_a_wrong_argument_is_named(arguments: list[str], message: str) -> None:
    with pytest.raises(click.UsageError, match=re.escape(message)):
        parse(arguments)


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(click.UsageError, match="not UTF-8 text"):
        parse([f"@{tmp_path / 'binary'}"])
