"""Which tests `make test` leaves to `make test-long`, which of these the gate runs all the same, and which are left to `make soak`."""

from __future__ import annotations

import os
from typing import Any, TypeVar

import pytest
from _pytest.mark.structures import ParameterSet

T = TypeVar("T")
#: What is left to `make soak`.
SOAK_ONLY = pytest.mark.skipif(
    os.environ.get("FUSION_TEST_SOAK", "") in ("", "0"), reason="of the same kind as one that runs: FUSION_TEST_SOAK=1, make soak"
)


def long_case(*values: Any, id: str | None = None) -> ParameterSet:
    """For `parametrize`: a case that is left to `make test-long`, since the others show the same of other code paths. A `pytest.param`
    keeps its own marks and id."""
    if isinstance(values[0], ParameterSet):
        [case] = values
        return pytest.param(*case.values, id=id or case.id, marks=[*case.marks, pytest.mark.long])
    return pytest.param(*values, id=id, marks=pytest.mark.long)


def gate_case(*values: Any, id: str | None = None) -> ParameterSet:
    """For `parametrize`: a long case that .ci/run runs as well, as the one that stands for its kind."""
    case = long_case(*values, id=id)
    return pytest.param(*case.values, id=case.id, marks=[*case.marks, pytest.mark.gate])


def soak_case(*values: Any, id: str | None = None) -> ParameterSet:
    """For `parametrize`: a long case that is left to `make soak` (its files are WALKS of the Makefile), since another shows the same."""
    return pytest.param(*values, id=id, marks=[pytest.mark.long, SOAK_ONLY])


def soaked(usual: T, full: T) -> T:
    """`full` under FUSION_TEST_SOAK=1, as in `make soak`; else `usual`: the same walk, with fewer steps or seeds."""
    return full if os.environ.get("FUSION_TEST_SOAK", "") not in ("", "0") else usual
