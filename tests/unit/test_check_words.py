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
    ("text", "said"), [("", "lower its number"), ("Who asks.", ""), ("who asks who asks", "2 times, 1 at most")]
)
def test_a_phrase_stands_there_as_often_as_before(project: Path, text: str, said: str) -> None:
    (project / "fusion" / "a.py").write_text(f'"""{text}"""\n')
    found = "".join(check_words.verdicts(check_words.counted(project)))
    assert said in found if said else not found
    assert "the caller" in found if "at most" in said else True
