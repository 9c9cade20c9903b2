"""`manage.py fusion_outbox run | status | retry | delete`: `fusion outbox`, with the database of this project."""

from __future__ import annotations

from collections.abc import Sequence

from fusion.contrib.django.commands import FusionCommand

_VERBS = ("run", "status", "retry", "delete")
_HELP = ("-h", "--help")


class Command(FusionCommand):
    """`fusion outbox` with the project's settings and its database: FUSION['OUTBOX'], or the alias that `--using` names. The default verb is
    run."""

    name = "outbox"

    def words_of(self, given: Sequence[str]) -> list[str]:
        """Return the arguments: the verb first, then the database."""
        using, rest = _without_using(given)
        if not rest or (rest[0].startswith("-") and rest[0] not in _HELP):
            rest = ["run", *rest]
        if using is not None and rest[0] in _VERBS:
            rest[1:1] = ["--database", f"django:{using}"]
        return super().words_of(rest)


def _without_using(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """Return the value of `--using`, and the other words."""
    using: str | None = None
    kept: list[str] = []
    rest = iter(words)
    for word in rest:
        flag, equals, value = word.partition("=")
        if flag != "--using":
            kept.append(word)
        else:
            using = value if equals else next(rest, "")
    return using, kept
