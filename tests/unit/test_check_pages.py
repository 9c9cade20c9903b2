"""`tools/check_pages.py` and `tools/claims.py`: a page of the docs gets no harder to read, and loses no claim unseen."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tools import check_pages, claims, page_text
from tools.check_pages import GOAL, Figures, figures, lowered

PAGE = """# A heading of five words

A first sentence, with [a link](there.md#x) and `some code` in it. A second (in short, e.g. this one).

- an item
  that goes on

| option | default |
|---|---|
| `timeout` | 180 s, never more |

```python
so many lines of code that nobody counts
```
"""


def test_a_page_is_counted_without_its_code() -> None:
    assert figures(PAGE) == Figures(34, 7.4, 0, 0)


@pytest.mark.parametrize(("count", "long"), [(35, 0), (36, 1)])
def test_a_sentence_is_too_long_in_a_paragraph_and_in_a_cell(count: int, long: int) -> None:
    sentence = " ".join(["word"] * count) + "."
    assert figures(sentence).long == figures(f"| {sentence} | Short. |\n").long == long


def test_banned_phrases_count_in_text_alone() -> None:
    assert figures("It says so, `says so` or not.").banned == 1
    assert check_pages.to_mend("It says so.") == ["'says so'; say: reports it, logs it"]


def test_a_bound_only_falls_and_never_under_the_goal() -> None:
    bound = Figures(0, 20.0, 3, 2)
    assert lowered(Figures(9, 21.0, 4, 3), bound) == bound
    assert lowered(Figures(9, 18.0, 2, 1), bound) == Figures(0, 18.0, 2, 1)
    assert lowered(Figures(9, 9.0, 0, 0), bound) == GOAL


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("# Short\n")
    (tmp_path / "pages.json").write_text("{}")
    for module in (page_text, check_pages, claims):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(check_pages, "BOUNDS", tmp_path / "pages.json")
    return tmp_path


def test_a_page_over_its_bound_is_wrong_and_one_below_it_lowers_it(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, long = project / "docs" / "a.md", " ".join(["word"] * 36) + "."
    page.write_text(long)
    assert check_pages.main([]) == 1
    assert "docs/a.md: 1 sentences of over 35 words, 0 at most" in capsys.readouterr().out
    (project / "pages.json").write_text(json.dumps({"docs/a.md": [36.0, 1, 0]}))
    assert check_pages.main([]) == 0
    page.write_text("Two words. Two words.")
    assert check_pages.main([]) == 0
    assert "hint: bounds can be lowered" in capsys.readouterr().out
    assert check_pages.main(["--write"]) == 0
    page.write_text(long)
    assert check_pages.main([]) == 1


def test_all_pages_together_have_a_bound(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "docs" / "a.md").write_text("Two words. Two words.")
    monkeypatch.setattr(check_pages, "ALL_WORDS", 5)
    assert check_pages.main([]) == 0
    monkeypatch.setattr(check_pages, "ALL_WORDS", 4)
    assert check_pages.main([]) == 1
    assert "all pages: 5 words, 4 at most" in capsys.readouterr().out


def test_a_claim_that_is_gone_is_listed_with_its_line(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = project / "docs" / "a.md"
    page.write_text(PAGE)
    git = ["git", "-c", "user.name=n", "-c", "user.email=e"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *arguments], cwd=project, check=True)
    page.write_text(PAGE.replace("180 s, never more", "180 s").replace("`timeout`", "`limit`").replace("there.md#x", "here.md"))
    assert claims.main([str(page), "--since", "HEAD"]) == 0
    shown = capsys.readouterr().out
    assert "a.md:10: row: `timeout`" in shown
    assert "a.md:10: code: timeout" in shown
    assert "a.md:3: link: there.md#x" in shown
    assert "number: 180 s" not in shown
    assert "words that stand there less often: never 1 -> 0" in shown
