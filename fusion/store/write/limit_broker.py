"""The part of the Broker that deals with concurrency keys."""

from __future__ import annotations

from collections.abc import Mapping

from fusion.kernel.rates import Rate
from fusion.store.layout import codec
from fusion.store.layout.limits import Limit, read_limit
from fusion.store.scripting.host import ScriptHost, to_ms


class LimitBroker(ScriptHost):
    """What holds for one concurrency key over the whole fleet, from the next claim on, whatever its jobs say. Every method returns the key as
    it was before."""

    def pin_limit(self, key: str, limit: int | None) -> Limit:
        """Let so many jobs of the key run at once; None: as many as the jobs say. What may start now starts; what runs goes on."""
        return self.set_limit(key, {"pinned": limit})

    def pin_rate(self, key: str, rate: Rate | None) -> Limit:
        """Let so many jobs of the key start in a time; None: as many as the jobs say."""
        return self.set_limit(key, {"pinned_rate": None if rate is None else rate.stored})

    def pause_limit(self, key: str, seconds: float | None = None, *, by: str = "", reason: str = "") -> Limit:
        """Have no job of the key start from the moment this returns, for `seconds` or until `resume_limit`. `by`, `reason`: for people."""
        ms = "-1" if seconds is None else str(max(1, to_ms(seconds)))
        return self.set_limit(key, {"paused_by": by or None, "paused_why": reason or None}, ms)

    def resume_limit(self, key: str) -> Limit:
        """Let jobs of the key start again, also if a task held it back."""
        return self.set_limit(key, dict.fromkeys(("paused", "paused_since", "paused_by", "paused_why", "held_back")))

    def release_slot(self, key: str, job_id: str, *, by: str = "a person") -> bool:
        """Count a job no longer among those of the key that run, though it may run on: another may start. False if it has no slot, or has not
        started."""
        return bool(self._script("release_slot")({}, {"key": key, "id": job_id, "by": by}))

    def set_limit(self, key: str, values: Mapping[str, str | int | None], pause_ms: str = "") -> Limit:
        """Set fields of the key, each by its name; None takes one back. `pause_ms`: for how long nothing starts, -1 for no end; empty: as it
        is."""
        pairs = [text for name, value in values.items() for text in (name, "" if value is None else value)]
        found = self._script("set_limit")({}, {"key": key, "pause_ms": pause_ms, "n_pairs": len(pairs)}, pairs)
        texts = [codec.text(one) for one in found]
        return read_limit(key, dict(zip(texts[::2], texts[1::2], strict=True)))
