"""Which of Fusion's two serializers a program means by RQ's `serializer=`. No path is ever imported for it."""

from __future__ import annotations

import json
import pickle
from typing import Any

from fusion.rq.hints import PAGE, missing


class PickleSerializer:
    """RQ's default: here JSON where that carries a call exactly, and pickle only where the settings allow it."""

    @staticmethod
    def dumps(value: Any) -> bytes:
        """Return the value as a pickle."""
        return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)

    @staticmethod
    def loads(text: bytes) -> Any:
        """Load a pickle, which runs code. DeserializationError if it is not one."""
        from fusion.kernel.serializers import PickleSerializer

        return PickleSerializer().loads(text)


DefaultSerializer = PickleSerializer


class JSONSerializer:
    """JSON alone."""

    @staticmethod
    def dumps(*args: Any, **kwargs: Any) -> bytes:
        """Return the value as JSON."""
        return json.dumps(*args, **kwargs).encode()

    @staticmethod
    def loads(text: bytes, *args: Any, **kwargs: Any) -> Any:
        """Return the value again."""
        return json.loads(text.decode(), *args, **kwargs)


_ALIASES = {"json": "json", "pickle": "", "DefaultSerializer": "", "PickleSerializer": "", "JSONSerializer": "json"}


def resolve_serializer(serializer: Any = None) -> Any:
    """Return the class that `serializer=` means; Python's own modules stand for themselves."""
    if serializer is json or serializer is pickle:
        return serializer
    return JSONSerializer if name_of(serializer) == "json" else DefaultSerializer


def name_of(serializer: Any) -> str:
    """Return `json`, or an empty text for JSON with pickle where it is allowed. TypeError for a serializer of one's own."""
    if serializer is None or serializer is pickle:
        return ""
    if serializer is json:
        return "json"
    name = serializer if isinstance(serializer, str) else getattr(serializer, "__name__", type(serializer).__name__)
    known = _ALIASES.get(name.rpartition(".")[2])
    if known is None:
        raise TypeError(
            f"serializer={serializer!r}: Fusion stores jobs as JSON, and as pickles where FUSION_ALLOW_PICKLE=1; a serializer of one's own is "
            f"not supported: see {PAGE}"
        )
    return known


def __getattr__(name: str) -> Any:
    raise missing(__name__, name)
