"""What is made of scripts is kept for the next process, and never taken for what it is not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fusion.store.scripting import kept, scripts
from tests.kit.bytecode import keep_scripts
from tests.kit.prepared import write_kept


class Maker:
    """Counts how often something is made."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self) -> str:
        self.made += 1
        return "return 'ä'\r\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(kept, "_write", write_kept)
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = kept._path("x")
    assert path is not None and path.is_relative_to(tmp_path)
    return path


@pytest.fixture
def maker(place: Path) -> Maker:
    maker = Maker()
    assert kept.kept("x", ("a", "b"), maker) == "return 'ä'\r\n"
    assert maker.made == 1
    assert [path.name for path in place.parent.iterdir()] == [place.name]
    return maker


def test_it_is_made_once(maker: Maker) -> None:
    assert kept.kept("x", ("a", "b"), maker) == "return 'ä'\r\n"
    assert maker.made == 1


@pytest.mark.parametrize("sources", [("a", "c"), ("ab",), ("a", "b", ""), ("b", "a"), ("", "ab")])
def test_of_other_texts_it_is_made_anew_and_takes_the_place(maker: Maker, sources: tuple[str, ...]) -> None:
    for count in (2, 2):
        kept.kept("x", sources, maker)
        assert maker.made == count
    kept.kept("x", ("a", "b"), maker)
    assert maker.made == 3


def test_without_its_sources_nothing_is_kept(maker: Maker, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Fusion that was shipped as bytecode alone."""
    before = place.read_bytes()
    kept._makers.cache_clear()
    monkeypatch.setattr(kept, "_STORE", place.parent)
    monkeypatch.setattr(kept, "_path", lambda name: place)
    assert kept.kept("x", ("a", "b"), maker) == "return 'ä'\r\n"
    assert maker.made == 2 and place.read_bytes() == before


def test_by_other_code_it_is_made_anew(maker: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_makers", lambda: "of another version")
    kept.kept("x", ("a", "b"), maker)
    assert maker.made == 2


@pytest.mark.parametrize("spoil", [b"", b"\xff", b"# %s", b"%s more", b"\n%s"])
def test_what_is_not_whole_does_not_count(place: Path, maker: Maker, spoil: bytes) -> None:
    whole = place.read_bytes()
    for spoiled in (spoil.replace(b"%s", whole), whole[:-1], whole.replace(b"return", b"repeat")):
        assert spoiled != whole
        place.write_bytes(spoiled)
        before = maker.made
        assert kept.kept("x", ("a", "b"), maker) == "return 'ä'\r\n"
        assert maker.made == before + 1
        assert place.read_bytes() == whole


def test_nobody_waits_for_a_place_that_can_not_be_written(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maker = Maker()
    place.parent.parent.mkdir(parents=True)
    place.parent.write_text("a file where the directory should be")
    assert kept.kept("x", ("a",), maker) == "return 'ä'\r\n"
    place.parent.unlink()
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert kept.kept("x", ("a",), maker) == "return 'ä'\r\n"
    assert not place.parent.exists()
    monkeypatch.setattr(sys.implementation, "cache_tag", None)
    assert kept.kept("x", ("a",), maker) == "return 'ä'\r\n"
    assert maker.made == 3


def test_all_scripts_are_made_at_once_and_read_as_they_were_made(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [file.name.removesuffix(".lua") for file in scripts._LUA.iterdir() if file.name.endswith(".lua")]

    def sources() -> list[tuple[scripts.Source, str]]:
        scripts.load.cache_clear()
        return [(source, source.inlined()) for source in map(scripts.load, names)]

    def nobody_makes(_: object) -> str:
        raise AssertionError

    try:
        with monkeypatch.context() as without:
            without.setattr(sys, "dont_write_bytecode", True)
            made = sources()
        assert not place.parent.exists()
        scripts.load.cache_clear()
        keep_scripts()
        assert len([*place.parent.iterdir()]) == 2 * len(names)
        monkeypatch.setattr(scripts, "_body", nobody_makes)
        monkeypatch.setattr(scripts, "_inlined", nobody_makes)
        assert sources() == made
    finally:
        scripts.load.cache_clear()
