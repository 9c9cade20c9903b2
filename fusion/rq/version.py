"""The version of RQ whose surface `fusion.rq` has."""

from __future__ import annotations

VERSION = __version__ = "3.0.0"
