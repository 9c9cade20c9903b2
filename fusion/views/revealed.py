"""A job's data without masks: the answer of the action `reveal`, and of nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fusion.jobs.revealed import revealed
from fusion.views.base import View, details, public, view
from fusion.views.job_parts import CutView, RunView, cut_of

if TYPE_CHECKING:
    from typing import Self

    from fusion.jobs.sheet import Sheet

#: Most bytes of one text that are shown.
_LARGEST = 65_536
_WHO = ("admin",)


@view
class RevealedView(View):
    """The data of one job without masks. A `Secret` stays masked, a pickle is not opened, and of a text 64 KiB are shown."""

    id: str = public("Its id.")
    description: CutView | None = details("Its description.", scopes=_WHO)
    arguments: CutView | None = details("Its arguments, as JSON.", scopes=_WHO)
    meta: CutView | None = details("Its meta, as JSON.", scopes=_WHO)
    cursor: CutView | None = details("Where its next run continues, as JSON.", scopes=_WHO)
    returned: CutView | None = details("What it returned, as JSON.", scopes=_WHO)
    reason: CutView | None = details("The message of its last error.", scopes=_WHO)
    result_error: CutView | None = details("Why its result could not be kept.", scopes=_WHO)
    callback_error: CutView | None = details("What its callback raised.", scopes=_WHO)
    quarantined_for: CutView | None = details("Why it was set aside.", scopes=_WHO)
    trace: CutView | None = details("The traceback of its last failed run.", scopes=_WHO)
    runs: list[RunView] = details("Runs that did not finish, the newest first, with their errors.", scopes=_WHO)

    @classmethod
    def of(cls, sheet: Sheet) -> Self:
        """Make the view of a job."""
        texts, errors = revealed(sheet)
        names = [one.attribute for one in cls.FIELDS if one.attribute not in ("id", "runs")]
        runs = [RunView.of(attempt, error) for attempt, error in zip(sheet.attempt_history, errors, strict=True)]
        shown = {name: cut_of(_bytes(texts.get(name)), _LARGEST) for name in names}
        return cls(id=sheet.id, runs=runs[::-1], **shown)


def _bytes(shown: str | None) -> bytes | None:
    return None if shown is None else shown.encode("utf-8", "backslashreplace")
