"""Walks among jobs that know each other and share a call, too. A machine of its own: the walks of `tied` are as thick as they were without it."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from fusion.store.layout.records import Claimed
from tests.faults.model.tied import LEASE, NEW, NUMBERS, TiedMachine


class SharingMachine(TiedMachine):
    """Some jobs may share a call, and workers ask for those."""

    def __init__(self) -> None:
        super().__init__()
        #: Of those held the ones that have begun a call which others may share.
        self._leaders: dict[str, dict[str, Claimed]] = {"A": {}, "B": {}}
        self._unheard: dict[str, Any] = {}

    @rule(**NEW, shares=st.booleans())
    def enqueue(self, **drawn: Any) -> None:
        super().enqueue(**drawn)

    def _hold(self, name: str, jobs: list[Claimed]) -> None:
        super()._hold(name, jobs)
        self._leaders[name] |= (sharing := {job.id: job for job in jobs if b"gather" in job.fields})
        assert all(b"func" in job.fields for job in sharing.values()), sharing

    @rule(name=st.sampled_from("AB"), which=NUMBERS, most=st.integers(1, 5), answered=st.sampled_from([True, True, False]))
    def follow(self, name: str, which: int, most: int, answered: bool) -> None:
        """Ask for those that share the call of one of its jobs."""
        leaders = [job for job_id, job in self._leaders[name].items() if self._held[name].get(job_id) == job.execution_id]
        call = self._unheard.pop(name, None)
        if call is None:
            if not leaders:
                return
            self._tokens[name] += 1
            call = (name, f"{name}1", self._tokens[name], LEASE, leaders[which % len(leaders)], most)
        jobs, _ = self._call("follow", *call)
        assert len(jobs) <= most
        unleased = [job.id for job in jobs if self.conn.zscore(f"rq:wip:{job.queue}", job.id) is None]
        assert not unleased, f"claimed without a lease: {unleased}"
        if not answered:
            self._unheard[name] = call
            return
        self._hold(name, jobs)

    @rule(name=st.sampled_from("AB"))
    def prune(self, name: str) -> None:
        super().prune(name)
        self._unheard.pop(name, None)
