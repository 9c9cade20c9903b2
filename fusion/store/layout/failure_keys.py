"""Names of the keys of failure groups; a part of `Keys`."""

from __future__ import annotations

from dataclasses import dataclass

from fusion.kernel import defaults


@dataclass(frozen=True)
class FailureKeys:
    """The part of `Keys` that failed jobs by what went wrong need."""

    prefix: str = defaults.KEY_PREFIX

    @property
    def failures(self) -> str:
        """The groups by when something failed in them last."""
        return f"{self.prefix}failures"

    @property
    def failures_empty(self) -> str:
        """The groups that hold no job now."""
        return f"{self.prefix}failures:empty"

    def failure(self, group: str) -> str:
        """The hash of a group."""
        return f"{self.prefix}failure:{group}"

    def failure_jobs(self, group: str) -> str:
        """The failed ids of a group, by when they failed."""
        return f"{self.prefix}failure:{group}:jobs"

    def failure_queues(self, group: str) -> str:
        """The queues that the failed jobs of a group come from, by how many do."""
        return f"{self.prefix}failure:{group}:queues"

    def failure_minutes(self, group: str, hour: int) -> str:
        """The number of failures in each minute of an hour since 1970."""
        return f"{self.prefix}failure:{group}:{hour}"
