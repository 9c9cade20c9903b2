"""Names of the keys of jobs that wait for others; a part of `Keys`."""

from __future__ import annotations

from dataclasses import dataclass

from fusion.kernel import defaults


@dataclass(frozen=True)
class KinKeys:
    """The part of `Keys` that parents and children need."""

    prefix: str = defaults.KEY_PREFIX

    def job(self, job_id: str) -> str:
        """The hash of a job."""
        return f"{self.prefix}job:{job_id}"

    def children(self, job_id: str) -> str:
        """The ids that wait for a job, or have waited for it and have not ended."""
        return f"{self.job(job_id)}:children"

    def parents(self, job_id: str) -> str:
        """The parents for which a job's record has no room."""
        return f"{self.job(job_id)}:parents"

    def graph(self, token: str) -> str:
        """The jobs of an enqueue that comes in several calls, until all of them have come and been released."""
        return f"{self.prefix}graph:{token}"

    @property
    def graphs(self) -> str:
        return f"{self.prefix}graphs"

    def unmet(self, job_id: str) -> str:
        """The parents that a job waits for."""
        return f"{self.job(job_id)}:dependencies"

    @property
    def pinned(self) -> str:
        """Ended jobs that are not forgotten while others want to read of them."""
        return f"{self.prefix}pinned"

    @property
    def releasing(self) -> str:
        return f"{self.prefix}releasing"
