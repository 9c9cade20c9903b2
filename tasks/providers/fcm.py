"""Push notifications by Firebase Cloud Messaging, HTTP v1: `POST /v1/projects/<id>/messages:send`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import settings
from .base import Message, Provider, Receipt
from .reply import accepted, json_body
from .transport import call

#: Returns a bearer token within this many seconds.
TokenProvider = Callable[[float], str]


def pn_provider() -> Provider:
    """The one FUSION_PN_PROVIDER names."""
    if settings.one_of("PN_PROVIDER", ("sandbox", "fcm"), "sandbox") == "sandbox":
        return Fcm(settings.sandbox_url(""), "sandbox", lambda _timeout: settings.SANDBOX_TOKEN, name="sandbox")
    base = settings.get("FCM_URL", "https://fcm.googleapis.com").rstrip("/")
    ready = settings.get("FCM_TOKEN")
    if ready:
        return Fcm(base, settings.need("FCM_PROJECT", "the Firebase project's id"), lambda _timeout: ready)
    from .google_token import ServiceAccount

    path = settings.need("FCM_CREDENTIALS", "path of a service account's JSON file, or FUSION_FCM_TOKEN with a ready token")
    account = ServiceAccount(path, cache=settings.get("FCM_TOKEN_CACHE"))
    return Fcm(base, settings.get("FCM_PROJECT") or account.project(), account.token)


class Fcm:
    """Sends to a registration token, or to a topic for a recipient `/topics/<name>`."""

    def __init__(self, base: str, project: str, token: TokenProvider, *, name: str = "fcm") -> None:
        self.name = name
        self._url = f"{base}/v1/projects/{project}/messages:send"
        self._token = token

    def send(self, message: Message, timeout: float) -> Receipt:
        """Hand the message over; see `Provider.send`."""
        to = message.to[0]
        body: dict[str, Any] = {"topic": to.removeprefix("/topics/")} if to.startswith("/topics/") else {"token": to}
        notification = {"title": message.content.get("title"), "body": message.text}
        body["notification"] = {key: value for key, value in notification.items() if value}
        body |= {key: message.content[key] for key in ("data", "android", "apns", "webpush") if message.content.get(key)}
        body = {key: value for key, value in body.items() if value}
        token = self._token(timeout)
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}", **message.trace}
        reply = call("POST", self._url, headers=headers, body=json_body({"message": body}), timeout=timeout)
        data = accepted(reply, self.name, message, (token,)).json()
        return Receipt(self.name, str(data["name"]) if data.get("name") else None, message.masked, "accepted")
