"""The courier: sends callbacks about ended jobs to URLs. `Courier` runs in its own thread in the relay's process."""

from __future__ import annotations

from fusion.courier.courier import Courier as Courier

__all__ = ["Courier"]
