"""Reading the environment variables listed in `tasks.providers`."""

from __future__ import annotations

import os
from importlib import import_module

from .base import ProviderNotConfigured
from .transport import tls_context

SANDBOX_URL = "http://127.0.0.1:8925"
SANDBOX_SMTP = "127.0.0.1:8926"
#: The sandbox's credential: real shapes need one, so the sandbox asks for one.
SANDBOX_TOKEN = "sandbox"


def get(name: str, default: str = "") -> str:
    """FUSION_<name>, or the default if it is unset or empty, or what Kubernetes sets beside a service of such a name (`tcp://...`)."""
    value = os.environ.get(f"FUSION_{name}", "").strip()
    return default if name.endswith("_PORT") and value.startswith(("tcp://", "udp://", "sctp://")) else value or default


def need(name: str, why: str) -> str:
    """FUSION_<name>; ProviderNotConfigured if it is unset or empty."""
    value = get(name)
    if not value:
        raise ProviderNotConfigured(
            f"set FUSION_{name} ({why}), or unset the channel's FUSION_..._PROVIDER to use the local sandbox"
        )
    return value


def one_of(name: str, choices: tuple[str, ...], default: str) -> str:
    """FUSION_<name>, which must be one of the choices."""
    value = get(name, default).lower()
    if value not in choices:
        raise ProviderNotConfigured(f"FUSION_{name} is {value!r}; use one of: {', '.join(choices)}")
    return value


def sandbox_url(path: str) -> str:
    """The sandbox's address with this path."""
    return get("SANDBOX_URL", SANDBOX_URL).rstrip("/") + path


def warm(channel: str) -> None:
    """Load what the channel's provider needs and what costs milliseconds: in the fork server once, instead of in every job.

    Opens nothing. A wrong choice is reported when a job runs, where somebody sees it, not as a failed import.
    """
    chosen = get(f"{channel.upper()}_PROVIDER", "sandbox").lower()
    if chosen == "sandbox":
        return
    if chosen in ("sns", "ses"):
        import_module(".aws", __package__)
    else:
        tls_context()
        if chosen == "fcm" and get("FCM_CREDENTIALS"):
            import_module(".google_token", __package__)
