from __future__ import annotations

from tests.store.conftest import spawn

__all__ = ["spawn"]
