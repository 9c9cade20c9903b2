"""The providers' shapes: what each takes, and what it answers to what it does not take.

Each function gets a request and returns status, answer and, if it took the message, recipient and text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from ..providers.settings import SANDBOX_TOKEN

_NUMBER = re.compile(r"\+?[1-9][0-9]{6,14}")
_FCM = re.compile(r"/v1/projects/([a-z0-9-]+)/messages:send")
_WHATSAPP = re.compile(r"/v\d+\.\d+/(\d+)/messages")
_TOKEN = re.compile(r"[A-Za-z0-9_:.=-]{16,4096}")
_MAX_SMS = 1600
_MAX_WHATSAPP = 4096


@dataclass(frozen=True, slots=True)
class Request:
    """A request to a provider."""

    method: str
    path: str
    #: Names in lower case.
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a provider: status, JSON body, and the delivery to record, if the message was taken."""

    status: int
    body: Mapping[str, Any]
    #: Set when the message was taken: what to record.
    to: str = ""
    text: str = ""


class _Refused(Exception):
    """The request is not as the provider wants it; args: status, code, words."""


def channel_of(path: str) -> str:
    """The channel whose provider listens at this path; empty if none does."""
    if path == "/sms/messages":
        return "sms"
    if path.startswith("/webhook/"):
        return "webhook"
    if _FCM.fullmatch(path):
        return "pn"
    return "whatsapp" if _WHATSAPP.fullmatch(path) else ""


def answer(channel: str, request: Request, number: int) -> Answer:
    """The provider's answer; `number` makes message ids."""
    try:
        if channel == "webhook":
            return _webhook(request)
        if request.method != "POST":
            raise _Refused(405, "method_not_allowed", f"Use POST, not {request.method}")
        if request.headers.get("authorization") != f"Bearer {SANDBOX_TOKEN}":
            raise _Refused(401, "unauthorized", "Missing or invalid access token")
        return {"sms": _sms, "pn": _fcm, "whatsapp": _whatsapp}[channel](request, number)
    except _Refused as refused:
        status, code, words = refused.args
        return Answer(status, error_body(channel, status, code, words))


def error_body(channel: str, status: int, code: str | int, words: str) -> Mapping[str, Any]:
    """An error as this provider writes it."""
    if channel == "pn":
        name = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 404: "NOT_FOUND", 429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE"}
        kind = "type.googleapis.com/google.firebase.fcm.v1.FcmError"
        details = [{"@type": kind, "errorCode": code}]
        return {"error": {"code": status, "message": words, "status": name.get(status, "INTERNAL"), "details": details}}
    if channel == "whatsapp":
        number = code if isinstance(code, int) else {401: 190, 429: 130429}.get(status, 131000 if status >= 500 else 100)
        detail = {"messaging_product": "whatsapp", "details": words}
        return {"error": {"message": f"(#{number}) {words}", "type": "OAuthException", "code": number, "error_data": detail}}
    return {"error": {"code": code, "message": words}}


def _json(request: Request) -> dict[str, Any]:
    if not request.headers.get("content-type", "").startswith("application/json"):
        raise _Refused(400, "invalid_request", "Content-Type must be application/json")
    try:
        value = json.loads(request.body)
    except ValueError:
        raise _Refused(400, "invalid_request", "Invalid JSON payload received") from None
    if not isinstance(value, dict):
        raise _Refused(400, "invalid_request", "The body must be a JSON object")
    return value


def _only(value: Mapping[str, Any], allowed: set[str], where: str) -> None:
    unknown = sorted(value.keys() - allowed)
    if unknown:
        raise _Refused(400, "invalid_request", f'Invalid JSON payload received. Unknown name "{unknown[0]}" at "{where}"')


