"""Access tokens of a Google service account, by google-auth."""

from __future__ import annotations

import json
import os
import tempfile
import time
from datetime import datetime, timezone
from functools import partial
from typing import Any

from .base import ProviderNotConfigured, ProviderUnavailable
from .transport import session_for

try:
    from google.auth.exceptions import GoogleAuthError, TransportError  # type: ignore[import-not-found,import-untyped,unused-ignore]
    from google.auth.transport.requests import Request  # type: ignore[import-not-found,import-untyped,unused-ignore]
    from google.oauth2 import service_account  # type: ignore[import-not-found,import-untyped,unused-ignore]
except ImportError:
    service_account = None  # type: ignore[assignment,unused-ignore]

SCOPE = "https://www.googleapis.com/auth/firebase.messaging"
#: A cached token this close to its end, in seconds, is renewed.
_MARGIN = 120.0


class ServiceAccount:
    """Bearer tokens for one service account's JSON file. Without a cache file each job fetches its own: one more HTTPS call."""

    def __init__(self, path: str, *, cache: str = "") -> None:
        if service_account is None:
            raise ProviderNotConfigured("FUSION_FCM_CREDENTIALS needs google-auth: pip install google-auth")
        self._cache = cache
        try:
            with open(path, encoding="utf-8") as file:
                self._info: dict[str, Any] = json.load(file)
            make: Any = service_account.Credentials.from_service_account_info
            self._credentials = make(self._info, scopes=[SCOPE])
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not a service account's JSON file"
            raise ProviderNotConfigured(f"FUSION_FCM_CREDENTIALS={path}: {reason}") from None

    def project(self) -> str:
        """The project that the account's file names."""
        if not self._credentials.project_id:
            raise ProviderNotConfigured("set FUSION_FCM_PROJECT: the service account's file has no project_id")
        return str(self._credentials.project_id)

    def token(self, timeout: float) -> str:
        """A valid token, from the cache file if there is one. ProviderUnavailable if Google can't be asked."""
        cached = self._read()
        if cached:
            return cached
        with session_for(self._info["token_uri"]) as session:
            try:
                self._credentials.refresh(partial(Request(session), timeout=timeout))
            except GoogleAuthError as error:
                if isinstance(error, TransportError) or error.retryable:
                    raise ProviderUnavailable(f"no access token from Google: {type(error.__cause__ or error).__name__}") from None
                raise ProviderNotConfigured(f"Google refused the service account: {str(error)[:120]}") from None
        self._write(str(self._credentials.token), self._credentials.expiry)
        return str(self._credentials.token)

    def _read(self) -> str:
        try:
            with open(self._cache, encoding="utf-8") as file:
                kept = json.load(file)
            fresh = kept["account"] == self._credentials.service_account_email and kept["expires"] - _MARGIN > time.time()
            return str(kept["token"]) if fresh else ""
        except (OSError, ValueError, KeyError, TypeError):
            return ""

    def _write(self, token: str, expiry: datetime | None) -> None:
        if not self._cache or expiry is None:
            return
        kept = {"account": self._credentials.service_account_email, "token": token}
        try:
            # mkstemp makes mode 0600, and the rename means that another job never reads half a token.
            handle, path = tempfile.mkstemp(dir=os.path.dirname(self._cache) or ".")
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump({**kept, "expires": expiry.replace(tzinfo=timezone.utc).timestamp()}, file)
            os.replace(path, self._cache)
        except OSError as error:
            raise ProviderNotConfigured(f"FUSION_FCM_TOKEN_CACHE={self._cache}: {error.strerror}") from None
