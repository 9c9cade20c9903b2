"""Which layout the data in Redis have, and who is too old to touch them. The rules for users and for developers: docs/upgrades.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fusion.exceptions import DataTooOld, SchemaMismatch

#: The layout this code knows. One more with every change that older processes must not meet unprepared.
VERSION = 2
#: What `schema --raise` run from this code asks for: the layout that workers, schedulers and relays must know, and the one that whoever
#: enqueues or changes jobs must know.
MIN_READER = 2
MIN_WRITER = 2
#: The layout of data without the key, for ever: stock RQ's, or what a user wrote who may not write the key. Where there are no data either,
#: the newest begins.
FIRST = 2

#: How a script says that it changed nothing: this word, the data's version, what would be needed, and which Fusion wrote that.
REFUSAL = "FUSION_SCHEMA"
_BROKEN, _OLDER = "broken", "older"


@dataclass(frozen=True, slots=True)
class Schema:
    """The key as it stands. `fusion`, `by` and `at` say who wrote it and when; without the key they are empty."""

    version: int = FIRST
    min_reader: int = FIRST
    min_writer: int = FIRST
    fusion: str = ""
    by: str = ""
    at: str = ""

    @classmethod
    def of(cls, fields: Mapping[bytes, bytes]) -> Schema:
        """As the hash's fields tell; what is not there, or is no number, counts as in data without the key."""
        texts = {name.decode("utf-8", "replace"): value.decode("utf-8", "replace") for name, value in fields.items()}

        def number(name: str) -> int:
            found = texts.get(name, "")
            return int(found) if found.isdecimal() and found.isascii() else FIRST

        who, by, at = (texts.get(name, "") for name in ("fusion", "by", "at"))
        return cls(number("version"), number("min_reader"), number("min_writer"), who, by, at)

    def check_reader(self, known: int = VERSION) -> None:
        """SchemaMismatch if a worker, scheduler or relay that knows that layout may do nothing here."""
        needed = max(self.min_reader, self.min_writer)
        if needed > known:
            raise mismatch(f"{REFUSAL} {self.version} {needed} {self.fusion}", known)

    def check_writer(self, known: int = VERSION) -> None:
        """SchemaMismatch if who knows that layout may not change anything."""
        if self.min_writer > known:
            raise mismatch(f"{REFUSAL} {self.version} {self.min_writer} {self.fusion}", known)


def mismatch(said: str, known: int = VERSION) -> SchemaMismatch | DataTooOld:
    """Say in words what a script's refusal means."""
    from fusion import __version__

    words = said.split()
    if words[1:2] == [_OLDER]:
        return DataTooOld(int(words[2]), int(words[3]))
    if len(words) < 3 or words[1] == _BROKEN:
        return SchemaMismatch(
            "the key `schema` in Redis (under the prefix) is damaged, so nothing is changed; delete it,"
            " and the next worker or scheduler that starts writes it anew"
        )
    version, needed = (int(word) if word.isdecimal() else 0 for word in words[1:3])
    by = " ".join(words[3:])
    return SchemaMismatch(
        f"the data in Redis are of schema {version}{f' (Fusion {by})' if by else ''} and need a process that knows schema {needed};"
        f" this is Fusion {__version__}, which knows schema {known}: upgrade it",
        version=version,
        needed=needed,
    )
