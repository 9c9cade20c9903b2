"""A job's `meta`, and other mappings that a job stores as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fusion.exceptions import PayloadTooLarge, SerializationError
from fusion.kernel.compression import compressed
from fusion.kernel.sentences import FIELD_SIZE
from fusion.kernel.serializers import JSONSerializer
from fusion.settings import get_settings


def to_json(name: str, value: Mapping[str, Any]) -> str:
    """Return the mapping as JSON text. SerializationError, or PayloadTooLarge (nested too deeply, or over `max_result`), begins with `name`."""
    try:
        raw = JSONSerializer().dumps(dict(value))
    except (SerializationError, PayloadTooLarge) as error:
        raise type(error)(f"{name}: {error}") from None
    limit = get_settings().max_result
    if len(raw) > limit:
        raise PayloadTooLarge(f"{name} {FIELD_SIZE.format(n=len(raw), n_limit=limit)} (max_result, FUSION_MAX_RESULT)")
    return raw.decode()


def to_stored(meta: Mapping[str, Any], fields: Mapping[str, Any]) -> bytes:
    """Return the meta as the record of a job with these fields stores it. Raises the errors of `to_json`."""
    raw = to_json("meta", meta).encode()
    # Every reader of this layout can read compressed texts. Stock RQ, which reads pickled jobs, can not.
    return compressed(raw) if "func" in fields and fields.get("serializer") is None else raw
