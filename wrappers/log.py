"""`Log` for the service's own code: its lines go into the same stream of events as the steps of its jobs.

from wrappers.log import Log
Log.log("provider answered", provider="twilio", status="accepted")
"""

from __future__ import annotations

from fusion.log import Log

__all__ = ["Log"]
