"""The part of the Broker for the settings of single queues."""

from __future__ import annotations

from collections.abc import Mapping

from fusion.store.layout.gates import gate_words, read_gate
from fusion.store.layout.pauses import Pause, pause_words, read_pause
from fusion.store.scripting.host import ScriptHost


class GateBroker(ScriptHost):
    """Settings of one queue over the whole fleet, effective from the next claim or enqueue on."""

    def set_gate(self, queue: str, values: Mapping[str, str | int | None], *, of_setting: bool = False) -> dict[str, str]:
        """Set these values of a queue, by name. None removes a value, others stay. Returns all that are set now.

        `of_setting`: these are all values that a setting has for the queue. Only values that differ from the last such call are set. A value
        that is no longer given is removed, unless a person has set another since.
        """
        return read_gate(self._script("set_gate")({}, *gate_words(queue, values, of_setting)))

    def pause(self, queue: str, seconds: float | None = None, *, by: str = "", reason: str = "") -> None:
        """Stop all claims of this queue's jobs from the moment this returns, for `seconds` or until `unpause`. `by`, `reason`: for people,
        `by` in one line."""
        self._script("pause")({}, *pause_words(queue, seconds, by, reason))

    def unpause(self, queue: str) -> Pause | None:
        """Let workers claim from the queue again; returns the pause that ended, None if it was not paused."""
        was = self._script("unpause")({}, {"queue": queue})
        return read_pause(*was) if was else None
