"""The text of a script, once in a test run: to fill one in takes longer than most of what a test does with it."""

from __future__ import annotations

from fusion.store.scripting.constants import FleetConstants
from fusion.store.scripting.scripts import Source

_prepare = Source.text
_known: dict[tuple[Source, str, tuple[int, ...]], str] = {}


def _remembered(source: Source, constants: FleetConstants, server: tuple[int, ...]) -> str:
    # By their words: 500 and 500.0 are equal, and two texts.
    key = (source, repr(constants), server)
    if key not in _known:
        _known[key] = _prepare(source, constants, server)
    return _known[key]


def remember_texts() -> None:
    """In this process: a source, constants and a server's version that were there before give the text of then."""
    Source.text = _remembered  # type: ignore[method-assign]
