"""The worker checks what it claimed: no job without a good signature gets as far as a process that could import or unpickle it."""

from __future__ import annotations

import logging
from fnmatch import fnmatchcase

from fusion.exceptions import BadSignature, ConfigurationError
from fusion.execution.completion import Decision
from fusion.executors import readings
from fusion.kernel.signing import MISSING, Keyring
from fusion.settings import Settings
from fusion.settings.key_files import read_keys
from fusion.store.layout.records import Claimed
from fusion.worker.outcomes import no_time_limit

_NAME = f"{BadSignature.__module__}.{BadSignature.__qualname__}"


class EnvelopeCheck:
    """Opens claimed jobs: checks the signature, fills in what the worker's settings say of isolation and timeout.

    `keyring`: None without any keys, and then no signature is checked.
    """

    def __init__(self, settings: Settings, log: logging.Logger) -> None:
        """ConfigurationError if the keys can't be read."""
        self._settings, self._log = settings, log
        self.keyring = settings.keyring
        self._required = settings.require_signatures

    def announce(self) -> None:
        """Log which keys are in use."""
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

    def open(self, claimed: Claimed) -> float | Decision:
        """The seconds after which the job's processes are killed, inf for never; or what becomes of the job, which must not run."""
        if self.keyring and (refused := self.refuse(claimed)):
            return refused
        settings, fields = self._settings, claimed.fields
        if settings.isolate_queues is not None and any(fnmatchcase(claimed.queue, name) for name in settings.isolate_queues):
            fields[b"isolate"] = b"1"
        if fields.get(b"suspect") == b"1":  # it may have taken its last process down, and others with that
            fields[b"isolate"] = b"1"
        if not fields.get(b"timeout"):  # RQ leaves it out for its default
            fields[b"timeout"] = str(settings.job_timeout).encode()
        try:
            return readings.time_limit(fields, settings.timeout_grace)
        except ValueError as error:
            return no_time_limit(error)

    def refuse(self, claimed: Claimed) -> Decision | None:
        """The failure of a job with a bad signature, which no policy of its own retries; None if it may run."""
        if self.keyring is None:
            return None
        flaw = self.keyring.flaw(claimed.id, claimed.queue, claimed.fields)
        if not flaw or (flaw is MISSING and not self._required and claimed.fields.get(b"serializer") in (None, b"", b"json")):
            return None
        line = f"{_NAME}: {flaw}"
        return Decision("failed", line, fields={"exc_info": line, "reason": line, "error_class": _NAME})
