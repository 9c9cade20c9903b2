"""The part of the Broker that records the progress of running jobs."""

from __future__ import annotations

from collections.abc import Sequence

from fusion.store.layout.records import Report
from fusion.store.scripting.host import ScriptHost, to_texts

#: Reports that one call records.
_REPORTS = 200


class ReportBroker(ScriptHost):
    """Progress and cursors, recorded only while the reporting execution holds its job."""

    def report(self, worker: str, reports: Sequence[Report]) -> list[str]:
        """Record the reports of this worker's running jobs. Returns an answer per report: `ok`, `stale` if the execution does not hold the
        job, or `error: ...` (a broken key)."""
        answers = list[str]()
        for first in range(0, max(1, len(reports)), _REPORTS):
            rest: list[object] = []
            part = reports[first : first + _REPORTS]
            for report in part:
                rest += (report.job_id, report.execution_id, report.progress, report.cursor, report.said)
            answers += to_texts(self._script("report")({}, {"worker": worker, "n_jobs": len(part)}, rest))
        return answers
