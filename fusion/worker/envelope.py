"""Checks claimed jobs in the worker, before any process could import or unpickle a job with a bad signature."""

from __future__ import annotations

import logging
from fnmatch import fnmatchcase

from fusion.exceptions import BadSignature, ConfigurationError
from fusion.execution.completion import Decision
from fusion.executors import readings
from fusion.kernel.signing import MISSING, Keyring
from fusion.settings import Settings
from fusion.store.layout.records import Claimed
from fusion.worker.outcomes import no_time_limit

_NAME = f"{BadSignature.__module__}.{BadSignature.__qualname__}"


class EnvelopeCheck:
    """Opens claimed jobs: checks the signature, and fills in isolation and timeout from the worker's settings.

    `keyring`: None if there are no keys; then signatures are not checked.
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
        """Read the key file again. If it can't be used, keep the old keys."""
        if self._settings.secret_keys_file is None:
            return
        try:
            self.keyring = Keyring(self._settings.read_secret_keys())
        except ConfigurationError as error:
            self._log.error("%s; the keys stay as they were", error)
            return
        self.announce()

    def open(self, claimed: Claimed) -> float | Decision:
        """Return the seconds after which the job's processes are killed, inf for never. If the job must not run, return its outcome."""
        if self.keyring and (refused := self.refuse(claimed)):
            return refused
        settings, fields = self._settings, claimed.fields
        if settings.isolate_queues is not None and any(fnmatchcase(claimed.queue, name) for name in settings.isolate_queues):
            fields[b"isolate"] = b"1"
        if fields.get(b"suspect") == b"1":  # it may have killed its last process, and other jobs with it
            fields[b"isolate"] = b"1"
        if not fields.get(b"timeout"):  # RQ leaves it out for its default
            fields[b"timeout"] = str(settings.job_timeout).encode()
        try:
            return readings.time_limit(fields, settings.timeout_grace)
        except ValueError as error:
            return no_time_limit(error)

    def refuse(self, claimed: Claimed) -> Decision | None:
        """Return the failure of a job with a bad signature, or None if it may run. The job's own retry policy does not apply."""
        if self.keyring is None:
            return None
        flaw = self.keyring.flaw(claimed.id, claimed.queue, claimed.fields)
        if not flaw or (flaw is MISSING and not self._required and claimed.fields.get(b"serializer") in (None, b"", b"json")):
            return None
        line = f"{_NAME}: {flaw}"
        return Decision("failed", line, fields={"exc_info": line, "reason": line, "error_class": _NAME})
