"""Horses that outlive their jobs, as the executors keep them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic

from fusion.executors.session import AnyHorse, ServerSession
from fusion.runtime.loop import Loop


class HorsePool(dict[int, AnyHorse], Generic[AnyHorse]):
    """The horses of one fork server by serial number. The loop watches each of them until `forget`."""

    def __init__(
        self, session: ServerSession, loop: Loop, ask: Callable[[], AnyHorse], listen_to: Callable[[AnyHorse], None]
    ) -> None:
        """`ask`: requests a new horse from the fork server. `listen_to`: handles the frames of a horse."""
        super().__init__()
        self._session, self._loop, self._ask, self._listen_to = session, loop, ask, listen_to

    def fork(self) -> AnyHorse | None:
        """Add a horse. If this process has no descriptor left, pause and return None."""
        horse = self._session.fork(self._ask)
        if horse is not None:
            self[horse.serial] = horse
            self._loop.watch(horse.fileno(), lambda: self._on_readable(horse))
        return horse

    def _on_readable(self, horse: AnyHorse) -> None:
        self._listen_to(horse)
        if horse.at_eof and horse.serial in self:
            self._loop.unwatch(horse.fileno())

    def forget(self, horse: AnyHorse) -> None:
        """Forget a horse that is dead or gets no more jobs."""
        self._loop.unwatch(horse.fileno())
        self.pop(horse.serial, None)
