"""The twins of the fixtures for unittest, and for Django's TestCase."""

from __future__ import annotations

from unittest import TestCase

from fusion.testing.kit import Kit
from fusion.testing.real_worker import RealWorker


class FusionTestCase(TestCase):
    """`self.fusion` is what the fixtures `fusion_fake`, `fusion_drain` and `fusion_eager` give: nothing runs but by `self.fusion()`, or inside of
    `with self.fusion.eager():`. With Django: `class OrderTest(FusionTestCase, django.test.TestCase)`."""

    fusion: Kit

    def setUp(self) -> None:
        """Begin with an empty Redis."""
        super().setUp()
        self.fusion = self.enterContext(Kit())


class FusionWorkerTestCase(TestCase):
    """`self.worker` is what the fixture `fusion_worker` gives: a real worker in a process of its own."""

    worker: RealWorker

    def setUp(self) -> None:
        """Begin with an empty Redis and a new worker."""
        super().setUp()
        self.worker = self.enterContext(RealWorker())
