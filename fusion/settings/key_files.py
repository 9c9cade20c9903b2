"""Secrets that are kept in files of their own, so that they can be replaced while processes run."""

from __future__ import annotations

from fusion.exceptions import ConfigurationError
from fusion.settings import readers

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs every process 0.6 MB
    from fusion.settings.settings import Settings


def read_keys(settings: Settings) -> tuple[str, ...]:
    """`secret_keys`, or what is in `secret_keys_file` by now; none without both. ConfigurationError if that can't be read or is not valid."""
    if not settings.secret_keys_file:
        return settings.secret_keys or ()
    try:
        return readers.secret_keys(settings.secret("secret_keys") or "")
    except readers.Invalid as rule:
        origin = settings.origin_of("secret_keys_file")
        raise ConfigurationError(f"{settings.secret_keys_file!r} (from {origin}) is not valid: {rule}") from None
