"""The writer of the audit: who changed what."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

from fusion.store.scripting.host import ScriptHost


class AuditBroker(ScriptHost):
    """Appends to the audit and does nothing else with it."""

    def log_audit(self, nonce: str, fields: Mapping[str, str]) -> None:
        """Append an entry; the same `nonce` again is a resend and appends none."""
        self._script("log_audit")({}, {"nonce": nonce}, [*chain.from_iterable(fields.items())])
