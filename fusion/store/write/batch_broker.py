"""The part of the Broker that manages batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fusion.store.layout import codec
from fusion.store.scripting.host import ScriptHost, to_ms, to_texts


class BatchBroker(ScriptHost):
    """Writes batches of jobs. A job joins by the field `batch` of its own record, when it is accepted."""

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
        """Create a batch. Returns `ok` and when; `duplicate`; `deep`; or why the `parent` takes no more (`missing`, `closed`, `canceled`).

        It closes when no job has joined for `open_for` seconds, and is deleted `keep` seconds after it was over. `by`: the job that creates
        it, a member of the parent.
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
        """Close a batch to all jobs but those that its own jobs add: `ok` or `missing`."""
        return codec.text(self._script("close_batch")({}, {"batch": batch}))

    def cancel_batch(self, batch: str, limit: int = 30) -> tuple[str, int, int, bool, list[str]]:
        """Close a batch to all jobs, and cancel some of those in it. Returns `ok` or `missing`, how many were canceled, how many run and will
        not run again, whether there are more, and the batches in it. Those are canceled too, but their jobs are not yet."""
        answer, canceled, running, again, *nested = self._script("cancel_batch")({}, {"batch": batch, "limit": limit})
        return codec.text(answer), int(canceled), int(running), bool(again), to_texts(nested)

    def tend_batches(self, limit: int = 30) -> tuple[int, float | None]:
        """Process what is due for batches, at most `limit` batches or jobs. Returns how many batches were processed, and the seconds until
        the next is due (None if none is)."""
        keys = {"batches": self.keys.batches, "due": self.keys.batches_due}
        looked, next_ms = self._script("tend_batches")(keys, {"limit": limit, "duties": self.duties})
        return int(looked), None if next_ms < 0 else next_ms / 1000
