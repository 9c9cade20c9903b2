"""FusionBackend as Django's own tests of backends want it: they look at what was enqueued, and at its outcome, right after the call."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from fusion import Job
from fusion.contrib.django.tasks import FusionBackend
from tests.kit.waiting import eventually


class Kept(FusionBackend):
    """With DummyBackend's `results` and `clear`."""

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self.results: list[Any] = []

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        result = super().enqueue(task, args, kwargs)
        self.results.append(result)
        return deepcopy(result)

    def clear(self) -> None:
        for result in self.results:
            Job(result.id, {}).delete(purge=True)
        self.results.clear()


class Prompt(FusionBackend):
    """Returns when a worker has run the task, as ImmediateBackend does."""

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        result = super().enqueue(task, args, kwargs)

        def look() -> bool:
            result.refresh()
            return bool(result.is_finished)

        if result.enqueued_at is not None:
            eventually(look)
        return result
