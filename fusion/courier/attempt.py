"""One try of a delivery, and the decision it leads to."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace

from fusion.courier.delivery import ClaimedDelivery
from fusion.courier.secrets import Secrets
from fusion.delivery.answers import Answer
from fusion.delivery.errors import DeliveryFailed, DeliveryRefused
from fusion.delivery.post import post
from fusion.delivery.schedule import verdict
from fusion.delivery.signing import sign
from fusion.delivery.targets import Policy, Target
from fusion.execution.completion import Decision
from fusion.kernel import defaults
from fusion.kernel.failpoints import failpoint
from fusion.kernel.sentences import ANSWERED

log = logging.getLogger("fusion.courier")

_Result = Answer | DeliveryFailed | DeliveryRefused


@dataclass(frozen=True, slots=True)
class DeliveryAttempt:
    """The result of one try. `elapsed`: seconds. `gone`: the endpoint wants no more callbacks, of any job."""

    delivery: ClaimedDelivery
    target: Target
    decision: Decision
    elapsed: float
    gone: bool = False


def attempt(delivery: ClaimedDelivery, target: Target, policy: Policy, secrets: Secrets) -> DeliveryAttempt:
    """Send a delivery; blocks for at most the policy's time. Never raises: an unexpected error counts as a failed try."""
    began = time.monotonic()
    failpoint("callback.before_post")
    result: _Result
    signed = False
    try:
        signature = _signature(delivery, target, secrets)
        signed = "webhook-signature" in signature
        request = delivery.request
        if request.timeout is not None:
            policy = replace(policy, total_timeout=min(policy.total_timeout, request.timeout))
        result = post(target, delivery.content, request.headers, policy, signature=signature, method=request.method)
    except (DeliveryFailed, DeliveryRefused) as error:
        result = error
    except Exception as error:
        log.exception("callback %s to %s: not foreseen", delivery.id, target)
        result = DeliveryFailed(f"not foreseen: {type(error).__name__}")
    failpoint("callback.after_post")
    return decided(delivery, target, result, time.monotonic() - began, signed=signed)


def _signature(delivery: ClaimedDelivery, target: Target, secrets: Secrets) -> dict[str, str]:
    """Return the headers that sign a delivery. Without a secret only the id and the time: the receiver can still detect duplicates."""
    found = secrets.of(target.host)
    if found:
        return sign(delivery.id, delivery.content, found)
    return {"webhook-id": delivery.id, "webhook-timestamp": str(int(time.time()))}


def decided(
    delivery: ClaimedDelivery, target: Target, result: _Result, elapsed: float, *, signed: bool = True
) -> DeliveryAttempt:
    """Decide the outcome of a delivery. The answer's text is kept only in the delivery's own record."""
    found = verdict(result, delivery.tries)
    if found.outcome == "delivered":
        assert isinstance(result, Answer)
        told: dict[str, bytes | str | int] = {"result": str(result.status)}
        return DeliveryAttempt(delivery, target, Decision("finished", fields=told if signed else told | {"unsigned": 1}), elapsed)
    reason, said = found.reason, found.reason
    if isinstance(result, Answer):
        reason = f"{ANSWERED.format(url=target)}: {found.reason}"
        said = f"{reason}\n{result.excerpt}" if result.excerpt else reason
    fields = failure(reason, result, target.host, said)
    if found.outcome == "again":
        fields["retryCount"] = defaults.RETRY_COUNT_START + delivery.tries
        return DeliveryAttempt(delivery, target, Decision("retry", reason, found.delay, fields), elapsed)
    gone = found.outcome == "gone"
    return DeliveryAttempt(delivery, target, Decision("failed", reason, fields=fields), elapsed, gone)


def failure(reason: str, error: object, host: str = "", said: str = "") -> dict[str, bytes | str | int]:
    """Return the hash fields of a failed delivery. The host takes the place of a job's code, so that failures are grouped by host."""
    kind = type(error) if isinstance(error, Exception) else DeliveryFailed
    fields: dict[str, bytes | str | int] = {"exc_info": said or reason, "reason": reason}
    fields["error_class"] = f"{kind.__module__}.{kind.__qualname__}"
    return {**fields, "error_frame": host} if host else fields
