"""What is shown of a job's arguments: an edited copy is told by the same text what was left as it was."""

from __future__ import annotations

from fusion.kernel.redaction import masked_call

#: Characters of arguments, meta and results that are shown.
SHOWN = 8192


def masked_arguments(raw: bytes) -> str:
    """The arguments of a call in JSON, masked, as JSON: `{"args":[...],"kwargs":{...}}`."""
    return masked_call(raw, "json", SHOWN)
