"""The fixtures of pytest. pytest loads this module in every run (entry point `pytest11`); it imports the kit only for a test that uses one.

Each fixture gives the same kit in another mode, on a private Redis that is empty for every test. Tests of several processes (pytest-xdist)
have a server each.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from fusion.testing.kit import Kit
    from fusion.testing.real_worker import RealWorker


@pytest.fixture
def fusion_fake() -> Iterator[Kit]:
    """Nothing runs: the test asserts what was enqueued (`assert_enqueued`)."""
    from fusion.testing.kit import Kit

    with Kit() as kit:
        yield kit


@pytest.fixture
def fusion_drain(fusion_fake: Kit) -> Kit:
    """`fusion_drain()` runs what is due, in this process; `fusion_drain("2h")` what comes due in that time; `travel("2h")` moves the clock."""
    return fusion_fake


@pytest.fixture
def fusion_eager(fusion_fake: Kit) -> Iterator[Kit]:
    """Run what is enqueued at once, in this process. The test fails at its end if a job has failed, unless it has read `failed`."""
    with fusion_fake.eager():
        yield fusion_fake


@pytest.fixture
def fusion_worker() -> Iterator[RealWorker]:
    """A real worker in a process of its own, on the machine's clock."""
    from fusion.testing.real_worker import RealWorker

    with RealWorker() as worker:
        yield worker


def pytest_sessionfinish() -> None:
    """End the server of this process, if a test started one."""
    if server := sys.modules.get("fusion.testing.server"):
        server.stop()
