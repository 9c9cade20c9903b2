"""Mistakes that somebody could have made, each with the tests that notice it. Without faults the system works with any of them.

The files of `mistakes/` hold them, one for each subject. A `[[mutant]]` has a letter, the name of the mistake, the node ids below tests/
that notice it, and its edits: in the file `path`, `old`, which stands there once, becomes `new`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.model.test_cron import MISTAKES as CRON_MISTAKES
from tests.faults.model.test_mistakes import MISTAKES

_FOLDER = Path(__file__).with_name("mistakes")
#: In the order of the page.
SUBJECTS = (
    "core", "plain", "promises", "queues", "queries", "totals", "hands", "limits", "kin", "batches", "hooks", "bulk", "failures", "long", "crowds",
    "arguments", "calls", "templates", "stops", "sheets", "trash", "outbox", "unique", "sites", "web", "inprocess", "shipped",
)  # fmt: skip


@dataclass(frozen=True)
class Edit:
    """In this file, `old`, which stands there once, becomes `new`."""

    path: str
    old: str
    new: str

    def applied(self, text: str) -> str:
        assert text.count(self.old) == 1, f"{self.path} has {text.count(self.old)} times, not once: {self.old!r}"
        return text.replace(self.old, self.new)


@dataclass(frozen=True)
class Mutant:
    """`caught_by`: node ids of pytest, each of which fails; of a function with parameters and none named, one of its cases."""

    letter: str
    name: str
    caught_by: tuple[str, ...]
    edits: tuple[Edit, ...]


def _mutant(letter: str, name: str, caught_by: list[str], edit: list[dict[str, str]]) -> Mutant:
    return Mutant(letter, name, tuple(f"tests/{node}" for node in caught_by), tuple(Edit(**one) for one in edit))


def _of(subject: str) -> list[dict[str, Any]]:
    return tomllib.loads((_FOLDER / f"{subject}.toml").read_text())["mutant"]


MUTANTS = tuple(_mutant(**one) for subject in SUBJECTS for one in _of(subject))

#: Not a mutant: that the rig sees another system's real loss.
BASELINE = (
    "stock RQ 2.12 on two queues, one answer to `LPOP` cut",
    "tests/faults/test_stock_rq.py::test_a_reply_that_is_lost_is_a_job_that_is_lost",
)


#: Passes with any of them.
STILL_WORKS = "tests/faults/test_works.py::test_a_worker_does_what_it_is_given"


def table() -> Iterator[str]:
    """The rows for docs/guarantees.md: mutant and catching tests, then those of the models, which are changes of Lua text as well."""
    for mutant in MUTANTS:
        yield _row(mutant.letter, mutant.name, *mutant.caught_by)
    yield _row("", *BASELINE)
    for path, mistakes in (("mistakes", MISTAKES), ("cron", CRON_MISTAKES)):
        for mistake in mistakes:
            yield _row("", mistake.name, f"tests/faults/model/test_{path}.py::test_a_walk_finds")


def _row(letter: str, name: str, *tests: str) -> str:
    said = ", ".join(f"`{without_case(test)}`" for test in dict.fromkeys(tests))
    return f"| {letter} | {name} | {said} |"


def without_case(node: str) -> str:
    return node.partition("[")[0]
