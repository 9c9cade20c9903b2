"""The courier: delivers what jobs' ends have to be told to URLs. `Courier` runs in a thread of its own, in the relay's process."""

from __future__ import annotations

from fusion.courier.courier import Courier as Courier

__all__ = ["Courier"]