def _sms(request: Request, number: int) -> Answer:
    form = request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded")
    fields: dict[str, Any] = dict(parse_qsl(request.body.decode("utf-8", "replace"))) if form else _json(request)
    _only(fields, {"to", "text", "from", "reference"}, "message")
    to, text = fields.get("to"), fields.get("text")
    if not isinstance(to, str) or not to.startswith("+") or not _NUMBER.fullmatch(to):
        raise _Refused(400, "invalid_number", "'to' must be an E.164 number")
    if not isinstance(text, str) or not 0 < len(text) <= _MAX_SMS:
        raise _Refused(400, "invalid_text", f"'text' must have 1 to {_MAX_SMS} characters")
    if to.endswith("0000"):
        raise _Refused(400, "unknown_subscriber", f"{to} is not a subscriber of any network")
    return Answer(202, {"message_id": f"sms-{number:08d}", "status": "queued", "parts": 1 + (len(text) - 1) // 160}, to, text)


def _fcm(request: Request, number: int) -> Answer:
    envelope = _json(request)
    _only(envelope, {"message", "validate_only"}, "")
    message = envelope.get("message")
    if not isinstance(message, dict):
        raise _Refused(400, "INVALID_ARGUMENT", "Request contains an invalid argument: message")
    _only(
        message,
        {"token", "topic", "condition", "notification", "data", "android", "apns", "webpush", "fcm_options", "name"},
        "message",
    )
    targets = [message[key] for key in ("token", "topic", "condition") if message.get(key)]
    if len(targets) != 1 or not isinstance(targets[0], str):
        raise _Refused(400, "INVALID_ARGUMENT", "Exactly one of token, topic or condition is required")
    data, notification = message.get("data", {}), message.get("notification", {})
    if not isinstance(data, dict) or not all(isinstance(value, str) for value in data.values()):
        raise _Refused(400, "INVALID_ARGUMENT", 'Invalid value at "message.data": all values must be strings')
    if not isinstance(notification, dict):
        raise _Refused(400, "INVALID_ARGUMENT", 'Invalid value at "message.notification"')
    _only(notification, {"title", "body", "image"}, "message.notification")
    if "token" in message and not _TOKEN.fullmatch(targets[0]):
        raise _Refused(400, "INVALID_ARGUMENT", "The registration token is not a valid FCM registration token")
    if "token" in message and targets[0].endswith("0000"):
        raise _Refused(404, "UNREGISTERED", "Requested entity was not found.")
    project = request.path.split("/")[3]
    return Answer(200, {"name": f"projects/{project}/messages/0:{number:020d}"}, targets[0], str(notification.get("body", "")))


def _whatsapp(request: Request, number: int) -> Answer:
    message = _json(request)
    kind = message.get("type", "text")
    to = message.get("to")
    if message.get("messaging_product") != "whatsapp":
        raise _Refused(400, 100, "The parameter messaging_product is required.")
    if not isinstance(to, str) or not _NUMBER.fullmatch(to):
        raise _Refused(400, 131009, "Parameter value is not valid: to")
    if kind not in ("text", "template") or not isinstance(message.get(kind), dict):
        raise _Refused(400, 100, "Invalid parameter: type")
    if kind == "text":
        text = message["text"].get("body")
        if not isinstance(text, str) or not 0 < len(text) <= _MAX_WHATSAPP:
            raise _Refused(400, 100, f"Param text['body'] must be a string of 1 to {_MAX_WHATSAPP} characters")
    else:
        template = message["template"]
        text, language = template.get("name"), template.get("language")
        if not isinstance(text, str) or not re.fullmatch(r"[a-z0-9_]{1,512}", text):
            raise _Refused(400, 132001, "Template name does not exist in the translation")
        if not isinstance(language, dict) or not isinstance(language.get("code"), str):
            raise _Refused(400, 100, "The parameter template['language']['code'] is required.")
    if to.endswith("0000"):
        raise _Refused(400, 131026, "Message undeliverable")
    wa_id = to.lstrip("+")
    contacts = [{"input": to, "wa_id": wa_id}]
    sent = [{"id": f"wamid.{number:024d}", "message_status": "accepted"}]
    return Answer(200, {"messaging_product": "whatsapp", "contacts": contacts, "messages": sent}, "+" + wa_id, text)


def _webhook(request: Request) -> Answer:
    target = unquote(request.path.removeprefix("/webhook/"))
    parts = urlsplit(target)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise _Refused(400, "invalid_url", "The path must be /webhook/<percent-encoded url>")
    if request.headers.get("content-type", "").startswith("application/json"):
        try:
            json.loads(request.body)
        except ValueError:
            raise _Refused(400, "invalid_json", "The body is not JSON, though Content-Type names JSON") from None
    if parts.path.endswith("/gone"):
        raise _Refused(410, "gone", "This endpoint is no longer in service")
    return Answer(200, {"received": True}, target, request.body[:800].decode("utf-8", "replace"))
