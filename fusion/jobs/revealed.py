"""A job's data without masks, for the action `reveal`. A `Secret` stays masked, and pickles are not opened."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from fusion.jobs.sheet import Sheet
from fusion.jobs.sheet_texts import PICKLED, is_pickled, too_large
from fusion.kernel.compression import plain
from fusion.kernel.redaction import MASK, UNREADABLE
from fusion.kernel.serializers import TAG
from fusion.store.layout.codec import text

#: More secrets than this are not searched for in the job's texts: then these are not shown.
_SECRETS = 100
_TOO_MANY = f"not shown: more than {_SECRETS} secrets in its data"
#: The fields of the record that hold JSON, and those that hold text, by their names in the answer.
_VALUES = {"arguments": "data", "meta": "meta", "cursor": "cursor", "returned": "result"}
_TEXTS = {
    **{name: name for name in ("description", "reason", "result_error", "callback_error")},
    "quarantined_for": "quarantined",
    "trace": "exc_info",
}


def revealed(sheet: Sheet) -> tuple[dict[str, str], list[str]]:
    """Return the texts of a job by name, and the errors of its earlier runs, the oldest first. Missing ones are left out.

    The text of each `Secret` in its values is masked in all of them: a task may have written it into a message."""
    secrets: set[str] = set()
    values = {name: found for name, field in _VALUES.items() if (found := _value(sheet, field, secrets))}
    texts = {name: found for name, field in _TEXTS.items() if (found := _text(sheet, field))}
    if texts.get("description") == sheet.function:
        del texts["description"]
    errors = [attempt.error for attempt in sheet.attempt_history]
    if len(secrets) > _SECRETS:
        return values | dict.fromkeys(texts, _TOO_MANY), [error and _TOO_MANY for error in errors]
    forms = {form for secret in secrets for form in (secret, json.dumps(secret, ensure_ascii=False)[1:-1])}
    shown = {name: _without(found, forms) for name, found in (values | texts).items()}
    return shown, [_without(error, forms) for error in errors]


def without_secrets(sheet: Sheet, name: str, raw: bytes) -> bytes:
    """Return a field of the record as it is stored, uncompressed. One with a `Secret` in it is encoded again, with a mask in its place."""
    if is_pickled(sheet, name, raw):
        return PICKLED.encode() if b"fusion.kernel.redaction" in raw else raw
    try:
        hidden = _hidden(json.loads(raw), secrets := set[str]())
        return json.dumps(hidden, ensure_ascii=False).encode("utf-8", "backslashreplace") if secrets else raw
    except (ValueError, RecursionError):
        return raw if b'"secret"' not in raw else UNREADABLE.encode()


def _text(sheet: Sheet, field: str) -> str:
    return too_large(sheet, field) or text(sheet.facts.row.get(field))


def _value(sheet: Sheet, field: str, secrets: set[str]) -> str:
    """Return a field as JSON, and add the secrets in it to `secrets`."""
    raw = sheet.facts.row.get(field)
    if not raw or is_pickled(sheet, field, raw):
        return too_large(sheet, field) or (PICKLED if raw else "")
    try:
        value = json.loads(plain(raw))
        if field == "data":
            _, instance, args, kwargs = value
            value = {"args": args, "kwargs": kwargs} | ({"instance": instance} if instance is not None else {})
        return json.dumps(_hidden(value, secrets), ensure_ascii=False)
    except Exception:  # other producers may store anything, and what can't be read may hold a secret
        return UNREADABLE


def _hidden(value: Any, secrets: set[str]) -> Any:
    """Return the value with a mask in place of each `Secret`, and add the texts of these to `secrets`."""
    if isinstance(value, list):
        return [_hidden(one, secrets) for one in value]
    if not isinstance(value, dict):
        return value
    tagged = value.get(TAG)
    if isinstance(tagged, list) and tagged[:1] == ["secret"]:
        secrets.update(str(one) for one in tagged[1:] if one)
        return MASK
    return {key: _hidden(one, secrets) for key, one in value.items()}


def _without(shown: str, secrets: Iterable[str]) -> str:
    for secret in sorted(secrets, key=len, reverse=True):
        shown = shown.replace(secret, MASK)
    return shown
