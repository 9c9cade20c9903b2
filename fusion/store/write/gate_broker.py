"""The part of the Broker that deals with what is set for single queues."""

from __future__ import annotations

from collections.abc import Mapping

from fusion.store.layout.gates import gate_words, read_gate
from fusion.store.layout.pauses import Pause, pause_words, read_pause
from fusion.store.scripting.host import ScriptHost


class GateBroker(ScriptHost):
    """What holds for one queue over the whole fleet, from the next claim or enqueue on."""

    def set_gate(self, queue: str, values: Mapping[str, str | int | None], *, of_setting: bool = False) -> dict[str, str]:
        """Set these values of a queue, each by its name; None takes one back, others stay. Returns all that are set now.

        `of_setting`: they are all that a setting says of the queue. Only names for which it says something else than the last such call
        are set; one that it names no more is taken back, unless somebody has set another value since.
        """
        return read_gate(self._script("set_gate")({}, *gate_words(queue, values, of_setting)))

    def pause(self, queue: str, seconds: float | None = None, *, by: str = "", reason: str = "") -> None:
        """Have no worker claim a job of this queue from the moment this returns, for `seconds` or until `unpause`. `by`, `reason`: for
        people, `by` in one line."""
        self._script("pause")({}, *pause_words(queue, seconds, by, reason))

    def unpause(self, queue: str) -> Pause | None:
        """Let workers claim from the queue again; returns the pause that is over, None if it was not paused."""
        was = self._script("unpause")({}, {"queue": queue})
        return read_pause(*was) if was else None
