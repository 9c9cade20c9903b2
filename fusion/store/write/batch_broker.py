"""The part of the Broker that deals with batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fusion.store.layout import codec
from fusion.store.scripting.host import ScriptHost, to_ms, to_texts


class BatchBroker(ScriptHost):
    """Batches of jobs. Jobs join by the field `batch` of their own record, where they are accepted."""

    def open_batch(
        self,
        batch: str,
        nonce: str,
        open_for: float,
        keep: float,
        fields: Mapping[str, Any],
        *,
        parent: str = "",
        by: str = "",
    ) -> tuple[str, str]:
        """Bring a batch into being: `ok` and when; `duplicate`; `deep`; or why the `parent` takes no more (`missing`, `closed`, `canceled`).

        It closes when `open_for` seconds have passed since its last job joined, and is forgotten `keep` seconds after it was over.
        `by`: the job that does this, a member of the parent.
        """
        pairs = codec.to_pairs(fields)
        keys = {"batches": self.keys.batches, "due": self.keys.batches_due}
        args = {
            "batch": batch,
            "nonce": nonce,
            "parent": parent,
            "by": by,
            "open_ms": to_ms(open_for),
            "keep_ms": to_ms(keep),
            "n_pairs": len(pairs),
        }
        answer, *at = self._script("open_batch")(keys, args, pairs)
        return codec.text(answer), codec.text(at[0]) if at else ""

    def close_batch(self, batch: str) -> str:
        """Have a batch take no more jobs but those that its own jobs bring: `ok` or `missing`."""
        return codec.text(self._script("close_batch")({}, {"batch": batch}))

    def cancel_batch(self, batch: str, limit: int = 30) -> tuple[str, int, int, bool, list[str]]:
        """Have a batch take no more jobs, and cancel some of those in it: `ok` or `missing`, how many were canceled, how many run and are to
        run no more, whether there are more, and the batches in it, which this cancels too but not yet their jobs."""
        answer, canceled, running, again, *nested = self._script("cancel_batch")({}, {"batch": batch, "limit": limit})
        return codec.text(answer), int(canceled), int(running), bool(again), to_texts(nested)

    def tend_batches(self, limit: int = 30) -> tuple[int, float | None]:
        """Do what is due of batches, to at most so many batches or jobs; returns to how many batches, and the seconds to the next (None if
        nothing is)."""
        keys = {"batches": self.keys.batches, "due": self.keys.batches_due}
        looked, next_ms = self._script("tend_batches")(keys, {"limit": limit})
        return int(looked), None if next_ms < 0 else next_ms / 1000
