"""For tests of code that uses Fusion: fixtures of pytest (`fusion.testing.plugin`), and their twins for unittest. docs/testing.md shows them.

Names load on first use: pytest imports this package in every run, and a run that uses none of the fixtures imports no more of Fusion.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from fusion.testing.cases import FusionTestCase as FusionTestCase
    from fusion.testing.cases import FusionWorkerTestCase as FusionWorkerTestCase
    from fusion.testing.drain import Run as Run
    from fusion.testing.enqueued import Enqueued as Enqueued
    from fusion.testing.kit import Kit as Kit
    from fusion.testing.real_worker import RealWorker as RealWorker

_HOME = {
    "Enqueued": "enqueued",
    "FusionTestCase": "cases",
    "FusionWorkerTestCase": "cases",
    "Kit": "kit",
    "RealWorker": "real_worker",
    "Run": "drain",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"fusion.testing.{_HOME[name]}"), name)
    raise AttributeError(f"module 'fusion.testing' has no attribute {name!r}")
