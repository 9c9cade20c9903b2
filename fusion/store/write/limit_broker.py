"""The part of the Broker for concurrency keys."""

from __future__ import annotations

from collections.abc import Mapping

from fusion.kernel.rates import Rate
from fusion.store.layout import codec
from fusion.store.layout.limits import Limit, read_limit
from fusion.store.scripting.host import ScriptHost, to_ms


class LimitBroker(ScriptHost):
    """Settings of one concurrency key over the whole fleet, effective from the next claim on, whatever its jobs say. Every method returns the
    former state of the key."""

    def pin_limit(self, key: str, limit: int | None) -> Limit:
        """Set how many jobs of the key may run at once; None: as many as the jobs say. Jobs that may start now start; running ones go on."""
        return self.set_limit(key, {"pinned": limit})

    def pin_rate(self, key: str, rate: Rate | None) -> Limit:
        """Set how many jobs of the key may start in a time; None: as many as the jobs say."""
        return self.set_limit(key, {"pinned_rate": None if rate is None else rate.stored})

    def pause_limit(self, key: str, seconds: float | None = None, *, by: str = "", reason: str = "") -> Limit:
        """Start no job of the key, from the moment this returns, for `seconds` or until `resume_limit`. `by`, `reason`: for people."""
        ms = "-1" if seconds is None else str(max(1, to_ms(seconds)))
        return self.set_limit(key, {"paused_by": by or None, "paused_why": reason or None}, ms)

    def resume_limit(self, key: str) -> Limit:
        """Let jobs of the key start again, even if a task held it back."""
        return self.set_limit(key, dict.fromkeys(("paused", "paused_since", "paused_by", "paused_why", "held_back")))

    def release_slot(self, key: str, job_id: str, *, by: str = "a person") -> bool:
        """Take its slot from a job of the key, though it may run on: another may start. False if it has no slot, or has not started."""
        return bool(self._script("release_slot")({}, {"key": key, "id": job_id, "by": by}))

    def set_limit(self, key: str, values: Mapping[str, str | int | None], pause_ms: str = "") -> Limit:
        """Set fields of the key by name; None removes one. `pause_ms`: for how long nothing starts, -1 for no end; empty: unchanged."""
        pairs = [text for name, value in values.items() for text in (name, "" if value is None else value)]
        found = self._script("set_limit")({}, {"key": key, "pause_ms": pause_ms, "n_pairs": len(pairs)}, pairs)
        texts = [codec.text(one) for one in found]
        return read_limit(key, dict(zip(texts[::2], texts[1::2], strict=True)))
