"""The writer of the audit log."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

from fusion.store.scripting.host import ScriptHost


class AuditBroker(ScriptHost):
    """Appends entries to the audit; does nothing else with it."""

    def log_audit(self, nonce: str, fields: Mapping[str, str]) -> None:
        """Append an entry. A call with the same `nonce` is a resend and appends nothing."""
        self._script("log_audit")({}, {"nonce": nonce}, [*chain.from_iterable(fields.items())])
