"""What a broken key hides is not said to be missing."""

from __future__ import annotations

from collections.abc import Mapping

from fusion.store.read.tolerant import in_words
from fusion.web.exchange import HttpError


def check_sound(broken: Mapping[str, str]) -> None:
    """Raise 500 if a broken key hides something: that is not said to be missing."""
    for sentence in in_words(broken):
        raise HttpError(500, "broken_key", f"{sentence}; an operator has to look who else writes to this Redis")
