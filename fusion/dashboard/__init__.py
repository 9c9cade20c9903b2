"""The dashboard: web pages on top of the HTTP API. `Dashboard` mounts it in another application."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fusion.dashboard.mount import Dashboard as Dashboard

__all__ = ["Dashboard"]


def __getattr__(name: str) -> object:
    if name == "Dashboard":
        from fusion.dashboard.mount import Dashboard

        return Dashboard
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
