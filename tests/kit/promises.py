"""Which promises a test shows. A broken one is no flaky test: the run that finds it fails at once (tests/kit/flaky.py)."""

from __future__ import annotations

from contextlib import ContextDecorator
from types import TracebackType

import pytest


def claim(*ids: str) -> pytest.MarkDecorator:
    """The test shows these promises: docs/guarantees.md names it there, and it notices a mutant of `faults/teeth/`.

    `architecture/test_claims.py` compares them.
    """
    return pytest.mark.claim(*ids)


class PromiseBroken(AssertionError):
    """A promise of docs/guarantees.md does not hold: a job is lost, in two places, out of order, over a limit or run twice."""


class promise(ContextDecorator):  # lower case: read as a word, `with promise("P5"):`
    """An assertion that fails in this block, or in a function that this decorates, raises PromiseBroken and names the promises.

    Only what holds at any speed of the machine belongs inside: no wait and no time limit.
    """

    def __init__(self, *ids: str) -> None:
        self.ids = ids

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if isinstance(error, AssertionError) and not isinstance(error, PromiseBroken):
            raise PromiseBroken(f"{', '.join(self.ids)}: {error}") from error
