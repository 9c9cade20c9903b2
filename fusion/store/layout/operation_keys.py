"""Names of the keys of operations on all that a query matches; a part of `Keys`."""

from __future__ import annotations

from dataclasses import dataclass

from fusion.store.layout.kin_keys import KinKeys


@dataclass(frozen=True)
class OperationKeys(KinKeys):
    """The part of `Keys` that operations need."""

    @property
    def operations(self) -> str:
        """The operations that are kept, by when they ended."""
        return f"{self.prefix}operations"

    def operation(self, operation_id: str) -> str:
        """The hash of an operation."""
        return f"{self.prefix}operation:{operation_id}"

    def operation_seen(self, operation_id: str) -> str:
        """The jobs that an operation handled and that can't be marked as handled."""
        return f"{self.operation(operation_id)}:seen"
