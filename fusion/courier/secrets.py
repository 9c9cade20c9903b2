"""The secrets that sign callbacks, by host."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

from fusion.delivery.errors import DeliveryRefused
from fusion.delivery.signing import check_secret
from fusion.exceptions import ConfigurationError
from fusion.settings import Settings, readers

log = logging.getLogger("fusion.courier")

#: All hosts that are not named.
_OTHERS = "*"
#: Hosts named in warnings.
_WARNED = 100


class Secrets:
    """The secrets of the settings `callback_secrets` or `callback_secrets_file`. ConfigurationError if they can't be used at the start.

    A changed file is read again, so that a secret can be replaced. A changed file that can't be used is ignored.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._file = settings.callback_secrets_file
        self._stamp = self._stamped()
        self._by_host = self._read()
        self._unsigned: set[str] = set()

    def of(self, host: str) -> tuple[str, ...]:
        """Return the secrets for a host; a host without one is logged once. DeliveryRefused if a signature is required."""
        found = self._by_host.get(host) or self._by_host.get(_OTHERS, ())
        if not found and self._settings.callback_require_signatures:
            raise DeliveryRefused(
                f"callback_secrets has no secret for {host}, and callback_require_signatures is on: add one for it or for `*`, then "
                "`callbacks retry --all`"
            )
        if not found and host not in self._unsigned and len(self._unsigned) < _WARNED:
            self._unsigned.add(host)
            log.warning(
                "callbacks to %s go out without a signature, so that anybody could have sent them: callback_secrets has no secret for it; "
                "callback_require_signatures holds such callbacks back",
                host,
            )
        return found

    def refresh(self) -> None:
        """Read the file again if it has changed. If it can't be used, keep the old secrets."""
        if self._file and (stamp := self._stamped()) != self._stamp:
            self._stamp = stamp
            try:
                self._by_host = self._read()
                self._unsigned.clear()
                log.info("the secrets of callbacks were read again")
            except ConfigurationError as error:
                log.error("the secrets of callbacks stay as they were: %s", error)

    def _read(self) -> Mapping[str, tuple[str, ...]]:
        found = self._settings.callback_secrets or {}
        if self._file:
            try:
                found = readers.callback_secrets(self._settings.secret("callback_secrets") or "")
            except readers.Invalid as rule:
                raise ConfigurationError(f"{self._file!r} (callback_secrets_file) is not valid: {rule}", code="FUS-221") from None
        for host, secrets in found.items():
            for secret in secrets:
                try:
                    check_secret(secret)
                except ConfigurationError as error:
                    raise ConfigurationError(f"callback_secrets, host {host}: {error}", code="FUS-221") from None
        return found

    def _stamped(self) -> tuple[int, ...]:
        try:
            found = os.stat(self._file or "")
        except OSError:
            return ()
        return found.st_mtime_ns, found.st_ino, found.st_size
