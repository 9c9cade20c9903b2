"""`tools/check_words.py`: phrases that a reader has to decode only ever get fewer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import check_words


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(check_words, "PHRASES", {"who asks": (1, "the caller")})
    (tmp_path / "fusion").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("text", "wrong", "hint"),
    [("", "", "can be lowered from 1"), ("Who asks.", "", ""), ("who asks who asks", "2 times, 1 at most", "")],
)
def test_only_a_phrase_used_more_often_than_before_is_wrong(project: Path, text: str, wrong: str, hint: str) -> None:
    (project / "fusion" / "a.py").write_text(f'"""{text}"""\n')
    for expected, lines in zip((wrong, hint), check_words.verdicts(check_words.counted(project)), strict=True):
        assert len(lines) == bool(expected)
        assert all(expected in line for line in lines)


def test_a_wrong_phrase_comes_with_the_plain_word(project: Path) -> None:
    (project / "fusion" / "a.py").write_text("# who asks, and who asks again\n")
    (line,), _ = check_words.verdicts(check_words.counted(project))
    assert "say: the caller" in line


def test_tests_and_tools_may_not_use_what_stands_nowhere(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_words, "PHRASES", {"who asks": (0, "the caller"), "amid": (0, "during")})
    (project / "tests").mkdir()
    (project / "tests" / "test_a.py").write_text("# who asks amid a turn\n")
    (line,), _ = check_words.verdicts(check_words.counted(project))
    assert "'who asks': 1 times, 0 at most (tests/test_a.py:1)" in line
