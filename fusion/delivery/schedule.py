"""The schedule of tries: decides after each result when to try again, or never. Pure functions: no clock, no Redis."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from fusion.delivery.answers import MAX_RETRY_AFTER, Answer
from fusion.delivery.errors import DeliveryFailed, DeliveryRefused
from fusion.kernel import defaults

#: Seconds before each try, the first one included: over three days (the example schedule of Standard Webhooks 1.0.0).
DELAYS = (0, 5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400)


@dataclass(frozen=True, slots=True)
class TryResult:
    """The consequence of a try: `delivered`; `again` after `delay` seconds; `gone`: the endpoint wants no more callbacks; `given_up`.

    `reason`: why it was not delivered, for display.
    """

    outcome: Literal["delivered", "again", "gone", "given_up"]
    delay: float = 0.0
    reason: str = ""


def verdict(
    result: Answer | DeliveryFailed | DeliveryRefused, tries: int, uniform: Callable[[float, float], float] = random.uniform
) -> TryResult:
    """Decide after the `tries`-th try (the first is 1).

    - 2xx: delivered. 410: gone. Refused by Fusion, or the last try: given up.
    - Anything else, including redirects and other 4xx: again, as the endpoint may be repaired within days.
    - A Retry-After counts if it is longer than the schedule's delay, up to 24 h. Up to a quarter of jitter is added to either.
    """
    if isinstance(result, DeliveryRefused):
        return TryResult("given_up", reason=str(result))
    if isinstance(result, Answer):
        if 200 <= result.status < 300:
            return TryResult("delivered")
        reason = f"status {result.status}{' (redirects are not followed)' if 300 <= result.status < 400 else ''}"
        if result.status == 410:
            return TryResult("gone", reason=reason)
    else:
        reason = result.text()
    if tries >= len(DELAYS):
        return TryResult("given_up", reason=f"{reason}; {tries} tries")
    asked = min(result.retry_after or 0.0, MAX_RETRY_AFTER)
    delay = max(float(DELAYS[max(0, tries)]), asked)
    return TryResult("again", delay * uniform(1.0, 1.0 + defaults.RETRY_JITTER), reason)
