"""Access tokens of a Google service account, by google-auth over our own transport (so requests is not needed)."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Mapping
from typing import Any

from tasks.providers.base import ProviderNotConfigured
from tasks.providers.transport import call

try:
    from google.auth.exceptions import GoogleAuthError  # type: ignore[import-not-found,import-untyped,unused-ignore]
    from google.oauth2 import service_account  # type: ignore[import-not-found,import-untyped,unused-ignore]
except ImportError:
    service_account = None

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
            self._credentials = service_account.Credentials.from_service_account_info(self._info, scopes=[SCOPE])
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not a service account's JSON file"
            raise ProviderNotConfigured(f"FUSION_FCM_CREDENTIALS={path}: {reason}") from None

    def project(self) -> str:
        project = self._info.get("project_id")
        if not isinstance(project, str):
            raise ProviderNotConfigured("set FUSION_FCM_PROJECT: the service account's file has no project_id")
        return project

    def token(self, timeout: float) -> str:
        """A valid token, from the cache file if there is one. Network errors are the transport's."""
        cached = self._read()
        if cached:
            return cached

        def request(url: str, method: str = "GET", body: Any = None, headers: Any = None, **_: Any) -> _Response:
            raw = body.encode() if isinstance(body, str) else body or b""
            reply = call(method, url, headers=headers or {}, body=raw, timeout=timeout)
            return _Response(reply.status, reply.headers, reply.body)

        try:
            self._credentials.refresh(request)
        except GoogleAuthError as error:
            raise ProviderNotConfigured(f"Google refused the service account: {str(error)[:120]}") from None
        self._write(str(self._credentials.token), self._credentials.expiry)
        return str(self._credentials.token)

    def _read(self) -> str:
        try:
            with open(self._cache, encoding="utf-8") as file:
                kept = json.load(file)
            fresh = kept["account"] == self._info.get("client_email") and kept["expires"] - _MARGIN > time.time()
            return str(kept["token"]) if fresh else ""
        except (OSError, ValueError, KeyError, TypeError):
            return ""

    def _write(self, token: str, expiry: Any) -> None:
        if not self._cache or expiry is None:
            return
        from datetime import timezone

        expires = expiry.replace(tzinfo=timezone.utc).timestamp()
        try:
            # mkstemp makes mode 0600, and the rename means that another job never reads half a token.
            handle, path = tempfile.mkstemp(dir=os.path.dirname(self._cache) or ".")
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump({"account": self._info.get("client_email"), "token": token, "expires": expires}, file)
            os.replace(path, self._cache)
        except OSError as error:
            raise ProviderNotConfigured(f"FUSION_FCM_TOKEN_CACHE={self._cache}: {error.strerror}") from None


class _Response:
    """What google-auth expects a transport to return."""

    def __init__(self, status: int, headers: Mapping[str, str], data: bytes) -> None:
        self.status = status
        self.headers = headers
        self.data = data
