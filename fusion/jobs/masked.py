"""The masked text of a job's arguments. An edited copy compares with the same text, to know which arguments were left unchanged."""

from __future__ import annotations

from fusion.kernel.redaction import masked_call

#: Characters of arguments, meta and results that are shown.
SHOWN = 8192


def masked_arguments(raw: bytes) -> str:
    """Return the arguments of a call that is stored as JSON, masked, as JSON: `{"args":[...],"kwargs":{...}}`."""
    return masked_call(raw, "json", SHOWN)
