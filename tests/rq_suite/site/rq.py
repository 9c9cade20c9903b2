"""Stands in for RQ: a test that was not rewritten must not run against RQ itself."""

from __future__ import annotations

raise ImportError("a name of RQ was not rewritten to fusion.rq")
