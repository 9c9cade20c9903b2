"""The errors of a try without an answer. No message contains a URL's path or query, or a header's value: they may be secrets."""

from __future__ import annotations

from fusion.exceptions import FusionError


class DeliveryRefused(FusionError):
    """The URL, an address of its host, a header or the body is not allowed. Nothing was sent, and trying again does not help."""

    code = "FUS-129"


class AddressRefused(DeliveryRefused):
    """The address belongs to this machine, a private network or another place where callbacks may not go."""

    code = "FUS-130"


class DeliveryFailed(FusionError):
    """No answer this time; another try may get one. `retry_after`: seconds, None if the other side sent none."""

    code = "FUS-131"

    def __init__(self, reason: str, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after = retry_after
