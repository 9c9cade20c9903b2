"""The worker's check of what it claimed: no job without a good signature gets as far as a process that could import or unpickle it."""

from __future__ import annotations

import logging

from fusion.exceptions import BadSignature, ConfigurationError
from fusion.execution.completion import Decision
from fusion.kernel.signing import MISSING, Keyring
from fusion.settings import Settings
from fusion.settings.key_files import read_keys
from fusion.store.layout.records import Claimed

_NAME = f"{BadSignature.__module__}.{BadSignature.__qualname__}"


class EnvelopeCheck:
    """Holds the keys; `keyring` is None without any, and then nothing is checked."""

    def __init__(self, settings: Settings, log: logging.Logger) -> None:
        """ConfigurationError if the keys can't be read."""
        self._settings, self._log = settings, log
        self.keyring = settings.keyring
        self._required = settings.require_signatures

    def announce(self) -> None:
        if self.keyring is None:
            return
        self._log.info("jobs are checked against the keys %s", ", ".join(self.keyring.ids))
        if not self._required:
            self._log.warning("jobs without a signature run too (require_signatures is off): turn it on once all producers sign")

    def reload(self) -> None:
        """Read the file of keys again; those of before stay if it can't be used."""
        if self._settings.secret_keys_file is None:
            return
        try:
            self.keyring = Keyring(read_keys(self._settings))
        except ConfigurationError as error:
            self._log.error("%s; the keys stay as they were", error)
            return
        self.announce()

    def refuse(self, claimed: Claimed) -> Decision | None:
        """What becomes of the job if it must not run: it fails, and no policy of its own retries it. None if it may."""
        if self.keyring is None:
            return None
        flaw = self.keyring.flaw(claimed.id, claimed.queue, claimed.fields)
        if not flaw or (flaw is MISSING and not self._required and claimed.fields.get(b"serializer") in (None, b"", b"json")):
            return None
        line = f"{_NAME}: {flaw}"
        return Decision("failed", line, fields={"exc_info": line, "reason": line, "error_class": _NAME})
